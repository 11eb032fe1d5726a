"""The members of a zip, a tar or a folder, one after the other, and a refusal by name for every member that means harm.

Nothing is ever unpacked to disk: members are read as streams, so memory and disk stay bounded whatever an archive holds.
"""

import gzip
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, NamedTuple, cast

from adamatch.errors import InputError

LARGEST = 1 << 29  # bytes of a member that is read whole
RATIO = 200  # unpacked to packed; photographs come to about 1, text and arrays to 20, bombs to 1,000
SLACK = 1 << 22  # bytes that may be exceeded by small archives, where a ratio says little
MOST = 5_000_000  # members
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")
# The last is zipfile's word for a compression that it does not know.
UNREADABLE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, OSError, NotImplementedError)


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
    path: Path | None = None  # where it is a file of its own

    def read(self) -> bytes:
        """All of it, or a refusal where it is larger than it says or than anything an image needs."""
        if self.size > LARGEST:
            raise InputError(f"{self.where} has {self.size / 1e9:.1f} GB, more than a member may have: refused")
        try:
            with self.open() as file:
                data = file.read(self.size + 1)
        except UNREADABLE as error:
            raise InputError(f"{self.where} cannot be read ({error}): fetch the archive again") from None
        if len(data) != self.size:
            raise InputError(f"{self.where} has another size than it says: fetch the archive again")
        return data


def members(path: Path) -> Iterator[Member]:
    """Every file in it, in its order; folders and what macOS leaves behind (`__MACOSX`, `._name`) are passed over."""
    kind = _folder if path.is_dir() else _zip if zipfile.is_zipfile(path) else _tar
    seen: set[str] = set()
    total, allowed = 0, RATIO * path.stat().st_size + SLACK
    for member in kind(path):
        total += member.size
        if member.path is None and total > allowed:
            raise InputError(f"{member.where} brings the archive to {total / 1e9:.1f} GB unpacked, a bomb: refused")
        if member.name in seen:
            raise InputError(f"{member.where} is in the archive twice: refused")
        seen.add(member.name)
        if len(seen) > MOST:
            raise InputError(f"{path} has more than {MOST:,} members: refused")
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
    """The member of that file name, wherever it lies in the archive, as a stream."""
    for member in members(path):
        if member.name.rpartition("/")[2] == name:
            with member.open() as file:
                yield file
            return
    raise InputError(f"{path} has no {name}: fetch it again")


def is_image(name: str) -> bool:
    return name.lower().endswith(IMAGES)


def safe_name(name: str, where: str) -> str:
    """The name as a relative path with forward slashes, or a refusal."""
    parts = PurePosixPath(name).parts
    if "\0" in name or "\\" in name or name.startswith("/") or PureWindowsPath(name).drive:
        raise InputError(f"{where} has an absolute path or a path of another system: refused")
    if ".." in parts:
        raise InputError(f"{where} climbs out of its folder: refused")
    if not parts:
        raise InputError(f"{where} has an empty name: refused")
    return "/".join(parts)


def _folder(path: Path) -> Iterator[Member]:
    for here, folders, files in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            file = Path(here) / name
            yield Member(file.relative_to(path).as_posix(), file.stat().st_size, str(file), lambda f=file: f.open("rb"), file)  # type: ignore[misc]


def _zip(path: Path) -> Iterator[Member]:
    try:
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                where = f"{path}: {info.filename!r}"
                mode = info.external_attr >> 16
                name = safe_name(info.orig_filename, where)
                if info.is_dir():
                    continue
                if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                    raise InputError(f"{where} is a link or a device: refused")
                if info.flag_bits & 1:
                    raise InputError(f"{where} is encrypted: refused")
                if info.file_size > RATIO * info.compress_size + SLACK:
                    raise InputError(f"{where} grows from {info.compress_size} to {info.file_size} bytes, a bomb: refused")
                yield Member(name, info.file_size, where, lambda i=info: archive.open(i))  # type: ignore[misc]
    except UNREADABLE as error:
        raise InputError(f"{path} cannot be read ({error}): fetch it again") from None


class _Header(tarfile.TarInfo):
    """A header whose own extension (a long name, attributes) is not read into memory when it is absurdly long."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        header = super().frombuf(buf, encoding, errors)
        if not header.isreg() and not header.isdir() and header.size > SLACK:
            raise InputError(f"{header.name!r} is a header of {header.size} bytes, a bomb: refused")
        return header


def _tar(path: Path) -> Iterator[Member]:
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            # "r|": forwards only; the whole archive is never held, and never read twice
            with tarfile.open(fileobj=cast(Any, stream), mode="r|", tarinfo=_Header) as archive:
                for info in archive:
                    where = f"{path}: {info.name!r}"
                    name = safe_name(info.name, where)
                    if info.isdir():
                        continue
                    if info.issym() or info.islnk():
                        raise InputError(f"{where} is a link: refused")
                    if not info.isreg() or info.issparse():
                        raise InputError(f"{where} is a device, a pipe or a sparse file: refused")
                    yield Member(name, info.size, where, lambda i=info: _open(archive, i))  # type: ignore[misc]
        except UNREADABLE as error:
            raise InputError(f"{path} cannot be read ({error}): fetch it again") from None
        except InputError as error:
            raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from None


def _open(archive: tarfile.TarFile, info: tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(info)
    assert file is not None, "only regular files get here"
    return file
