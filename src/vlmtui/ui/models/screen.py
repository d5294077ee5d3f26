"""The list of models, and the details of the highlighted model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, cast

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input, Static

from vlmtui.domain.engine import BackendChoice, EngineStatus
from vlmtui.engine.machine import Fit, Machine, check_fit, gib
from vlmtui.errors import VlmtuiError
from vlmtui.registry.hub_cache import downloaded_models
from vlmtui.registry.match import Model, model_of, resolve
from vlmtui.registry.routes import model_closed, route_name, status_of
from vlmtui.session.dials import described_variables
from vlmtui.session.engines import AppEngines, EngineState
from vlmtui.session.models import Choice, ModelSize, model_choices, size_of, template_variables
from vlmtui.text import counted, one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.document.blocks import TextBlock, fact
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import key_of
from vlmtui.ui.messages import EngineChanged
from vlmtui.ui.services import Services
from vlmtui.ui.widgets.footer_bar import FooterBar
from vlmtui.ui.widgets.line_editing import LineInput
from vlmtui.ui.widgets.row_list import RowList

if TYPE_CHECKING:
    from vlmtui.config.settings import EngineSettings
    from vlmtui.domain.template import TemplateVariables
    from vlmtui.engine.interface import ModelReader
    from vlmtui.engine.remote_models import Server
    from vlmtui.registry.loader import Registry
    from vlmtui.ui.app import VlmtuiApp
    from vlmtui.worker.backends.remote.probe import Feature


_LABEL = 11


def model_details(
    choice: Choice, machine: Machine | None, variables: TemplateVariables | None = None
) -> list[TextBlock]:
    """Return a model's heading, note and facts. `machine`: None if its memory is not measured yet. `variables`: those
    of its chat template; None: unknown."""
    family = choice.family
    if choice.server is not None:
        return _served_details(choice, choice.server)
    facts = [
        ("Takes", takes_text(choice, ", ")),
        ("Parameters", size_text(choice.parameters_b)),
        *([("Files", _files_text(choice.size))] if choice.size is not None and not choice.bundled else []),
        ("Context", f"{context_text(choice.context)} tokens" if choice.context else "?"),
        ("Licence", _licence(choice)),
        ("Route", f"{route_name(family, choice.backend)}: {status_of(family, choice.backend)}"),
        *([("", "not in the registry")] if not choice.model.listed else []),
        *[("or", other.text) for other in choice.backends if other != choice.backend],
        ("Checked", {"engine": "tiny model, real engine", "trained": "trained model"}.get(family.checked, "no")),
    ]
    if family.trust_remote_code:
        facts.append(("Own code", "asks before it runs"))
    error = model_closed(family, choice.model.spec)
    architectures = Content.styled("\n".join(one_line(name) for name in family.architectures), "$muted")
    others = [name for name in family.models if name != family.models[0]]
    title = Content.assemble(
        (one_line(choice.title), "bold $text-accent"), "\n", (one_line(choice.model.spec.name), "$muted")
    )
    blocks = [
        TextBlock(title),
        *([TextBlock(one_line(family.note), margin=1)] if family.note else []),
        *_facts(facts),
        TextBlock(architectures, margin=1),
        *_template_facts(choice, variables),
        *([TextBlock(Content.styled(one_line(str(error)), "$text-error"), margin=1)] if error else []),
        TextBlock(_memory(choice, machine), margin=1),
    ]
    if others:
        also = Content("\n").join(Content(f"  {one_line(name)}") for name in others)
        blocks.append(TextBlock(Content.assemble(("Also, by typing its name:\n", "$muted"), also), margin=1))
    return blocks


def _files_text(size: ModelSize) -> str:
    if not size.weights:
        return "?"
    return f"{size.text} on disk" if size.on_disk else f"~{size.text.removeprefix('↓')} to download"


def _served_details(choice: Choice, server: Server) -> list[TextBlock]:
    family, found = choice.family, server.facts
    facts = [
        ("Server", server.address),
        ("Runs", (f"vLLM {found.version}" if found.version else "reports no version") if found else "?"),
        ("Answers in", f"{found.latency_s * 1000:.0f} ms" if found else "?"),
        ("Family", family.title if family.family else "not in the registry"),
        ("Takes", takes_text(choice, ", ")),
        ("Context", f"{context_text(choice.context)} tokens" if choice.context else "?"),
    ]
    if choice.served is not None and choice.served.parent:
        facts.append(("LoRA of", choice.served.parent))
    blocks = [TextBlock(Content.styled(one_line(choice.model.spec.name), "bold $text-accent")), *_facts(facts)]
    if found is not None:
        blocks.append(TextBlock(Content("\n").join(_feature(one) for one in found.features), margin=1))
    return blocks


def _feature(feature: Feature) -> Content:
    if feature.on:
        return Content.assemble(("✓ ", "$text-success"), feature.name)
    flag = f"\n  {feature.flag} switches it on" if feature.flag else ""
    return Content.assemble(("✗ ", "$text-warning"), feature.name, (flag, "$muted"))


def _licence(choice: Choice) -> str:
    """Return the licence in the family's TOML record, which is that of the family's first model. For other models it is
    marked as uncertain."""
    family, model = choice.family, choice.model.spec.model
    if not family.licence:
        return "?"
    known = f"{family.licence}{', asks for an agreement' if family.gated else ''}"
    return known if choice.bundled or model == family.models[0] else f"? ({family.models[0]}: {known})"


def _facts(facts: Sequence[tuple[str, str]]) -> list[TextBlock]:
    return [fact(label, one_line(value), _LABEL, margin=not at) for at, (label, value) in enumerate(facts)]


def _template_facts(choice: Choice, variables: TemplateVariables | None) -> list[TextBlock]:
    if variables is None:
        return []
    lines = described_variables(choice.family, variables) or ["reads no variables"]
    return _facts([("Template" if not at else "", line) for at, line in enumerate(lines)])


def _memory(choice: Choice, machine: Machine | None) -> Content:
    verdict = check_fit(choice.model, machine)
    if not verdict.needed:
        return Content.styled("Size unknown; can't tell if it fits.", "$muted")
    needed = f"Needs about {gib(verdict.needed)}."
    if machine is None:
        return Content.styled(needed, "$muted")
    said = {
        Fit.YES: ("✓ Fits: ", "$text-success"),
        Fit.SEVERAL: ("✓ Fits several GPUs together: ", "$text-warning"),
        Fit.NO: ("✗ Too big: ", "$text-error"),
        Fit.UNKNOWN: ("? ", "$muted"),
    }[verdict.fit]
    advice = f"\nWould fit with {one_line(verdict.advice)}." if verdict.advice else ""
    return Content.assemble((needed + "\n", "$muted"), said, machine.describe() + ".", (advice, "$muted"))


_TAKES, _SIZE, _CONTEXT, _FITS, _STATE = 17, 5, 7, 9, 7
_GAP = 2
_FIXED = _TAKES + _SIZE + _CONTEXT + _FITS + _STATE + 5 * _GAP
_MIN_TITLE = 12
_TITLE = 30
"""Width of a title if the model's name is shown beside it."""
_MIN_NAME = 24
_FIT_STYLES = {
    Fit.YES: "$text-success",
    Fit.SEVERAL: "$text-warning",
    Fit.NO: "$text-error",
    Fit.UNKNOWN: "$muted",
}
_FIT_MARKS = {Fit.YES: "✓ fits", Fit.SEVERAL: "✓ n GPUs", Fit.NO: "✗ too big", Fit.UNKNOWN: "?"}


