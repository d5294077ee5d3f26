"""The actions of all other screens and of dialogs."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope, row_moves

_SEARCH = (
    Action("search", "Search", "Find a text.", "slash", leader="slash", footer=True),
    Action("search_next", "Next match", "The next match.", "n", run="search_again(False)"),
    Action("search_previous", "Previous match", "The previous match.", "N", run="search_again(True)"),
)
"""The actions that find a text in a screen's document."""
_NEXT_VIEW = Action(
    "sides.next_view", "Next view", "Show the other side.", "f6", leader="tab", footer=True, priority=True
)
_DIFFERENCE = Action("sides.difference", "Difference", "Show where they differ.", "d", leader="d")
_EXPORT = Action("sides.export", "Export", "Write a Markdown, HTML or JSON file.", "w", leader="w", footer=True)

COMPARISON = Scope(
    "comparison",
    "In a comparison",
    types=True,
    footer_leads=("sides.next_view", "comparison.fix", "comparison.next_finding"),
    actions=(
        Action(
            "send",
            "Send both",
            "Send both prompts at once.",
            "ctrl+r",
            leader="r",
            footer=True,
            priority=True,
        ),
        _NEXT_VIEW,
        _DIFFERENCE,
        _EXPORT,
        Action("next_finding", "Finding", "To the next finding.", "f7", leader="j", footer=True, priority=True),
        Action(
            "fix", "Fix", "Fix the finding in the raw prompt.", "f8", leader="full_stop", footer=True, priority=True
        ),
        Action("fill", "Load prompt", "Load the raw prompt from the template or a saved one.", leader="P", footer=True),
        Action("save", "Save", "Save the raw prompt under a name.", "ctrl+s", leader="s", priority=True),
        Action("fold", "Fold turns", "Show equal earlier turns in one line, or whole.", "E", leader="E"),
        Action("inspect", "Inspect", "Inspect the prompt and answer of a side.", "f12", leader="i"),
        Action(
            "use", "Use answer", "Continue the conversation with this answer.", "alt+u", leader="enter", priority=True
        ),
        Action("leave", "Back", "Stop both; back to the chat.", "escape", footer=True, priority=True),
    ),
)

STORED_COMPARISON = Scope(
    "stored_comparison",
    "In a stored comparison",
    actions=(
        Action("run_again", "Run again", "Send both prompts again.", "ctrl+r", leader="r", footer=True),
        _NEXT_VIEW,
        _DIFFERENCE,
        _EXPORT,
        Action("fold", "Fold turns", "Show equal earlier turns in one line, or whole.", "E", leader="E"),
        Action("leave", "Back", "Close the comparison.", "escape", footer=True),
    ),
)

FAN_PLAN = Scope(
    "fan_plan",
    "Planning a fan-out",
    types=True,
    actions=(
        Action("complete", "Complete", "Insert the highlighted parameter or value.", "tab", footer=True, priority=True),
        Action("up", "Up", "The parameter above.", "up", run="move('cursor_up')", priority=True, moves=True),
        Action("down", "Down", "The parameter below.", "down", run="move('cursor_down')", priority=True, moves=True),
        Action("cancel", "Cancel", "Send nothing.", "escape", footer=True, priority=True),
    ),
    fixed=(FixedKey("enter", "Send all requests at once."),),
)

ANSWERS = Scope(
    "answers",
    "In the answers of a fan-out",
    actions=(
        Action("choose", "Use this", "Continue the conversation with this answer.", "enter", footer=True),
        Action("base", "Base", "Compare the others with this answer.", "d", leader="d", footer=True),
        Action("inspect", "Inspect", "Inspect this prompt and answer.", "i", leader="i", footer=True),
        Action("copy", "Copy", "Copy this answer to your clipboard.", "y", leader="y", footer=True),
        Action("export", "Export", "Write all answers to a file.", "w", leader="w", footer=True),
        Action(
            "new_plan",
            "New",
            "Fan out the same message over other values.",
            "ctrl+n",
            leader="n",
            run="new_plan",
            footer=True,
        ),
        Action("leave", "Stop, back", "Stop all answers; then go back to the chat.", "escape", footer=True),
        Action("left", "Previous", "The previous answer of this kind.", "left,h", run="among(-1)", moves=True),
        Action("right", "Next", "The next answer of this kind.", "right,l", run="among(1)", moves=True),
        Action("page_up", "A page up", "Scroll the answer up.", "pageup", run="page(-1)", moves=True),
        Action("page_down", "A page down", "Scroll the answer down.", "pagedown", run="page(1)", moves=True),
    ),
)

