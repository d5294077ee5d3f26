"""A draft with pictures, and the app killed: by path, from the web, and while one is still being fetched."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import signal
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from PIL import Image

from tests.support.terminal import Terminal
from tests.torture.campaign import Campaign
from vlmtui.store.opening import FILE

_READY = "Message, or / for commands"


def png(colour: str) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), colour).save(buffer, "PNG")
    return buffer.getvalue()


@contextlib.contextmanager
def web() -> Iterator[tuple[str, threading.Event]]:
    """The address of a server, whose `/slow.png` comes when the event is set."""
    may_come = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/slow.png":
                may_come.wait()
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                self.wfile.write(png("blue"))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", may_come
    finally:
        may_come.set()
        server.shutdown()
        thread.join()
        server.server_close()


def drafts(campaign: Campaign) -> list[tuple[str, int]]:
    """The texts of the stored drafts, and how many stored files each needs."""
    sql = "SELECT text, (SELECT count(*) FROM media_references WHERE draft = conversation) FROM drafts"
    path = campaign.paths.data / FILE
    if not path.exists():
        return []
    with contextlib.closing(sqlite3.connect(path, timeout=10)) as database:
        return database.execute(sql).fetchall()


def stored(campaign: Campaign) -> set[str]:
    """The hashes that stored files have by their names, all of them true."""
    files = [path for path in campaign.paths.media.glob("??/*") if not path.name.startswith(".")]
    assert all(hashlib.sha256(path.read_bytes()).hexdigest() == path.stem for path in files)
    return {path.stem for path in files}


def wait_for_draft(terminal: Terminal, campaign: Campaign, wanted: tuple[str, int]) -> None:
    terminal.wait_for(lambda _: drafts(campaign) == [wanted])


def test_a_draft_with_pictures_survives_kills(short_path: Path) -> None:
    campaign = Campaign(short_path, seed=1)
    path = short_path / "fleeting.png"
    path.write_bytes(png("red"))
    slow_name = "slow.png"
    with web() as (address, _):
        with campaign.open_app() as terminal:
            terminal.wait_for(_READY)
            terminal.type(f"/attach {address}/a.png\r")
            terminal.wait_for("[Image #1]")
            terminal.paste(str(path))
            terminal.wait_for("[Image #2]")
            terminal.type(f"/attach {address}/{slow_name}\r")
            terminal.wait_for("[File #3]")
            terminal.type("Which is larger?")
            text = f"[Image #1][Image #2] {address}/{slow_name} Which is larger?"
            wait_for_draft(terminal, campaign, (text, 2))
            os.kill(terminal.pid, signal.SIGKILL)
        path.unlink()
    kept = stored(campaign)
    assert len(kept) == 2
    with campaign.open_app(resume=True) as terminal:
        terminal.wait_for("Which is larger?")
        assert drafts(campaign) == [(text, 2)]
        os.kill(terminal.pid, signal.SIGKILL)  # at the start, too: what tidies up then finds it needed
    with campaign.open_app(resume=True) as terminal:
        terminal.wait_for("Which is larger?")
        terminal.type(" say 3 k")
        wait_for_draft(terminal, campaign, (f"{text} say 3 k", 2))
        terminal.press("enter")
        terminal.wait_for("Send as text")
        terminal.press("enter")
        terminal.wait_for("k-2")
        terminal.press("ctrl+q")
        terminal.wait_for_end()
    assert drafts(campaign) == [] and stored(campaign) == kept
    with contextlib.closing(sqlite3.connect(campaign.paths.data / FILE)) as database:
        asked = database.execute("SELECT sha256 FROM media_references WHERE turn IS NOT NULL").fetchall()
    assert {row[0] for row in asked} == kept
    campaign.check_processes()
    assert campaign.losses.found == []
