"""The page of `adamatch ask`, on this machine's loopback address alone.

The address has a token that is good for once: it is exchanged for a cookie that scripts cannot read. Every other
request needs that cookie, this server's own host name, and, where it changes something, this server's own origin.
Images are had by the number of a question or of a class's example, never by a path. Nothing is fetched from elsewhere.
"""

import hmac
import io
import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
from PIL import Image

from adamatch.ask.answers import CLASS, NONE, UNSURE, Answer, Book
from adamatch.ask.estimate import summarise
from adamatch.base.errors import InputError
from adamatch.base.files import read_sealed
from adamatch.images.decode import SIXTEEN_BITS, read_image

HOST = "127.0.0.1"
LONGEST = 4096  # bytes of a request's body
AT_ONCE = 32  # connections; more are closed at once
PATIENCE = 10  # seconds that a connection may keep silent
SIDE = 2000  # pixels of an image, at most
SMALL = 256  # pixels up to which an image is sent without loss
EXAMPLES = 6  # images of a class
PAGE = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Reply = tuple[str, bytes]  # a content type and a body


class Refused(Exception):  # noqa: N818
    """A request that is not answered, and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class Desk:
    """What the page asks for and tells, one request at a time."""

    def __init__(self, book: Book, images: Sequence[Any] | None = None) -> None:
        self.book, self.images = book, images
        self.finished = threading.Event()
        self.examples = _examples(book)
        self._one, self._few = threading.RLock(), threading.BoundedSemaphore(2)  # images are decoded two at a time
        self._encoded = lru_cache(maxsize=16)(self._encode)

    def state(self) -> Any:
        """Everything that the page shows."""
        with self._one:
            book, target = self.book, self.book.target
            questions = []
            for question, answer in zip(book.questions, book.answers(), strict=True):
                guesses = [int(each.classes[question.row]) for each in (target.said, target.twin) if each is not None]
                given = None if answer is None else {"kind": answer.kind, "label": _index(answer, target.classes)}
                questions.append({"guesses": guesses, "answer": given})
            lines = summarise(book).lines
            examples = [len(self.examples.get(number, ())) for number in range(len(target.classes))]
            return {
                "classes": target.classes,
                "examples": examples,
                "questions": questions,
                "lines": lines,
                "last": book.last,
                "more": len(book.questions) < len(target),
            }

    def answer(self, told: Any) -> Any:
        """{"question": 3, "kind": "class", "label": 5}; kind null takes the answer back."""
        with self._one:
            classes = self.book.target.classes
            match told:
                case {"question": int(number), "kind": "class", "label": int(label)} if 0 <= label < len(classes):
                    found: Answer | None = Answer(CLASS, classes[label])
                case {"question": int(number), "kind": str(kind)} if kind in (NONE, UNSURE):
                    found = Answer(kind)
                case {"question": int(number), "kind": None}:
                    found = None
                case _:
                    raise Refused(HTTPStatus.BAD_REQUEST, "this is no answer")
            if not 0 <= number < len(self.book.questions):
                raise Refused(HTTPStatus.NOT_FOUND, "there is no such question")
            self.book.answer(number, found)
            return self.state()

    def more(self, told: Any) -> Any:
        with self._one:
            if told != {} or self.book.open:
                raise Refused(HTTPStatus.BAD_REQUEST, "questions are open")
            self.book.draw(30, images=self.images)
            return self.state()

    def finish(self, told: Any) -> Any:
        self.finished.set()
        return {}

    def image(self, number: int) -> Reply:
        """Of a question."""
        if not 0 <= number < len(self.book.questions):
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such question")
        row = self.book.questions[number].row
        target = self.book.target
        return self._encoded(target.names[row] if target.files else int(target.rows[row]))

    def example(self, label: int, number: int) -> Reply:
        """One of the labelled images of a class."""
        found = self.examples.get(label, ())
        if not 0 <= number < len(found):
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such example")
        return self._encoded(found[number])

    def _encode(self, image: str | int) -> Reply:
        with self._few:
            return self._as_file(image)

    def _as_file(self, image: str | int) -> Reply:
        try:
            if isinstance(image, str):
                picture = read_image(image, white=self.book.target.white or SIXTEEN_BITS)
            elif self.images is not None:
                picture = Image.fromarray(np.asarray(self.images[image]))
            else:
                raise Refused(HTTPStatus.NOT_FOUND, "arrays have no pictures here: give them to model.ask(images=...)")
        except InputError as error:
            raise Refused(HTTPStatus.NOT_FOUND, str(error)) from None
        picture.thumbnail((SIDE, SIDE))
        held = io.BytesIO()
        if max(picture.size) <= SMALL:
            picture.save(held, "PNG")
            return "image/png", held.getvalue()
        picture.save(held, "JPEG", quality=90)
        return "image/jpeg", held.getvalue()


def _index(answer: Answer, classes: Sequence[str]) -> int | None:
    return classes.index(answer.label) if answer.kind == CLASS else None


def _examples(book: Book) -> Mapping[int, list[str]]:
    """Files of labelled images by class, where the run knows them."""
    try:
        source = read_sealed(book.folder / "images.json")["source"]
        files, labels = source["files"], source["labels"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    found: dict[int, list[str]] = {}
    for name, label in zip(files, labels, strict=False):
        if len(found.setdefault(label, [])) < EXAMPLES:
            found[label].append(str(Path(source["root"], name)))
    return found


class Server(ThreadingHTTPServer):
    """Of one desk. `address` is good for once."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, desk: Desk, port: int = 0) -> None:
        self.desk, self.token, self.session = desk, secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._places = threading.BoundedSemaphore(AT_ONCE)
        try:
            super().__init__((HOST, port), Handler)
        except OSError as error:
            raise InputError(
                f"port {port} cannot be used ({error.strerror}): leave out --port, or give another"
            ) from None
        self.hosts = {f"{HOST}:{self.server_port}", f"localhost:{self.server_port}"}
        self.cookie = f"ask-{self.server_port}"  # cookies are shared by all ports

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    def exchange(self, token: str) -> bool:
        """Whether this is the token; from then on it is none."""
        right = bool(self.token) and hmac.compare_digest(token.encode(), self.token.encode())
        if right:
            self.token = ""
        return right

    def start(self) -> None:
        """Serve in the background."""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def stop(self) -> None:
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that hangs up is no error."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = PATIENCE
    server_version, sys_version = "adamatch", ""

    def do_GET(self) -> None:
        self._reply(self._get)

    def do_POST(self) -> None:
        self._reply(self._post)

    def _reply(self, made: Callable[[], Reply | None]) -> None:
        try:
            reply = made()
        except Refused as refused:
            self._send(refused.status, ("text/plain", str(refused).encode()))
        except InputError as error:  # an answer that could not be kept
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, ("text/plain", str(error).encode()))
        else:
            if reply is not None:
                self._send(HTTPStatus.OK, reply)

    def _get(self) -> Reply | None:
        self._check_host()
        place, desk = urlsplit(self.path), self.server.desk
        if place.path == "/" and "token" in (given := parse_qs(place.query)):
            if not self._is_known() and not self.server.exchange(given["token"][0]):
                used = "this address was used already, or is wrong: run `adamatch ask` again (no answer is lost)"
                raise Refused(HTTPStatus.FORBIDDEN, used)
            self._send(HTTPStatus.SEE_OTHER, ("text/plain", b""), Location="/", **{"Set-Cookie": self._cookie()})
            return None
        self._check_known()
        match place.path.split("/")[1:]:
            case _ if place.path in PAGE:
                name, kind = PAGE[place.path]
                return kind, (files("adamatch.ask") / "page" / name).read_bytes()
            case ["state"]:
                return _json(desk.state())
            case ["image", number] if _is_number(number):
                return desk.image(int(number))
            case ["example", label, number] if _is_number(label) and _is_number(number):
                return desk.example(int(label), int(number))
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such page")

    def _post(self) -> Reply:
        self.close_connection = True  # whatever else it sends
        self._check_host()
        if self.headers.get("Origin") != f"http://{self.headers['Host']}":
            raise Refused(HTTPStatus.FORBIDDEN, "the request comes from another page")
        self._check_known()
        length = self.headers.get("Content-Length", "")
        if not _is_number(length):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "the request does not say how long it is")
        if int(length) > LONGEST:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "the request is too long")
        desk = self.server.desk
        calls = {"/answer": desk.answer, "/more": desk.more, "/finish": desk.finish}
        if self.path not in calls:
            raise Refused(HTTPStatus.NOT_FOUND, "there is no such page")
        try:
            told = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            raise Refused(HTTPStatus.BAD_REQUEST, "this is no answer") from None
        return _json(calls[self.path](told))

    def _check_host(self) -> None:
        """A stranger's page whose name was made to lead here has another host."""
        if self.headers.get("Host") not in self.server.hosts:
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "another host was asked for")

    def _check_known(self) -> None:
        if not self._is_known():
            raise Refused(HTTPStatus.FORBIDDEN, "open the address that `adamatch ask` printed")

    def _is_known(self) -> bool:
        try:
            held = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return held is not None and hmac.compare_digest(held.value.encode(), self.server.session.encode())

    def _cookie(self) -> str:
        return f"{self.server.cookie}={self.server.session}; HttpOnly; SameSite=Strict; Path=/"

    def _send(self, status: HTTPStatus, reply: Reply, **more: str) -> None:
        kind, body = reply
        self.send_response(status)
        coded = f"{kind}; charset=utf-8" if kind.startswith(("text/", "application/")) else kind
        headers = {"Content-Type": coded, "Content-Length": str(len(body)), **HEADERS, **more}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Nothing: the terminal is for results."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 13


def _json(facts: Any) -> Reply:
    return "application/json", json.dumps(facts).encode()
