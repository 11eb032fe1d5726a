"""Archives that mean harm, one function each: what it writes, and what the refusal must say."""

import gzip
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Case(NamedTuple):
    """`write` makes the file; `says`: words the refusal must contain, the member's name among them."""

    name: str
    file: str
    write: Callable[[Path], Any]
    says: tuple[str, ...]


def _tar(path: Path, name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"x", size: int | None = None) -> None:
    info = tarfile.TarInfo(name)
    data = data if kind in (tarfile.REGTYPE, tarfile.XHDTYPE, b"L") else b""
    info.type, info.linkname, info.size = kind, "" if data else "/etc/passwd", len(data) if size is None else size
    with path.open("wb") as file:
        raw = info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512) + bytes(1024)
        file.write(gzip.compress(raw) if path.suffix == ".gz" else raw)


def _zip(path: Path, name: str, data: bytes = b"x", mode: int = 0o100644, times: int = 1) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore", UserWarning)  # that a name comes twice
        for _ in range(times):
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)


def _zip_with_lying_size(path: Path) -> None:
    """Says 10 bytes, holds a million."""
    _zip(path, "a/lies.png", bytes(1_000_000))
    raw = bytearray(path.read_bytes())
    for at, field in ((raw.find(b"PK\x03\x04"), 22), (raw.find(b"PK\x01\x02"), 24)):
        raw[at + field : at + field + 4] = struct.pack("<I", 10)
    path.write_bytes(raw)


def _encrypted(path: Path) -> None:
    _zip(path, "a/locked.png")
    raw = bytearray(path.read_bytes())
    for at, field in ((raw.find(b"PK\x03\x04"), 6), (raw.find(b"PK\x01\x02"), 8)):
        raw[at + field] |= 1
    path.write_bytes(raw)


