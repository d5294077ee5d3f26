"""The line of facts below an answer."""

from __future__ import annotations

import pytest

from vlmtui.domain.generation import Delta, Finished, Timings, Usage, Waiting
from vlmtui.session.answer_line import answer_marks
from vlmtui.session.generation import Answer, waiting_line
from vlmtui.ui.chat.blocks import waiting_text


def test_a_wait_for_a_server_is_shown_until_the_answer_begins() -> None:
    answer = Answer("r")
    assert waiting_line(answer) == ""
    answer.take(Waiting(request_id="r", seconds=7.0, reason="Busy (429).\nslow \x1b[2Jdown"))
    assert waiting_line(answer).endswith(" · asks again in 7 s") and "\x1b" not in waiting_line(answer)
    assert waiting_text(answer, 3.0) == waiting_line(answer)
    answer.take(Delta(request_id="r", text="A", tokens=1))
    assert waiting_line(answer) == ""


@pytest.mark.parametrize(
    ("queued_s", "cached", "said"),
    [
        (3.21, 40, "waited 3.2 s for other requests, cached 40 of 57 prompt tokens"),
        (1.0, 0, "waited 1.0 s for other requests"),
        (0.4, 40, ""),
        (None, 40, ""),
    ],
)
def test_a_delayed_answer_shows_its_wait(queued_s: float | None, cached: int, said: str) -> None:
    answer = Answer("r", pieces=["A red circle."])
    answer.take(
        Finished(
            request_id="r",
            finish_reason="stop",
            usage=Usage(prompt_tokens=57, completion_tokens=4, cached_tokens=cached),
            timings=Timings(ttft_s=4.0, total_s=5.0, queued_s=queued_s),
        )
    )
    assert answer_marks(answer) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<think>\nI see", "the token limit ended its reasoning: /set max_tokens N, thinking_budget N or thinking off"),
        ("<think>\nI see\n</think>\n\nA red", "ended by the token limit"),
        ("A red", "ended by the token limit"),
    ],
)
def test_reasoning_without_an_answer_says_what_to_change(text: str, said: str) -> None:
    answer = Answer("r")
    answer.take(Delta(request_id="r", text=text, tokens=3))
    answer.take(Finished(request_id="r", finish_reason="length", usage=Usage(), timings=Timings()))
    assert answer_marks(answer) == said
