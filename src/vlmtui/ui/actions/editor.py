"""Actions in text fields: the composer and the raw prompt."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, Scope


def _edit(name: str, title: str, help: str, keys: str, *, leader: str = "", verb: str = "") -> Action:
    return Action(f"editor.{name}", title, help, keys, leader=leader, verb=verb, run=f"app.edit('{name}')", moves=True)


EDITOR = Scope(
    "editor",
    "Writing text",
    types=True,
    actions=(
        _edit("line_start", "Line start", "To the beginning of the line.", "home,ctrl+a", verb="first"),
        _edit("line_end", "Line end", "To the end of the line.", "end,ctrl+e", verb="last"),
        _edit("first", "Text start", "To the beginning of the text.", "ctrl+home"),
        _edit("last", "Text end", "To the end of the text.", "ctrl+end"),
        _edit("kill_line_end", "Cut to line end", "Cut to the end of the line; there, the line break.", "ctrl+k"),
        _edit("kill_line_start", "Cut to line start", "Cut from the line start, or the selection.", "ctrl+u"),
        _edit("kill_word_left", "Cut word", "Cut the word before the cursor, or the selection.", "ctrl+w"),
        _edit("kill_word_right", "Cut next word", "Cut the word after the cursor.", "alt+d,ctrl+delete"),
        _edit("yank", "Paste cut text", "Paste the text cut last, in any text field.", "ctrl+y"),
        _edit("undo", "Undo", "Undo the last edit.", "ctrl+z,ctrl+underscore"),
        _edit("redo", "Redo", "Redo the edit undone last.", "ctrl+shift+z", leader="Z"),
        _edit("select_all", "Select all", "Select the whole text.", "ctrl+shift+a", leader="a", verb="all"),
    ),
)
