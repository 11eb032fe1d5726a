"""Chromium without a window, by the protocol of its driver."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

MISSING = not (shutil.which("chromedriver") and shutil.which("chromium"))
TAB, ENTER, ESCAPE, SPACE = "\ue004", "\ue007", "\ue00c", " "


class Browser:
    def __init__(self, address: str) -> None:
        self.address = address
        words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900"]
        logged: dict[str, Any] = {"goog:chromeOptions": {"args": words}, "goog:loggingPrefs": {"browser": "ALL"}}
        self.address += "/session/" + self.call("POST", "/session", capabilities={"alwaysMatch": logged})["sessionId"]

    def call(self, method: str, path: str, **given: Any) -> Any:
        body = json.dumps(given).encode() if method == "POST" else None
        asked = urllib.request.Request(self.address + path, body, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            raise AssertionError(error.read().decode()[:500]) from None

    def open(self, page: Path) -> None:
        self.call("POST", "/url", url=page.as_uri())
        self.ask("document.documentElement.style.scrollBehavior = 'auto'")

    def ask(self, code: str) -> Any:
        return self.call("POST", "/execute/sync", script=code, args=[])

    def click(self, selector: str) -> None:
        (found,) = self.call("POST", "/element", using="css selector", value=selector).values()
        self.call("POST", f"/element/{found}/click")

    def press(self, keys: str) -> None:
        presses = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.call("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": presses}])

    def seen(self, selector: str) -> int:
        """How many such elements are visible."""
        return int(self.ask(f"return [...document.querySelectorAll('{selector}')].filter(e => {VISIBLE}).length"))

    def complaints(self) -> list[str]:
        """What the browser says of the page: whatever its policy forbids, for example."""
        return [each["message"] for each in self.call("POST", "/se/log", type="browser")]


VISIBLE = "e.checkVisibility({visibilityProperty: true})"


@contextmanager
def browser() -> Iterator[Browser]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}", "--silent"], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        opened = Browser(f"http://127.0.0.1:{port}")
        try:
            yield opened
        finally:
            opened.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait()
