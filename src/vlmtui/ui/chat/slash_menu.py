"""The menu of commands that complete a typed slash command."""

from __future__ import annotations

from textual.content import Content
from textual.widgets.option_list import Option

from vlmtui.ui.actions import ACTIONS, Action
from vlmtui.ui.chat.composer_menu import ComposerMenu

_COMMAND = 19


def matching_actions(text: str) -> list[Action]:
    """Return the actions whose slash command starts with `text`; empty unless it is one word after a slash."""
    if not text.startswith("/") or text.startswith("//") or any(char.isspace() for char in text):
        return []
    return [action for action in ACTIONS.values() if action.slash.startswith(text)]


class SlashMenu(ComposerMenu):
    """Shown above the composer; never takes the focus."""

    def show(self, actions: list[Action]) -> None:
        """Show these; hide the menu if there are none."""
        self.clear_options()
        for action in actions:
            command = f"{action.slash} {action.argument}".strip()
            line = Content.assemble((f"{command:{_COMMAND}}", "bold"), (action.help, "$muted"))
            self.add_option(Option(line, id=action.slash))
        self.highlighted = 0 if actions else None
        self.display = bool(actions)

    @property
    def chosen(self) -> str | None:
        """The highlighted command."""
        if self.highlighted is None or not self.display:
            return None
        return self.get_option_at_index(self.highlighted).id
