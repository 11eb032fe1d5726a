"""Numeric arrays out of MATLAB 5 files, as a stream: an array larger than memory is read block by block.

scipy.io.loadmat holds the whole array and builds objects from what it finds; this reads numbers and nothing else.
Format: "MAT-File Format" (MathWorks), level 5. Level 7.3 is HDF5 and is refused.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from adamatch.base.errors import InputError

MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
OTHERS = {1: "cell array", 2: "struct", 3: "object", 4: "text", 5: "sparse array", 16: "function", 17: "object"}
COMPLEX = 0x08
BLOCK = 1 << 20
AT_ONCE = 1 << 28  # bytes that are taken at a time
DIMENSIONS = 8


class Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass
class Variable:
    """An array in the file. Its numbers come in the file's order, first index fastest."""

    name: str
    shape: tuple[int, ...]
    kind: str  # a NumPy type, or in words what it is instead of numbers
    where: str
    _stream: Stream
    _stored: str = ""
    _taken: int = 0

    def take(self, count: int) -> NDArray[Any]:
        """The next `count` numbers."""
        if not self._stored:
            raise InputError(
                f"{self.where}: {self.name} is a {self.kind} and not an array of numbers, so it is not read"
            )
        size, taken = (count * np.dtype(kind).itemsize for kind in (self._stored, self.kind))
        if max(size, taken) > AT_ONCE:
            raise InputError(
                f"{self.where}: {self.name} would take {max(size, taken) >> 20:,} MiB of memory, so it is not read"
            )
        raw = np.frombuffer(_read(self._stream, size, self.where), self._stored)
        self._taken += count
        if self._taken == prod(self.shape) and isinstance(self._stream, _Inflated):
            self._stream.finish(self.where)
        return raw.astype(self.kind)

    def whole(self) -> NDArray[Any]:
        return self.take(prod(self.shape)).reshape(self.shape, order="F")


class _Inflated:
    """A compressed element, inflated as it is read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left, self.zlib = file, size, zlib.decompressobj()

    def read(self, size: int, /) -> bytes:
        pieces, missing = [], size
        while missing and not self.zlib.eof:
            packed = self.zlib.unconsumed_tail or self.file.read(min(BLOCK, self.left))
            if not self.zlib.unconsumed_tail:
                self.left -= len(packed)
            piece = self.zlib.decompress(packed, missing)
            if not packed and not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def finish(self, where: str) -> None:
        """Read over the padding to the end, where zlib compares its checksum."""
        _read_up_to(self, 16, where)
        if not self.zlib.eof:
            raise InputError(f"{where} ends too early: fetch it again")


def variables(file: IO[bytes], where: str) -> Iterator[Variable]:
    """Every variable in turn; take its numbers before asking for the next. `where` names the file in errors."""
    head = file.read(128)
    if head.startswith(b"\x89HDF") or b"MATLAB 7.3" in head[:32]:
        raise InputError(f"{where} is a MATLAB 7.3 (HDF5) file: save it again with `save -v7`")
    if len(head) < 128 or head[126:128] not in (b"IM", b"MI"):
        raise InputError(f"{where} is not a MATLAB 5 file: fetch it again")
    order = "<" if head[126:128] == b"IM" else ">"
    while tag := file.read(8):
        if len(tag) < 8:
            raise InputError(f"{where} ends too early: fetch it again")
        kind, size = struct.unpack(order + "II", tag)
        start = file.tell()
        if kind == COMPRESSED:
            inflated = _Inflated(file, size)
            kind = struct.unpack(order + "II", _read(inflated, 8, where))[0]
            if kind == MATRIX:
                yield _matrix(inflated, order, where)
        elif kind == MATRIX:
            yield _matrix(file, order, where)
        if kind != MATRIX:
            raise InputError(f"{where} holds an element of type {kind} where an array should be: fetch it again")
        file.seek(start + size - 1)
        if not file.read(1):
            raise InputError(f"{where} ends too early: fetch it again")


def load(file: IO[bytes], names: tuple[str, ...], where: str) -> list[NDArray[Any]]:
    """The arrays of these names, whole, in this order."""
    arrays = {variable.name: variable.whole() for variable in variables(file, where) if variable.name in names}
    for name in names:
        if name not in arrays:
            raise InputError(f"{where} has no array called {name}: fetch it again")
    return [arrays[name] for name in names]


def _matrix(stream: Stream, order: str, where: str) -> Variable:
    """The head of an array (flags, shape, name), up to where its numbers begin."""
    flags, _ = struct.unpack(order + "II", _part(stream, order, where)[1][:8].ljust(8, b"\0"))
    dims = _part(stream, order, where)[1]
    shape = struct.unpack(f"{order}{len(dims) // 4}i", dims[: len(dims) // 4 * 4])
    name = _part(stream, order, where)[1].decode("latin1")
    number = flags & 0xFF
    if number not in NUMBERS or flags >> 8 & COMPLEX:
        return Variable(name, shape, OTHERS.get(number, "complex array"), where, stream)
    stored, size, stream = _open_part(stream, order, where)
    if stored not in STORED:
        raise InputError(f"{where}: {name} is stored as type {stored}, which no number has: fetch it again")
    dtype = np.dtype(order + STORED[stored])
    if len(shape) > DIMENSIONS or min(shape, default=0) < 0 or size != prod(shape) * dtype.itemsize:
        raise InputError(f"{where}: {name} says it has the shape {shape[:DIMENSIONS]} and {size} bytes: fetch it again")
    return Variable(name, shape, NUMBERS[number], where, stream, dtype.str)


def _open_part(stream: Stream, order: str, where: str) -> tuple[int, int, Stream]:
    """Type, size in bytes, and the stream at the first byte; up to four bytes may lie within the tag itself."""
    tag = _read(stream, 8, where)
    kind, size = struct.unpack(order + "II", tag)
    if kind >> 16:
        return kind & 0xFFFF, kind >> 16, _Bytes(tag[4:])
    return kind, size, stream


def _part(stream: Stream, order: str, where: str) -> tuple[int, bytes]:
    """One short part of an array's head, with the padding after it (to eight bytes) read over."""
    kind, size, inner = _open_part(stream, order, where)
    if size > BLOCK:
        raise InputError(f"{where} has a header of {size} bytes: fetch it again")
    data = _read(inner, size, where)
    if inner is stream:
        _read(stream, -size % 8, where)
    return kind, data


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def read(self, size: int, /) -> bytes:
        head, self.data = self.data[:size], self.data[size:]
        return head


def _read(stream: Stream, size: int, where: str) -> bytes:
    data = _read_up_to(stream, size, where)
    if len(data) != size:
        raise InputError(f"{where} ends too early: fetch it again")
    return data


def _read_up_to(stream: Stream, size: int, where: str) -> bytes:
    try:
        return stream.read(size)
    except zlib.error as error:
        raise InputError(f"{where} is damaged ({error}): fetch it again") from None
