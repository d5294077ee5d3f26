"""The form for the plan of a fan-out."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, RadioButton, RadioSet, Static, TextArea

from vlmtui.domain.parameters import Number
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.session.fan_out import (
    ENGINE,
    MOST,
    PICTURE,
    PIXELS,
    PROMPT,
    SYSTEM,
    PictureChange,
    Plan,
    plan_of,
    read_number,
    read_values,
    why_identical,
)
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import hint
from vlmtui.ui.widgets.line_input import LineInput

_CHOICES: tuple[tuple[str, str, str], ...] = (
    ("seed", "Seeds", "1, 2, 3, 4"),
    ("temperature", "Temperatures", "0, 0.5, 1"),
    (PROMPT, "Prompts", ""),
    (PICTURE, "Pictures", "sent, none, grey, blur"),
    (PIXELS, "Picture sizes", "1000000, 250000, 62500"),
    (SYSTEM, "System prompts", ""),
    (ENGINE, "Engines", "here, transformers"),
)
_OF_PICTURES = (PICTURE, PIXELS)
_LABELS = {
    PICTURE: f"Change of the pictures: {', '.join(PictureChange)}",
    PIXELS: "Most pixels of a picture, comma-separated",
    PROMPT: "Prompts, one a line",
    SYSTEM: "System prompts, one a line",
    ENGINE: "Engines: here, transformers, here dtype=bfloat16, a model or server",
}
_COMMAS = "Values, comma-separated"
_WARM = 0.8
"""The temperature suggested with seeds if the conversation has none."""


class FanFormScreen(ModalScreen[Plan | None]):
    """Returns the plan, or None. `question` is the turn's text, the first of the prompts; `system` is the first of
    the system prompts; `no_seeds`: why seeds cannot be varied, empty if they can."""

    CSS_PATH = "fan_form.tcss"
    SCOPE = "fan_form"
    BINDINGS = bindings(SCOPE)

    def __init__(
        self, question: str, sampling: Sampling, *, no_seeds: str = "", system: str = "", has_pictures: bool = False
    ) -> None:
        super().__init__()
        self._texts = {PROMPT: one_line(question), SYSTEM: one_line(system)}
        self._has_pictures = has_pictures
        self._no_seeds = no_seeds
        self._sampling = sampling

    def compose(self) -> ComposeResult:
        own = self._sampling.temperature
        with Vertical(id="panel"):
            yield Static(f"Fan out: up to {MOST} answers at once", id="title")
            with RadioSet(id="parameter", compact=True):
                for number, (name, title, _) in enumerate(_CHOICES):
                    is_off = bool(self._no_seeds) if name == "seed" else name in _OF_PICTURES and not self._has_pictures
                    first = 1 if self._no_seeds else 0
                    yield RadioButton(title, value=number == first, disabled=is_off, id=f"by-{name}")
            yield Static(self._no_seeds, classes="label" if self._no_seeds else "-nothing", id="no-seeds", markup=False)
            yield Static(_COMMAS, classes="label", id="values-label")
            yield LineInput(_CHOICES[1 if self._no_seeds else 0][2], id="values", compact=True)
            yield Static("Prompts, one a line", classes="label", id="prompts-label")
            yield TextArea(self._texts[PROMPT], id="prompts", compact=True, tab_behavior="focus")
            yield Static("Temperature of all answers", classes="label", id="temperature-label")
            yield LineInput(f"{own or _WARM:g}", id="temperature", compact=True)
            yield Static(id="problem", markup=False)
            keys = hint(self.app, "fan_form.ask", "fan_form.cancel")
            yield Static(f"Enter or {keys} · Tab Next field", id="keys", markup=False)

    def on_mount(self) -> None:
        self.query_one("#no-seeds").display = bool(self._no_seeds)
        self._show()
        self.query_one("#values").focus()

    @on(RadioSet.Changed)
    def _chosen(self) -> None:
        by = self._parameter
        self.query_one("#values", Input).value = next(example for name, _, example in _CHOICES if name == by)
        if by in self._texts:
            self.query_one("#prompts", TextArea).text = self._texts[by]
        self._show()

    @on(Input.Changed)
    @on(TextArea.Changed)
    def _changed(self) -> None:
        self._read()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_go()

    def action_go(self) -> None:
        """Return the plan if it is valid."""
        plan = self._read()
        if plan is not None:
            self.dismiss(plan)

    def action_cancel(self) -> None:
        self.dismiss(None)

    @property
    def _parameter(self) -> str:
        return _CHOICES[max(self.query_one(RadioSet).pressed_index, 0)][0]

    def _show(self) -> None:
        by = self._parameter
        for name in ("prompts", "prompts-label"):
            self.query_one(f"#{name}").display = by in self._texts
        for name in ("values", "values-label"):
            self.query_one(f"#{name}").display = by not in self._texts
        label = self.query_one("#prompts-label" if by in self._texts else "#values-label", Static)
        label.update(_LABELS.get(by, _COMMAS))
        for name in ("temperature", "temperature-label"):
            self.query_one(f"#{name}").display = by == "seed"
        self._read()

    def _read(self) -> Plan | None:
        """Return the fields' plan; None if it is invalid, with the problem shown."""
        by, told = self._parameter, self.query_one("#problem", Static)
        try:
            fixed: dict[str, Number] = {}
            if by == "seed":
                fixed["temperature"] = read_number("temperature", self.query_one("#temperature", Input).value)
            typed = self.query_one("#prompts", TextArea).text if by in self._texts else self._values
            plan = plan_of(by, read_values(by, typed), fixed)
        except VlmtuiError as error:
            told.update(one_line(error.message))
            told.remove_class("-doubt")
            return None
        told.update(why_identical(plan, self._sampling))
        told.add_class("-doubt")
        return plan

    @property
    def _values(self) -> str:
        return self.query_one("#values", Input).value
