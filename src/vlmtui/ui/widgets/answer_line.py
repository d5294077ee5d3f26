"""One line of facts below an answer."""

from __future__ import annotations

from typing import assert_never

from vlmtui.domain.generation import Cancelled, Failed, Finished
from vlmtui.session.generation import Answer
from vlmtui.text import one_line


def answer_line(answer: Answer, marks: str = "") -> str:
    """`42 tokens · 310 tok/s · TTFT 12 ms · stop <|im_end|> · prompt 29 (16 image)`, what was sampled
    where it was not greedy, and its marks; empty while it runs."""
    tokens = answer.usage.completion_tokens
    parts = [f"{tokens:,} token{'s' if tokens != 1 else ''}"] if tokens else []
    timings = answer.timings
    if timings is not None and timings.ttft_s is not None:
        streaming = timings.total_s - timings.ttft_s
        if tokens > 1 and streaming > 0:
            parts.append(f"{(tokens - 1) / streaming:,.0f} tok/s")
        parts.append(f"TTFT {seconds(timings.ttft_s)}")
    match answer.outcome:
        case None:
            return ""
        case Finished(finish_reason="length"):
            parts.append("ended by the token limit")
        case Finished(stop=stop):
            parts.append(f"stop {one_line(stop)}" if stop else "stop")
        case Cancelled():
            parts.append("stopped by you")
        case Failed():
            parts.append("incomplete" if tokens else "")
        case _:
            assert_never(answer.outcome)
    if answer.usage.prompt_tokens:
        media = f" ({answer.usage.media_text})" if answer.usage.media_text else ""
        parts.append(f"prompt {answer.usage.prompt_tokens:,}{media}")
    if answer.used is not None and not answer.used.is_greedy:
        parts += answer.used.drawn()
    return " · ".join(part for part in [*parts, marks] if part)


def seconds(value: float) -> str:
    """`12 ms`, `1.3 s`."""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
