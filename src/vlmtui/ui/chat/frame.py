"""The parts of the chat screen around transcript and composer: frame, welcome, side pane, the card of a load, and the
lines for status, queue and editing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Container, Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static
from textual.worker import WorkType

from vlmtui.domain.engine import REMOTE_BACKEND, EngineInfo, EngineStatus, LoadProgress, labels
from vlmtui.domain.generation import Finished
from vlmtui.domain.sampling import PARAMETERS, Sampling
from vlmtui.registry.match import Model
from vlmtui.session.answer_line import answer_line, answer_speed, clock_text, elapsed
from vlmtui.session.conversation import Conversation, QueuedMessage, head_of
from vlmtui.session.engines import AppEngines, EngineState, is_remote
from vlmtui.session.exchange import Exchange, prompt_media
from vlmtui.session.generation import PromptMedia, system_tokens
from vlmtui.session.settings import other_dials, shown_value
from vlmtui.text import counted, growth, one_line, visible
from vlmtui.ui.chat.transcript import Transcript
from vlmtui.ui.keys import with_keys
from vlmtui.ui.widgets.clicks import clicked, is_click
from vlmtui.ui.widgets.thumbnails import name_line

_KEYS = (
    "Enter sends. {sample} tries a sample image. {attach} or a pasted path adds yours.",
    "{leader} shows more keys, {help} all, `vlmtui help tour` first steps.",
)
_KEYS_IN_ONE = "Enter Send · {sample} Sample · {attach} Attach · {help} Keys · `vlmtui help tour`"
"""The keys in one line, for model families with a note, which takes the other line."""
WIDTH = 32
"""Columns of the side pane, including borders."""
_ROW = WIDTH - 4
_MOST_SHARES = 12
_PARTS = (
    ("system", "█", "$secondary"),
    ("images", "▓", "$accent"),
    ("text", "▒", "$foreground"),
    ("answer", "░", "$success"),
)
"""The parts of the context: name, glyph and style. Images may also be videos and sound."""
_FREE = "·"
_NEARLY_FULL = 0.9
"""Share of the context above which its colour changes."""
_LOOKS = {
    EngineState.NONE: ("○", "$text-muted", "not loaded · {restart_engine} loads it"),
    EngineState.LOADING: ("◐", "$text-warning", "loading"),
    EngineState.READY: ("●", "$text-success", "ready"),
    EngineState.HUNG: ("◌", "$text-error", "engine does not answer · {restart_engine} restarts"),
    EngineState.DEAD: ("✕", "$text-error", "engine ended · {restart_engine} restarts"),
}
_STATUS_EVERY_S = 10.0
"""Seconds between requests for the engine's status."""
_SHOWN = 3
"""Queued messages listed; the others are counted."""


