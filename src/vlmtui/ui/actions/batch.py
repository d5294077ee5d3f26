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
            "Show all results, only those that failed, only wrong answers, the longest answers first.",
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
        Action("batch_results.back", "Back", "Go back.", "escape,q", verb="back", footer=True),
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
