"""Chromium, driven by chromedriver's own protocol (W3C WebDriver): JSON over HTTP."""

import base64
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

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Backspace": "\ue003", "ArrowLeft": "\ue012", "ArrowRight": "\ue014", "Escape": "\ue00c"}


class Browser:
    def __init__(self, port: int, width: int, height: int, *, dark: bool, touch: bool) -> None:
        self.base = f"http://127.0.0.1:{port}"
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"]
        arguments += [f"--window-size={width},{height}"]
        options: dict[str, Any] = {"binary": CHROMIUM, "args": arguments}
        if touch:
            metrics = {"width": width, "height": height, "pixelRatio": 1, "touch": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "pageLoadStrategy": "normal"}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{made['sessionId']}"
        if dark:
            feature = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
            self.devtools("Emulation.setEmulatedMedia", feature)
        if not touch:
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
            self.devtools("Emulation.setDeviceMetricsOverride", size)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.base + path, data=data, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.loads(reply.read())["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()[:600]) from None

    def devtools(self, command: str, params: Any) -> Any:
        return self._call("POST", f"{self.session}/goog/cdp/execute", {"cmd": command, "params": params})

    def open(self, address: str) -> None:
        self._call("POST", f"{self.session}/url", {"url": address})

    def reload(self) -> None:
        self._call("POST", f"{self.session}/refresh", {})

    def run(self, script: str) -> Any:
        return self._call("POST", f"{self.session}/execute/sync", {"script": script, "args": []})

    def press(self, keys: str) -> None:
        """A key by its name, or each character of a text."""
        actions = []
        for key in [KEYS[keys]] if keys in KEYS else keys:
            actions += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._call("POST", f"{self.session}/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def tap(self, css: str) -> None:
        """With a finger, in the middle of an element."""
        found = self._call("POST", f"{self.session}/element", {"using": "css selector", "value": css})
        self.run(f"document.querySelector({css!r}).scrollIntoView({{block: 'nearest'}})")
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "origin": {ELEMENT: found[ELEMENT]}, "x": 0, "y": 0},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        finger = {"type": "pointer", "id": "finger", "parameters": {"pointerType": "touch"}, "actions": moves}
        self._call("POST", f"{self.session}/actions", {"actions": [finger]})

    def until(self, condition: str, seconds: float = 30) -> Any:
        """Wait until a JavaScript expression holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.run(f"return {condition}"):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{condition} did not come true: {self.run('return document.body.innerText')}")

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", f"{self.session}/screenshot")))

    def close(self) -> None:
        with suppress(Exception):
            self._call("DELETE", self.session)


@contextmanager
def browser(width: int = 1200, height: int = 800, *, dark: bool = False, touch: bool = False) -> Iterator[Browser]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert DRIVER is not None
    driver = subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5):
                break
            time.sleep(0.1)
        made = Browser(port, width, height, dark=dark, touch=touch)
        try:
            yield made
        finally:
            made.close()
    finally:
        driver.terminate()
        driver.wait()