ANSWER_ROWS = Scope(
    "answer_rows",
    "In the kinds of answers",
    within="answers",
    actions=(
        Action("up", "Above", "The kind of answer above.", "up,k", run="move('up')", moves=True),
        Action("down", "Below", "The kind of answer below.", "down,j", run="move('down')", moves=True),
    ),
)

INSPECTOR = Scope(
    "inspector",
    "In the inspector",
    actions=(
        Action("close", "Back", "Close the inspector.", "escape,q", footer=True),
        Action("next", "Next part", "The next part.", "tab,right_square_bracket", run="turn(1)", footer=True),
        Action("previous", "Previous part", "The previous part.", "shift+tab,left_square_bracket", run="turn(-1)"),
        Action("prompt", "Prompt", "The prompt as the model got it.", "1", run="show('prompt')"),
        Action("tokens", "Tokens", "Every token of the prompt with its id.", "2", run="show('tokens')"),
        Action("media", "Media", "Each image and video as it was processed.", "3", run="show('media')"),
        Action("template", "Template", "The chat template.", "4", run="show('template')"),
        Action("request", "Request", "The request and its sampling.", "5", run="show('request')"),
        Action("answer", "Answer", "The answer's tokens and their probabilities.", "6", run="show('answer')"),
        Action("copy", "Copy", "Copy this part to your clipboard.", "y", leader="y", footer=True),
        Action("save", "Save", "Save this part as a file in the current folder.", "s", leader="s", footer=True),
        Action(
            "logprobs",
            "Probabilities",
            "Repeat the request with log-probabilities.",
            "percent_sign",
            leader="percent_sign",
            footer=True,
        ),
        Action(
            "render_again",
            "Render again",
            "Render the prompt again with the loaded model.",
            "r",
            leader="r",
            run="again",
            footer=True,
        ),
        *_SEARCH,
    ),
)

TOKEN_TABLE = Scope(
    "token_table",
    "In the list of tokens",
    within="inspector",
    actions=(
        *row_moves("token", {"up": "up,k", "down": "down,j", "first": "home", "last": "end"}),
        Action("unfold", "Unfold", "Unfold an image, or fold it.", "enter,space"),
    ),
)

LOGPROB_TEXT = Scope(
    "logprob_text",
    "In the answer's tokens",
    within="inspector",
    actions=(
        Action("left", "Left", "The previous token.", "left,h", run="move(-1)", moves=True),
        Action("right", "Right", "The next token.", "right,l", run="move(1)", moves=True),
        Action("up", "Up", "The row above.", "up,k", run="row(-1)", moves=True),
        Action("down", "Down", "The row below.", "down,j", run="row(1)", moves=True),
        Action("first", "First", "The first token.", "home", run="to(0)", moves=True),
        Action("last", "Last", "The last token.", "end", run="to(-1)", moves=True),
        Action("next_unlikely", "Next unlikely", "The next unlikely token.", "n", run="unlikely(1)"),
        Action("previous_unlikely", "Previous unlikely", "The previous unlikely token.", "N", run="unlikely(-1)"),
    ),
)

