"""The key of a server is used, and found nowhere but where its user put it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.fault_server import FaultServer, fault_server, sends
from tests.support.terminal import Terminal, search_paths
from vlmtui.paths import Paths

pytestmark = [pytest.mark.e2e, pytest.mark.process]
KEY, HEADER = "kx93-secret-of-the-box", "team-secret-7731"
APP = [sys.executable, "-m", "vlmtui"]
ASK = ("ask", "--engine", "box", "--json", "hello")


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as found:
        yield found


class Home:
    """A home whose settings name the server, with the app's commands."""

    def __init__(self, folder: Path, server: FaultServer, *, key: str = 'api_key_env = "BOX_KEY"') -> None:
        self.folder = folder
        self.env = {"HOME": str(folder), "VLMTUI_DATA_DIR": str(folder), "VLMTUI_GRAPHICS": "off", **search_paths()}
        self.secrets = {"BOX_KEY": KEY, "TEAM": HEADER}
        config = Paths.below(folder).config / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(f'[engines.box]\nurl = "{server.url}"\n{key}\nheaders = {{ X-Team = "env:TEAM" }}\n')

    async def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return await asyncio.to_thread(
            subprocess.run,
            [*APP, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**self.env, **self.secrets},
            timeout=300,
        )

    def processes(self) -> Iterator[psutil.Process]:
        """Return the processes below this home."""
        for process in psutil.process_iter():
            try:
                if process.environ().get("VLMTUI_DATA_DIR") == str(self.folder):
                    yield process
            except (psutil.Error, OSError):
                continue

    def places_of_a_secret(self) -> list[str]:
        """Files, command lines, and variables other than those that were given, which hold a secret."""
        found: list[str] = []
        for path in self.folder.rglob("*"):
            if path.is_file() and path.name != "the-key" and holds_a_secret(path.read_bytes()):
                found.append(str(path))
        for process in self.processes():
            given = {name: value for name, value in process.environ().items() if self.secrets.get(name) != value}
            if holds_a_secret(" ".join(process.cmdline()).encode() + json.dumps(given).encode()):
                found.append(f"process {process.cmdline()}")
        return found

    async def stop(self) -> None:
        await self.run("stop", "--all")


def holds_a_secret(content: bytes) -> bool:
    return KEY.encode() in content or HEADER.encode() in content


@pytest.fixture
async def home(short_path: Path, server: FaultServer) -> AsyncIterator[Home]:
    found = Home(short_path, server)
    yield found
    await found.stop()


async def test_a_key_goes_to_its_server_and_nowhere_else(home: Home, server: FaultServer) -> None:
    told = await home.run(*ASK)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["answer"] == "A red circle."
    assert all(f"Authorization: Bearer {KEY}".lower() in head.lower() for head in server.heads)
    assert all(HEADER in head for head in server.heads)
    env = {**home.env, **home.secrets}
    terminal = Terminal([*APP, "--engine", "box"], env=env)
    try:
        await asyncio.to_thread(terminal.wait_for, "Message, or / for commands")
        terminal.type("hello")
        await asyncio.to_thread(terminal.wait_for, "hello")
        terminal.press("enter")
        await asyncio.to_thread(terminal.wait_for, "A red circle.")
        assert len(list(home.processes())) >= 2, "the app and a worker run"
        assert home.places_of_a_secret() == []
    finally:
        await asyncio.to_thread(terminal.hang_up)
    exported = [
        await home.run("export", "--all", "--format", kind, "-o", str(home.folder / kind))
        for kind in ("json", "html", "md", "openai")
    ]
    shown = [await home.run("config", "show"), await home.run("ps")]
    for command in (told, *exported, *shown):
        assert command.returncode == 0, command.stderr
        assert not holds_a_secret(command.stdout + command.stderr), command.args
    assert list((home.folder / "json").rglob("*.json")), "something was exported"
    assert not holds_a_secret(bytes(terminal.raw))
    assert home.places_of_a_secret() == []


