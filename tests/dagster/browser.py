"""A headless Chromium, driven through its own protocol: open a page, ask its document, keep a picture."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from websockets.sync.client import ClientConnection, connect

from tests.dagster.web_server import wait_for

NAMES = ("chromium", "chromium-browser", "google-chrome")


def require_chromium() -> str:
    """Return the path of Chromium; skips the test where there is none, and fails it in continuous integration."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is not None:
        return found
    text = "no chromium on PATH (Debian: apt-get install chromium)"
    if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(f"{text}; continuous integration has to have it")
    pytest.skip(text)


class Page:
    """One open page."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result, passing over events."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=60))
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result

    def open(self, url: str) -> None:
        """Go to an address."""
        self.command("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def text(self) -> str:
        """Return what a reader sees."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def wait_for_text(self, *parts: str, seconds: float = 60.0) -> str:
        """Wait until the page shows all these texts, and return what it shows."""

        def ask() -> str | None:
            shown = self.text()
            return shown if all(part in shown for part in parts) else None

        try:
            return wait_for(f"{parts} on the page", ask, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\nthe page shows:\n{self.text()[:3000]}") from None

    def screenshot(self, path: Path) -> None:
        """Keep a picture of the page, in 256 colours: less than half the bytes, and no difference that one sees."""
        taken = BytesIO(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))
        with Image.open(taken) as picture:
            colours = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        colours.save(path, optimize=True)


@contextmanager
def open_browser(chromium: str, profile: Path) -> Iterator[Page]:
    """Start a headless browser with a profile of its own, and end it."""
    program = [
        chromium,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--window-size=1500,1400",
        "--remote-debugging-address=127.0.0.1",
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        "about:blank",
    ]
    process = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port_file = profile / "DevToolsActivePort"
        port = wait_for(
            "Chromium's port", lambda: port_file.read_text().split()[0] if port_file.exists() and port_file.stat().st_size else None
        )
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=30) as answer:
            target = next(found for found in json.loads(answer.read()) if found["type"] == "page")
        with connect(target["webSocketDebuggerUrl"], max_size=None) as socket:
            page = Page(socket)
            page.command("Page.enable")
            yield page
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
