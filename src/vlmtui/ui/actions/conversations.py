"""Actions in the list of conversations."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, Scope

CONVERSATION_LIST = Scope(
    "conversation_list",
    "In the list of conversations",
    actions=(
        Action("conversation_list.open", "Open", "Open the highlighted conversation.", "enter", footer=True),
        Action("conversation_list.search", "Search", "Search all messages.", "slash,ctrl+f", leader="slash"),
        Action("conversation_list.rename", "Rename", "Change the title.", "e", leader="e", verb="edit", footer=True),
        Action(
            "conversation_list.pin",
            "Pin",
            "Pin it to the top, or unpin it.",
            "asterisk",
            leader="asterisk",
            footer=True,
        ),
        Action("conversation_list.delete", "Delete", "Delete it; Undo restores it.", "delete", footer=True),
        Action("conversation_list.undo", "Undo", "Restore the conversation deleted last.", "u", leader="u"),
        Action("conversation_list.new", "New chat", "Start a new conversation.", "N,ctrl+n", leader="n"),
        Action("conversation_list.back", "Back", "Clear the search, or go back.", "escape", verb="back", footer=True),
    ),
)

CONVERSATION_ROWS = Scope(
    "conversation_rows",
    "In the rows of the list",
    within="conversation_list",
    actions=(
        Action("conversation_rows.up", "Up", "The one above.", "up", run="move('up')", moves=True),
        Action("conversation_rows.down", "Down", "The one below.", "down", run="move('down')", moves=True),
        Action("conversation_rows.page_up", "A page up", "A page up.", "pageup", run="move('page_up')", moves=True),
        Action(
            "conversation_rows.page_down",
            "A page down",
            "A page down.",
            "pagedown",
            run="move('page_down')",
            moves=True,
        ),
        Action("conversation_rows.first", "First", "The first conversation.", "home", run="move('first')", moves=True),
        Action("conversation_rows.last", "Last", "The last one loaded.", "end", run="move('last')", moves=True),
    ),
)

CONVERSATION_SEARCH = Scope(
    "conversation_search",
    "Searching conversations",
    within="conversation_list",
    types=True,
    actions=(
        Action(
            "conversation_search.open", "Open", "Open the highlighted conversation.", "enter", run="submit", footer=True
        ),
        Action("conversation_search.up", "Up", "The one above.", "up", run="screen.move('up')", moves=True),
        Action("conversation_search.down", "Down", "The one below.", "down", run="screen.move('down')", moves=True),
        Action(
            "conversation_search.page_up", "A page up", "A page up.", "pageup", run="screen.move('page_up')", moves=True
        ),
        Action(
            "conversation_search.page_down",
            "A page down",
            "A page down.",
            "pagedown",
            run="screen.move('page_down')",
            moves=True,
        ),
    ),
)

CONVERSATION_TITLE = Scope(
    "conversation_title",
    "Renaming a conversation",
    within="conversation_list",
    types=True,
    actions=(
        Action("conversation_title.save", "Rename", "Save the new title.", "enter", run="submit", footer=True),
        Action("conversation_title.cancel", "Cancel", "Keep the old title.", "escape", verb="back", footer=True),
    ),
)
