"""A real Chromium, driven by its own driver over plain HTTP: for tests of the page."""

import base64
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
FLAGS += ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync"]
TAB = "\ue004"
SECONDS = 60


def missing() -> str:
    """What has to be installed; empty where all is there."""
    lost = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(lost)} not installed (Debian: apt-get install chromium chromium-driver)" if lost else ""


class Browser:
    """One window."""

    def __init__(self, address: str, profile: Path) -> None:
        self.address = address
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"], "binary": shutil.which("chromium")}
        logs = {"browser": "ALL", "performance": "ALL"}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs}
        made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.address = f"{address}/session/{made['sessionId']}"

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.load(answer)["value"]

    def protocol(self, command: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def show(self, page: Path, *, width: int, dark: bool = False) -> None:
        self.protocol(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.protocol("Emulation.setEmulatedMedia", features=[scheme])
        self.requests()  # forgets those of the page before, and of the browser's own first page
        self.console()
        self._send("POST", "/url", {"url": page.as_uri()})

    def run(self, script: str) -> Any:
        """What a script returns; it is run by the driver, so that a page's own rules on scripts do not matter."""
        return self._send("POST", "/execute/sync", {"script": script, "args": []})

    def press(self, key: str) -> None:
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._send("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def console(self) -> list[str]:
        """What the page complained of since the last call."""
        return [entry["message"] for entry in self._send("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call, but for those inside the page."""
        events = [
            json.loads(entry["message"])["message"] for entry in self._send("POST", "/se/log", {"type": "performance"})
        ]
        sent = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
        return [url for url in sent if not url.startswith("data:")]

    def picture(self, path: Path, *, height: int | None = None) -> Path:
        """Of the whole page, or of its first so many pixels."""
        width, whole = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": height or whole, "scale": 1}
        made = self.protocol("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(made["data"]))
        return path

    def close(self) -> None:
        self._send("DELETE", "")


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """Started, and ended with the driver; `folder` holds its profile."""
    command = [shutil.which("chromedriver") or "chromedriver", "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as driver:
        try:
            assert driver.stdout is not None
            line = next(each for each in driver.stdout if "started successfully on port" in each)
            browser = Browser(f"http://127.0.0.1:{int(line.split()[-1].rstrip('.'))}", folder / "profile")
            try:
                yield browser
            finally:
                browser.close()
        finally:
            driver.terminate()