class ChatFrame(Vertical):
    """The transcript in a panel with the conversation's title. Wide screens show the side pane, narrow screens a line
    of facts below it; the style sheet chooses."""

    DEFAULT_CSS = """
    ChatFrame {
        width: 100%;
        height: 1fr;
        #body { height: 1fr; }
        #conversation { width: 1fr; }
        #imported { display: none; height: 1; padding: 0 2; color: $text-warning; text-wrap: nowrap; }
        #welcome { display: none; height: 1fr; align: center middle; overflow-y: auto; }
        #more { display: none; height: 1; width: 100%; content-align: center middle; color: $accent; }
        #more.-shown { display: block; }
        SidePane { display: none; margin: 0 0 0 1; }
    }
    """

    def __init__(self, chat: Conversation, engines: AppEngines, *, cache: Path) -> None:
        super().__init__()
        self._chat = chat
        self._engines = engines
        self.transcript = Transcript(cache=cache, id="transcript")
        self._welcome = WelcomePanel()
        self._panel = Vertical(id="conversation")
        self._pane, self._line = SidePane(), FactsLine(markup=False)
        self._imported = Static("Imported: its messages and answers come from a file.", id="imported", markup=False)

    def compose(self) -> ComposeResult:
        with Horizontal(id="body"):
            with self._panel:
                with Container(id="welcome"):
                    yield self._welcome
                yield self.transcript
            yield self._pane

    async def mount_bars(self) -> None:
        """Mount what is hidden at first."""
        more = Static(with_keys(self.app, "↓ more below · {jump_end}"), id="more", markup=False)
        await self._panel.mount(self._imported, before="#welcome")
        await self._panel.mount(more)
        await self.mount(self._line)
        await self._pane.mount_panels()

    def on_mount(self) -> None:
        self.watch(self.transcript, "marked", self.show_facts, init=False)

    def show_head(self) -> None:
        """Show the title, and the welcome panel while the conversation is empty."""
        self.show_title_soon()
        is_empty = not self._chat.exchanges
        self.query_one("#welcome").display, self.transcript.display = is_empty, not is_empty
        self.show_welcome()

    def show_welcome(self) -> None:
        """Name the model on the welcome panel, if that is shown."""
        if not self._chat.exchanges:
            self._welcome.show(self._engines.model)

    def show_facts(self) -> None:
        """Show the cost of the selected prompt and answer, or else of the newest."""
        marked, newest, everything = self.transcript.marked, self._chat.last, self._chat.branch.all
        exchange = marked.exchange if marked is not None and marked.exchange in everything else newest
        number = None if exchange is newest or exchange is None else everything.index(exchange) + 1
        in_context = exchange if number is not None else self._chat.last_counted
        self._pane.show(exchange, in_context, self._engines.info, number)
        self._line.show(exchange, number)

    def show_title_soon(self) -> None:
        """Update the title after the next refresh."""
        work: WorkType[None] = self._show_title
        self.run_worker(work, group="title", exclusive=True)

    async def _show_title(self) -> None:
        head = await head_of(self._chat)
        title = one_line(head.title)
        self._panel.border_title = Content(title + " " * growth(title))
        self._imported.display = head.is_imported

    async def on_click(self, event: events.Click) -> None:
        """Open the list of conversations if the title was clicked, and the inspector if the facts were clicked. If
        `more below` was clicked, scroll to the end."""
        on = clicked(self, event)
        if not is_click(self, event):
            return
        if on.id == "more":
            self.transcript.show_end()
        elif on is self._panel and event.screen_y == on.region.y:
            await self.run_action("app.conversations")
        elif on is self._line or on.parent is self._pane:
            await self.run_action("screen.run('inspect')")

    @on(Transcript.EndSeen)
    def _end_seen(self, event: Transcript.EndSeen) -> None:
        self.query("#more").set_class(not event.is_seen, "-shown")


class WelcomePanel(Static):
    """What an empty conversation shows: the model, the media that it accepts, and the keys to begin with."""

    DEFAULT_CSS = "WelcomePanel { width: auto; max-width: 100%; height: auto; color: $muted; }"

    def show(self, model: Model | None) -> None:
        """Show a welcome by this model; None: no model is chosen yet."""
        note, head = "", Content(with_keys(self.app, "No model is chosen: Enter or {models} lists them."))
        if model is not None:
            note = one_line(model.family.note)
            head = Content.assemble((one_line(model.family.title), "bold $foreground"), f" {takes_of(model)}.")
        told = [note, with_keys(self.app, _KEYS_IN_ONE)] if note else [with_keys(self.app, line) for line in _KEYS]
        content = Content("\n").join([head, *(Content(line) for line in told)])
        if self.content != content:
            self.update(content)


_SPINNER = "◐◓◑◒"
_BAR = 12
_DETAIL_LINES = 5
"""Most lines of a failure's technical detail on the card; the log has all."""