async def test_written_files_hold_no_key(home: Home, server: FaultServer) -> None:
    """The server refuses one item with a message that repeats the key."""
    asked = home.folder / "in.jsonl"
    asked.write_text(
        "".join(json.dumps({"id": f"{number}", "prompt": f"hello {number}"}) + "\n" for number in range(4))
    )
    refused = {"error": {"message": f"top_p is wrong, {KEY} and {HEADER}", "code": 400}}
    server.replies["/v1/chat/completions"] = [sends(refused, status=400)]
    output = home.folder / "out.jsonl"
    ran = await home.run("batch", str(asked), "-o", str(output), "--engine", "box", "--max-concurrency", "1")
    lines = [json.loads(line) for line in output.open()]
    errors = [line["error"] for line in lines if line["error"]]
    assert len(lines) == 4 and len(errors) == 1, ran.stderr
    assert "[hidden]" in json.dumps(errors), "its words are kept, without the key"
    again = await home.run("batch", str(asked), "-o", str(output), "--engine", "box", "--retry-errors")
    assert again.returncode == 0, again.stderr
    commands = [
        ran,
        again,
        await home.run("doctor", "--report"),
        await home.run("check", "record", str(home.folder / "golden"), "--model", "shapes"),
        await home.run("check", str(home.folder / "golden"), "--on", "box"),
        await home.run("conversations", "--json"),
    ]
    for command in commands:
        assert not holds_a_secret(command.stdout + command.stderr), command.args
        assert b"Traceback" not in command.stderr and b"internal error" not in command.stderr, command.stderr
    assert b"11 compared: " in commands[4].stderr, commands[4].stdout + commands[4].stderr
    assert b"vlmtui" in commands[2].stdout and list((home.folder / "golden").rglob("*.json")), "something was written"
    assert home.places_of_a_secret() == []


async def test_a_key_is_read_from_its_file(short_path: Path, server: FaultServer) -> None:
    home = Home(short_path, server, key=f'api_key_file = "{short_path / "the-key"}"')
    (short_path / "the-key").write_text(f"{KEY}\n")
    del home.secrets["BOX_KEY"]
    told = await home.run(*ASK)
    try:
        assert told.returncode == 0, told.stderr
        assert all(f"Bearer {KEY}" in head for head in server.heads)
        assert home.places_of_a_secret() == []
    finally:
        await home.stop()


async def test_a_server_that_repeats_a_wrong_key_does_not_spread_it(home: Home, server: FaultServer) -> None:
    refused = {"error": {"message": f"Incorrect API key: {KEY}", "code": 401}}
    server.replies["/v1/models"] = [sends(refused, status=401)]
    told = await home.run(*ASK)
    assert told.returncode != 0
    assert b"refused this key" in told.stderr
    assert not holds_a_secret(told.stdout + told.stderr)
    assert home.places_of_a_secret() == []


@pytest.mark.parametrize("more", ["\nX-Other: 1", "\x01", "é"])
async def test_an_invalid_key_is_refused_and_not_shown(home: Home, more: str) -> None:
    home.secrets["BOX_KEY"] = f"{KEY}{more}{KEY}"
    told = await home.run(*ASK)
    assert told.returncode != 0
    assert b"BOX_KEY holds more than a header can" in told.stderr
    assert not holds_a_secret(told.stdout + told.stderr)


async def test_a_missing_key_is_reported_by_its_variable(home: Home) -> None:
    del home.secrets["BOX_KEY"]
    told = await home.run(*ASK)
    assert told.returncode != 0
    assert b"The environment variable BOX_KEY is not set." in told.stderr


def test_the_search_for_keys_finds_a_planted_key(short_path: Path) -> None:
    found = Home(short_path, FaultServer())
    (short_path / "leak").write_text(f"x{KEY}x")
    env = {**os.environ, **found.env, "OTHER": HEADER}
    leaking = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env)
    try:
        assert [place for place in found.places_of_a_secret() if "leak" in place or "input" in place] == [
            str(short_path / "leak"),
            f"process {[sys.executable, '-c', 'input()']}",
        ]
    finally:
        leaking.communicate(b"\n")
