"""Panels with the cost of the conversation and the facts of its newest answer: at the right of a wide screen, one
line below the transcript of a narrow one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.parameters import PARAMETERS
from vlmtui.domain.sampling import Sampling
from vlmtui.session.answer_line import answer_line, answer_speed
from vlmtui.session.exchange import Exchange
from vlmtui.session.prompt_shares import PromptShare, prompt_shares
from vlmtui.text import one_line
from vlmtui.ui.widgets.thumbnails import name_line

WIDTH = 32
"""Columns of the pane, including borders."""
_ROW = WIDTH - 4
_MOST_SHARES = 12
_FULL, _EMPTY = "━", "─"
_NEARLY_FULL = 0.9
"""Share of the context above which its colour changes."""


@dataclass(frozen=True)
class ChatFacts:
    """The facts to show."""

    exchange: Exchange | None
    """The exchange with the newest answer; None before the first."""
    info: EngineInfo | None
    context_used: int | None


class SidePane(Vertical):
    """Three titled panels. Only changed ones are repainted."""

    can_focus = False
    DEFAULT_CSS = f"""
    SidePane {{
        width: {WIDTH};
        height: 1fr;
        background: $background;
        Static {{
            height: auto;
            padding: 0 1;
            border: round $border-blurred;
            border-title-color: $muted;
            background: $background;
        }}
    }}
    """

    def __init__(self) -> None:
        super().__init__()
        self._context_panel, self._prompt_panel, self._answer_panel = (
            Static(id=f"{name}-panel", markup=False) for name in ("context", "prompt", "answer")
        )
        self._context_panel.border_title = "context"
        self._prompt_panel.border_title = "last prompt"
        self._answer_panel.border_title = "last answer"

    def compose(self) -> ComposeResult:
        yield from (self._context_panel, self._prompt_panel, self._answer_panel)

    def show(self, facts: ChatFacts) -> None:
        """Show these facts; empty panels are hidden."""
        _fill(self._context_panel, context_rows(facts))
        _fill(self._prompt_panel, prompt_rows(facts.exchange) if facts.exchange else [])
        _fill(self._answer_panel, answer_rows(facts.exchange) if facts.exchange else [])


class FactsLine(Static):
    """The newest answer's facts in one line."""

    DEFAULT_CSS = """
    FactsLine {
        display: none; height: 1; padding: 0 3; color: $muted; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def show(self, facts: ChatFacts) -> None:
        line = answer_line(facts.exchange.answer) if facts.exchange else ""
        if self.content != line:
            self.update(line)
        self.set_class(bool(line), "-filled")


def _fill(panel: Static, rows: list[Content]) -> None:
    content = Content("\n").join(rows)
    if panel.content != content:
        panel.update(content)
    panel.display = bool(rows)


def context_rows(facts: ChatFacts) -> list[Content]:
    """Return how full the context is."""
    if facts.info is None:
        return []
    used, most = facts.context_used or 0, facts.info.max_model_len
    share = min(1.0, used / most) if most else 0.0
    style = "$text-warning" if share >= _NEARLY_FULL else "$accent"
    filled = round(share * _ROW)
    gauge = Content.assemble((_FULL * filled, style), (_EMPTY * (_ROW - filled), "$faint"))
    return [gauge, _row(f"{used:,} of {most:,}", f"{share:.0%}", style if share >= _NEARLY_FULL else "")]


def prompt_rows(exchange: Exchange) -> list[Content]:
    """Return the prompt's tokens: each attachment, and the text."""
    usage, shares = exchange.answer.usage, prompt_shares(exchange)
    shown = shares if len(shares) <= _MOST_SHARES else shares[: _MOST_SHARES - 1]
    rows = [_row(name_line(share.attachment, share.number), _tokens(share.tokens)) for share in shown]
    if len(shown) < len(shares):
        rest = shares[len(shown) :]
        rows.append(_row(f"… and {len(rest)} more", _sum(rest)))
    if usage.prompt_tokens:
        media = usage.media_tokens
        rows += [_row("text", f"{usage.prompt_tokens - media:,}")] if media else []
        rows.append(_row("tokens", f"{usage.prompt_tokens:,}"))
        rows += [_row("cached", f"{usage.cached_tokens:,}")] if usage.cached_tokens else []
    return rows


def answer_rows(exchange: Exchange) -> list[Content]:
    """Return the answer's speed, stop reason, and sampling."""
    answer = exchange.answer
    labelled: list[tuple[str, str]] = []
    if answer.usage.completion_tokens:
        labelled.append(("tokens", f"{answer.usage.completion_tokens:,}"))
    labelled += answer_speed(answer)
    sampling = _sampling(exchange)
    if sampling is not None:
        labelled += [(name, PARAMETERS[name].format(value)) for name, value in sampling.numbers().items()]
    if marks := exchange.marks():
        labelled.append(("", marks))
    return [_labelled(name.replace("_", " "), value) for name, value in labelled]


def _sampling(exchange: Exchange) -> Sampling | None:
    """Return the engine's sampling, or that of the request if not reported."""
    if exchange.answer.used is not None:
        return exchange.answer.used
    if exchange.request is not None:
        return exchange.request.sampling
    return exchange.record.sampling if exchange.record is not None else None


def _tokens(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _sum(shares: Iterable[PromptShare]) -> str:
    counts = [share.tokens for share in shares]
    return _tokens(None if None in counts else sum(count or 0 for count in counts))


def _row(left: str, right: str, style: str = "") -> Content:
    """Return a row with `left` (truncated if needed) and `right` aligned to the sides."""
    room = _ROW - cell_len(right) - 1
    left = one_line(left)
    left = left if cell_len(left) <= room else set_cell_size(left, room - 1) + "…"
    return Content.assemble((set_cell_size(left, room), style or "$muted"), " ", (right, style))


def _labelled(name: str, value: str) -> Content:
    """Return a row with the whole name, and as much of the value as fits."""
    room = _ROW - cell_len(name) - 1
    value = value if cell_len(value) <= room else set_cell_size(value, room - 1) + "…"
    return _row(name, value) if name else Content(value)
