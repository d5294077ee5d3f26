"""What can be done with comparisons and fan-outs."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope

_NEXT_VIEW = Action("sides.next_view", "Next view", "Show the other side.", "f6", footer=True, priority=True)
_DIFFERENCE = Action("sides.difference", "Difference", "Show where they differ.", "d")
_EXPORT = Action("sides.export", "Export", "Write a Markdown, HTML or JSON file.", "f2", footer=True, priority=True)

COMPARISON = Scope(
    "comparison",
    "In a comparison",
    types=True,
    actions=(
        Action("comparison.send", "Send both", "Ask both at once.", "ctrl+r,f5,ctrl+enter", footer=True, priority=True),
        _NEXT_VIEW,
        _DIFFERENCE,
        _EXPORT,
        Action("comparison.next_finding", "Finding", "To the next finding.", "f7", footer=True, priority=True),
        Action(
            "comparison.fix", "Fix", "Fix what the check of the raw prompt has found.", "f8", footer=True, priority=True
        ),
        Action(
            "comparison.stop_chat",
            "Stop chat",
            "Stop the left answer.",
            "f9",
            run="stop('chat')",
            footer=True,
            priority=True,
        ),
        Action(
            "comparison.stop_raw",
            "Stop raw",
            "Stop the right answer.",
            "f10",
            run="stop('raw')",
            footer=True,
            priority=True,
        ),
        Action(
            "comparison.fill",
            "Load",
            "Load the raw prompt from the template or a saved one.",
            "ctrl+o",
            footer=True,
            priority=True,
        ),
        Action("comparison.save", "Save", "Save the raw prompt under a name.", "ctrl+s", priority=True),
        Action(
            "comparison.logprobs",
            "Log-probabilities",
            "Ask for log-probabilities, or stop asking for them.",
            "alt+l",
            priority=True,
        ),
        Action(
            "comparison.logprobs_too", "Log-probabilities", "The same, where no text is written.", "l", run="logprobs"
        ),
        Action("comparison.inspect", "Inspect", "Inspect the prompt and answer of a side.", "f12,alt+x"),
        Action(
            "comparison.earlier",
            "Kept",
            "Show earlier comparisons of this message.",
            "alt+k",
            run="stored",
            priority=True,
        ),
        Action("comparison.use", "Use answer", "Continue the conversation with this answer.", "alt+u", priority=True),
        Action("comparison.leave", "Back", "Stop both; back to the chat.", "escape", footer=True, priority=True),
    ),
)

STORED_COMPARISON = Scope(
    "stored_comparison",
    "In a stored comparison",
    actions=(
        Action("stored_comparison.run_again", "Run again", "Ask both once more.", "ctrl+r,f5,ctrl+enter", footer=True),
        _NEXT_VIEW,
        _DIFFERENCE,
        _EXPORT,
        Action("stored_comparison.leave", "Back", "Close the comparison.", "escape", footer=True),
    ),
)

FAN_FORM = Scope(
    "fan_form",
    "Planning a fan-out",
    modal=True,
    types=True,
    actions=(
        Action("fan_form.ask", "Ask", "Ask all of them at once.", "ctrl+s", run="go", footer=True, priority=True),
        Action("fan_form.cancel", "Cancel", "Ask nothing.", "escape", footer=True, priority=True),
    ),
    fixed=(
        FixedKey("enter", "Ask all of them at once."),
        FixedKey("tab", "The next field."),
    ),
)

ANSWERS = Scope(
    "answers",
    "In the answers of a fan-out",
    actions=(
        Action("answers.choose", "Use this", "Go on with this answer.", "enter", footer=True),
        Action("answers.base", "Base", "Compare the others with this answer.", "b", footer=True),
        Action("answers.inspect", "Inspect", "Look into this prompt and answer.", "i", footer=True),
        Action("answers.copy", "Copy", "Copy this answer to your clipboard.", "y", footer=True),
        Action("answers.export", "Export", "Write all of them into a file.", "x", footer=True),
        Action(
            "answers.new_plan",
            "New",
            "Fan the same message out over different values.",
            "n",
            run="new_plan",
            footer=True,
        ),
        Action("answers.leave", "Stop, back", "Stop all; then back to the chat.", "escape", footer=True),
        Action("answers.left", "Left", "The answer on the left.", "left,h", run="move(-1, 0)", moves=True),
        Action("answers.right", "Right", "The answer on the right.", "right,l", run="move(1, 0)", moves=True),
        Action("answers.up", "Above", "The answer above.", "up,k", run="move(0, -1)", moves=True),
        Action("answers.down", "Below", "The answer below.", "down,j", run="move(0, 1)", moves=True),
    ),
)

ANSWER_TILE = Scope(
    "answer_tile",
    "In one of the answers",
    within="answers",
    actions=(
        Action("answer_tile.page_up", "A page up", "Scroll this answer up.", "pageup", run="page('up')", moves=True),
        Action(
            "answer_tile.page_down",
            "A page down",
            "Scroll this answer down.",
            "pagedown",
            run="page('down')",
            moves=True,
        ),
    ),
)