IMAGE_ROOM = Scope(
    "image_room",
    "In the image room",
    actions=(
        Action("close", "Back", "Stop measuring; or go back.", "escape,q", footer=True),
        Action("file", "File", "The file as it was attached.", "1", run="show('file')"),
        Action("sent", "Sent", "The image, frames or sound as sent.", "2", run="show('sent')"),
        Action("seen", "Seen", "The image as the model's processor makes it.", "3", run="show('seen')"),
        Action("heat", "Heat", "The parts of the image that the answer depends on.", "4", run="show('heat')"),
        Action("boxes", "Boxes", "The boxes and points of the answer.", "5", run="show('boxes')"),
        Action("blind", "Blind", "The answer scored without the image.", "6", run="show('blind')"),
        Action("measure", "Measure", "Score the answer with changed images.", "r", leader="r", footer=True),
        Action("next", "Next image", "The next image of the conversation.", "n", run="turn(1)", footer=True),
        Action("previous", "Previous", "The previous image of the conversation.", "N", run="turn(-1)"),
        Action(
            "convention",
            "Convention",
            "Read the coordinates by the next convention.",
            "m",
            run="mode('convention')",
            footer=True,
        ),
        Action(
            "order", "x or y first", "Swap which number of a pair comes first.", "a", run="mode('order')", footer=True
        ),
        Action(
            "difference", "Difference", "Show what the processor changed.", "d", run="mode('difference')", footer=True
        ),
        Action("finer", "Finer", "Grey out smaller parts.", "z", run="mode('cells', 1)", footer=True),
        Action("coarser", "Coarser", "Grey out larger parts.", "Z", run="mode('cells', -1)"),
        Action("next_frame", "Next frame", "The video's next frame.", "full_stop", run="mode('frame', 1)", footer=True),
        Action("previous_frame", "Previous frame", "The video's previous frame.", "comma", run="mode('frame', -1)"),
        Action("grid", "Grid", "Show or hide the patches.", "t", footer=True),
        Action("zoom_in", "Zoom in", "Zoom in.", "plus,equals_sign", run="zoom(1)", footer=True),
        Action("zoom_out", "Zoom out", "Zoom out.", "minus", run="zoom(-1)"),
        Action("zoom_reset", "Fit", "Show the whole image.", "0", run="fit"),
        Action(
            "export",
            "Export",
            "Write the image (PNG) and its data (JSON).",
            "w",
            leader="w",
            run="exported",
            footer=True,
        ),
        Action("side", "List", "Show or hide the list beside the image.", "i", leader="i", footer=True),
        Action("token_before", "Token before", "The token or row before.", "left", run="mode('token', -1)", moves=True),
        Action("token_after", "Token after", "The token or row after.", "right", run="mode('token', 1)", moves=True),
        Action("patch_left", "Patch left", "The patch on the left.", "h", run="patch(0, -1)", moves=True),
        Action("patch_down", "Patch below", "The patch below.", "j", run="patch(1, 0)", moves=True),
        Action("patch_up", "Patch above", "The patch above.", "k", run="patch(-1, 0)", moves=True),
        Action("patch_right", "Patch right", "The patch on the right.", "l", run="patch(0, 1)", moves=True),
        Action("pan_left", "Move left", "Move left in a zoomed image.", "shift+left", run="pan(-1, 0)", moves=True),
        Action("pan_down", "Move down", "Move down in a zoomed image.", "shift+down", run="pan(0, 1)", moves=True),
        Action("pan_up", "Move up", "Move up in a zoomed image.", "shift+up", run="pan(0, -1)", moves=True),
        Action("pan_right", "Move right", "Move right in a zoomed image.", "shift+right", run="pan(1, 0)", moves=True),
    ),
    fixed=(
        FixedKey("↑ ↓", "The row above or below: a fact, a tile, a word, a box."),
        FixedKey("enter", "Measure."),
    ),
)

CONVERSATION_LIST = Scope(
    "conversation_list",
    "In the list of conversations",
    actions=(
        Action("open", "Open", "Open the highlighted conversation.", "enter", footer=True),
        Action("search", "Search", "Search all messages.", "slash", leader="slash"),
        Action("rename", "Rename", "Change the title.", "e", leader="e", footer=True),
        Action("pin", "Pin", "Pin it to the top, or unpin it.", "asterisk", leader="asterisk", footer=True),
        Action(
            "export",
            "Export",
            "Write it to a file: Markdown, a web page, or JSON with everything.",
            "w",
            leader="w",
            footer=True,
        ),
        Action("delete", "Delete", "Delete it; Undo restores it.", "delete", footer=True),
        Action("undo", "Undo", "Restore the conversation deleted last.", "u", leader="u"),
        Action("new", "New chat", "Start a new conversation.", "ctrl+n", leader="n"),
        Action("back", "Back", "Clear the search, or go back.", "escape", footer=True),
    ),
)

CONVERSATION_SEARCH = Scope(
    "conversation_search",
    "Searching conversations",
    within="conversation_list",
    types=True,
    actions=(
        Action("open", "Open", "Open the highlighted conversation.", "enter", run="submit", footer=True),
        *row_moves("conversation", {}, run="screen.move"),
    ),
)

CONVERSATION_ROWS = Scope(
    "conversation_rows",
    "In the rows of the list",
    within="conversation_list",
    actions=(*row_moves("conversation", {"first": "home", "last": "end"}),),
)

