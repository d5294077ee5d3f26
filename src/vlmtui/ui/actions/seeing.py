"""Actions of the screens that show what the model saw, and where it points."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope

PLACES = Scope(
    "places",
    "Where an answer points",
    actions=(
        Action("places.close", "Back", "Back to the conversation.", "escape,q", verb="back", footer=True),
        Action(
            "places.convention",
            "Convention",
            "Read the coordinates by the next convention: pixels, resized pixels, 0 to 1, 100, 1000.",
            "m",
            footer=True,
        ),
        Action("places.order", "x or y first", "Swap which number of a pair comes first.", "a", footer=True),
        Action("places.list", "List", "Show or hide the list beside the picture.", "i", verb="inspect", footer=True),
        Action(
            "places.export",
            "Export",
            "Write the picture with its marks (PNG) and the marks (JSON) into the current folder.",
            "w",
            leader="w",
            footer=True,
        ),
    ),
    fixed=(FixedKey("↑ ↓", "The previous and the next mark; the part of the answer is shown below."),),
)