class LoadCard(Static):
    """The progress of a load and the time that it may still take; after a failure, the error and what to do."""

    DEFAULT_CSS = """
    LoadCard {
        display: none;
        height: auto;
        max-height: 12;
        margin: 1 2 0 2;
        padding: 0 1;
        border-left: outer $accent;
        overflow-y: auto;
        &.-failed { border-left: outer $error; }
    }
    """

    def __init__(self, chat: Conversation, engines: AppEngines, last_load_s: Callable[[], float | None]) -> None:
        """`last_load_s`: returns how many seconds the model's last load took; None: unknown."""
        super().__init__(markup=False)
        self._last_load_s = last_load_s
        self._engines = engines
        self._chat = chat
        self._clock = time.monotonic

    def on_mount(self) -> None:
        self._ticks = self.set_interval(1.0, self.show, pause=True)
        self.show()

    def show(self) -> None:
        """Show the load; hidden if there is none."""
        engines, is_loading = self._engines, self._engines.state is EngineState.LOADING
        self.display = is_loading or engines.has_failed_to_load
        self.set_class(not is_loading, "-failed")
        (self._ticks.resume if is_loading else self._ticks.pause)()
        if engines.model is None or not self.display:
            return
        name = one_line(engines.model.spec.name)
        self.update(Content("\n").join(self._loading(name) if is_loading else self._failed(name)))

    def _loading(self, name: str) -> list[Content]:
        engines, last_s = self._engines, self._last_load_s()
        elapsed = max(0.0, self._clock() - engines.started_at)
        spinner = _SPINNER[int(elapsed) % len(_SPINNER)] if self.app.animation_level == "full" else _SPINNER[0]
        head = Content.assemble((f"{spinner} ", "$text-accent"), (f"Loading {name}", "bold"))
        if engines.progress is not None:
            head = Content.assemble(
                head, (f" · {engines.progress.stage.label}  ", "$muted"), _measure(engines.progress)
            )
        told = clock_text(elapsed)
        if last_s is not None:
            left = last_s - elapsed
            told += f" · ~{clock_text(left)} left" if left >= 1 else " · longer than last time"
            told += f" (last time {clock_text(last_s)})"
        keys = " · {show_log} log" + ("" if self._chat.queue else " · {stop} stops it")
        if engines.former is not None and engines.keeps_former:
            keys += f"; {one_line(engines.former.spec.name)} stays loaded until then"
        return [head, Content.styled(with_keys(self.app, told + keys), "$muted")]

    def _failed(self, name: str) -> list[Content]:
        engines, error = self._engines, self._engines.error
        lines = [Content.assemble(("✗ ", "$text-error"), (f"Can't load {name}", "bold $text-error"))]
        if error is not None:
            lines.append(Content(visible(error.message)))
            lines += [Content(visible(error.hint))] if error.hint else []
            detail = visible(error.detail.strip()).splitlines()[-_DETAIL_LINES:]
            lines += [Content.styled(line, "$muted") for line in detail]
        keys = "{restart_engine} loads it again · {models} another model · {show_log} log"
        if engines.former is not None:
            former = one_line(engines.former.spec.name)
            does = "goes back to" if engines.keeps_former else "loads"
            keys = f"{{stop}} {does} {former} · {keys}"
        return [*lines, Content.styled(with_keys(self.app, keys), "$muted")]


def _measure(progress: LoadProgress) -> Content:
    detail = Content.styled(one_line(progress.detail), "$muted")
    if progress.fraction is None:
        return detail
    fraction = min(max(progress.fraction, 0.0), 1.0)
    filled = round(fraction * _BAR)
    bar = ("━" * filled, "$text-accent"), ("─" * (_BAR - filled), "$faint")
    return Content.assemble(*bar, f" {fraction:4.0%}  ", detail)


def takes_of(model: Model) -> str:
    """Return the media that a model accepts, as the end of a sentence."""
    if is_remote(model) and not model.listed:
        return "may take images: its server doesn't say which media it takes"
    takes = [f"{modality}s (up to {how.max_items})" for modality, how in model.family.takes.items()]
    return f"takes {' and '.join(takes) or 'text only'}"


