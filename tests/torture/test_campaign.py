"""A short campaign; `make torture` runs the long one."""

from __future__ import annotations

from pathlib import Path

from tests.torture.leftovers import files_left
from tests.torture.rounds import KINDS, Rounds
from vlmtui.files import TEMPORARY_PREFIX
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.spool import spool_path


def test_nothing_is_lost_or_left_behind(short_path: Path) -> None:
    rounds = Rounds(short_path, seed=7, kept_after_s=10)
    rounds.play(len(KINDS))
    assert {one.kind for one in rounds.played} >= set(KINDS)
    assert rounds.losses == []


def test_leftover_files_are_found(short_path: Path) -> None:
    paths, temporary = Paths.below(short_path / "data"), short_path / "tmp"
    temporary.mkdir()
    assert files_left(paths, temporary, at_rest=True) == []
    endpoint = Endpoint.named(paths, "x-00000000")
    removed = [endpoint.home / "socket", endpoint.spec_file, endpoint.socket]
    always = [paths.runtime / "strange", paths.media / "ab" / f"{TEMPORARY_PREFIX}1"]
    at_rest = [paths.data / "sessions" / "1.lock", spool_path(paths.runtime, "r"), temporary / "file"]
    for path in (*removed, *always, *at_rest, endpoint.lock):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = set(always)
    assert set(files_left(paths, temporary, at_rest=False)) == {str(path) for path in found}
    assert set(files_left(paths, temporary, at_rest=True)) == {str(path) for path in found | set(at_rest)}
    assert not any(path.exists() for path in removed), "a dead worker's files go with the next look at the workers"
