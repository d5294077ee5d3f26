"""Loads pages in a real headless Chromium over its debugging pipe: sizes, requests, console messages."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
"""Debian's browser; None if it is not installed."""
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-extensions",
    "--remote-debugging-pipe",
    "--no-first-run",
)


@dataclass
class Seen:
    """A page's observed behaviour. width: of its content, in CSS pixels; the window's width is `window`."""

    window: int
    width: int = 0
    height: int = 0
    text: str = ""
    font_px: float = 0.0
    """Size of the smallest text, in CSS pixels."""
    requests: list[str] = field(default_factory=list)
    """Addresses that the page requested, without its own and `data:` addresses."""
    complaints: list[str] = field(default_factory=list)
    """Messages in the console or the log."""
    screenshot: bytes = b""


class Browser:
    """A browser process, with one page at a time. A context manager."""

    def __init__(self) -> None:
        assert CHROMIUM is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read, self._write = os.pipe()
        self._read, write = os.pipe()
        command = [CHROMIUM, *_SWITCHES, f"--user-data-dir={self._profile.name}", "about:blank"]
        # The browser reads commands from descriptor 3, and answers on 4.
        shell = f'exec 3<&{read} 4>&{write}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._answers = os.fdopen(self._read, "rb")
        self._rest = b""
        self._number = 0
        self._events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._write)
        self._process.kill()
        self._process.wait()
        self._answers.close()
        self._profile.cleanup()

    def look(self, page: Path, *, width: int = 360) -> Seen:
        """Open a page in a window of this width, and return its behaviour."""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._ask(f"{domain}.enable", session)
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self._ask("Emulation.setDeviceMetricsOverride", session, **metrics)
        self._events.clear()
        self._ask("Page.navigate", session, url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._message())
        seen = Seen(width)
        script = """JSON.stringify([document.documentElement.scrollWidth, document.documentElement.scrollHeight,
            document.body.innerText, Math.min(...[...document.querySelectorAll('body *')].filter(one =>
            one.innerText).map(one => parseFloat(getComputedStyle(one).fontSize)))])"""
        told = self._ask("Runtime.evaluate", session, expression=script)["result"]["value"]
        seen.width, seen.height, seen.text, seen.font_px = json.loads(told)
        import base64

        seen.screenshot = base64.b64decode(self._ask("Page.captureScreenshot", session, format="png")["data"])
        for event in self._events:
            details = event.get("params", {})
            match event["method"]:
                case "Network.requestWillBeSent":
                    address = details["request"]["url"]
                    if not address.startswith("data:") and address != page.as_uri():
                        seen.requests.append(address)
                case "Log.entryAdded":
                    seen.complaints.append(details["entry"]["text"])
                case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown":
                    seen.complaints.append(json.dumps(details)[:500])
        self._ask("Target.closeTarget", targetId=target)
        return seen

    def _ask(self, method: str, session: str = "", **parameters: object) -> Any:
        self._number += 1
        order: dict[str, object] = {"id": self._number, "method": method, "params": parameters}
        if session:
            order["sessionId"] = session
        os.write(self._write, json.dumps(order).encode() + b"\0")
        while (message := self._message()).get("id") != self._number:
            if "method" in message:
                self._events.append(message)
        assert "result" in message, message
        return message["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 65536)
            assert data, "the browser has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message
