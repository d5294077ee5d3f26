"""Every slash command of the action table: what runs it here, or why nothing does."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from vlmtui.plain.attachments import Attachments
from vlmtui.plain.comparisons import Comparisons
from vlmtui.plain.conversations import Conversations
from vlmtui.plain.fan_outs import FanOuts
from vlmtui.plain.inspections import Inspections
from vlmtui.plain.messages import Messages
from vlmtui.plain.models import Models
from vlmtui.plain.parts import Parts
from vlmtui.plain.settings import SettingsCommands
from vlmtui.ui.actions import ACTIONS

Command = Callable[[str], Coroutine[Any, Any, None]]
"""Runs with the command's argument. Raises VlmtuiError."""

REFUSED: Mapping[str, str] = {
    "batch": "The table of a batch's results needs a screen. The file has one JSON object a line.",
    "copy_answer": "Copying needs an escape sequence, and plain mode writes none. /inspect save answer writes a file.",
    "take_back": "Nothing is queued here: a message waits until the model is loaded, and Ctrl+C takes it back.",
}
"""The actions that plain mode does not have, by id, with the reason."""
_ARGUMENTS = {
    "models": "[NAME]",
    "conversations": "[WORDS]",
    "compare": "[@FILE or PLAN]",
    "inspect": "[NUMBER] [PART]",
}
"""Where an argument is more than the app's."""
_HELP = {
    "attach": "Attach files, *.png, the pictures of a folder, or a web address.",
    "view": "Describe an attachment: size, frames, tokens, where it comes from.",
    "compare": "Compare the chat template with a raw prompt, that of FILE if given; or engines: engine=here,NAME.",
    "drop_attachment": "Remove an attachment, or the last.",
    "help": "Every command.",
    "where": "List the boxes and points that an answer names, in pixels.",
    "seen": "Say what the model's processor made of each attachment, and where its pictures are.",
    "heat": "Grey out one part of the picture after another, and tell where that makes the answer less likely.",
    "models": "List the models, or load one by its name.",
    "inbox": "Choose a file of the inbox folder; tell how to copy files there.",
    "show_log": "What the engine is doing, and the newest lines of its log.",
}
"""Where plain mode does it in another way than the app's help says."""


class Commands:
    """The parts of plain mode, and the commands that they run."""

    def __init__(self, parts: Parts) -> None:
        self.models = models = Models(parts)
        self.attachments = attachments = Attachments(parts)
        self.messages = messages = Messages(parts, models, attachments)
        self.conversations = conversations = Conversations(parts, messages, models)
        fan_outs, inspections = FanOuts(parts, messages), Inspections(parts)
        comparisons, settings = Comparisons(parts, messages, fan_outs), SettingsCommands(parts)
        self._output = parts.output
        self.is_leaving = False
        self.by_id: Mapping[str, Command] = {
            "models": models.pick,
            "engine": models.use_engine,
            "restart_engine": models.restart,
            "show_log": models.show_log,
            "cleanup": models.clean_up,
            "conversations": conversations.show_list,
            "undelete": conversations.undelete,
            "help": self._help,
            "quit": self._quit,
            "attach": attachments.attach,
            "paste_picture": attachments.paste,
            "inbox": attachments.open_inbox,
            "view": attachments.view,
            "drop_attachment": attachments.detach,
            "frames": attachments.choose_frames,
            "page": attachments.take_page,
            "still": attachments.take_still,
            "sound": attachments.take_sound,
            "smaller": attachments.make_smaller,
            "fewer_frames": attachments.take_fewer_frames,
            "leave_out_oldest": attachments.leave_out_oldest,
            "take_in_again": attachments.take_in_again,
            "stop": messages.stop,
            "regenerate": messages.regenerate,
            "edit": messages.edit,
            "branch": messages.show_branch,
            "new_chat": messages.new_chat,
            "toggle_thinking": messages.toggle_reasoning,
            "inspect": inspections.inspect,
            "lint": inspections.check_template,
            "where": inspections.show_places,
            "locate": inspections.write_location_prompt,
            "seen": inspections.show_model_view,
            "heat": inspections.show_occlusion,
            "fan_out": fan_outs.fan_out,
            "look": fan_outs.look,
            "compare": comparisons.compare,
            "comparisons": comparisons.show_stored,
            "settings": settings.show,
            "system": settings.set_system_prompt,
            "set": settings.set_parameter,
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
