"""The form with a conversation's system prompt and sampling parameters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.containers import Grid, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from vlmtui.domain.dials import DIALS, STRUCTURED_DIALS, dial_text, template_variable
from vlmtui.domain.sampling import PARAMETERS, Sampling
from vlmtui.domain.template import TemplateVariables, check_variables, value_text
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.match import Model
from vlmtui.session.dials import (
    named_variables,
    names_file,
    processor_arguments,
    typed_parameters,
    variables_of,
    with_parameter,
)
from vlmtui.session.settings import ChatSettings
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import hint
from vlmtui.ui.terminal.key_queue import before_keys
from vlmtui.ui.widgets.line_editing import LineInput
from vlmtui.ui.widgets.long_lines import LongLineArea

_UNSET = "default"
_MODEL_DEFAULT = "the model's own"


class Fields(Grid):
    """A text field for each parameter. A parameter whose field is not edited keeps its exact value."""

    def __init__(self, sampling: Sampling, model: Model | None, variables: TemplateVariables | None) -> None:
        super().__init__(id="grid")
        self._variables = variables or {}
        self._family = model.family if model is not None else None
        self._arguments = self._family.processor if self._family is not None else {}
        self._loaded = processor_arguments(Sampling(), model.spec.engine_args) if model is not None else {}
        """Arguments of the model's processor that were set when it was loaded."""
        numbers = {name: f"{value}" for name, value in sampling.numbers().items() if value is not None}
        further = {name: one_line(text) for name, text in typed_parameters(sampling, self._family).items()}
        own = dict.fromkeys(f"template.{name}" for name in self._variables if name not in named_variables(self._family))
        self._shown = {**dict.fromkeys(PARAMETERS, ""), **numbers, **dict.fromkeys(own, ""), **further}

    def compose(self) -> ComposeResult:
        for name, text in self._shown.items():
            title = PARAMETERS[name].title if name in PARAMETERS else name
            yield Static(title, classes="label", markup=False)
            yield LineInput(text, placeholder=self._hint(name), id=_id(name), compact=True)
            yield Static(id=f"problem-{_id(name)}", classes="problem", markup=False)

    @property
    def typed(self) -> dict[str, str]:
        return {name: self.query_one(f"#{_id(name)}", Input).value for name in self._shown}

    def read(self, sampling: Sampling) -> Sampling | None:
        """Return the sampling with the edited fields. If a field is invalid, show the problem below it and return None.
        Fields that name a file are left out."""
        typed = self.typed
        texts = {name: "" if names_file(name, text) else text for name, text in typed.items()}
        read, problems = self._read(sampling, typed, texts)
        self._show_problems(problems)
        return None if problems else read

    async def read_with_files(self, sampling: Sampling) -> Sampling | None:
        """Return the same as `read`, but including the fields that name a file. The files are read in a thread."""
        typed = self.typed
        read, problems = await asyncio.to_thread(self._read, sampling, typed, typed)
        self._show_problems(problems)
        return None if problems else read

    def _read(
        self, sampling: Sampling, typed: Mapping[str, str], texts: Mapping[str, str]
    ) -> tuple[Sampling, dict[str, str]]:
        """Return the sampling with the edited fields, and problems by field. Blocks if a text names a file.

        `typed`: the texts of all fields. `texts`: the texts to apply; empty for fields to leave out.
        """
        problems: dict[str, str] = {}
        edited = [name for name, text in typed.items() if text != self._shown[name]]
        for name in edited:
            sampling = with_parameter(sampling, self._family, self._full_name(name), _UNSET)
        for name in edited:
            try:
                if texts[name]:
                    sampling = self._with(sampling, name, texts[name], typed)
            except VlmtuiError as error:
                problems[name] = one_line(error.message)
        return sampling, problems

    def _show_problems(self, problems: Mapping[str, str]) -> None:
        for name in self._shown:
            told = self.query_one(f"#problem-{_id(name)}", Static)
            told.update(problems.get(name, ""))
            told.display = name in problems

    def first_problem(self) -> str | None:
        return next((name for name in self._shown if self.query_one(f"#problem-{_id(name)}").display), None)

    def _with(self, sampling: Sampling, name: str, text: str, typed: Mapping[str, str]) -> Sampling:
        others = [one for one in STRUCTURED_DIALS if one != name and typed[one]]
        if name in STRUCTURED_DIALS and others:
            raise bad_input(f"Only one can be set: {name} or {others[0]}.")
        sampling = with_parameter(sampling, self._family, self._full_name(name), text)
        check_variables(variables_of(sampling), self._variables or None)
        return sampling

    def _full_name(self, name: str) -> str:
        """Return a parameter's name for `with_parameter`. Processor arguments that the model family's record does not
        list get the prefix `processor.`."""
        is_known = name in PARAMETERS or name in DIALS or name in self._arguments or template_variable(name) is not None
        return name if is_known else f"processor.{name}"

    def _hint(self, name: str) -> str:
        if name in PARAMETERS:
            return f"{PARAMETERS[name].unset} ({PARAMETERS[name].help})"
        if name in DIALS:
            return DIALS[name].help
        if (variable := template_variable(name)) is not None:
            values = ", ".join(map(value_text, self._variables.get(variable, ())))
            return f"the chat template compares it with {values}" if values else "a variable of the chat template"
        argument = self._arguments.get(name)
        value = self._loaded.get(name, argument.default if argument is not None else None)
        shown = _MODEL_DEFAULT if value is None else f"{dial_text(name, value)} unless set"
        return f"{shown} ({argument.range})" if argument is not None and argument.values else shown


def _id(name: str) -> str:
    """Return the id of a parameter's field."""
    return name.replace(".", "-")


class SettingsScreen(ModalScreen[ChatSettings | None]):
    """A dialog that returns the changed settings, or None if cancelled."""

    CSS_PATH = "settings.tcss"
    SCOPE = "settings_form"
    BINDINGS = bindings(SCOPE)
    AUTO_FOCUS = ""

    def __init__(
        self, current: ChatSettings, model: Model | None = None, variables: TemplateVariables | None = None
    ) -> None:
        """`model`: the model that will answer; its processor's arguments and the `variables` of its chat template get
        fields too."""
        super().__init__()
        self._current = current
        self._model = model
        self._variables = variables

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield Static("Settings", id="title")
            with VerticalScroll(id="fields", can_focus=False):
                yield Static("System prompt", classes="label")
                yield LongLineArea(self._current.system_prompt, id="system", compact=True, tab_behavior="focus")
                yield Fields(self._current.sampling, self._model, self._variables)
            keys = hint(self.app, "settings_form.apply", "settings_form.cancel")
            yield Static(f"{keys} · Tab Next field", id="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one("#temperature", Input).focus(scroll_visible=False)

    @on(Input.Changed)
    def _changed(self) -> None:
        """Show problems below the fields. Files are only read when the settings are applied."""
        self.query_one(Fields).read(self._current.sampling)

    @on(Input.Submitted)
    @before_keys
    async def action_apply(self) -> None:
        """Return the settings if they are valid; otherwise focus the first invalid field."""
        fields = self.query_one(Fields)
        sampling = await fields.read_with_files(self._current.sampling)
        if sampling is None:
            self.query_one(f"#{_id(fields.first_problem() or '')}", Input).focus()
            return
        text = self.query_one("#system", TextArea).text
        self.dismiss(msgspec.structs.replace(self._current, system_prompt=text, sampling=sampling))

    def action_cancel(self) -> None:
        self.dismiss(None)
