"""Actions in the results of a batch."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, Scope

BATCH = Scope(
    "batch_results",
    "In the results of a batch",
    actions=(
        Action("batch_results.open", "Inspect", "Show the item's prompt and answer in the inspector.", "enter"),
        Action(
            "batch_results.next",
            "Filter",
            "Show all results, only errors, only wrong answers.",
            "tab",
            run="show(1)",
            footer=True,
        ),
        Action(
            "batch_results.previous",
            "Filter back",
            "The filter before this one.",
            "shift+tab",
            run="show(-1)",
        ),
        Action(
            "batch_results.order",
            "Order",
            "As they ended, as in the input, the longest answer first, the slowest first.",
            "a",
            footer=True,
        ),
        Action(
            "batch_results.search",
            "Search",
            "Only what has these words in its id, question, answer or error.",
            "slash,ctrl+f",
            leader="slash",
            footer=True,
        ),
        Action(
            "batch_results.compare",
            "Compare",
            "Put the item into a new conversation, and compare its prompt with a raw prompt.",
            "c",
            leader="c",
            footer=True,
        ),
        Action(
            "batch_results.edit",
            "To the chat",
            "Put the item, with its media and settings, into a new conversation, to edit and send it.",
            "e",
            leader="e",
            footer=True,
        ),
        Action(
            "batch_results.run", "Ask again", "Ask this item again; its new line replaces the old one.", "r", leader="r"
        ),
        Action(
            "batch_results.pause",
            "Pause, go on",
            "Stop the batch, which keeps what is answered; or go on with it where it stopped.",
            "P",
            footer=True,
        ),
        Action("batch_results.copy", "Copy", "Copy the item's answer to your clipboard.", "y", leader="y"),
        Action("batch_results.back", "Back", "Clear the search, or go back.", "escape,q", verb="back", footer=True),
    ),
)

BATCH_ROWS = Scope(
    "batch_rows",
    "In the table of results",
    within="batch_results",
    actions=(
        Action("batch_rows.up", "Up", "The result above.", "up,k", run="move(-1)", moves=True),
        Action("batch_rows.down", "Down", "The result below.", "down,j", run="move(1)", moves=True),
        Action("batch_rows.page_up", "A page up", "A page up.", "pageup", run="page(-1)", moves=True),
        Action("batch_rows.page_down", "A page down", "A page down.", "pagedown", run="page(1)", moves=True),
        Action("batch_rows.first", "First", "The first result.", "home,g", moves=True),
        Action("batch_rows.last", "Last", "The last result.", "end,G", moves=True),
    ),
)

BATCH_SEARCH = Scope(
    "batch_search",
    "Searching results",
    within="batch_results",
    types=True,
    actions=(
        Action("batch_search.choose", "Search", "Show what was found.", "enter", run="submit", footer=True),
        Action("batch_search.back", "Back", "Clear the search.", "escape", verb="back", run="screen.back", footer=True),
    ),
)
