"""What the engine is doing: requests, caches, speed, times, for each rank, with small graphs over the last minutes."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Sparkline, Static

from vlmtui.domain.metrics import EngineMetrics, Percentiles, RankMetrics
from vlmtui.session.answer_line import seconds
from vlmtui.session.engines import EngineMeter
from vlmtui.text import one_line

_COLUMNS = 60
"""Parts of the last five minutes in a graph: five seconds each."""
_LABEL, _VALUE = 16, 22
_TWO_COLUMNS = 2 * (_LABEL + _VALUE)
_RANKS_MAX = 16
"""Ranks that have a line of their own."""


class EnginePanel(Vertical):
    """Shows an `EngineMeter`. TTFT: time to the first token; ITL: between two tokens; percentiles since it started."""

    DEFAULT_CSS = """
    EnginePanel { height: auto; width: 100%; }
    EnginePanel Static { height: auto; }
    EnginePanel Sparkline { height: 2; }
    EnginePanel Sparkline > .sparkline--max-color { color: $accent; }
    EnginePanel Sparkline > .sparkline--min-color { color: $accent 50%; }
    """

    def compose(self) -> ComposeResult:
        yield _Facts(id="state", markup=False)
        yield Static("Tokens a second, last five minutes", id="about", markup=False)
        yield Sparkline([], id="speed")
        yield Static(id="ranks", markup=False)

    def show(self, meter: EngineMeter, lacking: str) -> None:
        """Show the newest sample. lacking: why the engine tells none; empty where it does."""
        found = meter.newest
        has_ranks = found is not None and len(found.ranks) > 1
        self.query_one("#about").display = self.query_one("#speed").display = found is not None
        self.query_one("#ranks").display = has_ranks
        self.query_one(_Facts).show(meter, lacking)
        self.query_one("#speed", Sparkline).data = meter.speeds(_COLUMNS)
        if found is not None and has_ranks:
            self.query_one("#ranks", Static).update(_ranks(found.ranks))


class _Facts(Static):
    """A line for each fact, or for two of them where there is room."""

    def __init__(self, *, id: str, markup: bool) -> None:
        super().__init__(id=id, markup=markup)
        self._lines: list[Content] = []
        self._facts: list[Content] = []

    def show(self, meter: EngineMeter, lacking: str) -> None:
        self._lines = []
        if meter.failure is not None:
            self._lines = [Content.styled(one_line(meter.failure.message), "$text-warning")]
        elif meter.newest is None:
            self._lines = [Content.styled(lacking or "Asking the engine…", "$muted")]
        facts = [] if meter.newest is None else _facts(meter.newest, meter.speed)
        self._facts = [
            Content.assemble((f"{label:<{_LABEL}}", "$muted"), f"{value:<{_VALUE}}") for label, value in facts
        ]
        self._lay_out()

    def on_resize(self) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        rows = self._facts
        if self.size.width >= _TWO_COLUMNS:
            half = (len(rows) + 1) // 2
            rows = [Content("").join(pair) for pair in zip(rows[:half], [*rows[half:], Content("")], strict=False)]
        self.update(Content("\n").join([*self._lines, *rows]))


def _fact(label: str, value: str) -> Content:
    return Content.assemble((f"{label:<{_LABEL}}", "$muted"), f"{value:<{_VALUE}}")


def _facts(found: EngineMetrics, speed: float | None) -> list[tuple[str, str]]:
    """Labels, as the field calls them, and values."""
    return [
        ("Requests", _requests(found.ranks)),
        ("Speed", "?" if speed is None else f"{speed:,.0f} tok/s"),
        ("TTFT p50/90/99", _times(found.first_token_s)),
        ("ITL p50/90/99", _times(found.between_tokens_s)),
        ("KV cache", _cache(found.ranks)),
        ("Prefix cache", _share(*_prefix(found.ranks))),
        ("Media cache", _share(found.media_hits, found.media_lookups)),
        ("Preemptions", _total([rank.preemptions for rank in found.ranks])),
    ]


def _requests(ranks: Sequence[RankMetrics]) -> str:
    waiting = [rank.waiting for rank in ranks]
    return f"{_total([rank.running for rank in ranks])} run, {_total(waiting)} wait"


def _cache(ranks: Sequence[RankMetrics]) -> str:
    used = [rank.kv_cache for rank in ranks if rank.kv_cache is not None]
    return f"{max(used):.1%} used" if used else "?"


def _prefix(ranks: Sequence[RankMetrics]) -> tuple[int | None, int | None]:
    cached = [rank.cached_tokens for rank in ranks if rank.cached_tokens is not None]
    prompts = [rank.prompt_tokens for rank in ranks if rank.prompt_tokens is not None]
    return (sum(cached) if cached else None, sum(prompts) if prompts else None)


def _share(part: int | None, whole: int | None) -> str:
    if part is None or whole is None:
        return "?"
    return f"{part:,} of {whole:,}" + (f" ({part / whole:.0%})" if whole else "")


def _total(counts: Sequence[int | None]) -> str:
    known = [count for count in counts if count is not None]
    return f"{sum(known):,}" if known else "?"


def _times(found: Percentiles) -> str:
    if all(one is None for one in found):
        return "?"
    return " ".join("?" if one is None else seconds(one).replace(" ", "") for one in found)


def _ranks(ranks: Sequence[RankMetrics]) -> Content:
    """A line for each rank. The media cache is told for all of them together: vLLM counts it for the first one."""
    head = f"{'Rank':<6}{'running':>8}{'waiting':>8}{'KV':>7}{'generated':>11}{'TTFT':>13}"
    lines = [Content.styled(head, "$muted")]
    lines += [Content(_rank(rank)) for rank in ranks[:_RANKS_MAX]]
    if len(ranks) > _RANKS_MAX:
        lines.append(Content.styled(f"and {len(ranks) - _RANKS_MAX} more", "$muted"))
    return Content("\n").join(lines)


def _rank(rank: RankMetrics) -> str:
    cache = "?" if rank.kv_cache is None else f"{rank.kv_cache:.0%}"
    first = "?" if rank.first_token_s[0] is None else seconds(rank.first_token_s[0])
    return (
        f"{one_line(rank.rank)[:5]:<6}{_total([rank.running]):>8}{_total([rank.waiting]):>8}{cache:>7}"
        f"{_total([rank.generated_tokens]):>11}{first:>13}"
    )
