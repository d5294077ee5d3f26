"""Actions in the composer, and on the message or answer that is selected from it."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope

COMPOSER = Scope(
    "composer",
    "Writing a message",
    within="chat",
    fixed=(
        FixedKey("enter", "Send the message."),
        FixedKey("^j", "Break the line; so does Shift+Enter if the terminal reports it."),
        FixedKey("↑", "In an empty composer: select a message above. Letters then act on it."),
        FixedKey("↑ ↓", "Earlier and later messages, from the first and the last line."),
        FixedKey("pgup pgdn", "Scroll the conversation."),
        FixedKey("tab", "Accept the offered command or path; attach the files that a message names."),
        FixedKey("paste", "Attach a pasted or dropped path."),
    ),
)


def _move(where: str, title: str, help: str, keys: str) -> Action:
    return Action(f"message_cursor.{where}", title, help, keys, run=f"move('{where}')", moves=True)


def _does(id: str, title: str, help: str, key: str, *, verb: str = "", footer: bool = True) -> Action:
    """Return the action that runs the chat's own action `id` on the selected message."""
    return Action(f"message_cursor.{id}", title, help, key, verb=verb, run=f"screen.run('{id}')", footer=footer)


def _part(verb: str, help: str, key: str, by: int) -> Action:
    return Action(f"message_cursor.{verb}_part", f"{verb.capitalize()} part", help, key, verb=verb, run=f"part({by})")


MESSAGE_CURSOR = Scope(
    "message_cursor",
    "On a selected message",
    within="chat",
    actions=(
        Action("message_cursor.leave", "Back", "Go back to the composer.", "escape", verb="back", footer=True),
        _does("edit", "Edit", "Edit the message; sending creates a branch.", "e"),
        _does("regenerate", "Answer again", "Generate another answer to the message.", "r", verb="run"),
        _does("inspect", "Inspect", "Inspect the prompt and the answer.", "i"),
        _does("compare", "Compare", "Compare the message's prompt with a raw prompt.", "c"),
        _does("copy_answer", "Copy", "Copy the message or the answer.", "y", verb="copy"),
        _does("branch_here", "Branch", "Write another next message, on a new branch.", "b"),
        _does("fan_out", "Fan out", "Send the message several ways at once.", "f"),
        _does("search", "Find", "Find a text in the conversation.", "slash", footer=False),
        Action(
            "message_cursor.open",
            "Open",
            "View the message's pictures; show or hide the answer's reasoning, or its long JSON.",
            "space,enter",
            footer=True,
        ),
        _part("next", "The next part of the answer: reasoning, text, code, JSON, table.", "right_square_bracket", 1),
        _part("previous", "The previous part of the answer.", "left_square_bracket", -1),
        Action("message_cursor.copy_part", "Copy part", "Copy the selected part of the answer.", "Y"),
        _does("branch_before", "Previous branch", "Previous branch at this message.", "left", footer=False),
        _does("branch_after", "Next branch", "Next branch at this message.", "right", footer=False),
        _move("up", "Up", "The message or answer above.", "up,k"),
        _move("down", "Down", "The one below; after the last one, the composer.", "down,j"),
        _move("page_up", "A page up", "A page up.", "pageup"),
        _move("page_down", "A page down", "A page down.", "pagedown"),
        _move("first", "First", "The first message of the conversation.", "home,g"),
        _move("last", "Last", "The newest message.", "end,G"),
    ),
)
