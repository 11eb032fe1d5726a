"""The page's server against those who should not get in: every request here is refused, and no answer is touched."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest
from ask import made
from ask.client import Client
from PIL import Image

from adamatch.ask.answers import ANSWERS, Book
from adamatch.ask.server import LONGEST, Desk, Server
from adamatch.base.errors import InputError

RIGHT = json.dumps({"question": 0, "kind": "class", "label": 1}).encode()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    run = made.run(tmp_path)
    with Book.opened(run) as book:
        book.want(30, 0, 0)
        served = Server(Desk(book))
        served.start()
        yield served
        served.stop()


@pytest.fixture
def client(server: Server) -> Client:
    found = Client(server.address)
    found.post("/answer", {"question": 5, "kind": "class", "label": 2})
    return found


@pytest.fixture(autouse=True)
def untouched(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """The one answer that is there, and no other."""
    yield
    if "client" in request.fixturenames and "answers" not in request.node.name:
        assert len((tmp_path / "run" / ANSWERS).read_text().splitlines()) == 2


def test_the_token_is_good_for_once_and_becomes_a_cookie_that_scripts_cannot_read(server: Server) -> None:
    address = server.address
    client = Client(address)
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in client.given.split(";")}
    assert client.cookie.split("=")[1] not in address
    token = address.partition("?")[2]
    assert client.ask("GET", f"/?{token}", cookie=False)[0] == 403
    assert client.ask("GET", f"/?{token}")[0] == 303  # with the cookie it leads to the page
    assert client.ask("GET", "/?token=", cookie=False)[0] == 403
    assert client.ask("GET", "/?token=%C3%A4", cookie=False)[0] == 403
    status, headers, body = client.ask("GET", "/")
    assert status == 200
    assert b"token" not in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/state", "/image/0", "/example/0/0", "/page.js", "/page.css"])
def test_nothing_is_had_without_the_cookie(client: Client, path: str) -> None:
    for cookie in (None, "", "ask=x", f"{client.cookie}x", client.cookie.split("=")[0] + "=", "\x00;;=,"):
        assert client.ask("GET", path, Cookie=cookie)[0] == 403
        assert client.ask("POST", "/answer", RIGHT, Cookie=cookie)[0] == 403


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost", "", None])
def test_another_host_is_refused(client: Client, host: str | None) -> None:
    if host is None:
        with socket.create_connection((client.host, client.port)) as line:
            line.sendall(f"GET /state HTTP/1.0\r\nCookie: {client.cookie}\r\n\r\n".encode())
            assert b" 421 " in line.makefile("rb").readline()
        return
    assert client.ask("GET", "/state", Host=host)[0] == 421
    assert client.ask("POST", "/answer", RIGHT, Host=host, Origin=f"http://{host}")[0] == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://127.0.0.1", "https://127.0.0.1:1", None])
def test_another_origin_is_refused(client: Client, origin: str | None) -> None:
    for path in ("/answer", "/more", "/finish"):
        assert client.ask("POST", path, RIGHT, Origin=origin)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/../run/answers.csv",
            "/image/../../answers.csv",
            "/image/..%2f..%2fanswers.csv",
            "/answers.csv",
            "//etc/passwd",
        ),
        *(
            "/image//etc/passwd",
            "/image/%2e%2e/0",
            "/image/30",
            "/image/-1",
            "/image/1e1",
            "/image/%C2%B2",
            "/image/0/0",
        ),
        *("/image/", "/image/99999999999999999999", "/page.js/../page.html", "/page/page.html", "/example/0/0"),
        *("/example/3/0", "/example/-1/0", "/model.safetensors", "/image/0\\..\\x", "/image/../0"),
    ],
)
def test_no_other_file_is_had(client: Client, path: str) -> None:
    status, _, body = client.ask("GET", path)
    assert status == 404
    assert len(body) < 100


def test_images_come_by_the_number_of_a_question_turned_and_without_what_is_in_their_files(
    server: Server, client: Client
) -> None:
    question = server.desk.book.questions[7]
    picture = Image.new("RGB", (40, 20), (250, 0, 0))
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "where I live"
    picture.save(question.name, exif=exif)
    status, headers, body = client.ask("GET", "/image/7")
    assert (status, headers["Content-Type"]) == (200, "image/png")
    assert Image.open(BytesIO(body)).size == (20, 40)
    assert b"where I live" not in body
    Path(server.desk.book.questions[8].name).write_text("<script>")
    status, headers, body = client.ask("GET", "/image/8")
    assert (status, headers["Content-Type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[" * 4000, 400),
        (b"[]", 400),
        (b"{}", 400),
        (b'{"question": 30, "kind": "none"}', 404),
        (b'{"question": -1, "kind": "none"}', 404),
        (b'{"question": "0", "kind": "none"}', 400),
        (b'{"question": 0, "kind": "class", "label": 3}', 400),
        (b'{"question": 0, "kind": "class", "label": -1}', 400),
        (b'{"question": 0, "kind": "class", "label": "red"}', 400),
        (b'{"question": 0, "kind": "undone"}', 400),
        (b"\xff\xfe", 400),
        (b'{"question": 0, "kind": "none"}' + b" " * LONGEST, 413),
    ],
)
def test_what_is_no_answer_is_refused(client: Client, body: bytes, status: int) -> None:
    assert client.ask("POST", "/answer", body)[0] == status
    assert client.ask("GET", "/answer")[0] == 404
    assert client.ask("PUT", "/answer", body)[0] == 501
    assert client.ask("POST", "/state", RIGHT)[0] == 404


def test_ten_megabytes_are_not_read(client: Client) -> None:
    with socket.create_connection((client.host, client.port), timeout=20) as line:
        head = f"POST /answer HTTP/1.1\r\nHost: {client.host}:{client.port}\r\nOrigin: {client.origin}\r\n"
        head += f"Cookie: {client.cookie}\r\nContent-Length: 10000000\r\n\r\n"
        line.sendall(head.encode())
        assert b" 413 " in line.makefile("rb").readline()  # before any of them is sent
    body = RIGHT + b" " * 10_000_000
    assert client.ask("POST", "/answer", body[:LONGEST], Content_Length="chunked")[0] == 411
    with socket.create_connection((client.host, client.port), timeout=20) as line:
        line.sendall(b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
        assert b" 414 " in line.makefile("rb").readline()


def test_a_thousand_at_once_leave_it_alive(server: Server, client: Client) -> None:
    silent = []
    for _ in range(60):  # connections that say nothing
        silent.append(socket.create_connection((client.host, client.port)))

    def shout(number: int) -> int:
        try:
            return client.ask("POST", "/answer", RIGHT, Origin="http://evil.example" if number % 2 else None)[0]
        except OSError:
            return 0  # closed at once
        except Exception:  # http.client's own, for the same
            return 0

    before = threading.active_count()
    with ThreadPoolExecutor(100) as crowd:
        found = list(crowd.map(shout, range(1000)))
    assert {*found} <= {0, 403}
    for each in silent:
        each.close()
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert client.state()["questions"][5]["answer"] == {"kind": "class", "label": 2}


def test_answers_are_taken_changed_and_taken_back(client: Client, tmp_path: Path) -> None:
    state = client.post("/answer", {"question": 0, "kind": "none", "label": None})
    assert state["last"] == 0
    state = client.post("/answer", {"question": 5, "kind": "class", "label": 0})
    assert (state["last"], state["questions"][5]["answer"]) == (5, {"kind": "class", "label": 0})
    state = client.post("/answer", {"question": 5, "kind": None})
    assert (state["last"], state["questions"][5]["answer"]) == (0, None)
    assert client.ask("POST", "/more", b"{}")[0] == 400  # questions are open
    for number in range(30):
        state = client.post("/answer", {"question": number, "kind": "class", "label": 0})
    assert state["more"]
    assert len(client.post("/more", {})["questions"]) == 60


def test_an_answer_that_cannot_be_kept_is_an_error_on_the_page(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "run" / ANSWERS
    held = path.rename(tmp_path / "held")
    path.mkdir()
    status, _, body = client.ask("POST", "/answer", RIGHT)
    path.rmdir()
    held.rename(path)
    assert status == 500
    assert b"the answer was not kept" in body
    assert client.state()["questions"][0]["answer"] is None


def test_a_port_that_is_taken_is_one_line(server: Server) -> None:
    with pytest.raises(InputError, match=r"port .* cannot be used"):
        Server(server.desk, server.server_port)
