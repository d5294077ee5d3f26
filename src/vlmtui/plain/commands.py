"""Every slash command of the action table: what runs it here, or why nothing does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vlmtui.plain.attachments import Attachments
from vlmtui.plain.comparisons import ComparisonCommands
from vlmtui.plain.conversations import Conversations
from vlmtui.plain.fan_outs import FanOutCommands
from vlmtui.plain.inspections import InspectionCommands
from vlmtui.plain.messages import Messages
from vlmtui.plain.models import Models
from vlmtui.plain.parts import Parts, RunCommand
from vlmtui.plain.settings import SettingsCommands
from vlmtui.ui.actions import ACTIONS

REFUSED: Mapping[str, str] = {
    "batch": "The table of a batch's results needs a screen. The file has one JSON object a line.",
    "boxes": "Small pictures need a screen. /places lists the boxes and points.",
    "copy_answer": "Copying needs an escape sequence, and plain mode writes none. /inspect save answer writes a file.",
    "take_back": "Nothing is queued here: a message waits until the model is loaded, and Ctrl+C takes it back.",
}
"""The actions that plain mode does not have, by id, with the reason."""
_ARGUMENTS = {
    "models": "[NAME]",
    "conversations": "[WORDS]",
    "compare": "[raw=ENGINE] [chat=ENGINE] [@FILE], or PLAN",
    "inspect": "[NUMBER] [PART]",
}
"""Where an argument is more than the app's."""
_HELP = {
    "attach": "Attach files, *.png, the pictures of a folder, or a web address.",
    "view": "Describe an attachment: size, frames, tokens, where it comes from.",
    "compare": "Compare the chat template with a raw prompt, that of FILE if given; raw=ENGINE sends it to another "
    "engine. Or compare engines: engine=here,NAME.",
    "drop_attachment": "Remove an attachment, or the last.",
    "help": "Every command.",
    "where": "List the boxes and points that an answer names, in pixels.",
    "seen": "Say what the model's processor made of each attachment, and where its pictures are.",
    "heat": "Grey out one part of the picture after another, and tell where that makes the answer less likely.",
    "models": "List the models, or load one by its name.",
    "inbox": "Choose a file of the inbox folder; tell how to copy files there.",
    "adapter": "Answer with the LoRA adapter in a folder; none: without one. Alone, list adapters that are near.",
    "show_log": "What the engine is doing, and the newest lines of its log.",
}
"""Where plain mode does it in another way than the app's help says."""


class Commands:
    """The parts of plain mode, and the commands that they run."""

    def __init__(self, parts: Parts) -> None:
        self.models = Models(parts)
        self.attachments = Attachments(parts)
        self.messages = Messages(parts, self.models, self.attachments)
        self.conversations = Conversations(parts, self.messages, self.models)
        fan_outs = FanOutCommands(parts, self.messages)
        others = (
            InspectionCommands(parts),
            ComparisonCommands(parts, self.messages, fan_outs),
            SettingsCommands(parts, self.models),
        )
        every = (self.models, self.attachments, self.messages, self.conversations, fan_outs, *others)
        self._output = parts.output
        self.is_leaving = False
        self.by_id: Mapping[str, RunCommand] = {
            "help": self._help,
            "quit": self._quit,
            **{id: run for part in every for id, run in part.commands.items()},
        }
        """By action id."""

    async def _help(self, argument: str) -> None:
        """List the commands."""
        self._output.lines(_help_lines())

    async def _quit(self, argument: str) -> None:
        """Quit; a loaded model stays for its keep-alive time."""
        self.is_leaving = True


def slash_commands() -> tuple[str, ...]:
    """Return the commands that run here, sorted."""
    return tuple(sorted(action.slash for action in ACTIONS.values() if action.slash and action.id not in REFUSED))


def _help_lines() -> Iterator[str]:
    yield "A line is sent as a message; a \\ at its end continues it on the next line. Ctrl+C stops an answer."
    yield "Ctrl+D quits. [Image #1] in a line places that attachment; otherwise attachments come first."
    for action in sorted(ACTIONS.values(), key=lambda action: action.slash):
        if action.slash and action.id not in REFUSED:
            argument = _ARGUMENTS.get(action.id, action.argument)
            yield f"  {f'{action.slash} {argument}'.strip()}: {_HELP.get(action.id, action.help)}"