class SidePane(Vertical):
    """Panels for the context, the last prompt and the last answer. Only changed panels are repainted."""

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
            border-subtitle-color: $muted;
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
        self._prompt_panel.border_title = "attachments"

    async def mount_panels(self) -> None:
        """Mount the panels, which are hidden while they are empty."""
        await self.mount(self._answer_panel, self._context_panel, self._prompt_panel)

    def show(
        self, exchange: Exchange | None, in_context: Exchange | None, info: EngineInfo | None, number: int | None
    ) -> None:
        """Show the facts about an exchange, and hide empty panels. `in_context`: the exchange whose prompt and answer
        fill the context. `number`: the number of an exchange that is not the newest."""
        is_open = exchange is None or exchange.is_running
        is_told = is_open or (in_context is not None and in_context.answer.usage.prompt_tokens > 0)
        most = info.max_model_len if info is not None else 0
        is_shown = info is not None and (is_told or has_ended(exchange))
        _fill(self._context_panel, context_rows(in_context, most, is_told=is_told) if is_shown else [])
        _fill(self._prompt_panel, prompt_rows(exchange) if exchange is not None else [])
        _fill(self._answer_panel, answer_rows(exchange) if exchange is not None else [])
        if exchange is not None:
            which = "last answer" if number is None else f"answer {number}"
            title = f"answering {elapsed(exchange.answer)}" if exchange.is_running else which
            _title(self._answer_panel, title, exchange.answered_by)


class FactsLine(Static):
    """An answer's facts in one line, with its number if it is not the newest."""

    DEFAULT_CSS = """
    FactsLine {
        display: none; height: 1; padding: 0 3 0 4; color: $muted; text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def show(self, exchange: Exchange | None, number: int | None) -> None:
        line = answer_line(exchange.answer) if exchange is not None else ""
        if line and number is not None:
            line = f"answer {number}: {line}"
        if self.content != line:
            self.update(line, layout=False)
        self.set_class(bool(line), "-filled")


def has_ended(exchange: Exchange | None) -> bool:
    """Return whether the engine has told all that it tells about an exchange."""
    return exchange is not None and isinstance(exchange.answer.outcome, Finished)


def _fill(panel: Static, rows: list[Content]) -> None:
    content = Content("\n").join(rows)
    if panel.content != content:
        panel.update(content, layout=panel.content_size.height != len(rows))
    panel.display = bool(rows)


def _title(panel: Static, title: str, subtitle: str) -> None:
    if (panel.border_title, panel.border_subtitle) != (title, subtitle):
        panel.border_title, panel.border_subtitle = Content(title), Content(subtitle)


def context_rows(exchange: Exchange | None, most: int, *, is_told: bool = True) -> list[Content]:
    """Return a bar of the context with the parts of an exchange's prompt and its answer, the tokens of each part, and
    their share of the limit; without a bar if the limit is unknown (0). `is_told`: the engine tells the tokens."""
    counts = context_parts(exchange) if exchange is not None else (0, 0, 0, 0)
    used = sum(counts)
    if not is_told:
        return [_row(f"? of {most:,}", "")] if most else []
    parts = [(*part, count) for part, count in zip(_PARTS, counts, strict=True) if count]
    rows = [_row(f"{glyph} {name}", f"{count:,}", left=style) for name, glyph, style, count in parts]
    if not most:
        return [*rows, _row(counted(used, "token"), "")] if used else []
    cells = [max(1, round(count / most * _ROW)) for *_, count in parts]
    if cells and (over := sum(cells) - _ROW) > 0:
        cells[cells.index(max(cells))] -= over
    bar = [(glyph * width, style) for (_, glyph, style, _), width in zip(parts, cells, strict=True)]
    style = "$text-warning" if used >= _NEARLY_FULL * most else ""
    total = _row(f"{used:,} of {most:,}", f"{min(1.0, used / most):.0%}", style)
    return [Content.assemble(*bar, (_FREE * (_ROW - sum(cells)), "$faint")), *rows, total]


def context_parts(exchange: Exchange) -> tuple[int, int, int, int]:
    """Return the tokens of an exchange's prompt up to the end of the system prompt (0 if unknown), of its media and of
    the rest, and the tokens of its answer."""
    answer, record, usage = exchange.answer, exchange.record, exchange.answer.usage
    system = 0
    if record is not None:
        system = record.system_tokens or system_tokens(answer, record.system_prompt)
    media = usage.media_tokens
    return system, media, max(0, usage.prompt_tokens - system - media), usage.completion_tokens


def prompt_rows(exchange: Exchange) -> list[Content]:
    """Return the tokens of each attachment of the prompt."""
    shares = prompt_media(exchange)
    shown = shares if len(shares) <= _MOST_SHARES else shares[: _MOST_SHARES - 1]
    rows = [_row(name_line(share.attachment, share.number), _tokens(share.tokens)) for share in shown]
    if len(shown) < len(shares):
        rest = shares[len(shown) :]
        rows.append(_row(f"… and {len(rest)} more", _sum(rest)))
    return rows


def answer_rows(exchange: Exchange) -> list[Content]:
    """Return the answer's tokens, speed and stop reason, and the sampling that is not the default."""
    answer = exchange.answer
    labelled: list[tuple[str, str]] = []
    if answer.usage.completion_tokens or exchange.is_running:
        labelled.append(("tokens", f"{answer.usage.completion_tokens:,}"))
    labelled += answer_speed(answer)
    labelled += [("cached", f"{answer.usage.cached_tokens:,} of prompt")] if answer.usage.cached_tokens else []
    sampling = _sampling(exchange)
    if sampling is not None:
        dials = sampling.dials()
        labelled += [(PARAMETERS[name].label, PARAMETERS[name].format(value)) for name, value in dials.items()]
    if exchange.record is not None:
        labelled += [(one_line(name), shown_value(value)) for name, value in other_dials(exchange.record.sampling)]
    if marks := exchange.marks():
        labelled.append(("", marks))
    return [_labelled(name, value) for name, value in labelled]


