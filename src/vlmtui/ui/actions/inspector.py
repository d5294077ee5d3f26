"""Actions in the inspector."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope
from vlmtui.ui.actions.document import search_actions

INSPECTOR = Scope(
    "inspector",
    "In the inspector",
    actions=(
        Action("inspector.close", "Back", "Close the inspector.", "escape,q,f12,alt+x", verb="back", footer=True),
        Action("inspector.next", "Next part", "The next part.", "tab,right_square_bracket", run="turn(1)", footer=True),
        Action(
            "inspector.previous", "Previous part", "The previous part.", "shift+tab,left_square_bracket", run="turn(-1)"
        ),
        Action(
            "inspector.prompt",
            "Prompt",
            "The prompt as the model was given it.",
            "1",
            verb="part_1",
            run="show('prompt')",
        ),
        Action(
            "inspector.tokens",
            "Tokens",
            "Every token of the prompt with its id.",
            "2",
            verb="part_2",
            run="show('tokens')",
        ),
        Action(
            "inspector.media",
            "Media",
            "Each image and video as it was processed.",
            "3",
            verb="part_3",
            run="show('media')",
        ),
        Action("inspector.template", "Template", "The chat template.", "4", verb="part_4", run="show('template')"),
        Action("inspector.request", "Request", "The request and its sampling.", "5", run="show('request')"),
        Action("inspector.answer", "Answer", "The answer's tokens and their probabilities.", "6", run="show('answer')"),
        Action("inspector.copy", "Copy", "Copy this part to your clipboard.", "y", leader="y", footer=True),
        Action(
            "inspector.save", "Save", "Save this part as a file in the current folder.", "s", leader="s", footer=True
        ),
        Action(
            "inspector.logprobs",
            "Probabilities",
            "Repeat the request with log-probabilities.",
            "percent_sign",
            leader="percent_sign",
            footer=True,
        ),
        Action(
            "inspector.render_again",
            "Render again",
            "Render the prompt again with the loaded model.",
            "r",
            leader="r",
            verb="run",
            run="again",
            footer=True,
        ),
        *search_actions("inspector"),
    ),
)

TOKEN_TABLE = Scope(
    "token_table",
    "In the list of tokens",
    within="inspector",
    actions=(
        Action("token_table.up", "Up", "The previous token.", "up,k", run="move(-1)", moves=True),
        Action("token_table.down", "Down", "The next token.", "down,j", run="move(1)", moves=True),
        Action("token_table.page_up", "A page up", "A page up.", "pageup", run="page(-1)", moves=True),
        Action("token_table.page_down", "A page down", "A page down.", "pagedown", run="page(1)", moves=True),
        Action("token_table.first", "First", "The first token.", "home", moves=True),
        Action("token_table.last", "Last", "The last token.", "end", moves=True),
        Action("token_table.unfold", "Unfold", "Unfold an image, or fold it.", "enter,space"),
    ),
)

LOGPROB_TEXT = Scope(
    "logprob_text",
    "In the answer's tokens",
    within="inspector",
    actions=(
        Action("logprob_text.left", "Left", "The previous token.", "left,h", run="move(-1)", moves=True),
        Action("logprob_text.right", "Right", "The next token.", "right,l", run="move(1)", moves=True),
        Action("logprob_text.up", "Up", "The row above.", "up,k", run="row(-1)", moves=True),
        Action("logprob_text.down", "Down", "The row below.", "down,j", run="row(1)", moves=True),
        Action("logprob_text.first", "First", "The first token.", "home", run="to(0)", moves=True),
        Action("logprob_text.last", "Last", "The last token.", "end", run="to(-1)", moves=True),
        Action(
            "logprob_text.next_unlikely",
            "Next unlikely",
            "The next unlikely token.",
            "n",
            verb="next",
            run="unlikely(1)",
        ),
        Action(
            "logprob_text.previous_unlikely",
            "Previous unlikely",
            "The previous unlikely token.",
            "p",
            verb="previous",
            run="unlikely(-1)",
        ),
    ),
)

LINT = Scope(
    "findings",
    "In the findings about a template",
    actions=(
        Action("findings.close", "Back", "Back to the conversation.", "escape,q", verb="back", footer=True),
        Action(
            "findings.check_again",
            "Check again",
            "Read the model's files again.",
            "r",
            leader="r",
            verb="run",
            footer=True,
        ),
        Action("findings.copy", "Copy", "Copy the findings to your clipboard.", "y", leader="y", footer=True),
        *search_actions("findings"),
    ),
    fixed=(FixedKey("↑ ↓", "The previous and the next finding."),),
)
