"""A browser's requests without a browser."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit


class Client:
    """It exchanges the token for the cookie, and keeps that."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self.host, self.port = str(place.hostname), int(place.port or 0)
        self.origin = f"http://{self.host}:{self.port}"
        status, headers, _ = self.ask("GET", f"/?{place.query}", cookie=False)
        assert status == 303, status
        self.cookie = headers["Set-Cookie"].split(";")[0]
        self.given = headers["Set-Cookie"]

    def ask(
        self, method: str, path: str, body: bytes | None = None, *, cookie: bool = True, **headers: str | None
    ) -> tuple[int, Any, bytes]:
        """A header that is None is left out; underscores stand for hyphens."""
        all_headers: dict[str, str | None] = {"Cookie": self.cookie if cookie else None}
        if method == "POST":
            all_headers |= {"Origin": self.origin}
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.request(
                method, path, body, {name: value for name, value in all_headers.items() if value is not None}
            )
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read()
        finally:
            connection.close()

    def state(self) -> Any:
        return json.loads(self.ask("GET", "/state")[2])

    def post(self, path: str, told: object) -> Any:
        status, _, body = self.ask("POST", path, json.dumps(told).encode())
        assert status == 200, body
        return json.loads(body)

    def send(self, path: str, told: object) -> None:
        """Without waiting for the reply."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        connection.request("POST", path, json.dumps(told).encode(), {"Cookie": self.cookie, "Origin": self.origin})
