"""The folders of files that were attached lately."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from vlmtui.session.recent_folders import KEPT_MAX, RecentFolders


def test_folders_are_listed_once_newest_first(tmp_path: Path) -> None:
    recent = RecentFolders(tmp_path / "state" / "folders.json")
    assert recent.folders == []
    recent.remember([Path("/a/1.png"), Path("/a/2.png"), Path("/b/3.png")])
    recent.remember([Path("/a/1.png")])
    assert recent.folders == [Path("/a"), Path("/b")]


def test_ten_are_kept_across_sessions_for_the_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "state" / "folders.json"
    for number in range(15):
        RecentFolders(file).remember([Path(f"/f{number}/x.png")])
    assert RecentFolders(file).folders == [Path(f"/f{number}") for number in range(14, 14 - KEPT_MAX, -1)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_name_of_any_bytes_survives(tmp_path: Path) -> None:
    folder = Path("/pics/" + os.fsdecode(b"\xff\xfe\n\x1b"))
    recent = RecentFolders(tmp_path / "folders.json")
    recent.remember([folder / "a.png"])
    assert recent.folders == [folder]


@pytest.mark.parametrize("content", [b"", b"{}", b'[1, null, "relative", "/nul\\u0000"]', b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_an_empty_list(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "folders.json"
    file.write_bytes(content)
    recent = RecentFolders(file)
    assert recent.folders == []
    recent.remember([Path("/a/1.png")])
    assert recent.folders == [Path("/a")]


def test_an_unwritable_file_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    recent = RecentFolders(tmp_path / "state" / "folders.json")
    recent.remember([Path("/a/1.png")])
    recent.remember([])
    assert recent.folders == []
