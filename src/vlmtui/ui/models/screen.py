"""The picker of models."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from textual import on, work
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Input, Static

from vlmtui.domain.backend_choice import BackendChoice
from vlmtui.domain.engine import EngineStatus
from vlmtui.engine.machine import Machine
from vlmtui.errors import VlmtuiError
from vlmtui.registry.hub_cache import downloaded_models
from vlmtui.registry.match import Model, resolve
from vlmtui.session.engines import EngineController, EngineState
from vlmtui.session.models import model_choices
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings, line_bindings
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.keys import error_text, key_of
from vlmtui.ui.messages import EngineChanged
from vlmtui.ui.models.model_details import model_details
from vlmtui.ui.models.model_list import ModelHeader, ModelList
from vlmtui.ui.services import Services
from vlmtui.ui.widgets.footer_bar import FooterBar

if TYPE_CHECKING:
    from vlmtui.engine.remote_models import Server
    from vlmtui.registry.loader import Registry

_WIDE = 100
"""Fewest columns for the details."""


class ModelFilter(Input):
    """The filter field. Enter is bound here, like the arrow keys."""

    BINDINGS = [*bindings("model_filter"), *line_bindings()]

    def on_mount(self) -> None:
        # A blinking cursor would repaint twice a second: over SSH an idle screen sends nothing.
        self.cursor_blink = False


class ModelsScreen(Screen[None]):
    """A filter field that always has the focus, and the models below it."""

    CSS_PATH = "screen.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (_WIDE, "-wide")]
    SCOPE = "model_list"
    BINDINGS = bindings(SCOPE)

    class ModelChosen(Message):
        """Load this model."""

        def __init__(self, model: Model, machine: Machine | None = None) -> None:
            """`machine`: the machine's memory, if known."""
            super().__init__()
            self.model = model
            self.machine = machine

    class LeavePicker(Message):
        """Go back to the chat with the loaded model."""

    def __init__(self, services: Services, engine_controller: EngineController) -> None:
        super().__init__()
        self.services = services
        self.engine_controller = engine_controller
        self.machine: Machine | None = None
        self.running: list[EngineStatus] = []
        self.downloaded: list[Model] = []
        self.servers: list[Server] = []
        self.backends: dict[str, BackendChoice] = {}
        """The kinds of engines that the user chose, by the name of the model."""
        self._shows_all = False
        """Whether the list has the models of all records."""

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
                yield Static(id="nothing", markup=False)
                yield Static(id="silent", markup=False)
            yield DocumentView(has_edge=False, id="side")
        yield FooterBar()

    def on_mount(self) -> None:
        self._fill(self.services.registry.at_hand())  # to read all records takes as long as a paint
        self.query_one("#filter").focus()
        self.call_after_refresh(self.run_worker, self._look, group="look")

    @on(Input.Changed, "#filter")
    def _filter_changed(self) -> None:
        self._fill()

    @on(Input.Submitted, "#filter")
    def _filter_submitted(self) -> None:
        self.action_load()

    @on(ModelList.Highlighted)
    def _show_details(self, event: ModelList.Highlighted) -> None:
        told = model_details(event.choice, self.machine) if event.choice else []
        self.query_one("#side", DocumentView).show(*told)

    @on(ModelList.Chosen)
    def _choose(self, event: ModelList.Chosen) -> None:
        self.post_message(self.ModelChosen(event.choice.model, self.machine))

    def _machine_measured(self, machine: Machine) -> None:
        self.machine = machine
        self.query_one("#machine", Static).update(machine.describe())
        self._fill()

    def _downloaded_found(self, downloaded: list[Model]) -> None:
        self.downloaded = downloaded
        self._fill()

    def _servers_found(self, servers: list[Server]) -> None:
        self.servers = servers
        silent = [f"{one_line(one.name)}: {one_line(str(one.error))}" for one in servers if one.error is not None]
        line = self.query_one("#silent", Static)
        line.update("\n".join(silent))
        line.display = bool(silent)
        self._fill()

    @on(EngineChanged)
    def _engine_changed(self) -> None:
        self._fill()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "back":
            return bool(self._query) or self._has_chat or self.engine_controller.keeps_former
        return True

    def action_load(self) -> None:
        """Load the highlighted model."""
        chosen = self.query_one(ModelList).chosen
        if chosen is None:
            self.app.bell()
        else:
            self.post_message(self.ModelChosen(chosen.model, self.machine))

    def action_backend(self) -> None:
        """Choose the next kind of engine for the highlighted model."""
        chosen = self.query_one(ModelList).chosen
        choices = chosen.backends if chosen is not None else ()
        if chosen is None or len(choices) < 2:
            self.app.bell()
            return
        at = choices.index(chosen.backend) if chosen.backend in choices else -1
        self.backends[chosen.model.spec.name] = choices[(at + 1) % len(choices)]
        self._fill()

    def action_back(self) -> None:
        """Clear the filter; if it is empty, go back to the chat."""
        if self._query:
            self.query_one("#filter", Input).value = ""
        else:
            self.post_message(self.LeavePicker())

    def action_move(self, how: str) -> None:
        """Move the highlight; the filter keeps the focus."""
        if not self._shows_all:  # a key typed before the first paint
            self._fill()
        self.query_one(ModelList).action_move(how)

    @property
    def _query(self) -> str:
        return self.query_one("#filter", Input).value if self.is_mounted else ""

    @property
    def _has_chat(self) -> bool:
        """Whether there is a chat below this screen."""
        return self in self.app.screen_stack[2:]

    async def _look(self) -> None:
        """Read the records and start slow lookups once the screen is painted."""
        await asyncio.to_thread(self.services.registry.read)
        if not self._shows_all:
            self._fill()
        self._measure()
        self._find_running()
        self._find_downloaded()
        if self.services.settings.engines:
            self._find_servers()

    @work(thread=True, group="machine")
    def _measure(self) -> None:
        self.call_later(self._machine_measured, Machine.measure())

    @work(thread=True, group="downloaded")
    def _find_downloaded(self) -> None:
        found: list[Model] = []
        for one in downloaded_models():
            try:
                found.append(resolve(self.services.registry, one.name))
            except VlmtuiError:
                # Not a vision-language model, or one with an empty config.
                continue
        if found:
            self.call_later(self._downloaded_found, found)

    @work(thread=True, group="servers")
    def _find_servers(self) -> None:
        from vlmtui.engine.remote_models import look_at_server  # the HTTP client takes a while to import

        engines = self.services.settings.engines
        with ThreadPoolExecutor(len(engines)) as threads:
            found = threads.map(lambda name: look_at_server(self.services.registry, name, engines[name]), engines)
            self.call_later(self._servers_found, list(found))

    @work(group="running")
    async def _find_running(self) -> None:
        try:
            self.running = await self.services.host.running()
        except VlmtuiError as error:
            self.notify(error_text(self.app, error), severity="error", timeout=10, markup=False)
        else:
            self._fill()

    def _fill(self, registry: Registry | None = None) -> None:
        """Show the models of a registry, by default of the whole one."""
        self._shows_all = registry is None
        controller = self.engine_controller
        newest = controller.model.spec if controller.model else None
        loaded = newest if controller.state is EngineState.READY else None
        query = self._query
        rows = model_choices(
            registry or self.services.registry,
            running=self.running,
            current=loaded,
            downloaded=self.downloaded,
            servers=self.servers,
            backends=self.backends,
            query=query,
        )
        self.query_one(ModelList).show(rows, self.machine, prefer=newest)
        nothing = self.query_one("#nothing", Static)
        nothing.display = not rows
        nothing.update(f"No model matches “{query}”. {key_of(self.app, 'model_list.back')} clears the filter.")
        self.query_one(ModelList).display = bool(rows)
        self.refresh_bindings()
