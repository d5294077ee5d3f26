"""The engines of a comparison's sides: chosen by name, and told in the sides' heads."""

from __future__ import annotations

from typing import Protocol

from textual.content import Content
from textual.screen import Screen

from vlmtui.errors import VlmtuiError
from vlmtui.session.comparison import CompareController, ComparedSide
from vlmtui.session.engine_names import EXAMPLES, HERE
from vlmtui.session.generation import PromptMode
from vlmtui.session.side_engines import FindEngines, choose_side_engines
from vlmtui.text import one_line
from vlmtui.ui.compare.sides import TITLES
from vlmtui.ui.widgets.dialogs import NameScreen


class SideEnginesView(Protocol):
    """What the engines need from their screen."""

    def tell(self, text: str, error: VlmtuiError | None = None) -> None:
        """Show a line, or an error."""

    async def ask(self, screen: Screen[str | None]) -> str | None:
        """Show a dialog and wait for its result."""


class SideEngines:
    """Chooses the engine of each side."""

    def __init__(self, view: SideEnginesView, controller: CompareController, find: FindEngines) -> None:
        self._view = view
        self._controller = controller
        self._find = find
        self._told: dict[PromptMode, str] = {"chat": "", "raw": ""}
        """What each head says of its prompt."""

    async def choose(self, mode: PromptMode) -> None:
        """Ask for a side's engine, and how it is loaded where that takes memory of this machine."""
        title = f"Engine of the side “{TITLES[mode]}”"
        name = await self._view.ask(NameScreen(title, value=self._controller.engine_names[mode], hint=EXAMPLES))
        if name is None:
            return
        try:
            await choose_side_engines(self._controller, {mode: name.strip() or HERE}, self._find)
        except VlmtuiError as error:
            self._view.tell("", error)

    def told(self, mode: PromptMode, text: str) -> None:
        """Note what the head says of a side's prompt."""
        self._told[mode] = text

    def head(self, side: ComparedSide) -> Content:
        """Return a side's title, its engine and its prompt."""
        name, facts = self._controller.engine_names[side.mode], self._controller.engine_facts(side)
        engine = f"{one_line(name)}: {one_line(facts)}" if facts else ""
        said = " · ".join(filter(None, (engine, self._told[side.mode])))
        return Content.assemble(TITLES[side.mode], (f" · {said}" if said else "", "not bold $muted"))
