"""Some mutated files for every reader; `make fuzz` takes thousands. That the hunt finds what is there to be found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.fuzz import campaign
from tests.fuzz.campaign import hunt
from tests.fuzz.readers import READERS
from vlmtui.media import images
from vlmtui.reading import read_whole

pytestmark = pytest.mark.filterwarnings("ignore:::PIL")

EXAMPLES = 20
SLOW = {"database file": 4, "report": 4, "lines of plain mode": 8}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", READERS)
def test_readers_raise_only_vlmtui_errors(name: str) -> None:
    result = hunt(READERS[name], examples=SLOW.get(name, EXAMPLES))
    assert not result.finding
    assert result.examples >= SLOW.get(name, EXAMPLES)


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def read_json(path: Path, *, bytes_max: int) -> object:
        return json.loads(read_whole(path, bytes_max=bytes_max))

    assert not hunt(READERS["config.json"], examples=200).finding
    monkeypatch.setattr("vlmtui.registry.hub_cache.read_json", read_json)
    result = hunt(READERS["config.json"], examples=200, keep=tmp_path / "kept")
    assert "Error" in result.finding and "read_json" in result.finding
    (tmp_path / "again").mkdir()
    with pytest.raises((ValueError, RecursionError)):
        READERS["config.json"].read(tmp_path / "again", (tmp_path / "kept" / "config.json").read_bytes())


def test_a_fault_planted_in_a_decoder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "DECODER_ERRORS", (LookupError,))
    assert "images.py" in hunt(READERS["png"], examples=200).finding


def test_a_file_that_takes_too_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "SLOWEST_S", 0.0)
    assert "TooCostly" in hunt(READERS["trusted.json"], examples=3).finding
