"""Recorded cases: what they hold, and that they are read as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmtui.errors import VlmtuiError
from vlmtui.inspection.recorded import (
    RecordedCase,
    RecordedMedium,
    RecordedPart,
    RecordedTurn,
    encode_recorded,
    folded_ids,
    read_recorded,
    recorded_side,
    text_lines,
    unfolded,
)

MEDIUM = RecordedMedium(
    modality="image", file="bundled:circle.png", sha256="0", tokens=16, resized=(112, 112), grid=(1, 8, 8)
)
RECORDED = RecordedCase(
    model="qwen2_vl",
    case="image",
    mode="chat",
    by="processor",
    conversation=(RecordedTurn("user", (RecordedPart(media=0), RecordedPart(text="What?"))),),
    prompt=("<|im_start|>user\n", "<|image_pad|>What?"),
    token_ids=(1, 2, "9×16", 3),
    media=(MEDIUM,),
)


def test_recorded_prompts_can_be_compared() -> None:
    side = recorded_side(RECORDED)
    assert (side.text, len(side.token_ids)) == ("<|im_start|>user\n<|image_pad|>What?", 19)
    assert (side.media[0].tokens, side.media[0].resized, side.media[0].length) == (16, (112, 112), 0)


@given(st.lists(st.integers(0, 3), max_size=40))
def test_runs_of_ids_are_folded_and_unfolded(ids: list[int]) -> None:
    assert unfolded(folded_ids(ids)) == ids


@given(st.text(alphabet="ab\n\r\u2028", max_size=20))
def test_joined_lines_are_the_text(text: str) -> None:
    assert "".join(text_lines(text)) == text


def test_a_golden_file_is_read_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "image.chat.json"
    path.write_bytes(encode_recorded(RECORDED))
    assert read_recorded(path) == RECORDED
    assert '"<|im_start|>user\\n",\n' in path.read_text()  # a line of the prompt is a line of the file


def test_other_formats_and_files_are_rejected_by_name(tmp_path: Path) -> None:
    path = tmp_path / "image.chat.json"
    for text in ('{"format": 2, "shape": "unknown"}', "{}", "[", '{"format": 1}', '{"format": "1"}'):
        path.write_text(text)
        with pytest.raises(VlmtuiError, match=r"image\.chat\.json is not a recorded prompt"):
            read_recorded(path)


@pytest.mark.parametrize("run", ["9×", "×3", "9×3×1", "a×2", "1×99999999"])
def test_an_invalid_run_of_ids_is_rejected(run: str) -> None:
    with pytest.raises(VlmtuiError, match="invalid run"):
        unfolded([1, run])


def test_a_small_file_cannot_expand_without_limit() -> None:
    with pytest.raises(VlmtuiError, match="more than 4,000,000 tokens"):
        unfolded(["1×9999999"] * 150)
