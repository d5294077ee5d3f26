"""Actions on comparisons and fan-outs."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope

_NEXT_VIEW = Action(
    "sides.next_view", "Next view", "Show the other side.", "f6", leader="tab", footer=True, priority=True
)
_DIFFERENCE = Action("sides.difference", "Difference", "Show where they differ.", "d", leader="d")
_LOOK_HELP = "Send again without the picture, or with a grey, blurred or swapped one: is the answer still as likely?"
_EXPORT = Action("sides.export", "Export", "Write a Markdown, HTML or JSON file.", "w", leader="w", footer=True)

COMPARISON = Scope(
    "comparison",
    "In a comparison",
    types=True,
    actions=(
        Action(
            "comparison.send",
            "Send both",
            "Send both prompts at once.",
            "ctrl+r,ctrl+enter",
            leader="r",
            verb="run",
            footer=True,
            priority=True,
        ),
        _NEXT_VIEW,
        _DIFFERENCE,
        _EXPORT,
        Action(
            "comparison.next_finding", "Finding", "To the next finding.", "f7", leader="j", footer=True, priority=True
        ),
        Action(
            "comparison.fix",
            "Fix",
            "Fix the finding in the raw prompt.",
            "f8",
            leader="full_stop",
            footer=True,
            priority=True,
        ),
        Action(
            "comparison.stop_chat", "Stop chat", "Stop the left answer.", leader="1", run="stop('chat')", footer=True
        ),
        Action("comparison.stop_raw", "Stop raw", "Stop the right answer.", leader="2", run="stop('raw')", footer=True),
        Action(
            "comparison.fill",
            "Load prompt",
            "Load the raw prompt from the template or a saved one.",
            leader="P",
            footer=True,
        ),
        Action(
            "comparison.find",
            "Find",
            "Find text in the raw prompt; the next one with Enter alone.",
            leader="slash",
            verb="search",
        ),
        Action(
            "comparison.save",
            "Save",
            "Save the raw prompt under a name.",
            "ctrl+s",
            leader="s",
            footer=True,
            priority=True,
        ),
        Action(
            "comparison.logprobs",
            "Log-probabilities",
            "Request log-probabilities, or stop requesting them.",
            "percent_sign",
            leader="percent_sign",
        ),
        Action(
            "comparison.fold",
            "Fold turns",
            "Show equal earlier turns in one line, or whole.",
            "E",
            leader="E",
        ),
        Action(
            "comparison.engine",
            "Engine",
            "Choose the engine that answers this side: another version, dtype or checkpoint, Transformers, a server.",
            leader="A",
        ),
        Action("comparison.look", "Does it look?", _LOOK_HELP, "x", leader="x"),
        Action("comparison.inspect", "Inspect", "Inspect the prompt and answer of a side.", "f12,alt+x", leader="i"),
        Action(
            "comparison.earlier",
            "Kept",
            "Show earlier comparisons of this message.",
            "alt+k",
            leader="h",
            run="stored",
            priority=True,
        ),
        Action(
            "comparison.use",
            "Use answer",
            "Continue the conversation with this answer.",
            "alt+u",
            leader="enter",
            priority=True,
        ),
        Action(
            "comparison.leave",
            "Back",
            "Stop both; back to the chat.",
            "escape",
            verb="back",
            footer=True,
            priority=True,
        ),
    ),
)

STORED_COMPARISON = Scope(
    "stored_comparison",
    "In a stored comparison",
    actions=(
        Action(
            "stored_comparison.run_again",
            "Run again",
            "Send both prompts again.",
            "r,ctrl+r,ctrl+enter",
            leader="r",
            verb="run",
            footer=True,
        ),
        _NEXT_VIEW,
        _DIFFERENCE,
        _EXPORT,
        Action(
            "stored_comparison.fold",
            "Fold turns",
            "Show equal earlier turns in one line, or whole.",
            "E",
            leader="E",
        ),
        Action("stored_comparison.leave", "Back", "Close the comparison.", "escape", verb="back", footer=True),
    ),
)

FAN_FORM = Scope(
    "fan_form",
    "Planning a fan-out",
    modal=True,
    types=True,
    actions=(
        Action(
            "fan_form.ask",
            "Ask",
            "Send all requests at once.",
            "ctrl+r",
            leader="r",
            verb="run",
            run="go",
            footer=True,
            priority=True,
        ),
        Action("fan_form.cancel", "Cancel", "Send nothing.", "escape", verb="back", footer=True, priority=True),
    ),
    fixed=(
        FixedKey("enter", "Send all requests at once."),
        FixedKey("tab", "The next field."),
    ),
)

ANSWERS = Scope(
    "answers",
    "In the answers of a fan-out",
    actions=(
        Action("answers.choose", "Use this", "Continue the conversation with this answer.", "enter", footer=True),
        Action(
            "answers.base",
            "Base",
            "Compare the others with this answer.",
            "d",
            leader="d",
            verb="difference",
            footer=True,
        ),
        Action("answers.inspect", "Inspect", "Inspect this prompt and answer.", "i", leader="i", footer=True),
        Action("answers.look", "Does it look?", _LOOK_HELP, "x", leader="x"),
        Action("answers.copy", "Copy", "Copy this answer to your clipboard.", "y", leader="y", footer=True),
        Action("answers.export", "Export", "Write all answers to a file.", "w", leader="w", footer=True),
        Action(
            "answers.new_plan",
            "New",
            "Fan out the same message over other values.",
            "N,ctrl+n",
            leader="n",
            verb="new",
            run="new_plan",
            footer=True,
        ),
        Action(
            "answers.leave",
            "Stop, back",
            "Stop all answers; then go back to the chat.",
            "escape",
            verb="back",
            footer=True,
        ),
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
        Action("answer_tile.page_up", "A page up", "Scroll this answer up.", "pageup", run="page(-1)", moves=True),
        Action(
            "answer_tile.page_down",
            "A page down",
            "Scroll this answer down.",
            "pagedown",
            run="page(1)",
            moves=True,
        ),
    ),
)