def _swallowed(path: Path) -> None:
    """The first entry of the list of members is said to be so long that it hides the others."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("a/1.png", "a/2.png", "a/3.png"):
            archive.writestr(name, b"x")
    raw = bytearray(path.read_bytes())
    at = raw.find(b"PK\x01\x02")
    raw[at + 32 : at + 34] = struct.pack("<H", 65535)
    path.write_bytes(raw)


def _negative(path: Path) -> None:
    """A size of -512 bytes, in the form for large numbers: a reader that adds it to where it is goes back for ever."""
    head = bytearray(tarfile.TarInfo("a/back.png").tobuf(tarfile.GNU_FORMAT))
    head[124:136] = (256**12 - 512).to_bytes(12, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    path.write_bytes(bytes(head) * 3 + bytes(1024))


def _chain(path: Path) -> None:
    """A long name for a long name for a long name ..."""
    _tar(path, "././@LongLink", b"L", data=b"a/long.png\0")
    path.write_bytes(path.read_bytes()[:1024] * 5000 + bytes(1024))


def _gzip_changed(path: Path) -> None:
    """Another byte than the one that its checksum, behind all members, is of."""
    _tar(path, "a/changed.png", data=b"abcd" * 100)
    padded = gzip.decompress(path.read_bytes()) + bytes(1 << 16)
    packed = gzip.compress(padded, 0)  # stored, so that a byte can be changed
    path.write_bytes(packed.replace(b"abcdabcd", b"abcdabcD", 1))


def _pax_bomb(path: Path) -> None:
    """A header extension that says it has 100 MB."""
    _tar(path, "a/long.png", tarfile.XHDTYPE, data=b"11 path=xx\n", size=100_000_000)


def _mat_bomb(path: Path) -> None:
    """y says it has 2^31 numbers; 32 MiB of zeros are packed into a few kilobytes."""

    def part(kind: int, data: bytes, size: int | None = None) -> bytes:
        return struct.pack("<II", kind, len(data) if size is None else size) + data + bytes(-len(data) % 8)

    head = part(6, struct.pack("<II", 9, 0)) + part(5, struct.pack("<ii", 1 << 15, 1 << 16)) + part(1, b"y")
    matrix = head + part(2, bytes(1 << 25), 1 << 31)
    packed = zlib.compress(struct.pack("<II", 14, len(matrix)) + matrix)
    path.write_bytes(
        b"MATLAB 5.0 MAT-file".ljust(124)
        + struct.pack("<H", 0x0100)
        + b"IM"
        + struct.pack("<II", 15, len(packed))
        + packed
    )


def _h5(path: Path, kind: str) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        group = file.create_group("train")
        group["target"] = np.zeros(3)
        if kind == "external link":
            group["data"] = h5py.ExternalLink("/etc/passwd", "/")
        elif kind == "external storage":
            group.create_dataset("data", (3, 256), "u1", external=[("/etc/passwd", 0, 768)])
        else:
            group.create_dataset("data", (3,), h5py.string_dtype())


def _mat_7(path: Path) -> None:
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\x02IM" + b"\x89HDF\r\n\x1a\n".rjust(392))


def _idx_bomb(path: Path) -> None:
    path.write_bytes(gzip.compress(struct.pack(">IIII", 2051, 1 << 31, 1 << 15, 1 << 15) + bytes(1000)))


ARCHIVES = [
    Case("tar climbs out", "a.tar.gz", lambda p: _tar(p, "../../etc/cron.d/x.png"), ("../../etc", "leads out")),
    Case("tar link", "a.tar.gz", lambda p: _tar(p, "a/link.png", tarfile.SYMTYPE), ("a/link.png", "link")),
    Case("tar bomb", "a.tar.gz", lambda p: _tar(p, "a/bomb.png", data=bytes(50_000_000)), ("a/bomb.png", "bomb")),
    Case("tar header bomb", "a.tar", _pax_bomb, ("a.tar", "a/long.png", "100000000 bytes: refused")),
    Case("tar of a negative size", "a.tar", _negative, ("a.tar", "refused")),
    Case("tar of a chain of names", "a.tar", _chain, ("a.tar", "recursion", "fetch it again")),
    Case("tar.gz that was changed", "a.tar.gz", _gzip_changed, ("a.tar.gz", "CRC", "fetch it again")),
    Case("zip climbs out", "a.zip", lambda p: _zip(p, "../x.png"), ("../x.png", "leads out")),
    Case("zip link", "a.zip", lambda p: _zip(p, "a/link.png", mode=0o120777), ("a/link.png", "link")),
    Case("zip bomb", "a.zip", lambda p: _zip(p, "a/bomb.png", bytes(50_000_000)), ("a/bomb.png", "bomb")),
    Case("zip that lies about a size", "a.zip", _zip_with_lying_size, ("a/lies.png", "fetch it again")),
    Case("zip with a name twice", "a.zip", lambda p: _zip(p, "a/twice.png", times=2), ("a/twice.png", "twice")),
    Case("zip encrypted", "a.zip", _encrypted, ("a/locked.png", "encrypted")),
    Case("zip that hides members", "a.zip", _swallowed, ("a.zip", "lists 1 members and says 3", "fetch it again")),
]
ARRAYS = [
    Case("mat 7.3", "train_32x32.mat", _mat_7, ("train_32x32.mat", "of MATLAB 7.3, save it again")),
    Case("mat bomb", "train_32x32.mat", _mat_bomb, ("train_32x32.mat", "a bomb")),
    Case("h5 link to another file", "usps.h5", lambda p: _h5(p, "external link"), ("usps.h5", "fetch it again")),
    Case("h5 kept in another file", "usps.h5", lambda p: _h5(p, "external storage"), ("train/data", "this file")),
    Case("h5 of text", "usps.h5", lambda p: _h5(p, "text"), ("train/data", "not an array of numbers")),
    Case("idx that says it is huge", "idx3-ubyte.gz", _idx_bomb, ("idx3-ubyte.gz", "fetch it again")),
]
