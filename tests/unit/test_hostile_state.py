"""Damaged or foreign files in vlmtui's folders: reading returns a value or raises a VlmtuiError."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.unit.registry.test_loader import GOOD
from vlmtui.config.trust import TrustStore
from vlmtui.engine.machine import Machine, check_fit
from vlmtui.engines.installed import Engines
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.protocol.spool import read_spooled, spool_path
from vlmtui.reading import decode_json, is_file, is_folder, read_json, read_struct, read_tail
from vlmtui.registry.estimate import tokens_of_size
from vlmtui.registry.loader import Registry, parse_family
from vlmtui.registry.match import model_of
from vlmtui.registry.remote_code import RemoteCode
from vlmtui.session.comparison import draft_file, read_draft
from vlmtui.session.prompt_history import PromptHistory

NO_VALUE = {
    "deep": b'{"a": ' + b"[" * 200_000,
    "no UTF-8": b'{"text": "\xff\xfe"}',
    "another type": b"[1]",
    "empty": b"",
    "half": b'{"text": "abc',
}


def put(file: Path, data: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_bytes(data)
    return file


def raw_draft(paths: Paths, make: Callable[[Path], object]) -> object:
    make(draft_file(paths, "c1"))
    return read_draft(paths, "c1")


def worker_record(paths: Paths, make: Callable[[Path], object]) -> object:
    endpoint = Endpoint.named(paths, "x-1234")
    make(endpoint.record)
    return endpoint.read_record()


def unfetched_answer(paths: Paths, make: Callable[[Path], object]) -> object:
    make(spool_path(paths.runtime, "r1"))
    paths.runtime.chmod(0o700)
    return read_spooled(paths.runtime, "r1")


def fingerprint_of(paths: Paths, make: Callable[[Path], object]) -> object:
    engines = Engines(paths)
    make(engines.folder / "mine" / "engine.json")
    return engines.all() or None


READERS = (raw_draft, worker_record, unfetched_answer, fingerprint_of)


@pytest.mark.parametrize("data", NO_VALUE.values(), ids=NO_VALUE)
@pytest.mark.parametrize("read", READERS)
def test_damaged_content_counts_as_missing(
    read: Callable[[Paths, Callable[[Path], object]], object], data: bytes, tmp_path: Path
) -> None:
    assert read(Paths.below(tmp_path), lambda file: put(file, data)) is None


@pytest.mark.parametrize("read", READERS)
def test_a_pipe_instead_of_the_file_blocks_nothing(
    read: Callable[[Paths, Callable[[Path], object]], object], tmp_path: Path
) -> None:
    def make(file: Path) -> None:
        put(file, b"").unlink()
        os.mkfifo(file)

    assert read(Paths.below(tmp_path), make) is None


@pytest.mark.parametrize("other", ["folder", "pipe", "socket", "link"])
def test_a_file_that_is_exchanged_while_it_is_opened(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is a file when it is checked, and something else when it is opened."""
    file = put(tmp_path / "a.json", b"{}")
    if other == "folder":
        (tmp_path / "other").mkdir()
    elif other == "pipe":
        os.mkfifo(tmp_path / "other")
    elif other == "socket":
        short = socket.socket(socket.AF_UNIX)
        monkeypatch.chdir(tmp_path)
        short.bind("other")
    else:
        (tmp_path / "other").symlink_to("/dev/null")
    opening, before = os.open, len(list(Path("/proc/self/fd").iterdir()))

    def exchanged(path: Path, flags: int) -> int:
        return opening(tmp_path / "other", flags)

    monkeypatch.setattr("os.open", exchanged)
    with pytest.raises(VlmtuiError):
        read_json(file, bytes_max=100)
    monkeypatch.undo()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + (other == "socket")


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    file = put(tmp_path / "a.json", rb'{"\ud800": ["\udfff x", 1, null, "\ud83d\ude00"]}')
    assert read_json(file, bytes_max=1000) == {"?": ["? x", 1, None, "😀"]}


def test_trust_can_be_stored_beside_lone_surrogates(tmp_path: Path) -> None:
    paths = Paths.below(tmp_path)
    put(paths.config / "trusted.json", rb'["\ud800", "owner/name@abc"]')
    store, code = TrustStore(paths), RemoteCode(model="other/name", revision="def")
    store.trust(code)
    assert store.is_trusted(code) and store.is_trusted(RemoteCode(model="owner/name", revision="abc"))


def test_a_history_that_was_cut_off_loses_one_entry_only(tmp_path: Path) -> None:
    file = put(tmp_path / "history.jsonl", b'"first"\n"sec')
    history = PromptHistory(file)
    history.add("third")
    history.add("fourth")
    again = PromptHistory(file)
    assert [again.older(""), again.older(""), again.older(""), again.older("")] == ["fourth", "third", "first", None]


def test_a_long_history_is_read_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vlmtui.session.prompt_history._BYTES_MAX", 20)
    history = PromptHistory(put(tmp_path / "history.jsonl", b'"a long first entry"\n"second"\n"third"\n'))
    assert [history.older(""), history.older(""), history.older("")] == ["third", "second", None]
    with pytest.raises(VlmtuiError):
        read_tail(tmp_path, bytes_max=10)
    with pytest.raises(VlmtuiError):
        read_tail(tmp_path / "nothing", bytes_max=10)


def test_typed_json(tmp_path: Path) -> None:
    class Point(msgspec.Struct):
        x: int

    assert read_struct(put(tmp_path / "a.json", b'{"x": 1}'), Point, bytes_max=100).x == 1
    for data in (b'{"x": 1.5}', b"[" * 100_000, b'{"x": "\xff"}', b'{"x": ' + b"9" * 5000 + b"}"):
        with pytest.raises(ValueError, match=r"\w"):
            decode_json(data, Point)
        with pytest.raises(VlmtuiError):
            read_struct(put(tmp_path / "a.json", data), Point, bytes_max=1_000_000)


def test_a_name_that_no_file_can_have_is_not_a_path() -> None:
    for name in ("a" * 100_000, "a\0b", "\ud800"):
        assert not is_folder(Path(name)) and not is_file(Path(name))


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('title = "Mine"', 'title = "Mine"\nparameters_b = 1e999', "parameters_b"),
        ('title = "Mine"', 'title = "Mine"\nparameters_b = nan', "parameters_b"),
        ('title = "Mine"', 'title = "Mine"\ncontext = -1', "context"),
        ('models = ["me/mine"]', f'models = ["{"a" * 5000}"]', "models"),
        ("[raw]", '[takes.image.tokens]\nby = "patches"\nmin_pixels = 0\nmax_pixels = 1\n[raw]', "min_pixels"),
        ("[raw]", '[takes.image.tokens]\nby = "tiles"\ntokens = 1\nside = 1\nmax_tiles = 100000\n[raw]', "max_tiles"),
    ],
)
def test_numbers_of_a_record_have_bounds(old: str, new: str, field: str) -> None:
    with pytest.raises(VlmtuiError, match=re.escape(field)):
        parse_family(GOOD.replace(old, new).encode(), "mine.toml")


def test_media_without_a_size_have_no_known_tokens() -> None:
    registry = Registry.bundled()
    machine = Machine.measure()
    for family in registry.values():
        check_fit(model_of(family), machine)
        for settings in (None, {"max_pixels": 0}, {"size": {"longest_edge": 10**400}}):
            assert tokens_of_size(family, "image", (0, 0), settings=settings) is None
            tokens_of_size(family, "image", (640, 480), settings=settings)
