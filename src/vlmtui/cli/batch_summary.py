"""The summary at the end of a batch, for people and as JSON."""

from __future__ import annotations

from vlmtui.cli.output import note
from vlmtui.session.batch.tally import DurationHistogram, Tally
from vlmtui.text import one_line

_PERCENTS = (50, 90, 99)


def print_summary(tally: Tally, elapsed_s: float) -> None:
    """Write the counts of a run to stderr."""
    counts = [f"{tally.answered:,} answered", f"{tally.failed:,} failed"]
    for count, word in (
        (tally.skipped, "answered before"),
        (tally.failed_before, "failed before"),
        (tally.unchecked, "answered before, with files that are gone"),
    ):
        counts += [f"{count:,} {word}"] if count else []
    note(f"{' · '.join(counts)}, in {elapsed_s:.1f} s.")
    if tally.changed:
        names = ", ".join(one_line(name) for name in tally.changed_ids)
        parts = ", ".join(f"{name} of {count:,}" for name, count in sorted(tally.changed.items()))
        note(f"Asked again, as they have changed ({parts}): {names}{' …' if len(tally.changed_ids) > 4 else ''}")
    if tally.kinds:
        note("Failures: " + ", ".join(f"{count:,} {kind}" for kind, count in tally.kinds.most_common()))
    if not tally.answered:
        return
    seconds = max(elapsed_s, 1e-9)
    note(
        f"{tally.answered / seconds:.2f} items/s · {tally.prompt_tokens:,} prompt tokens ({tally.media_tokens:,} of "
        f"media), {tally.completion_tokens:,} of answers · {tally.completion_tokens / seconds:,.0f} tokens/s"
    )
    note(f"First token {_shown(tally.ttft)} · answer {_shown(tally.latency)} (p50, p90, p99)")
    if tally.media:
        note(f"{tally.media_repeated:,} of {tally.media:,} pictures and videos were the same as one shortly before.")


def summary_json(tally: Tally, elapsed_s: float, output: str) -> dict[str, object]:
    """Return the counts of a run."""
    return {
        "output": output,
        "answered": tally.answered,
        "failed": tally.failed,
        "answered_before": tally.skipped,
        "failed_before": tally.failed_before,
        "unchecked": tally.unchecked,
        "changed": dict(tally.changed),
        "failures": dict(tally.kinds),
        "expected": tally.expected,
        "correct": tally.correct,
        "elapsed_s": round(elapsed_s, 3),
        "prompt_tokens": tally.prompt_tokens,
        "media_tokens": tally.media_tokens,
        "completion_tokens": tally.completion_tokens,
        "media": tally.media,
        "media_repeated": tally.media_repeated,
        "ttft_s": _percentiles(tally.ttft),
        "latency_s": _percentiles(tally.latency),
    }


def _percentiles(found: DurationHistogram) -> dict[str, float | None]:
    values = {f"p{percent}": found.percentile(percent) for percent in _PERCENTS}
    return {name: None if value is None else round(value, 4) for name, value in values.items()}


def _shown(found: DurationHistogram) -> str:
    values = [found.percentile(percent) for percent in _PERCENTS]
    return ", ".join("–" if value is None else f"{value:.2f} s" for value in values)