def size_text(parameters_b: float | None) -> str:
    """Format billions of parameters: `7.6B`, `3M`, `?`."""
    if parameters_b is None:
        return "?"
    if parameters_b < 0.1:
        return f"{parameters_b * 1000:.3g}M"
    return f"{parameters_b:.3g}B" if parameters_b < 999.5 else f"{parameters_b / 1000:.2g}T"


def context_text(tokens: int | None) -> str:
    """Format a context length in tokens: `4k`, `128k`, `10M`, `?`."""
    if tokens is None:
        return "?"
    if tokens >= 2**20:
        return f"{tokens / 2**20:.3g}M"
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)


def takes_text(choice: Choice, separator: str = " ") -> str:
    """Return the media that a model accepts with their limits: `image ×8 video ×2`."""
    if choice.server is not None and not choice.model.listed:
        return "?"
    return separator.join(f"{modality} ×{takes.max_items}" for modality, takes in choice.family.takes.items())


def row(choice: Choice, width: int) -> Content:
    """Return a model's row in the list, `width` cells wide."""
    title_width, name_width = _first_columns(width)
    gap = " " * _GAP
    name = f"{gap}{_cell(one_line(choice.model.spec.name), name_width)}" if name_width else ""
    fits = choice.size.fit.fit if choice.size is not None else Fit.UNKNOWN
    fits_text = _FIT_MARKS[fits] if choice.server is None else _latency_text(choice.server)
    # Few pieces of text are fast, and this list is part of the first paint.
    return Content.assemble(
        (_cell(one_line(choice.title), title_width), "bold" if choice.current else ""),
        (f"{name}{gap}{_cell(takes_text(choice), _TAKES)}{gap}", "$muted"),
        size_text(choice.parameters_b).rjust(_SIZE),
        (f"{gap}{context_text(choice.context).rjust(_CONTEXT)}{gap}", "$muted"),
        (_cell(fits_text, _FITS), _FIT_STYLES[fits]),
        (f"{gap}{_cell(choice.state, _STATE)}", _state_style(choice)),
    )


