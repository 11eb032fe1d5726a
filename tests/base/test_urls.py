"""The opener of URLs: http and https alone, of a bounded size and time, with a server on this machine."""

import io
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request

import pytest

from adamatch.base import urls
from adamatch.base.errors import InputError
from adamatch.base.urls import Url, fetch

CONTENT = bytes(range(256)) * 40


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        name, _, to = self.path.lstrip("/").partition("?to=")
        to = to or "/loop" * (name == "loop")
        length = {"large": 10**9, "cut": 2 * len(CONTENT), "endless": None}.get(name, len(CONTENT))
        self.send_response(302 if to else 404 if name == "gone" else 200)
        if to:
            self.send_header("Location", to)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        for _ in range(10**4 if name in ("large", "endless") else 1):
            self.wfile.write(CONTENT)

    def log_message(self, *_: Any) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the other side has had enough
            self.close_connection = True


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_what_is_there(site: str) -> None:
    for name in ("a", "b?to=/c", f"b?to={site}/c", "endless?x", "häuser und bäume.png"):
        assert fetch(Url(f"{site}/{name}"), 1 << 30 if "endless" in name else len(CONTENT))[: len(CONTENT)] == CONTENT


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone", r"cannot be fetched \(HTTP 404 Not Found\)"),
        ("large", "has more than the 1 MiB that it may have"),
        ("endless", "has more than the 1 MiB that it may have"),
        ("cut", "ended after 10,240 of 20,480 bytes"),
        ("b?to=file:///etc/passwd", "cannot be fetched .*not allowed|leads to file"),
        ("b?to=ftp://127.0.0.1/x", "leads to ftp://127.0.0.1/x, which is not fetched"),
        ("b?to=data:text/plain,x", "cannot be fetched .*not allowed|leads to data"),
        ("loop", "cannot be fetched .*infinite loop"),
    ],
)
def test_what_is_refused_is_one_line_that_names_the_address(site: str, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as told:
        fetch(Url(f"{site}/{name}"), 1 << 20)
    assert str(told.value).startswith(f"{site}/{name} ")
    assert "\n" not in str(told.value)


def test_never_from_https_to_http() -> None:
    request = Request("https://127.0.0.1/a")
    with pytest.raises(InputError, match=r"leads to http://127\.0\.0\.1/b, which is not fetched"):
        urls._Redirections().redirect_request(request, io.BytesIO(), 302, "", {}, "http://127.0.0.1/b")


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://127.0.0.1/a", "data:text/plain,a", "javascript:a"])
def test_other_schemes_are_not_opened(address: str) -> None:
    with pytest.raises(InputError, match="is not fetched: give an address that begins with https:// or http://"):
        fetch(Url(address))
    assert not {"file", "ftp", "data"} & set(vars(urls._opener())["handle_open"])


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/a", "http://[", "http://", "https://a b", "http://127.0.0.1:x/"]
)
def test_addresses_of_nothing(address: str) -> None:
    with pytest.raises(InputError, match="cannot be fetched"):
        fetch(Url(address))


def test_a_server_that_never_ends_is_left(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "WHOLE", 0)
    with pytest.raises(InputError, match="takes more than 0 seconds"):
        fetch(Url(f"{site}/endless"), 1 << 30)


def test_a_silent_server_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(urls, "SILENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(InputError, match="timed out"):
        fetch(Url(f"http://127.0.0.1:{listener.getsockname()[1]}/a"))