def _sampling(exchange: Exchange) -> Sampling | None:
    """Return the sampling that the engine reported, or else the requested sampling."""
    if exchange.answer.used is not None:
        return exchange.answer.used
    if exchange.request is not None:
        return exchange.request.sampling
    return exchange.record.sampling if exchange.record is not None else None


def _tokens(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _sum(shares: Iterable[PromptMedia]) -> str:
    counts = [share.tokens for share in shares]
    return _tokens(None if None in counts else sum(count or 0 for count in counts))


def _row(text: str, right: str, style: str = "", *, left: str = "$muted") -> Content:
    """Return a row with `text` (truncated if needed) and `right` aligned to the sides. `left`: the style of `text`,
    unless `style` is given."""
    room = _ROW - cell_len(right) - 1
    text = one_line(text)
    text = text if cell_len(text) <= room else set_cell_size(text, room - 1) + "…"
    return Content.assemble((set_cell_size(text, room), style or left), " ", (right, style))


def _labelled(name: str, value: str) -> Content:
    """Return a row with the whole name, and as much of the value as fits."""
    room = _ROW - cell_len(name) - 1
    value = value if cell_len(value) <= room else set_cell_size(value, room - 1) + "…"
    return _row(name, value) if name else Content(value)


class StatusBar(Static):
    """The line with the model, the engine's state and memory, the settings and the context."""

    DEFAULT_CSS = """
    StatusBar { height: 1; padding: 0 2; background: $background; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, engines: AppEngines, chat: Conversation) -> None:
        super().__init__(markup=False)
        self._engines = engines
        self._chat = chat
        self._status: EngineStatus | None = None

    def on_mount(self) -> None:
        self.ask()
        self.set_interval(_STATUS_EVERY_S, self.ask)

    def ask(self) -> None:
        """Ask the engine for its status, and show it."""
        work: WorkType[None] = self._ask
        self.run_worker(work, group="status", exclusive=True)

    async def _ask(self) -> None:
        if self._engines.state is EngineState.READY:
            self._status = await self._engines.read_status()
            self.call_later(self.show)

    def show(self) -> None:
        """Update the line."""
        engines, info, status = self._engines, self._engines.info, self._status
        glyph, colour, _ = _look(engines)
        model, *beside = labels([one.spec for one in engines.models]) or ["no model"]
        parts = [
            Content.assemble((f"{glyph} ", colour), (one_line(model), "bold")),
            Content.styled(self._word(), colour),
        ]
        if beside:
            more = f"+ {one_line(beside[0])}" if len(beside) == 1 else f"+ {len(beside)} engines"
            parts.append(Content.styled(more, "$muted"))
        if earlier := self._chat.other_model(engines.model):
            back = with_keys(self.app, "{earlier_model} goes back")
            parts.append(Content.styled(f"⚠ was {earlier} · {back}", "$text-warning"))
        parts.append(Content.styled(self._chat.settings.summary, "$muted"))
        if info is not None:
            used = self._chat.context_used
            most = f" / {info.max_model_len:,}" if info.max_model_len else ""
            is_full = most and (used or 0) >= _NEARLY_FULL * info.max_model_len
            if (most or used) and (used is not None or has_ended(self._chat.last)):
                text = f"context {'?' if used is None else f'{used:,}'}{most}"
                parts.append(Content.styled(text, "$text-warning" if is_full else "$muted"))
            if status is not None and engines.state is EngineState.READY and status.spec.backend != REMOTE_BACKEND:
                memory = status.gpu_bytes if status.gpu_bytes else status.rss_bytes
                parts.append(Content.styled(f"{memory / 1e9:.1f} GB {'GPU' if status.gpu_bytes else 'RAM'}", "$muted"))
            if info.spec.backend != REMOTE_BACKEND:  # the name of a server's model has the address
                parts.append(Content.styled(f"{info.device} {info.dtype}", "$muted"))
        self.update(Content.styled("  ·  ", "$faint").join(parts), layout=False)

    def _word(self) -> str:
        """Return a short text for the engine's state, with the key that helps."""
        if self._engines.state is EngineState.READY and self._chat.running is not None:
            return "answering"
        if self._engines.model is None:
            return with_keys(self.app, "{models} picks one")
        return with_keys(self.app, _look(self._engines)[2])


def _look(engines: AppEngines) -> tuple[str, str, str]:
    """Return the glyph, the colour and the text of an engine's state."""
    if engines.outdated is None:
        return _LOOKS[engines.state]
    return "◌", "$text-warning", "files changed" + (" · {restart_engine} reloads" if engines.is_to_restart else "")


class QueueBar(Static):
    """One line for each queued message, then the reason why they wait. Hidden if no message is queued."""

    DEFAULT_CSS = """
    QueueBar {
        display: none;
        height: auto;
        margin: 1 2 0 2;
        padding: 0 1;
        border-left: outer $warning;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def show(self, queued: Sequence[QueuedMessage], engines: AppEngines) -> None:
        """Show the queue and the reason why it waits."""
        self.display = bool(queued)
        lines = [
            Content.assemble(("⧗ queued  ", "$text-warning"), one_line(message.written.text))
            for message in queued[:_SHOWN]
        ]
        more = len(queued) - len(lines)
        lines += [Content.styled(f"  … and {more} more", "$muted")] if more else []
        why = Content.styled(with_keys(self.app, waits_for(engines)), "$muted")
        self.update(Content("\n").join([*lines, why]))


def waits_for(engines: AppEngines) -> str:
    """Return why queued messages are not sent yet, and what the user can do. `with_keys` replaces the action ids in it
    by keys."""
    model = engines.model
    name = one_line(model.spec.name) if model is not None else "a model"
    take_back = "{take_back} takes it back"
    match engines.state:
        case EngineState.LOADING:
            return f"Sent once {name} has loaded. {take_back}."
        case EngineState.READY:
            return f"Sent after the running answer. {take_back}."
        case EngineState.HUNG:
            return f"Not sent: {name} does not answer. {{restart_engine}} restarts it, {take_back}."
        case EngineState.DEAD:
            return f"Not sent: {name} is not running. {{restart_engine}} loads it again, {take_back}."
        case EngineState.NONE if model is not None:
            return f"Not sent: {name} is not loaded. {{restart_engine}} loads it, {take_back}."
        case EngineState.NONE:
            return f"Not sent: no model is loaded. {{models}} picks one, {take_back}."


class EditingBar(Static):
    """A line with the number of the earlier message that is being edited. Hidden if none is."""

    def __init__(self, chat: Conversation) -> None:
        super().__init__(id="editing", markup=False)
        self._chat = chat

    def show(self) -> None:
        """Show the number of the message that is being edited."""
        editing = self._chat.editing
        self.display = editing is not None
        if editing is not None:
            told = f"Editing message {self._chat.number_of(editing)} · Enter send as branch · {{leave_edit}} cancel"
            self.update(with_keys(self.app, told))