def _latency_text(server: Server) -> str:
    """Return a server's latency, shown instead of the memory, which is unknown for a server."""
    return "" if server.facts is None else f"{server.facts.latency_s * 1000:.0f} ms"


def _state_style(choice: Choice) -> str:
    if choice.running or choice.current:
        return "$text-accent"
    return "$text-error" if choice.closed else "$muted"


def header(width: int) -> Content:
    """Return the column names, above `row`."""
    gap = " " * _GAP
    title, name = _first_columns(width)
    cells = (
        "Model".ljust(title),
        *(["Name".ljust(name)] if name else []),
        "Takes".ljust(_TAKES),
        "Size".rjust(_SIZE),
        "Context".rjust(_CONTEXT),
        "Memory".ljust(_FITS),
        "Disk",
    )
    return Content.styled(gap.join(cells), "$muted")


def _first_columns(width: int) -> tuple[int, int]:
    """Return the widths of the title's column and of the name's column; the latter is 0 if there is no room for it."""
    room = max(_MIN_TITLE, width - _FIXED)
    if room < _TITLE + _GAP + _MIN_NAME:
        return room, 0
    return _TITLE, room - _TITLE - _GAP


def _cell(text: str, width: int) -> str:
    cells = cell_len(text)
    return text + " " * (width - cells) if cells <= width else Content(text).truncate(width, ellipsis=True).plain


class ModelHeader(Widget):
    """The column names, as wide as the list's rows."""

    DEFAULT_CSS = "ModelHeader { height: 1; padding: 0 2 0 1; text-wrap: nowrap; }"

    def render(self) -> Content:
        return header(self.size.width)


class Folded(NamedTuple):
    """The row that stands for all models that are too big."""

    models: int


class ModelList(RowList[Choice | Folded]):
    """The list of models. The filter keeps the focus, and the screen moves the highlight."""

    can_focus = False

    @property
    def choices(self) -> list[Choice]:
        return [one for one in self.rows if isinstance(one, Choice)]

    @property
    def chosen(self) -> Choice | None:
        return self.current if isinstance(self.current, Choice) else None

    def draw(self, index: int, width: int) -> list[Content]:
        one = self.rows[index]
        if isinstance(one, Choice):
            return [row(one, width)]
        too_big = f"▸ {counted(one.models, 'model')} too big for this machine: Enter shows them"
        return [Content.styled(too_big, "$muted")]


_REST_S = 0.3
"""Seconds that the highlight stays on a model before its template is read, so that moving on starts no process."""
_WIDE = 100
"""Fewest columns for the details."""


class ModelFilter(LineInput):
    """The filter field. It has the key bindings of the list, because it keeps the focus and the list gets no keys."""

    BINDINGS = bindings("model_filter")


