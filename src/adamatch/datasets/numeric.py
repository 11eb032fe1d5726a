"""Arrays out of .idx, .npz, .h5, .mat and text: numbers come out, and nothing in the file is ever run."""

import bz2
import gzip
import io
import re
import struct
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError, reason
from adamatch.base.regular_files import LARGEST, open_file
from adamatch.datasets.archive import RATIO, SLACK, members

Array = NDArray[Any]
SMALL = 1 << 26  # bytes of a table or of HDF5: USPS, the only such set, has a tenth of them
BLOCK = 1 << 16  # bytes that are inflated at a time: they become 64 MiB at most
COMPRESSED = 15  # the type of a compressed element of a .mat file
NUMBERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"single", "double", "logical"}


def unpacked(path: Path, largest: int = LARGEST) -> bytes:
    """The file, inflated where it is .gz or .bz2; refused where that takes more memory than a set needs."""
    with open_file(path, None) as raw:
        try:
            stream: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, lambda file: file)
            data: bytes = stream(raw).read(largest + 1)
        except Exception as error:  # on damaged data the libraries raise almost anything
            raise InputError(f"{path} cannot be read ({reason(error)}): fetch it again") from None
    if len(data) > largest:
        raise InputError(f"{path} has more than {largest >> 20} MiB unpacked, a bomb: refused")
    return data


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
            data = io.BytesIO(member.read())
            try:
                found[name] = np.lib.format.read_array(data, allow_pickle=False)
            except Exception as error:  # the head is a piece of Python: whatever its parser says
                raise InputError(f"{member.where} is not an array of numbers ({reason(error)}): refused") from None
            if found[name].dtype.kind not in "biuf":
                raise InputError(f"{member.where} is not an array of numbers: refused")
    for name in set(names) - set(found):
        raise InputError(f"{path} has no array called {name}: save it with np.savez(path, {'=..., '.join(names)}=...)")
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


def _dataset(node: Any, name: str, where: str) -> Array:
    import h5py

    for part in name.split("/"):
        link = node.get(part, getlink=True) if isinstance(node, h5py.Group) else None
        if not isinstance(link, h5py.HardLink):
            raise InputError(f"{where} is not there{', but a link' if link else ''}: fetch it again")
        node = node[part]
    if not isinstance(node, h5py.Dataset) or node.dtype.kind not in "fiu":
        raise InputError(f"{where} is not an array of numbers: refused")
    if node.external or node.is_virtual:
        raise InputError(f"{where} is kept in another file: refused")
    if node.nbytes > SMALL:
        raise InputError(f"{where} says {node.shape}, more than fits: refused")
    return np.asarray(node[()])


def table(path: Path, per_line: int) -> NDArray[np.float64]:
    """Lines of numbers, (lines, per_line); of `index:value`, the value counts (libsvm's format)."""
    text = re.sub(rb"\d+:", b"", unpacked(path, SMALL))
    try:
        rows = np.loadtxt(io.BytesIO(text), comments=None, ndmin=2) if text.strip() else np.empty((0, 0))
    except Exception as error:
        raise InputError(f"{path} is not a table of numbers ({reason(error)}): fetch it again") from None
    if rows.shape[1] != per_line:
        raise InputError(f"{path} has lines of {rows.shape[1]} numbers, not {per_line}: fetch it again")
    return rows


def mat(file: IO[bytes], names: tuple[str, ...], where: str) -> list[Array]:
    """Arrays of a MATLAB 5 file. SciPy makes objects of cells and structs, so only arrays of numbers are asked for."""
    from scipy.io import loadmat, whosmat  # here, because importing it takes a while

    try:
        _check_inflated(file, where)
        file.seek(0)
        if others := {kind for name, _, kind in whosmat(file) if name in names} - NUMBERS:
            raise InputError(f"{where}: one of {', '.join(names)} is a {min(others)}, not numbers: refused")
        file.seek(0)
        found = loadmat(file, variable_names=names)
        return [found[name] for name in names]
    except InputError:
        raise
    except KeyError as error:
        raise InputError(f"{where} has no array called {error.args[0]}: fetch it again") from None
    except Exception as error:  # on damaged data the library raises almost anything
        raise InputError(f"{where} cannot be read ({reason(error)}): fetch it again") from None


def _check_inflated(file: IO[bytes], where: str) -> None:
    """Inflate it once and keep nothing: zlib compares its checksums, and a bomb is noticed before it fills memory."""
    order = ">" if file.read(128)[126:] == b"MI" else "<"
    inflated = 0
    while len(tag := file.read(8)) == 8:
        kind, size = struct.unpack(order + "II", tag)
        end = file.tell() + size
        stream = zlib.decompressobj()
        while kind == COMPRESSED and (packed := file.read(min(BLOCK, end - file.tell()))):
            inflated += len(stream.decompress(packed))
            if inflated > RATIO * file.tell() + SLACK:
                raise InputError(f"{where} inflates to more than {inflated >> 20} MiB, a bomb: refused")
        if kind == COMPRESSED and not stream.eof:
            raise InputError(f"{where} ends too early: fetch it again")
        file.seek(end)
