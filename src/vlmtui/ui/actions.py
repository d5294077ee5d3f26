"""The one table of what a person can do: keys, palette, slash commands, footer and help all come from it."""

from __future__ import annotations

from typing import Literal

import msgspec
from textual.binding import Binding

Where = Literal["app", "chat"]


class Action(msgspec.Struct, frozen=True):
    """One thing to do. `id` is also the binding's id, by which users rebind it, and `action_<id>` runs it."""

    id: str
    title: str
    """A few words, for the footer and the palette."""
    help: str
    """One sentence: tooltip, palette help and help screen."""
    keys: str = ""
    """As in a Textual binding (`ctrl+o`, or several separated by commas); empty: no key."""
    slash: str = ""
    """`/name`; empty: no slash command."""
    argument: str = ""
    """What the slash command takes (`PATH`); empty: nothing."""
    where: Where = "app"
    footer: bool = False
    priority: bool = False


ACTIONS: tuple[Action, ...] = (
    Action(
        "attach",
        "Attach",
        "Choose images and videos in a file browser; or give paths, *.png, a folder, or a web address.",
        "ctrl+o",
        "/attach",
        "PATH",
        "chat",
        footer=True,
    ),
    Action("stop", "Stop", "Stop the answer; what has come stays.", "escape", "/stop", where="chat", footer=True),
    Action(
        "regenerate", "Answer again", "Ask for another answer to the last message.", "ctrl+r", "/retry", where="chat"
    ),
    Action(
        "edit",
        "Edit a message",
        "Write the last message anew, or the one of that number; sending it makes a branch.",
        "alt+e",
        "/edit",
        "NUMBER",
        "chat",
    ),
    Action("leave_edit", "Leave the edit", "Leave the message as it is.", "escape", where="chat", footer=True),
    Action(
        "branch_before",
        "Branch before",
        "Show the branch before, of the last place that has several.",
        "alt+left",
        where="chat",
        priority=True,
    ),
    Action(
        "branch_after",
        "Next branch",
        "Show the next branch, of the last place that has several.",
        "alt+right",
        where="chat",
        priority=True,
    ),
    Action("branch", "Branch", "Show the branch of that number.", "", "/branch", "NUMBER", "chat"),
    Action(
        "new_chat",
        "New chat",
        "Start a new conversation with the same model.",
        "ctrl+n",
        "/new",
        where="chat",
        footer=True,
    ),
    Action(
        "copy_answer",
        "Copy answer",
        "Copy the last answer to your clipboard.",
        "ctrl+y",
        "/copy",
        where="chat",
        priority=True,
    ),
    Action(
        "drop_attachment",
        "Remove attachment",
        "Remove an attachment, or the last; so does Backspace behind its token.",
        slash="/detach",
        argument="NUMBER",
        where="chat",
    ),
    Action(
        "move_left",
        "Attachment left",
        "Move the attachment beside the cursor one word left.",
        "alt+h",
        where="chat",
    ),
    Action(
        "move_right",
        "Attachment right",
        "Move the attachment beside the cursor one word right.",
        "alt+l",
        where="chat",
    ),
    Action("paste_picture", "Paste a picture", "Attach the clipboard's picture.", "alt+v", "/paste", where="chat"),
    Action(
        "inbox",
        "Inbox",
        "Attach what came into the inbox folder; tells how to copy there.",
        "alt+i",
        "/inbox",
        where="chat",
    ),
    Action(
        "view", "View", "Show an attachment in full size; its frames, zoom, facts.", "f9", "/view", "NUMBER", "chat"
    ),
    Action("frames", "Frames", "Choose which frames of a video are sent.", "", "/frames", "NUMBER", "chat"),
    Action("page", "Page", "Attach another page of a TIFF, or frame of an animation.", "", "/page", "PAGE", "chat"),
    Action("still", "Still picture", "Attach an animation as a still picture.", "", "/still", "NUMBER", "chat"),
    Action(
        "smaller",
        "Smaller images",
        "Halve the sides of the message's images, or of one.",
        "f6",
        "/smaller",
        "NUMBER",
        "chat",
        priority=True,
    ),
    Action(
        "fewer_frames",
        "Fewer frames",
        "Halve the frames of the message's videos, or of one.",
        "f7",
        "/fewer",
        "NUMBER",
        "chat",
        priority=True,
    ),
    Action(
        "forget_oldest",
        "Forget attachments",
        "Send the oldest attachments of the conversation no more.",
        "f8",
        "/forget",
        where="chat",
    ),
    Action(
        "toggle_thinking",
        "Thinking",
        "Fold or unfold the newest thinking.",
        "ctrl+t",
        "/thinking",
        where="chat",
        priority=True,
    ),
    Action(
        "jump_end", "Jump to the end", "Go to the newest text and follow it.", "ctrl+end", where="chat", priority=True
    ),
    Action(
        "inspect",
        "Inspect",
        "Look into a prompt: its tokens, images, template, sampling, and the answer's probabilities.",
        "f12,alt+x",
        "/inspect",
        "NUMBER",
        "chat",
    ),
    Action(
        "fan_out",
        "Fan out",
        "Ask one message several ways at once: seeds, temperatures, or other wordings.",
        "alt+s",
        "/fan",
        "seed=1,2,3",
        "chat",
        priority=True,
    ),
    Action("restart_engine", "Restart engine", "Load the model again.", "f5", "/restart", where="chat"),
    Action(
        "compare",
        "Compare",
        "The chat template against a raw prompt, side by side.",
        "f10,alt+c",
        "/compare",
        where="chat",
        priority=True,
    ),
    Action("comparisons", "Comparisons", "Look at the last message's comparisons.", "", "/comparisons", where="chat"),
    Action("settings", "Settings", "System prompt and sampling.", "f2", "/settings", footer=True, where="chat"),
    Action("system", "System prompt", "Set the system prompt; alone it removes it.", "", "/system", "TEXT", "chat"),
    Action("set", "Set a parameter", "Set temperature, top_p, max_tokens or seed.", "", "/set", "NAME VALUE", "chat"),
    Action("models", "Models", "Pick another model.", "f3", "/model", footer=True, where="chat"),
    Action(
        "conversations", "Conversations", "Search, open, rename or delete what was said.", "ctrl+l", "/conversations"
    ),
    Action("undelete", "Undelete", "Bring back the conversation that was deleted last.", "", "/undelete"),
    Action("show_log", "Engine log", "The engine's own log, live.", "f4", "/log"),
    Action("cleanup", "Clean up", "End workers of yours that cannot be used any more.", "", "/cleanup"),
    Action("help", "Help", "Every key and command.", "f1", "/help", footer=True),
    Action("command_palette", "Commands", "Search every command.", "ctrl+p", footer=True),
    Action(
        "quit",
        "Quit",
        "Leave; a loaded model stays for its keep-alive time.",
        "ctrl+q",
        "/quit",
        footer=True,
        priority=True,
    ),
)


def bindings(where: Where) -> list[Binding]:
    """The bindings of the app or of the chat screen."""
    return [
        Binding(
            action.keys,
            action.id,
            action.title,
            id=action.id,
            tooltip=action.help,
            show=action.footer,
            priority=action.priority,
        )
        for action in ACTIONS
        if action.where == where and action.keys
    ]
