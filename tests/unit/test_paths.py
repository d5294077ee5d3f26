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


def test_a_data_folder_with_a_long_name_still_has_room_for_sockets(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    assert len(os.fsencode(Paths.below(deep).runtime)) < 70
    assert Paths.below(deep).runtime != Paths.below(deep / "other").runtime
