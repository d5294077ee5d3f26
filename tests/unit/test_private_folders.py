"""Files of vlmtui are private, whatever the umask; another user's folder is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, opened
from tests.support.other_user import NOBODY, needs_root
from tests.unit.store.made import attachment
from vlmtui.config.trust import TrustStore
from vlmtui.domain.conversation import Media, Text, Turn
from vlmtui.paths import Paths, sample_image
from vlmtui.registry.remote_code import RemoteCode
from vlmtui.store.store import Store


@pytest.fixture
def root(short_path: Path) -> Path:
    """Return a folder that does not exist yet."""
    return short_path / "new" / "root"


@pytest.fixture
def line(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with opened(root, monkeypatch, capsys) as found:
        yield found


@pytest.fixture
def loose_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("loose_umask")
def test_all_files_of_the_commands_are_private(line: CommandLine, root: Path, short_path: Path) -> None:
    """This covers settings, records, the cache of records, trusted code, conversations, media, logs and sockets."""
    store = Store.open(line.paths.data, line.paths.media)
    cat = attachment(line.paths.media, b"\x89PNG cat")
    store.add_turn(store.new_conversation(title="A cat"), None, Turn("user", (Text("Is "), Media(cat))))
    store.close()
    used = [
        line("models", "new", "mine"),
        line("models"),
        line("ask", "--keep-alive", "60s", "--image", str(sample_image()), "What is this?"),
        line("conversations"),
        line("ps"),
    ]
    assert [ran.code for ran in used] == [0] * len(used), used
    TrustStore(Paths.default()).trust(RemoteCode(model="owner/name", revision="aaaa"))
    made = {path.relative_to(root).as_posix() for path in root.rglob("*")}
    assert {"config/families/mine.toml", "config/trusted.json", "data/conversations.db"} <= made
    assert any(name.startswith("data/media/") for name in made)
    assert any(name.endswith(".sock") for name in made)
    everything = [short_path / "new", root, *(path for path in root.rglob("*") if not path.is_symlink())]
    assert {str(path): oct(path.stat().st_mode) for path in everything if path.stat().st_mode & 0o077} == {}


COMMANDS = {
    "ps": ("ps",),
    "models": ("models",),
    "ask": ("ask", "hello"),
    "conversations": ("conversations",),
}


@needs_root
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("place", [".", "config", "config/families", "data", "state"])
def test_another_users_folder_is_refused(line: CommandLine, root: Path, place: str, command: tuple[str, ...]) -> None:
    """Otherwise the other user's settings and records would apply, and that user could read the conversations."""
    (root / place).mkdir(parents=True)
    os.chown(root / place, NOBODY, NOBODY)
    ran = line(*command)
    assert (ran.code, ran.out) == (2, "")
    assert "it is not your own folder." in ran.err
    assert [path.name for path in (root / place).iterdir() if path.name not in ("config", "families")] == []
