"""System prompt and sampling."""

from __future__ import annotations

import msgspec
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Grid, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static, TextArea

from vlmtui.domain.sampling import Sampling
from vlmtui.ui.controllers.chat_settings import ChatSettings

_FIELDS: tuple[tuple[str, str, type[int] | type[float], str], ...] = (
    ("temperature", "Temperature", float, "0 is greedy; empty: the model's own"),
    ("top_p", "Top-p", float, "above 0 up to 1; empty: the model's own"),
    ("max_tokens", "Max tokens", int, "empty: as many as the context holds"),
    ("seed", "Seed", int, "empty: another one every time"),
)


class SettingsScreen(ModalScreen[ChatSettings | None]):
    """Gives the changed settings, or None when nothing is to be changed."""

    CSS_PATH = "settings.tcss"
    BINDINGS = [
        Binding("ctrl+s", "apply", "Apply", id="settings.apply", tooltip="Use these from now on.", priority=True),
        Binding("escape", "cancel", "Cancel", id="settings.cancel", tooltip="Change nothing.", priority=True),
    ]

    def __init__(self, current: ChatSettings) -> None:
        super().__init__()
        self._current = current

    def compose(self) -> ComposeResult:
        with Vertical(id="panel"):
            yield Static("Settings", id="title")
            yield Static("System prompt", classes="label")
            yield TextArea(self._current.system_prompt, id="system", compact=True, tab_behavior="focus")
            with Grid(id="grid"):
                for name, label, _, hint in _FIELDS:
                    yield Static(label, classes="label")
                    value = getattr(self._current.sampling, name)
                    yield Input("" if value is None else f"{value}", placeholder=hint, id=name, compact=True)
                    yield Static(id=f"problem-{name}", classes="problem", markup=False)
            yield Static("Ctrl+S applies · Esc cancels · Tab moves on", id="keys")

    def on_mount(self) -> None:
        self.query_one("#temperature", Input).focus()

    @on(Input.Changed)
    def _changed(self) -> None:
        self._read()

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self.action_apply()

    def action_apply(self) -> None:
        """Give the settings back, if they are valid; else go to the first field that is not."""
        sampling = self._read()
        if sampling is not None:
            self.dismiss(ChatSettings(self.query_one("#system", TextArea).text, sampling))
            return
        wrong = next(name for name, *_ in _FIELDS if self.query_one(f"#problem-{name}").display)
        self.query_one(f"#{wrong}", Input).focus()

    def action_cancel(self) -> None:
        """Change nothing."""
        self.dismiss(None)

    def _read(self) -> Sampling | None:
        """What the fields hold; None when something is wrong, which is then told below its field."""
        values: dict[str, float | None] = {}
        for name, label, kind, _ in _FIELDS:
            problem = ""
            text = self.query_one(f"#{name}", Input).value.strip()
            try:
                values[name] = kind(text) if text else None
                problem = msgspec.structs.replace(Sampling(), **{name: values[name]}).problem() or ""
            except ValueError:
                problem = f"{label}: {text!r} is not {'a whole number' if kind is int else 'a number'}"
            if problem:
                values.pop(name, None)
            told = self.query_one(f"#problem-{name}", Static)
            told.update(problem)
            told.display = bool(problem)
        return msgspec.structs.replace(self._current.sampling, **values) if len(values) == len(_FIELDS) else None
