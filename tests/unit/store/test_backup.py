"""Daily copies of the database, and archives of database and media."""

from __future__ import annotations

import bz2
import os
import resource
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.store.made import attachment, exchange, opened
from vlmtui.domain.conversation import user_turn
from vlmtui.errors import VlmtuiError
from vlmtui.store.backup import back_up_daily, restore_archive, write_archive
from vlmtui.store.opening import FILE, verify_store

NOON = 1_800_000_000.0
DAY = 86_400.0
PICTURE = b"\x89PNG\r\n\x1a\n a picture"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store of a conversation with a picture."""
    store = opened(tmp_path / "data")
    conversation = store.new_conversation(title="kept")
    store.add_turn(conversation, None, user_turn("What is this?", [attachment(store.media, PICTURE)]))
    exchange(store, conversation, 1)
    store.close()
    return tmp_path / "data"


def titles(folder: Path) -> list[str]:
    store = opened(folder)
    found = [listed.conversation.title for listed in store.conversations()]
    store.close()
    return found


def test_a_copy_a_day_and_three_stay(data: Path) -> None:
    assert back_up_daily(data, now=NOON) is not None
    assert back_up_daily(data, now=NOON + DAY / 2) is None
    copies = [back_up_daily(data, now=NOON + day * DAY) for day in range(1, 6)]
    assert sorted((data / "backups").iterdir()) == copies[-3:]
    assert all(copy is not None and copy.stat().st_mode & 0o777 == 0o600 for copy in copies[-3:])


def test_a_backup_includes_the_write_ahead_log(data: Path) -> None:
    store = opened(data)
    store.new_conversation(title="newest")
    copy = back_up_daily(data, now=NOON)
    assert copy is not None
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT title FROM conversations ORDER BY number").fetchall() == [
            ("kept",),
            ("newest",),
        ]
    store.new_conversation(title="after it")
    store.close()


def test_a_damaged_database_takes_no_good_copys_place(data: Path) -> None:
    good = back_up_daily(data, now=NOON)
    with (data / FILE).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096 * 4)
    with pytest.raises(VlmtuiError, match="damaged"):
        back_up_daily(data, now=NOON + DAY)
    assert list((data / "backups").iterdir()) == [good]


def test_without_conversations_there_is_nothing_to_copy(tmp_path: Path) -> None:
    assert back_up_daily(tmp_path / "none", now=NOON) is None
    with pytest.raises(VlmtuiError, match="no conversations"):
        write_archive(tmp_path, tmp_path / "media", tmp_path / "backup.tar")


def test_an_archive_is_restored_on_another_machine(data: Path, tmp_path: Path) -> None:
    assert write_archive(data, data / "media", tmp_path / "backup.tar") == 1
    assert (tmp_path / "backup.tar").stat().st_mode & 0o777 == 0o600
    other = tmp_path / "other"
    assert restore_archive(tmp_path / "backup.tar", other, other / "media") == (1, (), None)
    assert titles(other) == ["kept"]
    assert verify_store(other, other / "media").findings == ()


def test_a_replaced_database_is_set_aside_and_open_apps_notice(data: Path, tmp_path: Path) -> None:
    write_archive(data, data / "media", tmp_path / "backup.tar")
    store = opened(data)
    store.new_conversation(title="since then")
    restored = restore_archive(tmp_path / "backup.tar", data, data / "media")
    assert store.is_stale
    store.close()
    assert restored.set_aside is not None and restored.set_aside.exists()
    assert titles(data) == ["kept"]


def test_a_daily_copy_is_restored(data: Path) -> None:
    copy = back_up_daily(data, now=NOON)
    assert copy is not None
    store = opened(data)
    store.new_conversation(title="since then")
    store.close()
    restore_archive(copy, data, data / "media")
    assert titles(data) == ["kept"]
    assert copy.exists()


@pytest.mark.parametrize(
    "kind",
    [
        "cut",
        "cut between two members",
        "rotten header",
        "text",
        "compressed",
        "rotten picture",
        "another application",
        "another version",
        "a picture",
    ],
)
def test_an_unsound_backup_changes_nothing(data: Path, tmp_path: Path, kind: str) -> None:
    archive, before = tmp_path / "backup.tar", (data / FILE).read_bytes()
    write_archive(data, data / "media", archive)
    picture = next((data / "media").glob("*/*.png"))
    match kind:
        case "cut":
            archive.write_bytes(archive.read_bytes()[:30_000])
        case "cut between two members":
            archive.write_bytes(archive.read_bytes()[: archive.read_bytes().index(b"media/")])
        case "rotten header":
            archive.write_bytes(archive.read_bytes().replace(b"media/", b"mebia/"))
        case "text":
            archive.write_text("hello")
        case "compressed":  # a small file that would become a large one
            archive.write_bytes(bz2.compress(archive.read_bytes()))
        case "rotten picture":
            archive.write_bytes(archive.read_bytes().replace(b"a picture", b"a pistole"))
        case "another application" | "another version":
            database = tmp_path / FILE
            database.write_bytes(before)
            with closing(sqlite3.connect(database, isolation_level=None)) as connection:
                pragma = "application_id = 1" if kind == "another application" else "user_version = 99"
                connection.execute(f"PRAGMA {pragma}")
            with tarfile.open(archive, "w") as made:
                made.add(database, FILE)
        case _:
            archive.write_bytes(picture.read_bytes())
    with pytest.raises(VlmtuiError, match=r"backup\.tar"):
        restore_archive(archive, data, data / "media")
    assert (data / FILE).read_bytes() == before
    assert titles(data) == ["kept"]


def test_leftovers_of_a_killed_backup_go_after_a_day(data: Path) -> None:
    left = (data / "backups") / ".new-killed"
    left.mkdir(parents=True)
    os.utime(left, (NOON, NOON))
    back_up_daily(data, now=NOON)
    assert left.exists()
    back_up_daily(data, now=NOON + 2 * DAY)
    assert not left.exists()


def test_an_endless_file_is_no_backup(data: Path) -> None:
    with pytest.raises(VlmtuiError, match="device"):
        restore_archive(Path("/dev/zero"), data, data / "media")
    assert titles(data) == ["kept"]


def _header(kind: bytes, size: int, content: bytes = b"") -> bytes:
    """A member of a tar archive, with padding."""
    member = tarfile.TarInfo("member")
    member.type, member.size = kind, size
    return member.tobuf() + content + bytes(-len(content) % tarfile.BLOCKSIZE)


def _pax(*records: str) -> bytes:
    """A member of size 0 with these pax records."""
    content = "".join(f"{len(record) + 5:03} {record}\n" for record in records).encode()
    return _header(tarfile.XHDTYPE, len(content), content) + _header(tarfile.REGTYPE, 0)


HEADERS = {
    "a header of 6 GB": _header(tarfile.XHDTYPE, 6_000_000_000),
    "a name of 6 GB": _header(tarfile.GNUTYPE_LONGNAME, 6_000_000_000),
    "3,000 headers of one member": _header(tarfile.XHDTYPE, 8, b"007 a=b\n") * 3000 + _header(tarfile.REGTYPE, 0),
    "3,000 names of one member": _header(tarfile.GNUTYPE_LONGNAME, 8, b"1234567\0") * 3000
    + _header(tarfile.REGTYPE, 0),
    "a negative size": _pax("size=-1536"),
    "an endless size": _pax(f"size={'9' * 900}"),
    "a wrong map": _pax("GNU.sparse.map=x,y", "GNU.sparse.size=5"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_that_cost_or_lie_are_refused(name: str, data: Path, tmp_path: Path) -> None:
    """The file needs no room on the disk, and may be a few bytes in another archive."""
    archive = tmp_path / "backup.tar"
    archive.write_bytes(HEADERS[name] + bytes(1024))
    os.truncate(archive, max(archive.stat().st_size, 6_000_002_048 if "GB" in name else 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(VlmtuiError, match="nothing was changed"):
        restore_archive(archive, data, data / "media")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    assert titles(data) == ["kept"]


def test_nothing_is_extracted_elsewhere(data: Path, tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar"
    write_archive(data, data / "media", archive)
    evil = tmp_path / "evil"
    evil.write_text("evil")
    with tarfile.open(archive, "a") as made:
        made.add(evil, "../outside")
        made.add(evil, "media/../../outside")
        link = tarfile.TarInfo("media/ab/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        made.addfile(link)
    other = tmp_path / "deep" / "other"
    assert restore_archive(archive, other, other / "media").media == 1
    assert {file.name for file in (tmp_path / "deep").rglob("*") if file.name in ("outside", "link")} == set()
