"""The form for system prompt, sampling, and every further parameter of an answer."""

from __future__ import annotations

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.containers import Grid, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from vlmtui.domain.parameters import PARAMETERS, Number
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.session.settings import ChatSettings
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import hint
from vlmtui.ui.settings.further_fields import FurtherFields
from vlmtui.ui.terminal.key_queue import run_before_keys
from vlmtui.ui.widgets.line_input import LineInput


class SettingsScreen(ModalScreen[ChatSettings | None]):
    """Returns the changed settings, or None if cancelled."""

    CSS_PATH = "screen.tcss"
    SCOPE = "settings_form"
    BINDINGS = bindings(SCOPE)
    AUTO_FOCUS = ""

    def __init__(self, current: ChatSettings, model: Model | None = None) -> None:
        """`model`: the one to ask, whose processor has arguments."""
        super().__init__()
        self._current = current
        self._model = model

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield Static("Settings", id="title")
            with VerticalScroll(id="fields", can_focus=False):
                yield Static("System prompt", classes="label")
                yield TextArea(self._current.system_prompt, id="system", compact=True, tab_behavior="focus")
                with Grid(id="grid"):
                    for name, parameter in PARAMETERS.items():
                        yield Static(parameter.title, classes="label")
                        value = getattr(self._current.sampling, name)
                        unset = f"{parameter.unset} ({parameter.help})"
                        yield LineInput("" if value is None else f"{value}", placeholder=unset, id=name, compact=True)
                        yield Static(id=f"problem-{name}", classes="problem", markup=False)
                yield FurtherFields(self._current.sampling, self._model)
            keys = hint(self.app, "settings_form.apply", "settings_form.cancel")
            yield Static(f"{keys} · Tab Next field", id="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one("#temperature", Input).focus(scroll_visible=False)

    @on(Input.Changed)
    def _changed(self) -> None:
        self._read()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Return the settings if they are valid; otherwise focus the first invalid field."""
        run_before_keys(self, self._apply, exclusive=True)

    async def _apply(self) -> None:
        numbers = self._numbers()
        further = await self.query_one(FurtherFields).read_with_files(self._current.sampling)
        if numbers is not None and further is not None:
            sampling = msgspec.structs.replace(further, **numbers)
            text = self.query_one("#system", TextArea).text
            self.dismiss(msgspec.structs.replace(self._current, system_prompt=text, sampling=sampling))
            return
        wrong = next((name for name in PARAMETERS if self.query_one(f"#problem-{name}").display), None)
        wrong = wrong or self.query_one(FurtherFields).first_problem()
        self.query_one(f"#{wrong}", Input).focus()

    def action_cancel(self) -> None:
        self.dismiss(None)

    def _read(self) -> None:
        """Show what is wrong with the fields; what stands in files is read when the settings are applied."""
        self._numbers()
        self.query_one(FurtherFields).read(self._current.sampling)

    def _numbers(self) -> dict[str, Number | None] | None:
        """Return the parameters that are numbers; None if one is invalid, with the problem shown below its field."""
        values: dict[str, Number | None] = {}
        for name, parameter in PARAMETERS.items():
            text = self.query_one(f"#{name}", Input).value.strip()
            try:
                value = parameter.read(text) if text else None
                problem = (parameter.problem(value) if value is not None else None) or ""
            except VlmtuiError as error:
                problem = error.message
            if not problem:
                values[name] = value
            told = self.query_one(f"#problem-{name}", Static)
            told.update(problem)
            told.display = bool(problem)
        return values if len(values) == len(PARAMETERS) else None
