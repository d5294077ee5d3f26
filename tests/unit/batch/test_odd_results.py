"""Lines of an output file that were edited by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.session.batch.results import OutputFile, ResultTable, score_of

SOUND = b'{"id":"a","line":1,"key":"k","answer":"a cat","error":null,"correct":true}\n'
ODD = (
    b'{"id":""x"","line":2,"key":"k","error":null,"correct":true}\n',
    b'{"id":"b","line":2,"key":"k","error":null,"correct":"yes"}\n',
    b'{"id":"b","line":2,"key":"k\xff","error":null,"correct":[' + b"[" * 5_000 + b"\n",
)


@pytest.mark.parametrize("odd", ODD)
def test_the_score_ignores_lines_without_a_result(odd: bytes, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(odd + SOUND)
    assert score_of(path)[:2] == (1, 1)


@pytest.mark.parametrize("number", ["99999999999999999999", "-1"])
def test_an_invalid_line_number_is_reported(number: str, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(SOUND.replace(b'"line":1', b'"line":' + number.encode()) + SOUND)
    with pytest.raises(VlmtuiError):
        ResultTable(path)
    with pytest.raises(VlmtuiError):
        OutputFile(path)
