"""Folders: private, and never somebody else's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths, private_dir


def test_a_folder_is_made_for_its_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = private_dir(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert made.stat().st_mode & 0o777 == 0o700


def test_a_loose_folder_is_tightened(tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    assert private_dir(loose).stat().st_mode & 0o777 == 0o700


def test_a_planted_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(VlmtuiError, match="not your own folder"):
        private_dir(tmp_path / "run")


def test_a_file_in_the_way_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(VlmtuiError, match="create or use the folder"):
        private_dir(tmp_path / "run")


def test_no_folder_ends_with_the_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """logind empties XDG_RUNTIME_DIR with the last session of a user, while a worker goes on."""
    monkeypatch.delenv("VLMTUI_DATA_DIR", raising=False)
    found = []
    for login in ("first", "second"):
        (tmp_path / login).mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / login))
        monkeypatch.setenv("TMPDIR", str(tmp_path / login))
        found.append(Paths.default())
    assert found[0] == found[1]
