"""Actions of the screens that show what the model saw, and where it points."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope

MODEL_VIEW = Scope(
    "model_view",
    "What the model sees",
    actions=(
        Action("model_view.close", "Back", "Back to the conversation.", "escape,q", verb="back", footer=True),
        Action("model_view.next_kind", "Flick", "The next of the four views.", "space", run="kind(1)", footer=True),
        Action(
            "model_view.original",
            "Original",
            "The file as it was attached.",
            "1",
            verb="part_1",
            run="show('original')",
        ),
        Action(
            "model_view.sent", "Sent", "What was sent, with the tiles on it.", "2", verb="part_2", run="show('sent')"
        ),
        Action(
            "model_view.seen",
            "Seen",
            "What the processor made, from its tensor.",
            "3",
            verb="part_3",
            run="show('seen')",
        ),
        Action(
            "model_view.difference", "Difference", "What scaling changed.", "4", verb="part_4", run="show('difference')"
        ),
        Action("model_view.next", "Next", "The next attachment.", "n,right", run="turn(1)", footer=True),
        Action("model_view.previous", "Previous", "The previous attachment.", "p,left", run="turn(-1)", footer=True),
        Action("model_view.list", "List", "Show or hide the list.", "i", verb="inspect", footer=True),
    ),
    fixed=(FixedKey("↑ ↓", "The previous and the next picture, tile or frame."),),
)

OCCLUSION = Scope(
    "occlusion",
    "What an answer depends on",
    actions=(
        Action("occlusion.close", "Stop, back", "Stop measuring; or go back.", "escape,q", verb="back", footer=True),
        Action(
            "occlusion.measure",
            "Measure",
            "Score the answer with one part after another greyed out.",
            "r",
            leader="r",
            verb="run",
            footer=True,
        ),
        Action(
            "occlusion.finer",
            "Finer",
            "Take smaller cells.",
            "plus,equals_sign",
            verb="zoom_in",
            run="grid(1)",
            footer=True,
        ),
        Action(
            "occlusion.coarser", "Coarser", "Take larger cells.", "minus", verb="zoom_out", run="grid(-1)", footer=True
        ),
        Action(
            "occlusion.export",
            "Export",
            "Write the heat map (PNG) and its numbers (JSON) into the current folder.",
            "w",
            leader="w",
            footer=True,
        ),
    ),
    fixed=(
        FixedKey("↑ ↓", "The whole answer, or a word of it."),
        FixedKey("enter", "Measure."),
    ),
)

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
