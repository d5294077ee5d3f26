"""The engine's metrics and its log, live."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import aclosing, suppress

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.events import Resize
from textual.widgets import Sparkline, Static

from vlmtui.domain.capabilities import lack
from vlmtui.domain.engine import REMOTE_BACKEND
from vlmtui.domain.metrics import EngineMetrics, Percentiles, RankMetrics
from vlmtui.engine.interface import Engine
from vlmtui.errors import VlmtuiError
from vlmtui.log_ring import LogRing
from vlmtui.session.answer_line import seconds
from vlmtui.session.engines import LOG_LINES, AppEngines, EngineMeter
from vlmtui.text import counted, one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.document import Block
from vlmtui.ui.document.lines import Lines, hanging
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.messages import EngineChanged, EngineLogGrew
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.search_bar import SearchBar, SearchScreen

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_BLOCK_LINES = 500
"""Maximum lines of the log in a block; the oldest block is dropped as a whole."""


def log_line(line: str) -> str:
    """Return a log line for display: without the escape sequences of colours, and with other control characters made
    visible."""
    return one_line(_COLOURS.sub("", line))


class LogBlock(Block):
    """Consecutive lines of a log, which may still grow."""

    def __init__(self, written: Sequence[str]) -> None:
        super().__init__()
        self.written = list(written)
        self._taken = 0
        """The number of lines that are laid out."""

    def lay_out(self, width: int) -> Lines:
        known = self.lines if width == self.width else []
        new = self.written[self._taken if known else 0 :]
        self._taken = len(self.written)
        return [*known, *(line for text in new for line in hanging(text, width))]


class LogView(DocumentView):
    """Shows a `LogRing`. Follows new lines while its end is in view."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(follows=True, from_top=True, has_edge=False, can_focus=True, id=id)
        self._shown = 0
        self._generation = -1

    def show_log(self, log: LogRing) -> None:
        """Add the new lines of `log`; start over if it was cleared meanwhile."""
        if log.generation != self._generation:
            self.clear()
            self._shown, self._generation = 0, log.generation
        new = [log_line(line) for line in log.since(self._shown)]
        self._shown = log.total
        blocks = self.document.blocks
        if new and blocks and isinstance(last := blocks[-1], LogBlock):
            room = _BLOCK_LINES - len(last.written)
            last.written += new[:room]
            new = new[room:]
            self.changed(last)
        if new:
            self.add(*(LogBlock(new[at : at + _BLOCK_LINES]) for at in range(0, len(new), _BLOCK_LINES)))
            self.drop(*self.document.blocks[: -(LOG_LINES // _BLOCK_LINES) - 1])


_COLUMNS = 60
"""Bars in the graph of the last five minutes, five seconds each."""
_LABEL, _VALUE = 16, 22
_TWO_COLUMNS = 2 * (_LABEL + _VALUE)
_RANKS_MAX = 16
"""Maximum number of ranks listed."""


class EnginePanel(Vertical):
    """The metrics of an engine. TTFT: time to first token; ITL: inter-token latency; percentiles since its start."""

    DEFAULT_CSS = """
    EnginePanel { height: auto; width: 100%; }
    EnginePanel Static { height: auto; }
    EnginePanel Sparkline { height: 2; }
    EnginePanel Sparkline > .sparkline--max-color { color: $accent; }
    EnginePanel Sparkline > .sparkline--min-color { color: $accent 50%; }
    """

    def compose(self) -> ComposeResult:
        yield Static(id="state", markup=False)
        yield Static("Tokens a second, last five minutes", id="about", markup=False)
        yield Sparkline([], id="speed")
        yield Static(id="ranks", markup=False)
        yield Static(id="check", markup=False)

    def show(self, meter: EngineMeter, lacking: str, server: str) -> None:
        """Show the newest metrics. `lacking`: why the engine reports no metrics; empty if it reports them. `server`:
        its name for `vlmtui check`; empty for an engine here."""
        self.query_one("#check").display = bool(server)
        command = f"vlmtui check --on {shlex.quote(server)}"
        self.query_one("#check", Static).update(Content.assemble(("Does it see its images?\n", "$muted"), command))
        found = meter.newest
        has_ranks = found is not None and len(found.ranks) > 1
        self.query_one("#about").display = self.query_one("#speed").display = found is not None
        self.query_one("#ranks").display = has_ranks
        self.query_one("#state", Static).update(Content("\n").join(self._state(meter, lacking)))
        self.query_one("#speed", Sparkline).data = meter.speeds(_COLUMNS)
        if found is not None and has_ranks:
            self.query_one("#ranks", Static).update(_ranks(found.ranks))

    def _state(self, meter: EngineMeter, lacking: str) -> list[Content]:
        """Return the failure, if there is one, and the facts: one fact on a line, or two on a wide screen."""
        failed = [] if meter.failure is None else [Content.styled(one_line(meter.failure.message), "$text-warning")]
        if meter.newest is None:
            return failed or [Content.styled(lacking or "Asking the engine…", "$muted")]
        rows = [
            Content.assemble((f"{label:<{_LABEL}}", "$muted"), f"{value:<{_VALUE}}")
            for label, value in _facts(meter.newest, meter.speed)
        ]
        if self.size.width >= _TWO_COLUMNS:
            half = len(rows) // 2
            rows = [Content("").join(pair) for pair in zip(rows[:half], rows[half:], strict=True)]
        return [*failed, *rows]


def _facts(found: EngineMetrics, speed: float | None) -> list[tuple[str, str]]:
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
    """Return a line for each rank. The lines do not show the media cache, since vLLM counts it only at the first
    rank."""
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


_BESIDE_COLUMNS = 120
"""Columns from which on the metrics are beside the log; otherwise they are above it."""


class LogScreen(SearchScreen):
    """The engine's metrics of the last minutes, and the newest lines of its log."""

    CSS_PATH = "log.tcss"
    SCOPE = "log"
    BINDINGS = bindings(SCOPE)

    def __init__(self, engines: AppEngines) -> None:
        super().__init__()
        self.engines = engines
        self._meter = EngineMeter()
        self._measured: Engine | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static("Engine", id="title")
            yield Static(id="model", markup=False)
            yield Static(id="count")
        with Container(id="both"):
            with VerticalScroll(id="metrics", can_focus=False):
                yield EnginePanel()
            with Vertical(id="log"):
                yield Static("The log is empty so far.", id="empty")
                yield LogView(id="lines")
        yield SearchBar()
        yield FooterBar()

    def on_mount(self) -> None:
        self.query_one(LogView).focus()
        self._refresh()

    @property
    def searched(self) -> LogView:
        return self.query_one(LogView)

    @on(EngineLogGrew)
    @on(EngineChanged)
    def _refresh(self) -> None:
        engines = self.engines
        self.query_one(LogView).show_log(engines.log)
        name = one_line(engines.model.spec.name) if engines.model else "no engine"
        self.query_one("#model", Static).update(f"{name} · {engines.state}")
        self.query_one("#count", Static).update(counted(engines.log.total, "line"))
        self.query_one("#empty").display = engines.log.total == 0
        engine = engines.engine if engines.is_loaded else None
        if engine is not self._measured:
            self._measured = engine
            self._meter.clear()
            self._measure()
        self._show_metrics()

    @work(group="metrics", exclusive=True, exit_on_error=False)
    async def _measure(self) -> None:
        engine = self._measured
        if engine is None or lack(engine.info, "metrics"):
            return
        with suppress(VlmtuiError):  # the heading shows that the engine is gone
            async with aclosing(engine.metrics()) as found:
                async for told in found:
                    self._meter.add(told)
                    self._show_metrics()

    def _show_metrics(self) -> None:
        info = self.engines.info
        lacking = "No engine is loaded." if self._measured is None else lack(info, "metrics")
        server = ""
        if self._measured is not None and info is not None and info.spec.backend == REMOTE_BACKEND:
            server = one_line(f"{info.spec.name.rpartition(' at ')[2]} {info.spec.model}")
        self.query_one(EnginePanel).show(self._meter, lacking, server)

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width >= _BESIDE_COLUMNS, "-beside")

    def action_metrics(self) -> None:
        panel = self.query_one("#metrics")
        panel.display = not panel.display

    def action_close(self) -> None:
        self.dismiss()

    def action_follow(self) -> None:
        self.query_one(LogView).show_end()

    def action_oldest(self) -> None:
        self.query_one(LogView).scroll_home(animate=False)

    def action_copy(self) -> None:
        lines = [log_line(line) for line in self.engines.log.since(0)]
        self.app.copy_to_clipboard("\n".join(lines))
        self.notify(f"Copied {len(lines):,} lines.", markup=False)
