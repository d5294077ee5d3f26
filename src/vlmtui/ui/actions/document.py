"""Actions while a document is searched."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, Scope

SEARCH_BAR = Scope(
    "search_bar",
    "Searching a text",
    types=True,
    actions=(
        Action("search_bar.close", "Close", "Close the search.", "escape", verb="back", footer=True, priority=True),
        Action("search_bar.next", "Next", "The next place.", "enter,down", footer=True, priority=True),
        Action("search_bar.previous", "Previous", "The place before.", "up,shift+enter", footer=True, priority=True),
    ),
)


def search_actions(scope: str) -> tuple[Action, ...]:
    """Return the actions that search the document of a screen."""
    return (
        Action(f"{scope}.search", "Search", "Find a text.", "slash,ctrl+f", leader="slash", footer=True),
        Action(
            f"{scope}.search_next",
            "Next place",
            "The next place with the text.",
            "n",
            verb="next",
            run="search_again(False)",
        ),
        Action(
            f"{scope}.search_previous",
            "Previous place",
            "The place before.",
            "p",
            verb="previous",
            run="search_again(True)",
        ),
    )
