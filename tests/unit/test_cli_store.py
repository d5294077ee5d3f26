"""`vlmtui store`: what it prints, and its exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.support.command_line import CommandLine, opened
from tests.unit.store.made import exchange
from vlmtui.domain.conversation import user_turn
from vlmtui.media.images import stage_image
from vlmtui.store.backup import back_up_daily
from vlmtui.store.opening import FILE
from vlmtui.store.store import Store


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with opened(tmp_path / "vlmtui", monkeypatch, capsys) as cli:
        store = Store.open(cli.paths.data, cli.paths.media)
        exchange(store, store.new_conversation(title="A dog"), 1)
        store.close()
        yield cli


def damage(cli: CommandLine) -> None:
    """Overwrite the database's header with zeros."""
    with (cli.paths.data / FILE).open("r+b") as file:
        file.write(bytes(100))


def test_a_store_without_faults_has_no_findings(cli: CommandLine) -> None:
    assert cli("store", "verify") == (0, "", "No findings in 1 conversation, 2 turns, 0 stored files.\n")
    assert cli.json("store", "verify")["findings"] == []
    refused = cli("store", "restore")
    assert refused.code == 2 and "not damaged" in refused.err


def test_damage_is_reported_with_the_backup_and_restored(cli: CommandLine) -> None:
    assert back_up_daily(cli.paths.data) is not None
    damage(cli)
    code, out, err = cli("store", "verify")
    assert code == 1 and out.splitlines()[1].split()[0] == "database" and "`vlmtui store restore`" in err
    listed = cli("conversations")
    assert listed.code == 1 and "is damaged" in listed.err and "The newest good backup, of" in listed.err
    restored = cli("store", "restore")
    assert restored.code == 0 and "The damaged file is" in restored.err
    assert cli("store", "verify").code == 0
    assert "A dog" in cli("conversations").out


def test_without_a_backup_it_continues_with_an_empty_database(cli: CommandLine) -> None:
    damage(cli)
    assert "no good backup" in cli("conversations").err
    assert "empty database" in cli.json("store", "restore")["done"]
    assert cli("conversations").err == "No conversations yet.\n"


def test_backup_and_restore(cli: CommandLine, tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar"
    assert cli("store", "backup", str(archive)).code == 0
    damage(cli)
    restored = cli("store", "restore", str(archive))
    assert restored.code == 0 and "The database from before is" in restored.err
    assert cli("store", "verify").code == 0
    missing = cli("store", "restore", str(tmp_path / "none.tar"))
    assert missing.code == 2 and "none.tar" in missing.err


def test_a_damaged_picture_is_named_with_its_way_back(cli: CommandLine, tmp_path: Path) -> None:
    picture = tmp_path / "red.png"
    Image.new("RGB", (8, 8), "red").save(picture)
    attached = stage_image(picture, cli.paths.media)
    store = Store.open(cli.paths.data, cli.paths.media)
    store.add_turn(store.new_conversation(title="Red"), None, user_turn("What?", [attached]))
    store.close()
    stored = Path(attached.path)
    stored.chmod(0o600)
    stored.write_bytes(b"something else")
    code, out, err = cli("store", "verify")
    assert code == 1
    assert f"{attached.sha256[:12]}…" in out and attached.sha256 not in out
    assert "attached again" in err
    assert attached.sha256 in cli("store", "verify", "--json").out
    stage_image(picture, cli.paths.media)
    assert cli("store", "verify").code == 0
