"""Every image that is given by its URL is fetched here: http and https only, of a bounded size and time.

A URL is fetched only where it is a `Url`, which `images/inputs.py` makes of what a user gives: never one from a file.
"""

import http.client
import string
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote, urlsplit

from adamatch.base.errors import InputError, reason
from adamatch.base.regular_files import LARGEST

SCHEMES = ("https", "http")
SILENCE, WHOLE = 30, 300  # seconds without a byte; for all of a file
REDIRECTIONS = 5
BLOCK = 1 << 16


class Url(str):
    """An address that the user gave."""

    __slots__ = ()


def is_url(text: object) -> bool:
    return isinstance(text, str) and "://" in text


def fetch(url: Url, largest: int = LARGEST) -> bytes:
    """What is at the URL."""
    ends = time.monotonic() + WHOLE
    try:
        if urlsplit(url).scheme.lower() not in SCHEMES:
            raise InputError("is not fetched: give an address that begins with https:// or http://")
        request = urllib.request.Request(quote(url, safe=string.punctuation), headers={"User-Agent": "adamatch"})
        with _opener().open(request, timeout=SILENCE) as reply:
            return _content(reply, largest, ends)
    except InputError as error:
        raise InputError(f"{url} {error}") from None
    except urllib.error.HTTPError as error:
        raise InputError(f"{url} cannot be fetched (HTTP {error.code} {error.reason})") from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: what is no address
        raise InputError(f"{url} cannot be fetched ({reason(getattr(error, 'reason', None) or error)})") from None


def _content(reply: Any, largest: int, ends: float) -> bytes:
    length, content = reply.headers.get("Content-Length"), bytearray()
    while block := reply.read1(BLOCK):
        content += block
        if len(content) > largest:
            raise InputError(f"has more than the {largest >> 20} MiB that it may have")
        if time.monotonic() > ends:
            raise InputError(f"takes more than {WHOLE} seconds")
    if length and len(content) < int(length):
        raise InputError(f"ended after {len(content):,} of {int(length):,} bytes")
    return bytes(content)


class _Redirections(urllib.request.HTTPRedirectHandler):
    """None to another kind of address, and none from https to http."""

    max_redirections = REDIRECTIONS

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        scheme = urlsplit(newurl).scheme.lower()
        if scheme not in SCHEMES or (req.type == "https" and scheme != "https"):
            raise InputError(f"leads to {newurl}, which is not fetched")
        fp.close()  # else all of this reply would be read, of any size
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Not build_opener's, which also opens files, FTP and data."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        _Redirections,
    ):
        opener.add_handler(handler())
    return opener
