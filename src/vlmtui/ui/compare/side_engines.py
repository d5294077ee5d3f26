"""The engines of a comparison's sides: chosen by name, and told in the sides' heads."""

from __future__ import annotations

from typing import Protocol

from textual.content import Content
from textual.screen import Screen

from vlmtui.errors import VlmtuiError
from vlmtui.session.comparison import CompareController, ComparedSide
from vlmtui.session.engine_names import EXAMPLES, HERE
from vlmtui.session.generation import PromptMode
from vlmtui.text import one_line
from vlmtui.ui.navigation import FindEngines
from vlmtui.ui.widgets.dialogs import NameScreen

_TITLES: dict[PromptMode, str] = {"chat": "Chat template", "raw": "Raw prompt"}


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
        self._names = {"chat": HERE, "raw": HERE}
        self._told: dict[PromptMode, str] = {"chat": "", "raw": ""}
        """What each head says of its prompt."""

    async def choose(self, mode: PromptMode) -> None:
        """Ask for a side's engine, and how it is loaded where that takes memory of this machine."""
        title = f"Engine of the side “{_TITLES[mode]}”"
        name = await self._view.ask(NameScreen(title, value=self._names[mode], hint=EXAMPLES))
        if name is None:
            return
        names = {**self._names, mode: name.strip() or HERE}
        is_own = set(names.values()) == {HERE}
        try:
            found = None if is_own else await self._find(names)
        except VlmtuiError as error:
            self._view.tell("", error)
            return
        if found is not None or is_own:
            self._names, self._controller.engines = names, found

    def told(self, mode: PromptMode, text: str) -> None:
        """Note what the head says of a side's prompt."""
        self._told[mode] = text

    def head(self, side: ComparedSide) -> Content:
        """Return a side's title, its engine and its prompt."""
        name, facts = self._names[side.mode], self._controller.engine_facts(side)
        engine = f"{one_line(name)}: {one_line(facts)}" if facts else ""
        said = " · ".join(filter(None, (engine, self._told[side.mode])))
        return Content.assemble(_TITLES[side.mode], (f" · {said}" if said else "", "not bold $muted"))
