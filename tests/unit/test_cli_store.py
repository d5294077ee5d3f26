"""`vlmtui store`: what it prints, and its exit codes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from tests.support.command_line import CommandLine, opened
from tests.unit.store.made import exchange
from vlmtui.domain.conversation import user_turn
from vlmtui.media.images import stage_image
from vlmtui.store.opening import FILE
from vlmtui.store.store import Store


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with opened(tmp_path / "vlmtui", monkeypatch, capsys) as cli:
        store = Store.open(cli.paths.data, cli.paths.media).store
        exchange(store, store.new_conversation(title="A dog"), 1)
        store.close()
        yield cli


def damage(cli: CommandLine) -> None:
    with closing(sqlite3.connect(cli.paths.data / FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE turns SET depth = 77 WHERE id = 2")


def test_a_sound_store(cli: CommandLine) -> None:
    assert cli("store", "verify") == (0, "", "No findings in 1 conversation, 2 turns, 0 stored files.\n")
    assert cli.json("store", "verify")["findings"] == []
    assert "nothing to repair" in cli("store", "repair").err


def test_damage_is_shown_and_repaired(cli: CommandLine) -> None:
    damage(cli)
    code, out, err = cli("store", "verify")
    assert code == 1
    assert out.splitlines()[1].split() == ["row", "turns", "2", "contradicts", "other", "rows:", "depth"]
    assert "`vlmtui store repair`" in err and "1 finding in" in err
    repaired = cli("store", "repair")
    assert repaired.code == 0
    assert "Recovered 2 turns in 1 conversation; lost: none" in repaired.err
    assert cli("store", "verify").code == 0
    assert "A dog" in cli("conversations").out


def test_a_text_that_is_not_what_was_stored_is_kept_and_named(cli: CommandLine) -> None:
    with closing(sqlite3.connect(cli.paths.data / FILE, isolation_level=None)) as connection:
        connection.execute("UPDATE turns SET text = 'a cat' WHERE id = 2")
    code, out, _ = cli("store", "verify")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["checksum"]
    repaired = cli("store", "repair")
    assert repaired.code == 0 and "Kept as it reads, though it is not what was stored: turns 2." in repaired.err
    assert cli("store", "verify").code == 0


def test_backup_and_restore(cli: CommandLine, tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar"
    assert cli("store", "backup", str(archive)).code == 0
    damage(cli)
    restored = cli("store", "restore", str(archive))
    assert restored.code == 0 and "The database from before is" in restored.err
    assert cli("store", "verify").code == 0
    missing = cli("store", "restore", str(tmp_path / "none.tar"))
    assert missing.code == 2 and "none.tar" in missing.err


def test_what_takes_the_space(cli: CommandLine) -> None:
    rows = cli("store", "stats").out.splitlines()
    assert rows[0].split() == ["WHAT", "FILES", "SIZE"]
    assert rows[1].startswith("database") and rows[-1].startswith("all")
    found = cli.json("store", "stats")
    assert found["database"]["bytes"] >= (cli.paths.data / FILE).stat().st_size


def test_purge_shows_first_and_asks(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("store", "purge").err == "There is nothing to purge.\n"
    store = Store.open(cli.paths.data, cli.paths.media).store
    store.delete(store.conversations()[0].conversation.id)
    store.close()
    shown = cli("store", "purge", "--dry-run")
    assert shown.code == 0 and "A dog" in shown.out and "1 conversation and 0 stored files" in shown.err
    unasked = cli("store", "purge")
    assert unasked.code == 2 and "--yes" in unasked.err
    monkeypatch.setattr("vlmtui.cli.purging.is_tty", lambda stream: True)
    refused = cli("store", "purge", stdin="n\n")
    assert refused.code == 1 and "Nothing was purged" in refused.err
    plan = cli.json("store", "purge", "--dry-run")
    assert (plan["purged"], [one["title"] for one in plan["conversations"]]) == (False, ["A dog"])
    assert "Erased 1 conversation and 0 stored files" in cli("store", "purge", stdin="y\n").err
    assert cli.json("store", "purge", "--yes")["conversations"] == []
    assert cli("store", "verify").code == 0
    assert cli("store", "purge", "--older-than", "soon").code == 2
    assert cli("store", "purge", "--older-than", "forever").code == 2


def test_purge_leaves_what_another_app_has_open(cli: CommandLine) -> None:
    other = Store.open(cli.paths.data, cli.paths.media).store
    other.delete(other.conversations()[0].conversation.id)
    refused = cli("store", "purge", "--yes")
    assert refused.code != 0 and "Another vlmtui" in refused.err
    other.close()
    assert cli.json("store", "purge", "--yes")["purged"] is True


def test_a_damaged_picture_is_named_with_its_way_back(cli: CommandLine, tmp_path: Path) -> None:
    picture = tmp_path / "red.png"
    Image.new("RGB", (8, 8), "red").save(picture)
    attached = stage_image(picture, cli.paths.media)
    store = Store.open(cli.paths.data, cli.paths.media).store
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
