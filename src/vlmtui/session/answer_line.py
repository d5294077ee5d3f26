"""An answer's speed, tokens and end as a line of text."""

from __future__ import annotations

import time
from typing import assert_never

from vlmtui.domain.generation import Cancelled, Failed, Finished
from vlmtui.session.generation import Answer, missing_answer
from vlmtui.text import counted, one_line

_NO_ANSWER = "the token limit ended its reasoning: /set max_tokens N, thinking_budget N or thinking off"
_LATE_S = 1.0
"""The least wait for other requests that is shown."""


def answer_line(answer: Answer, marks: str = "") -> str:
    """Return `42 tokens · 310 tok/s · TTFT 12 ms · stop <|im_end|> · prompt 29 (16 image)`, then the sampling unless it
    was greedy, then `marks`, a text of the caller. While the answer is running, return what is known so far:
    `0:07 · 42 tokens · 310 tok/s`."""
    tokens = answer.usage.completion_tokens
    parts = [elapsed(answer)] if answer.outcome is None else []
    parts += [counted(tokens, "token")] if tokens else []
    for name, value in answer_speed(answer):
        parts.append(value if name == "speed" else f"{name} {value}".strip())
    parts.append(answer_marks(answer))
    if isinstance(answer.outcome, Finished) and answer.outcome.finish_reason != "length" and not answer.outcome.stop:
        parts.append("stop")
    if answer.usage.prompt_tokens:
        media = f" ({answer.usage.media_text})" if answer.usage.media_text else ""
        parts.append(f"prompt {answer.usage.prompt_tokens:,}{media}")
    if answer.used is not None and not answer.used.is_greedy:
        parts += answer.used.drawn()
    return " · ".join(part for part in [*parts, marks] if part)


def clock_text(seconds: float) -> str:
    """Format seconds: `0:07`, `12:40`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def elapsed(answer: Answer) -> str:
    """Return the time since the request of a running answer: `0:07`."""
    return clock_text(time.monotonic() - answer.began_s)


def answer_speed(answer: Answer) -> list[tuple[str, str]]:
    """Return speed, time to first token and stop reason, each with a label; unknown values are left out. While the
    answer is running, they are measured here."""
    found, tokens, timings = [], answer.usage.completion_tokens, answer.timings
    ttft_s = timings.ttft_s if timings is not None else None
    total_s = timings.total_s if timings is not None else 0.0
    if answer.outcome is None and (streaming := answer.thought.seconds) is not None:
        total_s = time.monotonic() - answer.began_s
        ttft_s = total_s - streaming
    if ttft_s is not None:
        if tokens > 1 and total_s > ttft_s:
            found.append(("speed", f"{(tokens - 1) / (total_s - ttft_s):,.0f} tok/s"))
        found.append(("TTFT", seconds(ttft_s)))
    if isinstance(answer.outcome, Finished) and answer.outcome.finish_reason != "length" and answer.outcome.stop:
        found.append(("stop", one_line(answer.outcome.stop)))
    return found


def answer_marks(answer: Answer) -> str:
    """Return why the answer is incomplete, whether it fits its schema, and why it was slow to start; usually empty."""
    match answer.outcome:
        case Finished(finish_reason="length"):
            mark = _NO_ANSWER if is_only_reasoning(answer) else "ended by the token limit"
        case Cancelled():
            mark = "stopped by you"
        case Failed():
            mark = "incomplete" if answer.has_text else ""
        case Finished():
            error = missing_answer(answer)
            mark = f"{error.message[0].lower()}{error.message[1:-1]}" if error is not None else ""
        case None:
            mark = ""
        case _:
            assert_never(answer.outcome)
    structure = one_line(answer.structure.message) if answer.structure is not None else ""
    return " · ".join(part for part in (mark, structure, _why_late(answer)) if part)


def is_only_reasoning(answer: Answer) -> bool:
    """Return True if the text ends before the reasoning does."""
    parts = answer.parts(answer.text)
    return bool(parts.thinking) and not parts.answer.strip()


def _why_late(answer: Answer) -> str:
    """Return `waited 3.2 s for other requests, cached 40 of 57 prompt tokens`; empty if the answer did not have to
    wait."""
    usage, queued_s = answer.usage, answer.timings.queued_s if answer.timings is not None else None
    if queued_s is None or queued_s < _LATE_S:
        return ""
    cached = f", cached {usage.cached_tokens:,} of {usage.prompt_tokens:,} prompt tokens" if usage.cached_tokens else ""
    return f"waited {seconds(queued_s)} for other requests{cached}"


def seconds(value: float) -> str:
    """Return a duration for display: `12 ms`, `1.3 s`."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
