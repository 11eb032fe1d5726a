"""The members of a zip, a tar or a folder, one after the other. A dangerous one is an error that names it.

Nothing is ever unpacked to disk: members are read as streams, so memory and disk stay bounded.
"""

import gzip
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, NamedTuple, cast

from adamatch.base.errors import InputError, reason
from adamatch.base.regular_files import LARGEST, open_file
from adamatch.images.listing import walk

RATIO = 200  # unpacked to packed; photographs come to about 1, text and arrays to 20, bombs to 1,000
SLACK = 1 << 22  # bytes that may be exceeded by small archives, where a ratio says little
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks others without a limit


class Encoded(NamedTuple):
    """An image file's bytes, and what to call it in messages."""

    where: str
    data: bytes


@dataclass(frozen=True)
class Member:
    """A file in an archive or folder. Open it before the next one is asked for."""

    name: str
    size: int
    where: str  # "archive: name", for messages
    open: Callable[[], IO[bytes]]

    def read(self) -> bytes:
        """All of it, or a refusal where it is larger than it says or than anything an image needs."""
        if self.size > LARGEST:
            size = f"{self.size / 2**20:,.0f} MiB, more than the {LARGEST >> 20} it may have"
            raise InputError(f"{self.where} has {size}: refused")
        with readable(self.where), self.open() as file:
            data = file.read(self.size + 1)
        if len(data) != self.size:
            raise InputError(f"{self.where} has another size than it says: fetch it again")
        return data


@contextmanager
def readable(where: str) -> Iterator[None]:
    """On damaged data the libraries raise almost anything; here it becomes one line."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # a chain of headers without end is a RecursionError
        raise InputError(f"{where} cannot be read ({reason(error)}): fetch it again") from None


def members(path: Path) -> Iterator[Member]:
    """Every file in it, in its order; folders and what macOS leaves behind (`__MACOSX`, `._name`) are skipped."""
    if not path.is_dir() and not path.is_file():
        raise InputError(f"{path} is not there, or a pipe or a device: give the archive itself, or its folder")
    kind = _folder if path.is_dir() else _zip if zipfile.is_zipfile(path) else _tar
    seen: set[str] = set()
    total, allowed = 0, RATIO * path.stat().st_size + SLACK
    for member in kind(path):
        total += member.size
        if kind is not _folder and total > allowed:
            raise InputError(
                f"{member.where} brings the archive to {total / 1e9:.1f} GB unpacked, a decompression bomb: refused"
            )
        if member.name in seen:
            raise InputError(f"{member.where} is in the archive twice: refused")
        seen.add(member.name)
        if not any(part.startswith(("._", "__MACOSX", ".DS_Store")) for part in member.name.split("/")):
            yield member


def contents(path: Path, wanted: Mapping[str, int]) -> Iterator[tuple[int, Encoded | Path]]:
    """(index, encoded image) for each wanted name; an error where the archive or folder lacks one."""
    missing = set(wanted)
    if path.is_dir():
        for name, index in wanted.items():
            file = path / safe_name(name, f"{path}: {name!r}")
            if file.is_file():
                missing.remove(name)
                yield index, file
    else:
        for member in members(path) if missing else ():
            if member.name in missing:
                missing.remove(member.name)
                yield wanted[member.name], Encoded(member.where, member.read())
                if not missing:
                    return
    if missing:
        raise InputError(f"{path} lacks {min(missing)} ({len(missing)} of {len(wanted)} are missing): fetch it again")


@contextmanager
def open_member(path: Path, name: str) -> Iterator[IO[bytes]]:
    """The member of that file name, in any folder of the archive, as a stream."""
    for member in members(path):
        if member.name.rpartition("/")[2] == name:
            with readable(member.where), member.open() as file:
                yield file
            return
    raise InputError(f"{path} has no {name}: fetch it again")


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGES)


def safe_name(name: str, where: str) -> str:
    """The name as a relative path with forward slashes, or a refusal."""
    parts = PurePosixPath(name).parts
    odd = "\0" in name or "\\" in name or name.startswith("/") or PureWindowsPath(name).drive
    if odd or ".." in parts or not parts:
        raise InputError(f"{where} has a name that leads out of its folder, or none: refused")
    return "/".join(parts)


def _folder(path: Path) -> Iterator[Member]:
    for file in (here / name for here, _, names in walk(path) for name in names):
        if not file.is_file():
            raise InputError(f"{file} is a pipe, a device or a link to nothing: remove it")
        name, size = file.relative_to(path).as_posix(), file.stat().st_size
        yield Member(name, size, str(file), lambda f=file: open_file(f, None))  # type: ignore[misc]


def _zip(path: Path) -> Iterator[Member]:
    with readable(str(path)), open_file(path, None) as file, zipfile.ZipFile(file) as archive:
        count = len(archive.infolist())
        if count % 65536 != (said := _count(file)) and said != 65535:
            raise InputError(f"{path} lists {count} members and says {said}: fetch it again")
        for info in archive.infolist():
            where = f"{path}: {info.filename!r}"
            name = safe_name(info.orig_filename, where)
            if info.is_dir():
                continue
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG) or info.flag_bits & 1 or info.compress_type not in PACKINGS:
                what = "a link, a device, encrypted, or packed in another way than by deflate"
                raise InputError(f"{where} is {what}: refused")
            yield Member(name, info.file_size, where, lambda i=info: archive.open(i))  # type: ignore[misc]


def _count(file: IO[bytes]) -> int:
    """How many members a zip says it has, modulo 2^16 (65535: the number is elsewhere). A damaged list hides some."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 22 - 65535))
    tail = file.read()
    return int(struct.unpack_from("<H", tail, tail.rindex(b"PK\5\6") + 10)[0])


class _Header(tarfile.TarInfo):
    """A header whose extension (a long name, attributes) is refused, not read into memory, if it is absurdly long."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (not header.isreg() and not header.isdir() and header.size > SLACK):
            raise ValueError(f"{header.name!r} says that it has {header.size} bytes: refused")
        return header


def _tar(path: Path) -> Iterator[Member]:
    with readable(str(path)), open_file(path, None) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        # "r|": forwards only; the whole archive is never held, and never read twice
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
            for info in archive:
                where = f"{path}: {info.name!r}"
                name = safe_name(info.name, where)
                if info.isdir():
                    continue
                if not info.isreg() or info.issparse() or info.size < 0:
                    raise InputError(f"{where} is a link, a device or a pipe, or sparse, or says a wrong size: refused")
                yield Member(name, info.size, where, lambda i=info: cast(IO[bytes], archive.extractfile(i)))  # type: ignore[misc]
        while packed and stream.read(1 << 20):  # to the end, where gzip compares its checksum
            pass