BATCH = Scope(
    "batch_results",
    "In the results of a batch",
    actions=(
        Action("open", "Inspect", "Show the item's prompt and answer in the inspector.", "enter", footer=True),
        Action("image", "Image", "Show the item's images in the image room.", "p", footer=True),
        Action(
            "next",
            "Filter",
            "Show all results, only those that failed, only wrong answers, the longest answers first.",
            "tab",
            footer=True,
        ),
        Action("back", "Back", "Go back.", "escape,q", footer=True),
    ),
)

BATCH_ROWS = Scope(
    "batch_rows",
    "In the table of results",
    within="batch_results",
    actions=(*row_moves("result", {"up": "up,k", "down": "down,j", "first": "home,g", "last": "end,G"}),),
)

MODEL_LIST = Scope(
    "model_list",
    "In the list of models",
    types=True,
    actions=(
        Action("back", "Back", "Clear the filter, or go back to the chat.", "escape", footer=True),
        Action(
            "backend",
            "Engine",
            "Choose what runs the highlighted model: vLLM, Transformers, or another version of vLLM.",
            "ctrl+g",
            footer=True,
        ),
        *row_moves("model", {"first": "ctrl+home", "last": "ctrl+end"}),
    ),
)

MODEL_FILTER = Scope(
    "model_filter",
    "Filtering models",
    within="model_list",
    types=True,
    actions=(Action("load", "Load", "Load the highlighted model.", "enter", run="submit", footer=True),),
)

LOG = Scope(
    "log",
    "The engine: metrics and log",
    actions=(
        Action("close", "Back", "Close this screen.", "escape,q", footer=True),
        Action("follow", "End", "Go to the newest line and follow.", "end,G", footer=True),
        Action("oldest", "Top", "Go to the oldest line in memory.", "home,g", footer=True),
        Action("metrics", "Metrics", "Show or hide what the engine is doing.", "M", leader="M", footer=True),
        Action("copy", "Copy", "Copy all lines to your clipboard.", "y", leader="y", footer=True),
        *_SEARCH,
    ),
)

SEARCH_BAR = Scope(
    "search_bar",
    "Searching a text",
    types=True,
    actions=(
        Action("accept", "Go", "Go to the match; n and N then go to the others.", "enter", footer=True, priority=True),
        Action("next", "Next", "The next match.", "down", footer=True, priority=True),
        Action("previous", "Previous", "The previous match.", "up", footer=True, priority=True),
        Action("close", "Close", "End the search.", "escape", footer=True, priority=True),
    ),
)

SETTINGS_FORM = Scope(
    "settings_form",
    "In the settings",
    types=True,
    actions=(
        Action("apply", "Apply", "Use these settings from now on.", "ctrl+s", leader="s", footer=True, priority=True),
        Action("cancel", "Cancel", "Change nothing.", "escape", footer=True, priority=True),
    ),
    fixed=(FixedKey("tab", "The next field."),),
)

CHOICE = Scope(
    "choice",
    "At a choice",
    actions=(Action("back", "Back", "Choose nothing.", "escape", run="refuse", footer=True),),
    fixed=(
        FixedKey("↑ ↓", "The line above or below."),
        FixedKey("enter", "Choose this line."),
    ),
)

NAME = Scope(
    "name",
    "Typing a name",
    types=True,
    actions=(Action("back", "Back", "Change nothing.", "escape", run="refuse", footer=True),),
    fixed=(FixedKey("enter", "Save the name."),),
)

HELP_SCREEN = Scope(
    "help_screen",
    "In this help",
    actions=(
        Action("close", "Close", "Close the help.", "escape,q", footer=True),
        Action("filter", "Filter", "Show only the lines that have a word.", "slash", leader="slash"),
        Action("up", "Up", "Scroll up.", "up,k", run="scroll('up')", moves=True),
        Action("down", "Down", "Scroll down.", "down,j", run="scroll('down')", moves=True),
        Action("page_up", "A page up", "A page up.", "pageup", run="scroll('page_up')", moves=True),
        Action("page_down", "A page down", "A page down.", "pagedown,space", run="scroll('page_down')", moves=True),
        Action("home", "First", "To the top.", "home,g", run="scroll('home')", moves=True),
        Action("end", "Last", "To the end.", "end,G", run="scroll('end')", moves=True),
    ),
)

LEADER_SCREEN = Scope(
    "leader_screen",
    "After the leader",
    actions=(Action("close", "Close", "Do nothing.", "escape"),),
    fixed=(FixedKey("a key", "Run the action shown for the key."),),
)
