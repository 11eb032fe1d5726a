"""Fetch a file from the first source that has it: resumed, checked, and under its final name only when it is whole."""

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from adamatch.base.errors import InputError
from adamatch.base.files import writing
from adamatch.base.regular_files import open_file
from adamatch.datasets.source import File

ATTEMPTS = 4  # per source
TIMEOUT = 30  # seconds without a byte
BLOCK = 1 << 20
GONE = (401, 403, 404, 410, 451)  # another attempt would not help


class SourceError(Exception):
    """This source cannot give the file; `retry`: a second attempt may help."""

    def __init__(self, text: str, retry: bool) -> None:
        super().__init__(text)
        self.retry = retry


def fetch(
    file: File, folder: Path, page: str, *, pause: Callable[[float], Any] = time.sleep
) -> Iterator[tuple[int, int | None]]:
    """Put `file` into `folder`, yielding (bytes so far, bytes in all). A file that is there and right is left alone.

    What is not yet whole is called NAME.part, and a later call resumes it. `page` is named when every source fails.
    """
    final, part = folder / file.name, folder / f"{file.name}.part"
    if final.is_file() and wrong(final, file) is None:
        yield final.stat().st_size, final.stat().st_size
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}): choose another folder with --to") from None
    why = f"{file.name} cannot be fetched by a program"
    for source in file.sources:
        for attempt in range(ATTEMPTS):
            try:
                yield from _transfer(source, file, part)
                part.replace(final)
                return
            except SourceError as error:
                why = f"no source gave {file.name} ({source}: {error})"
                if not error.retry or attempt == ATTEMPTS - 1:
                    break
                pause(2.0**attempt)
    raise InputError(f"{why}: get it by hand from {page} and put it into {folder}")


def wrong(path: Path, file: File) -> str | None:
    """What is wrong with a file that should be `file`, if anything."""
    if file.size is not None and path.stat().st_size != file.size:
        return f"has {path.stat().st_size:,} bytes, not {file.size:,}"
    if file.checksum:
        kind = "sha256" if len(file.checksum) == 64 else "md5"
        with open_file(path, None) as opened:
            if hashlib.file_digest(opened, kind).hexdigest() != file.checksum:
                return f"has another {kind.upper()} than the published one"
    return None


def _transfer(source: str, file: File, part: Path) -> Iterator[tuple[int, int | None]]:
    """Go on with `part` until it is whole and right, or raise SourceError."""
    start = part.stat().st_size if part.is_file() else 0
    if not (file.size or file.checksum):
        start = 0  # nothing published would tell a file joined from two different ones
    headers = {"User-Agent": "adamatch"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(source, headers=headers), timeout=TIMEOUT) as reply:
            if reply.headers.get_content_type() == "text/html":
                raise SourceError("sent a web page instead of the file", retry=False)
            if reply.status != 206 or not reply.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
                start = 0  # no ranges here: from the beginning
            length = reply.headers.get("Content-Length")
            total = start + int(length) if length else file.size
            if file.size is not None and total != file.size:
                raise SourceError(f"has a file of {total} bytes, not {file.size}", retry=False)
            with part.open("r+b" if start else "wb") as out:
                out.truncate(start)
                done = out.seek(start)
                yield done, total
                while block := reply.read(BLOCK):
                    with writing(part):
                        out.write(block)
                        out.flush()
                    done += len(block)
                    yield done, total
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the part is longer than the file
            part.unlink(missing_ok=True)
        raise SourceError(f"HTTP {error.code} {error.reason}", retry=error.code not in GONE) from None
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError) as error:
        raise SourceError(str(getattr(error, "reason", error)) or type(error).__name__, retry=True) from None
    if total is not None and done < total:
        raise SourceError(f"the connection ended after {done:,} of {total:,} bytes", retry=True)
    if problem := wrong(part, file):
        part.unlink()
        raise SourceError(problem, retry=start > 0)  # joined from two parts: once more in one go, else the next source
