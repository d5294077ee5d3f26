"""The code of a start's modules from one file: used while it is theirs, and else as if it were not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.terminal import Terminal, search_paths

_START = """
import sys
sys.path.insert(1, {folder!r})
from vlmtui.start_code import StartCode
start = StartCode({file!r})
start.begin()
import inspect
from importlib.resources import files
import parcel.inner
start.end()
import colorsys
print(parcel.inner.VALUE, type(parcel.inner.__loader__).__name__, start.is_complete)
print(inspect.getsource(parcel.inner.told).strip(), parcel.__path__ == [{package!r}], parcel.inner.__file__)
print(files(parcel).joinpath("note.txt").read_text())
inner = parcel.inner
print(inner.Spot(1, 2) == inner.Spot(x=1, y=2), inner.Place("a").name, inner.WORD.search("to bE or").span("be"))
start.complete()
"""


_INNER = """\
import re
from collections import namedtuple
from dataclasses import dataclass
VALUE = {value}
def told():
    return VALUE
Place = namedtuple("Place", "name")
@dataclass
class Spot:
    x: int
    y: int
WORD = re.compile(r"\\b(?P<be>be)\\b", re.IGNORECASE)
"""


class Program:
    """A program with a package of its own."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "parcel"
        self.package.mkdir()
        (self.package / "__init__.py").touch()
        (self.package / "note.txt").write_text("noted")
        self.file = folder / "start.all"
        self.folder = folder
        self.write(1)

    def write(self, value: int, *, at: float = 1_000_000_000) -> None:
        inner = self.package / "inner.py"
        inner.write_text(_INNER.format(value=value))
        os.utime(inner, (at, at))

    def start(self, *, file: Path | None = None, **env: str) -> list[str]:
        """Start it once; returns the module's value, its loader, and whether all came from the file."""
        code = _START.format(folder=str(self.folder), file=str(file or self.file), package=str(self.package))
        own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | env
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=own, check=False)
        assert not ended.stderr
        told, *rest = ended.stdout.splitlines()
        assert rest == [
            "def told():",
            f"    return VALUE True {self.package / 'inner.py'}",
            "noted",
            "True a (3, 5)",
        ]
        return told.split()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_the_second_start_imports_from_the_file(program: Program) -> None:
    assert program.start() == ["1", "SourceFileLoader", "False"]
    assert program.start() == ["1", "_Loader", "True"]
    assert program.file.stat().st_mode & 0o777 == 0o600
    assert b"colorsys" not in program.file.read_bytes(), "imported after the start"


def test_a_changed_source_is_imported_as_usual_and_then_from_the_file_again(program: Program) -> None:
    program.start()
    program.write(2, at=1_000_000_050)
    assert program.start() == ["2", "SourceFileLoader", "False"]
    assert program.start() == ["2", "_Loader", "True"]
    program.write(33, at=1_000_000_050)  # of the same time, with another size
    assert program.start() == ["33", "SourceFileLoader", "False"]


def test_the_file_of_another_search_path_is_left_alone_until_it_is_replaced(program: Program, tmp_path: Path) -> None:
    program.start()
    assert program.start(PYTHONPATH=str(tmp_path / "elsewhere")) == ["1", "SourceFileLoader", "False"]
    assert program.start() == ["1", "SourceFileLoader", "False"]
    assert program.start() == ["1", "_Loader", "True"]


@pytest.mark.parametrize("left", [0, 5, 8, 100, 5_000])
def test_a_file_that_was_cut_off_does_no_harm(program: Program, left: int) -> None:
    program.start()
    program.file.write_bytes(program.file.read_bytes()[:left])
    assert program.start() == ["1", "SourceFileLoader", "False"]
    assert program.start() == ["1", "_Loader", "True"]


def test_nothing_is_written_where_python_is_to_write_no_code(program: Program) -> None:
    program.start(PYTHONDONTWRITEBYTECODE="1")
    assert not program.file.exists()


def test_a_folder_that_is_not_there_costs_only_the_gain(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "nowhere" / "start.all"
    for _ in range(2):
        assert program.start(file=file) == ["1", "SourceFileLoader", "False"]
    assert not file.parent.exists()


@pytest.mark.process
def test_the_app_starts_from_its_file_from_the_second_time_on(tmp_path: Path) -> None:
    env = {
        **search_paths(),
        "HOME": str(tmp_path),
        "VLMTUI_DATA_DIR": str(tmp_path / "data"),
        "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"),
    }

    def start() -> tuple[Path, object]:
        with Terminal([sys.executable, "-m", "vlmtui"], env=env) as terminal:
            terminal.wait_for("RAM free")
            terminal.wait_for(lambda _: any(tmp_path.rglob("start_code*.all")), timeout=20)
            cells = {(x, y): terminal.screen.buffer[y][x] for y in range(1, 38) for x in range(50)}
            terminal.type("\x11")
            assert terminal.wait_for_end() == 0
        return next(tmp_path.rglob("start_code*.all")), cells

    file, first = start()
    assert b"vlmtui.ui.models.screen" in file.read_bytes()
    written = file.stat().st_ino
    again, second = start()
    assert again == file and file.stat().st_ino == written, "the second start lacked something"
    assert second == first, "the second start looks different"
