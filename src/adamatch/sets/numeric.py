"""Arrays out of .idx, .npz, .h5, text and CIFAR's pickles: numbers come out, and nothing in the file is ever run."""

import bz2
import gzip
import io
import pickle
import struct
import zlib
from math import prod
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from adamatch.errors import InputError
from adamatch.sets.archive import LARGEST, members

Array = NDArray[Any]


def unpacked(path: Path) -> bytes:
    """The file, inflated where it is .gz or .bz2; refused where that takes more memory than any of these files needs."""
    try:
        with _open(path) as file:
            data = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path} cannot be read ({error}): fetch it again") from None
    if len(data) > LARGEST:
        raise InputError(f"{path} has more than {LARGEST / 1e9:.1f} GB unpacked, a bomb: refused")
    return data


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path))
    return cast(IO[bytes], bz2.open(path)) if path.suffix == ".bz2" else path.open("rb")


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
            except (ValueError, EOFError, OSError) as error:
                raise InputError(f"{member.where} is not an array of numbers ({error}): refused") from None
    for name in names:
        if name not in found:
            raise InputError(f"{path} has no array called {name}: save it with np.savez(path, {'=..., '.join(names)}=...)")
    return [found[name] for name in names]


def h5(path: Path, *names: str) -> list[Array]:
    """Arrays of an HDF5 file; links to other files, arrays kept elsewhere, and anything but numbers are refused."""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            return [_dataset(file, name, f"{path}: {name!r}") for name in names]
    except (OSError, KeyError) as error:
        raise InputError(f"{path} cannot be read ({error}): fetch it again") from None


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
    if prod(node.shape) * node.dtype.itemsize > LARGEST:
        raise InputError(f"{where} says {node.shape}, more than fits: refused")
    return np.asarray(node[()])


def table(path: Path, per_line: int) -> NDArray[np.float64]:
    """Lines of numbers, (lines, per_line); of `index:value`, the value counts (libsvm's format)."""
    words = [word.rpartition(b":")[2] for word in unpacked(path).split()]
    if not words or len(words) % per_line:
        raise InputError(f"{path} has {len(words)} numbers, not {per_line} on every line: fetch it again")
    try:
        return np.array(words).astype(np.float64).reshape(-1, per_line)
    except ValueError as error:
        raise InputError(f"{path} is not a table of numbers ({error}): fetch it again") from None


def unpickle(data: bytes, where: str) -> dict[bytes, Any]:
    """A pickle of plain values and numeric arrays, as CIFAR's are; everything else in it is refused, not run."""
    try:
        value = _Plain(io.BytesIO(data), encoding="bytes").load()
    except InputError as error:
        raise InputError(f"{where} {error}") from None
    except Exception as error:  # a damaged pickle raises almost anything
        raise InputError(f"{where} is a damaged pickle ({error}): fetch it again") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} is not one of CIFAR's pickles: it holds no dictionary")
    return {key.encode() if isinstance(key, str) else key: item for key, item in value.items()}


class _Plain(pickle.Unpickler):
    """Admits what NumPy writes for an array of numbers, each part through a stand-in that can do nothing else."""

    def find_class(self, module: str, name: str, /) -> Any:
        allowed = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): _dtype,
            ("numpy.core.multiarray", "_reconstruct"): _empty,
            ("numpy._core.multiarray", "_reconstruct"): _empty,
            ("numpy.core.numeric", "_frombuffer"): _filled,
            ("numpy._core.numeric", "_frombuffer"): _filled,
            ("_codecs", "encode"): _latin,
        }
        if (module, name) not in allowed:
            raise InputError(f"would run {module}.{name} when unpickled: refused")
        return allowed[module, name]


def _dtype(name: bytes | str, *_: Any) -> np.dtype[Any]:
    dtype = np.dtype(name.decode() if isinstance(name, bytes) else name)
    if dtype.kind not in "uif":
        raise InputError(f"holds an array of {dtype}: refused")
    return dtype


def _empty(*_: Any) -> Array:
    return np.empty(0, np.uint8)  # its shape and bytes come in the next step


def _filled(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: Any) -> Array:
    return np.frombuffer(data, dtype).reshape(shape, order=order)


def _latin(text: str, _: str) -> bytes:
    return text.encode("latin1")
