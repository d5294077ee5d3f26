"""The output file of a batch: incomplete lines are cut off, other files are left alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.session.batch.results import OutputFile


def line(name: str, *, text: str = "") -> bytes:
    return f'{{"id":"{name}","line":1,"key":"k","answer":"{text}","error":null}}'.encode()


def written(path: Path, *lines: bytes) -> bytes:
    with closing(OutputFile(path)) as output:
        output.append(lines)
    return path.read_bytes()


@pytest.mark.parametrize("cut", range(1, 56, 7))
def test_a_line_that_was_cut_off_is_removed(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "out.jsonl"
    whole = written(path, line("a", text="x"), line("b", text="y"))
    path.write_bytes(whole[:-cut])
    first = whole.splitlines(keepends=True)[0]
    with closing(OutputFile(path)) as output:
        if cut == 1:  # only the line break is missing
            assert path.read_bytes() == whole
            return
        assert output.cut_bytes == len(whole) - len(first) - cut
        assert path.read_bytes() == first
        output.append([line("b")])
    assert [text.split('"')[3] for text in path.read_text().splitlines()] == ["a", "b"]


def test_zeros_after_a_power_failure_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    whole = written(path, line("a"))
    path.write_bytes(whole + bytes(5000))
    with closing(OutputFile(path)):
        assert path.read_bytes() == whole


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b'{"id": "a", "prompt": "x"}\n',
        b'{"id": "a", "prompt": "x"}',
        b'{"id":"a","prompt":"x"}',
        b"\x89PNG",
    ],
)
def test_a_file_of_another_kind_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with pytest.raises(VlmtuiError, match="not a result of a batch"):
        OutputFile(path)
    assert path.read_bytes() == content


def test_a_wrong_line_between_others_is_named(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    whole = written(path, line("a"))
    path.write_bytes(whole + b'{"id":"b"\n' + whole)
    with pytest.raises(VlmtuiError, match=r"out\.jsonl: line 2 "):
        OutputFile(path)


def test_one_batch_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with closing(OutputFile(path)) as output:
        with pytest.raises(VlmtuiError, match="Another batch"):
            OutputFile(path)
        output.append([line("a"), line("a", text="newer")])
        output.tidy()
        with pytest.raises(VlmtuiError, match="Another batch"):
            OutputFile(path)
        output.append([line("b")])
    assert "newer" in path.read_text()
    assert len(path.read_text().splitlines()) == 2
    assert [one.name for one in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target = tmp_path / "there" / "real.jsonl"
    target.touch()
    link = tmp_path / "out.jsonl"
    link.symlink_to(target)
    with closing(OutputFile(link)) as output:
        output.append([line("a"), line("a", text="newer")])
        output.tidy()
    assert link.is_symlink()
    assert target.read_bytes().count(b"\n") == 1


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError):
        OutputFile(tmp_path)
