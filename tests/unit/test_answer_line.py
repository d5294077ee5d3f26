"""The line of facts below an answer."""

from __future__ import annotations

import pytest

from vlmtui.domain.generation import Finished, Timings, Usage
from vlmtui.session.answer_line import answer_marks
from vlmtui.session.generation import Answer


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
    answer = Answer("r")
    answer.take(
        Finished(
            request_id="r",
            finish_reason="stop",
            usage=Usage(prompt_tokens=57, completion_tokens=4, cached_tokens=cached),
            timings=Timings(ttft_s=4.0, total_s=5.0, queued_s=queued_s),
        )
    )
    assert answer_marks(answer) == said
