"""Downloads from a real server on loopback that cuts connections, lies and fills disks: the right file or none."""

import errno
import hashlib
import io
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from adamatch.base.errors import InputError
from adamatch.datasets import download
from adamatch.datasets.source import File

DATA = bytes(range(256)) * 16384  # 4 MiB
MD5, SHA256 = hashlib.md5(DATA).hexdigest(), hashlib.sha256(DATA).hexdigest()


class Server(ThreadingHTTPServer):
    """`cuts`: after how many bytes each reply ends, one per request; afterwards replies are whole."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.cuts: list[int] = []
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []
        self.files = {"/data.bin": DATA}
        self.page = False

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up early is what some tests are about."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Range")))
        if self.path == "/busy":
            return self.send_error(503)
        if self.path not in self.server.files:
            return self.send_error(404)
        data, start = self.server.files[self.path], 0
        wanted = re.match(r"bytes=(\d+)-", self.headers.get("Range", "")) if self.server.ranges else None
        if wanted:
            start = int(wanted[1])
            if start >= len(data):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("Content-Type", "text/html" if self.server.page else "application/octet-stream")
        self.end_headers()
        end = start + self.server.cuts.pop(0) if self.server.cuts else len(data)
        self.wfile.write(data[start:end])
        return None

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def get(file: File, folder: Path) -> list[tuple[int, int | None]]:
    steps = list(download.fetch(file, folder, "http://page.example/", pause=lambda seconds: None))
    assert (folder / "data.bin").read_bytes() == DATA
    return steps


def file(server: Server, *paths: str, **facts: Any) -> File:
    return File("data.bin", tuple(server.url + path for path in paths or ("/data.bin",)), **facts)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_download(server: Server, tmp_path: Path) -> None:
    steps = get(file(server, size=len(DATA), checksum=SHA256), tmp_path / "new" / "folder")
    assert steps[0] == (0, len(DATA))
    assert steps[-1] == (len(DATA), len(DATA))
    assert names(tmp_path / "new" / "folder") == ["data.bin"]


def test_cut_connections_are_taken_up_where_they_ended(server: Server, tmp_path: Path) -> None:
    server.cuts = [1_000_000, 500_000, 0]
    get(file(server, checksum=SHA256), tmp_path)
    assert [wanted for _, wanted in server.asked] == [None, "bytes=1000000-", "bytes=1500000-", "bytes=1500000-"]


@pytest.mark.parametrize(
    ("part", "facts", "asked"),
    [
        (DATA[:3_000_000], {"size": len(DATA)}, ["bytes=3000000-"]),
        (b"other" * 1000, {"checksum": MD5}, ["bytes=5000-", None]),
        (b"other" * 1000, {}, [None]),
        (DATA + b"more", {"checksum": MD5}, ["bytes=4194308-", None]),
    ],
    ids=["from an earlier run", "of something else", "with nothing published to check it", "longer than the file"],
)
def test_a_part_that_is_there(
    server: Server, tmp_path: Path, part: bytes, facts: dict[str, Any], asked: list[str | None]
) -> None:
    (tmp_path / "data.bin.part").write_bytes(part)
    get(file(server, **facts), tmp_path)
    assert [wanted for _, wanted in server.asked] == asked


def test_a_source_that_is_gone_gives_way_to_the_next(server: Server, tmp_path: Path) -> None:
    get(file(server, "/gone", "/data.bin", checksum=MD5), tmp_path)
    assert [path for path, _ in server.asked] == ["/gone", "/data.bin"], "asked once, not again and again"
    unreachable = "http://127.0.0.1:9/data.bin"
    get(File("data.bin", (unreachable, server.url + "/data.bin"), checksum=MD5), tmp_path / "other")


def test_a_busy_source_is_asked_again_with_growing_pauses(server: Server, tmp_path: Path) -> None:
    pauses: list[float] = []
    with pytest.raises(InputError, match="HTTP 503"):
        list(download.fetch(file(server, "/busy"), tmp_path, "page", pause=pauses.append))
    assert pauses == [1, 2, 4]
    assert len(server.asked) == 4


def test_when_all_fail_it_says_where_to_get_the_file(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        get(file(server, "/gone", "/lost"), tmp_path)
    remedy = "get it by hand from http://page.example/ and put it into .*"
    assert re.fullmatch(rf"no source gave data\.bin \(.*/lost: HTTP 404 .*\): {remedy}", str(error.value))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("page", "facts", "says"), [(False, {"size": 99}, "has a file of 4194304 bytes, not 99"), (True, {}, "web page")]
)
def test_a_wrong_size_and_a_web_page_are_refused_before_anything_is_fetched(
    server: Server, tmp_path: Path, page: bool, facts: dict[str, int], says: str
) -> None:
    server.page = page
    with pytest.raises(InputError, match=says):
        get(file(server, **facts), tmp_path)
    assert names(tmp_path) == []


def test_a_file_that_is_there_is_left_alone_where_it_is_right(server: Server, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"half")
    get(file(server, checksum=SHA256), tmp_path)
    assert len(server.asked) == 1
    assert get(file(server, checksum=SHA256), tmp_path) == [(len(DATA), len(DATA))]
    assert len(server.asked) == 1


def test_a_wrong_checksum_never_gets_the_final_name(server: Server, tmp_path: Path) -> None:
    server.files["/other"] = DATA[:-1] + b"!"
    with pytest.raises(InputError, match="another SHA256 than the published one"):
        get(file(server, "/other", checksum=SHA256), tmp_path)
    assert names(tmp_path) == []
    get(file(server, "/other", "/data.bin", checksum=MD5), tmp_path)


def test_a_disk_that_fills_up_keeps_the_part(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_path = Path.open

    class Full(io.FileIO):
        """A file on a disk with room for 2 MiB."""

        def write(self, block: Any) -> int:
            if self.tell() + len(block) > 2 << 20:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(block)

    monkeypatch.setattr(Path, "open", lambda self, mode="r": Full(self, mode))
    with pytest.raises(InputError, match=r"data\.bin\.part cannot be written \(No space left on device\): make room"):
        get(file(server, checksum=MD5), tmp_path)
    assert names(tmp_path) == ["data.bin.part"]
    monkeypatch.setattr(Path, "open", open_path)
    get(file(server, checksum=MD5), tmp_path)
    assert server.asked[-1][1] == f"bytes={2 << 20}-"
    assert names(tmp_path) == ["data.bin"]
