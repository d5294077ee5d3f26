"""The lower part of the chat: commands, what is staged, what is being written."""

from __future__ import annotations

from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import OptionList

from vlmtui.ui.controllers.history import PromptHistory
from vlmtui.ui.controllers.slash import SlashCommand, parse_slash
from vlmtui.ui.widgets.attachment_bar import AttachmentBar
from vlmtui.ui.widgets.composer import Composer
from vlmtui.ui.widgets.slash_menu import SlashMenu, matching


class ComposerPanel(Vertical):
    """Tells messages from commands. What is written stays until `clear`."""

    DEFAULT_CSS = """
    ComposerPanel {
        height: auto;
        #composer-row { height: auto; margin: 1 2 0 2; border-left: outer $accent; background: $surface; }
        &.-busy #composer-row { border-left: outer $faint; }
    }
    """

    @dataclass
    class MessageWritten(Message):
        """Enter after a text that is to be sent, the slash that hid it from the commands removed."""

        text: str

    @dataclass
    class CommandGiven(Message):
        """Enter after a slash command, known or not."""

        command: SlashCommand

    def __init__(self, prompts: PromptHistory) -> None:
        super().__init__()
        self._prompts = prompts

    def compose(self) -> ComposeResult:
        yield SlashMenu(id="menu")
        yield AttachmentBar(id="attachments")
        with Vertical(id="composer-row"):
            yield Composer(self._prompts, id="composer")

    @on(Composer.Submitted)
    def _submitted(self, event: Composer.Submitted) -> None:
        event.stop()
        chosen = self._menu.chosen
        if chosen is not None and chosen != event.text:
            self._complete(chosen)
            return
        command = parse_slash(event.text)
        if command is None:
            self.post_message(self.MessageWritten(_message(event.text)))
        else:
            self.post_message(self.CommandGiven(command))

    @on(Composer.Changed)
    def _changed(self, event: Composer.Changed) -> None:
        self._offer(event.text_area.text)

    @on(Composer.MenuKey)
    def _menu_key(self, event: Composer.MenuKey) -> None:
        event.stop()
        match event.key:
            case "up":
                self._menu.action_cursor_up()
            case "down":
                self._menu.action_cursor_down()
            case "tab" if self._menu.chosen:
                self._complete(self._menu.chosen)
            case _:
                self._offer("")

    @on(OptionList.OptionSelected)
    def _menu_clicked(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id:
            self._complete(event.option_id)

    def take_text(self) -> None:
        """What is written was sent: remember it, and begin afresh."""
        self._prompts.add(self._composer.text)
        self.clear()

    @property
    def text(self) -> str:
        """The message that is written, as `MessageWritten` has it."""
        return _message(self._composer.text)

    def clear(self) -> None:
        self._composer.text = ""

    @property
    def _composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def _menu(self) -> SlashMenu:
        return self.query_one(SlashMenu)

    def _offer(self, text: str) -> None:
        actions = matching(text)
        self._menu.show(actions)
        self._composer.menu_is_open = bool(actions)

    def _complete(self, slash: str) -> None:
        """Write the command out; one that takes nothing is given at once."""
        action = next(action for action in matching(slash) if action.slash == slash)
        self._composer.text = f"{slash} " if action.argument else slash
        self._composer.move_cursor(self._composer.document.end)
        if not action.argument:
            self.post_message(self.CommandGiven(SlashCommand(action, "")))


def _message(written: str) -> str:
    """Two slashes begin a message that starts with one."""
    return written.removeprefix("/") if written.startswith("//") else written