class ModelsScreen(Screen[None]):
    """The list of models, below a filter field that always has the focus."""

    CSS_PATH = "screen.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
    SCOPE = "model_list"
    BINDINGS = bindings(SCOPE)

    def __init__(self, services: Services, engines: AppEngines) -> None:
        super().__init__()
        self.services = services
        self.engines = engines
        self.machine: Machine | None = None
        self.running: list[EngineStatus] = []
        self.downloaded: list[Model] = []
        self.servers: list[Server] = []
        self.variables: dict[str, TemplateVariables | None] = {}
        """The variables of the chat templates that were read, by the model's name."""
        self._rest: Timer | None = None
        """Runs while the highlight rests on a model whose template is not read yet."""
        self.backends: dict[str, BackendChoice] = {}
        """The kind of engine that the user chose for a model, by the model's name."""
        self.sizes: dict[str, ModelSize] = {}
        """The known sizes, by the model's name."""
        self._unfolded = False
        """True if models that are too big are listed, too."""
        self._shows_all = False
        """True if the list shows the whole registry, not only the records that are read before the first paint."""

    def compose(self) -> ComposeResult:
        # Breakpoints would do the same, but only after all styles were applied once.
        is_wide = self.app.size.width >= _WIDE
        self.set_class(is_wide, "-wide", update=False)
        self.set_class(not is_wide, "-narrow", update=False)
        with Horizontal(id="top"):
            yield Static("vlmtui", id="brand")
            yield Static("Pick a model", id="subtitle")
            yield Static(id="machine", markup=False)
        yield ModelFilter(id="filter", placeholder="Type to filter, or enter the path of a model folder", compact=True)
        with Horizontal(id="body"):
            with Vertical(id="models"):
                yield ModelHeader()
                yield ModelList(id="list")
                yield Static(id="errors", markup=False)
            yield DocumentView(has_edge=False, id="side")
        yield FooterBar()

    def on_mount(self) -> None:
        self._show_errors()
        self._fill(self.services.registry.at_hand())  # reading the whole registry takes as long as a paint
        self.query_one("#filter").focus()

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.run_worker, self._look_up, group="look", exclusive=True)

    @on(Input.Changed, "#filter")
    def _filter_changed(self) -> None:
        self._fill(best=True)

    @on(RowList.Highlighted)
    def _show_details(self) -> None:
        chosen = self._list.chosen
        read = self.variables.get(chosen.model.spec.name) if chosen else None
        self.query_one("#side", DocumentView).show(*(model_details(chosen, self.machine, read) if chosen else []))
        if self._rest is not None:
            self._rest.stop()
        if chosen is not None and chosen.server is None and chosen.model.spec.name not in self.variables:
            self._rest = self.set_timer(_REST_S, self._read_soon)

    @on(EngineChanged)
    def _engine_changed(self) -> None:
        if self.is_current:
            self._fill()

    @on(Input.Submitted, "#filter")
    @on(RowList.Opened)
    def action_load(self) -> None:
        chosen = self._list.chosen
        if chosen is None and self._list.current is None:
            self.app.bell()
        elif chosen is None:
            self._unfolded = True
            self._fill()
        elif self.is_current:  # a second Enter may come while the list closes
            self.main_app.models.choose(chosen.model, self.machine)

    def action_backend(self) -> None:
        chosen = self._list.chosen
        choices = chosen.backends if chosen is not None else ()
        if chosen is None or len(choices) < 2:
            self.app.bell()
            return
        at = choices.index(chosen.backend) if chosen.backend in choices else -1
        self.backends[chosen.model.spec.name] = choices[(at + 1) % len(choices)]
        self._fill()

    def action_back(self) -> None:
        if self._query:
            self.query_one("#filter", Input).value = ""
        else:
            self.main_app.back_to_chat()

    def action_move(self, how: str) -> None:
        """Move the highlight; the filter keeps the focus."""
        if not self._shows_all:  # a key was typed before the whole list was shown
            self._fill()
        self._list.action_move(how)

    @property
    def main_app(self) -> VlmtuiApp:
        return cast("VlmtuiApp", self.app)

    @property
    def _list(self) -> ModelList:
        return self.query_one(ModelList)

    @property
    def _query(self) -> str:
        return self.query_one("#filter", Input).value if self.is_mounted else ""

    async def _look_up(self) -> None:
        """Read the families' records. Then start slow lookups: memory, running engines, downloaded models and servers.
        Called once the screen is painted."""
        await asyncio.to_thread(self.services.registry.read)
        self._fill()
        looks = (self._measure, self._find_running, self._find_downloaded, self._find_servers)
        for look in looks:
            self.run_worker(look(), group="look")

    def _read_soon(self) -> None:
        chosen, reader = self._list.chosen, self.services.reader
        if chosen is not None and reader is not None and self.has_class("-wide"):
            self.run_worker(self._read_template(reader, chosen.model), group="template")

    async def _read_template(self, reader: ModelReader, model: Model) -> None:
        """Find what a model's chat template reads, and show it if the model is still highlighted."""
        name = model.spec.name
        self.variables[name] = None  # it is not read a second time meanwhile
        self.variables[name] = await asyncio.to_thread(template_variables, reader, model)
        if (current := self._list.chosen) is not None and current.model.spec.name == name:
            self._show_details()

    async def _measure(self) -> None:
        self.machine = await asyncio.to_thread(Machine.measure)
        self.query_one("#machine", Static).update(self.machine.describe())
        families = self.services.registry.values()
        await self._measure_sizes([*(model_of(family) for family in families if family.models), *self.downloaded])

    async def _measure_sizes(self, models: Sequence[Model]) -> None:
        machine = self.machine
        found = await asyncio.to_thread(lambda: {one.spec.name: size_of(one, machine) for one in models})
        self.sizes |= found
        self._fill()

    async def _find_running(self) -> None:
        try:
            self.running = await self.services.host.running()
        except VlmtuiError as error:
            self.main_app.tell_error(error)
        else:
            self._fill()

    async def _find_downloaded(self) -> None:
        self.downloaded = await asyncio.to_thread(_downloaded, self.services.registry)
        await self._measure_sizes(self.downloaded)

    async def _find_servers(self) -> None:
        registry, engines = self.services.registry, self.services.settings.engines
        looks = (asyncio.to_thread(_look_at_server, registry, name, engines[name]) for name in engines)
        self.servers = await asyncio.gather(*looks)
        self._show_errors()
        self._fill()

    def _show_errors(self) -> None:
        """Show, below the list, which servers did not answer."""
        told = [f"{one_line(one.name)}: {one_line(str(one.error))}" for one in self.servers if one.error is not None]
        line = self.query_one("#errors", Static)
        line.update("\n".join(told))
        line.display = bool(told)

    def _fill(self, registry: Registry | None = None, *, best: bool = False) -> None:
        """Show the models of a registry; None: the whole registry. `best`: highlight the best match."""
        self._shows_all = registry is None
        engines = self.engines
        newest = engines.model.spec if engines.model else None
        loaded = newest if engines.state is EngineState.READY else None
        query = self._query
        rows = model_choices(
            registry or self.services.registry,
            running=self.running,
            current=loaded,
            downloaded=self.downloaded,
            servers=self.servers,
            backends=self.backends,
            sizes=self.sizes,
            query=query,
        )
        chosen = self._list.chosen
        wanted = None if best else chosen.model.spec if chosen else newest
        if not query and not self._unfolded:
            shown = [row for row in rows if not row.is_too_big or row.model.spec == wanted]
        else:
            shown = rows
        same = (at for at, row in enumerate(shown) if row.model.spec == wanted)
        named = (at for at, row in enumerate(shown) if wanted and row.model.spec.name == wanted.name)
        at = next(same, next(named, 0 if best or self._list.current is None else self._list.highlighted))
        folded = [Folded(len(rows) - len(shown))] if len(shown) < len(rows) else []
        self._list.show([*shown, *folded], highlight=at, empty=self._why_empty(query) if not rows else "")
        self.refresh_bindings()

    def _why_empty(self, query: str) -> str:
        clears = f"{key_of(self.app, 'model_list.back')} clears the filter."
        if query.startswith(("/", "~", ".")):
            try:
                resolve(self.services.registry, query)
            except VlmtuiError as error:
                return f"{one_line(error.message)} {clears}"
        return f"No model matches “{one_line(query)}”. {clears}"


def _downloaded(registry: Registry) -> list[Model]:
    """Return the vision-language models whose files are on this machine. Blocking."""
    found: list[Model] = []
    for one in downloaded_models():
        # Skip models that are no vision-language models, or have an empty config.
        with suppress(VlmtuiError):
            found.append(resolve(registry, one.name))
    return found


def _look_at_server(registry: Registry, name: str, settings: EngineSettings) -> Server:
    from vlmtui.engine.remote_models import look_at_server  # the HTTP client takes a while to import

    return look_at_server(registry, name, settings)
