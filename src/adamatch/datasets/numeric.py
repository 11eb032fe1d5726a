"""Arrays out of .idx, .npz, .h5 and text: numbers come out, and nothing in the file is ever run."""

import bz2
import gzip
import io
import struct
from math import prod
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError, reason
from adamatch.base.regular_files import LARGEST, open_file
from adamatch.datasets.archive import members

Array = NDArray[Any]
SMALL = 1 << 26  # bytes of what is converted after it was read: USPS, the only one, has a tenth of them
LINE = 1 << 16  # bytes


def unpacked(path: Path) -> bytes:
    """The file, inflated where it is .gz or .bz2; refused where that takes more memory than any of these files needs."""
    with open_file(path, None) as raw:
        try:
            data = _inflated(raw, path.suffix).read(LARGEST + 1)
        except Exception as error:  # on damaged data the libraries raise almost anything
            raise InputError(f"{path} cannot be read ({reason(error)}): fetch it again") from None
    if len(data) > LARGEST:
        raise InputError(f"{path} has more than {LARGEST >> 20} MiB unpacked, a bomb: refused")
    return data


def _inflated(raw: IO[bytes], suffix: str) -> IO[bytes]:
    if suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(fileobj=raw))
    return cast(IO[bytes], bz2.BZ2File(raw)) if suffix == ".bz2" else raw


def idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """MNIST's format: 0, 0, 8 (unsigned bytes), the number of dimensions, then each of them, then the bytes."""
    data = unpacked(path)
    head = 4 + 4 * dimensions
    if len(data) < head or data[:4] != bytes((0, 0, 8, dimensions)):
        raise InputError(f"{path} is not an idx file of unsigned bytes in {dimensions} dimensions: fetch it again")
    shape = struct.unpack(f">{dimensions}I", data[4:head])
    if len(data) != head + prod(shape):
        raise InputError(f"{path} says {shape} and has {len(data) - head} bytes: fetch it again")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def npz(path: Path, *names: str) -> list[Array]:
    """Arrays of a NumPy archive; one of objects would have to be unpickled and is refused."""
    found: dict[str, Array] = {}
    for member in members(path):
        name = member.name.removesuffix(".npy")
        if name in names:
            data = member.read()
            try:
                found[name] = np.load(io.BytesIO(data), allow_pickle=False)
            except Exception as error:  # the head is a piece of Python: whatever its parser says
                raise InputError(f"{member.where} is not an array of numbers ({reason(error)}): refused") from None
            if not isinstance(found[name], np.ndarray) or found[name].dtype.kind not in "biuf":
                raise InputError(f"{member.where} is not an array of numbers: refused")
    for name in names:
        if name not in found:
            raise InputError(
                f"{path} has no array called {name}: save it with np.savez(path, {'=..., '.join(names)}=...)"
            )
    return [found[name] for name in names]


def h5(path: Path, *names: str) -> list[Array]:
    """Arrays of an HDF5 file; links to other files, arrays kept elsewhere, and anything but numbers are refused."""
    import h5py

    open_file(path, None).close()  # no pipe, no device
    try:
        with h5py.File(path, "r") as file:
            return [_dataset(file, name, f"{path}: {name!r}") for name in names]
    except InputError:
        raise
    except Exception as error:  # on damaged data the library raises almost anything
        raise InputError(f"{path} cannot be read ({reason(error)}): fetch it again") from None


def _dataset(file: Any, name: str, where: str) -> Array:
    import h5py

    node = file
    for part in name.split("/"):
        if not isinstance(node, h5py.Group) or node.get(part, getlink=True) is None:
            raise InputError(f"{where} is not there: fetch it again")
        if not isinstance(node.get(part, getlink=True), h5py.HardLink):
            raise InputError(f"{where} is a link: refused")
        node = node[part]
    if not isinstance(node, h5py.Dataset) or node.dtype.kind not in "fiu":
        raise InputError(f"{where} is not an array of numbers: refused")
    if node.external or node.is_virtual:
        raise InputError(f"{where} is kept in another file: refused")
    if prod(node.shape) * node.dtype.itemsize > SMALL:
        raise InputError(f"{where} says {node.shape}, more than fits: refused")
    return np.asarray(node[()])


def table(path: Path, per_line: int) -> NDArray[np.float64]:
    """Lines of numbers, (lines, per_line); of `index:value`, the value counts (libsvm's format)."""
    rows = []
    text = io.BytesIO(unpacked(path))
    while line := text.readline(LINE):  # one by one: the words of all lines take twenty times their memory
        words = [word.rpartition(b":")[2] for word in line.split()]
        if not words:
            continue
        if len(words) != per_line:
            raise InputError(f"{path} has a line of {len(words)} numbers, not {per_line}: fetch it again")
        try:
            rows.append(np.array([float(word) for word in words]))
        except ValueError as error:
            raise InputError(f"{path} is not a table of numbers ({reason(error)}): fetch it again") from None
        if len(rows) * per_line * 8 > SMALL:
            raise InputError(f"{path} has more than {len(rows):,} lines: refused")
    if not rows:
        raise InputError(f"{path} holds no numbers: fetch it again")
    return np.stack(rows)
