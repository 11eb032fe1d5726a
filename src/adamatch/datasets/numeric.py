"""Arrays of numbers from .idx, .h5, .mat and text files. Nothing in a file is ever executed."""

import bz2
import gzip
import io
import re
import struct
import zlib
from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError, reason
from adamatch.base.regular_files import LARGEST, open_file
from adamatch.datasets.archive import RATIO, SLACK, readable

Array = NDArray[Any]
SMALL = 1 << 26  # bytes of a table or of HDF5: USPS, the only such set, has a tenth of them
BLOCK = 1 << 16  # bytes that are inflated at a time: they become 64 MiB at most
MATRIX, COMPRESSED, COMPLEX = 14, 15, 0x800  # in a .mat file: types of an element, and a flag of an array
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}


def unpacked(path: Path, largest: int = LARGEST) -> bytes:
    """The file, inflated where it is .gz or .bz2; refused where that takes more memory than a set needs."""
    with open_file(path, None) as raw, readable(str(path)):
        stream: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, lambda file: file)
        data: bytes = stream(raw).read(largest + 1)
    if len(data) > largest:
        raise InputError(f"{path} has more than {largest >> 20} MiB unpacked, a decompression bomb: refused")
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


def h5(path: Path, *names: str) -> list[Array]:
    """Arrays of numbers of an HDF5 file, none of them kept in another file."""
    import h5py

    open_file(path, None).close()  # no pipe, no device
    with readable(str(path)), h5py.File(path, "r") as file:
        nodes = {f"{path}: {name!r}": file[name] for name in names}
        for where, node in nodes.items():
            of_numbers = isinstance(node, h5py.Dataset) and node.dtype.kind in "fiu"
            if not of_numbers or node.external or node.is_virtual or node.nbytes > SMALL:
                raise InputError(f"{where} is not an array of numbers in this file, or too large: refused")
        return [np.asarray(node[()]) for node in nodes.values()]


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
    """Arrays of numbers of a MATLAB 5 file. SciPy's reader is not used: one flipped bit can crash the process in it."""
    found: dict[str, Array] = {}
    try:
        order = {b"IM": "<", b"MI": ">"}[file.read(128)[126:]]
        while tag := file.read(8):
            parts = _parts(_element(file, *struct.unpack(order + "II", tag)), order)
            (_, flags), (_, shape), (_, part) = islice(parts, 3)
            if (name := bytes(part).decode("latin1")) in names:
                number = NUMBERS.get(struct.unpack_from(order + "I", flags)[0] & (COMPLEX | 0xFF))
                kind, data = next(parts)
                if number is None or kind not in STORED:
                    raise ValueError(f"{name} is not an array of real numbers")
                array = np.frombuffer(data, order + STORED[kind]).astype(number, copy=False)
                found[name] = array.reshape(np.frombuffer(shape, order + "u4"), order="F")
    except Exception as error:  # on damaged data almost anything
        remedy = "fetch it again, or, of MATLAB 7.3, save it again with `save -v7`"
        raise InputError(f"{where} cannot be read as numbers of MATLAB 5 ({reason(error)}): {remedy}") from None
    for name in set(names) - set(found):
        raise InputError(f"{where} has no array called {name}: fetch it again")
    return [found[name] for name in names]


def _element(file: IO[bytes], kind: int, size: int) -> memoryview:
    """What is in an array's element, without its tag, inflated where it is compressed."""
    if kind == MATRIX:
        whole = file.read(size)
        if len(whole) < size:
            raise ValueError("it ends too early")
        return memoryview(whole)
    if kind != COMPRESSED:
        raise ValueError(f"an element of type {kind} instead of an array")
    data, stream = bytearray(), zlib.decompressobj()
    while packed := file.read(min(BLOCK, size)):
        size -= len(packed)
        data += stream.decompress(packed)
        if len(data) > RATIO * file.tell() + SLACK:
            raise ValueError(f"more than {len(data) >> 20} MiB unpacked, a bomb")
    if not stream.eof:  # there zlib compares its checksum
        raise ValueError("it ends too early")
    return memoryview(data)[8:]


def _parts(data: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """The type and the bytes of each part of an array; up to four bytes lie within the part's tag."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from(order + "II", data, at)
        small = kind >> 16  # else 0
        start = at + 4 if small else at + 8
        size, kind = small or size, kind & 0xFFFF
        yield kind, data[start : start + size]
        at = (start + size + 7) // 8 * 8
