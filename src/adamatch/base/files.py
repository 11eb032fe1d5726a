"""Durable files: whole or not there, also after a power loss. Checksummed JSON. Errors of a disk that may pass.

And where a file that the user asks for goes, and how its columns are called.
"""

import errno
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from adamatch.base.errors import InputError
from adamatch.base.regular_files import LARGEST, opened, read_own

T = TypeVar("T")
MANIFEST = "manifest.json"  # in a folder: the size and checksum of each of its files (`base.manifest`)
SEAL = "own_sha256"  # where a JSON object keeps the checksum of all else in it
FULL = {errno.ENOSPC, errno.EDQUOT}
# A network file system that was away for a moment: a stale handle, a broken connection, a timeout.
_PASSING = "ESTALE EIO ETIMEDOUT EAGAIN EBUSY ENOTCONN ECONNABORTED ECONNRESET ECONNREFUSED EHOSTUNREACH ENETDOWN"
_PASSING += " ENETUNREACH EREMOTEIO EHOSTDOWN"  # the last two not on every system
PASSING = {getattr(errno, name) for name in _PASSING.split() if hasattr(errno, name)}
PAUSES = (1.0, 5.0, 20.0)  # seconds before each further try


def write_atomically(path: Path, text: str) -> None:
    """The file appears whole or not at all."""
    write_whole(path, lambda part: part.write_text(text))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a file; it gets the name `path` once it is on the disk, and on return the name is there too."""

    def once() -> None:
        part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")  # unique: others may write the same file
        try:
            write(part)
            sync(part)
            os.replace(part, path)
        except BaseException as error:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            if isinstance(error, OSError):  # of a write or a sync it names no file
                error.filename = str(path)
            raise
        sync(path.parent)

    with_retries(once)


def make_folder(path: Path) -> None:
    """The folder and those above it, with their names on the disk."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for each in reversed(missing):
        sync(each.parent)


def sync(path: Path) -> None:
    """When this returns, the content of a file, or the names in a folder, are on the disk."""
    folder = path.is_dir()
    if folder and os.name == "nt":  # it has no such thing
        return
    opened = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot
            raise
    finally:
        os.close(opened)


def with_retries(do: Callable[[], T]) -> T:
    """Call; after a transient error retry, with growing pauses."""
    for pause in PAUSES:
        try:
            return do()
        except Exception as error:
            if not is_transient(error):
                raise
        time.sleep(pause)
    return do()


def is_transient(error: BaseException | None) -> bool:
    """Whether the error came from a disk that was away for a moment."""
    return any(number in PASSING for number in _numbers(error))


def disk_is_full(error: BaseException | None) -> bool:
    """Whether the error came from a full disk, or a quota."""
    return any(number in FULL for number in _numbers(error))


def disk_reason(error: BaseException) -> str:
    """The disk's error in a few words."""
    if disk_is_full(error):
        return "the disk is full"
    return next((os.strerror(number) for number in _numbers(error)), "") or str(error).strip().partition("\n")[0]


def _numbers(error: BaseException | None) -> Iterator[int]:
    """The system's error numbers, of the error and of those that it came from."""
    while error is not None:
        if isinstance(error, OSError) and error.errno is not None:
            yield error.errno
        else:  # libraries in Rust write them into their texts
            yield from (int(number) for number in re.findall(r"\(os error (\d{1,5})\)", str(error)))
        error = error.__cause__ or error.__context__


def checksum(path: Path) -> str:
    """SHA-256 of a file, in bounded memory."""

    def once() -> str:
        with opened(path, None) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return with_retries(once)


def read_checked(path: Path, largest: int = LARGEST) -> bytes:
    """A file that this package wrote, as its folder's manifest lists it, if it does.

    Any other file raises ValueError, a missing one OSError.
    """
    found = with_retries(lambda: read_own(path, largest))
    known = listed(path.parent).get(path.name) or listed(path.parent.parent).get(f"{path.parent.name}/{path.name}")
    if known and known != [len(found), hashlib.sha256(found).hexdigest()]:
        raise ValueError("changed since it was written")
    return found


def listed(folder: Path) -> dict[str, Any]:
    """What a folder's manifest lists: [size, SHA-256] of each file, None of those that may change.

    Nothing where there is none, or a damaged one.
    """
    try:
        files = unsealed(parse(with_retries(lambda: read_own(folder / MANIFEST))))["files"]
        sound = all(each is None or [*map(type, each)] == [int, str] for each in files.values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return files if sound else {}


def read_json(path: Path) -> Any:
    """The content of a JSON file that this package wrote. Anything else raises ValueError, a missing file OSError."""
    return parse(read_checked(path))


def parse(text: str | bytes) -> Any:
    """JSON. Anything else raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def sealed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a checksum of itself."""
    plain: dict[str, Any] = json.loads(json.dumps(facts))  # as they will be read: no tuples, no numbers as keys
    return plain | {SEAL: _digest(plain)}


def unsealed(facts: Any) -> dict[str, Any]:
    """The object without its checksum, which has to be right; one that has none (published results) as it is."""
    if not isinstance(facts, dict):
        raise ValueError("not an object")
    plain = {name: value for name, value in facts.items() if name != SEAL}
    if SEAL in facts and facts[SEAL] != _digest(plain):
        raise ValueError("changed since it was written")
    return plain


def read_sealed(path: Path) -> dict[str, Any]:
    """A JSON file that `sealed` made. A missing or wrong checksum: ValueError; a missing file: OSError."""
    found = read_json(path)
    if not isinstance(found, dict) or SEAL not in found:
        raise ValueError("it has no checksum")
    return unsealed(found)


def _digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def destination(file: Path) -> Path:
    """Where a file that the user asks for is written: a link's target. A folder, pipe or device is not replaced."""
    if os.path.isdir(file):
        raise InputError(f"{file} is a folder: give the name of a file in it")
    if os.path.exists(file) and not os.path.isfile(file):
        raise InputError(f"{file} is not a regular file (a pipe or a device?): choose another name")
    end = Path(os.path.realpath(file)) if os.path.islink(file) else file
    remedy = f"choose another place for {end.name}"
    if os.path.exists(end.parent) and not os.path.isdir(end.parent):
        raise InputError(f"{end.parent} is not a folder: {remedy}")
    if not os.path.exists(end.parent):
        raise InputError(f"{end.parent} does not exist: make it, or {remedy}")
    return end


@contextmanager
def writing(file: Path | str) -> Iterator[None]:
    """Errors of the disk name the file that the user asked for (not its temporary name) and the remedy."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)  # libraries' own words name the temporary file
        remedy = f"{'make room, or ' if disk_is_full(error) else ''}choose another place"
        raise InputError(f"{file} cannot be written ({why}): {remedy}") from None
