"""Actions while a model is chosen and loaded."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope
from vlmtui.ui.actions.document import search_actions

MODEL_LIST = Scope(
    "model_list",
    "In the list of models",
    types=True,
    actions=(
        Action(
            "model_list.back", "Back", "Clear the filter, or go back to the chat.", "escape", verb="back", footer=True
        ),
        Action(
            "model_list.backend",
            "Engine",
            "Choose what runs the highlighted model: vLLM, Transformers, or another version of vLLM.",
            "ctrl+g",
            footer=True,
        ),
        Action("model_list.up", "Up", "The model above.", "up", run="move('up')", moves=True),
        Action("model_list.down", "Down", "The model below.", "down", run="move('down')", moves=True),
        Action("model_list.page_up", "A page up", "A page up.", "pageup", run="move('page_up')", moves=True),
        Action("model_list.page_down", "A page down", "A page down.", "pagedown", run="move('page_down')", moves=True),
        Action("model_list.first", "First", "The first model.", "ctrl+home", run="move('first')", moves=True),
        Action("model_list.last", "Last", "The last model.", "ctrl+end", run="move('last')", moves=True),
    ),
)

MODEL_FILTER = Scope(
    "model_filter",
    "Filtering models",
    within="model_list",
    types=True,
    actions=(Action("model_filter.load", "Load", "Load the highlighted model.", "enter", run="submit", footer=True),),
)

LOADING = Scope(
    "loading",
    "While a model loads",
    actions=(
        Action("loading.retry", "Retry", "Load the same model again.", "r", leader="r", verb="run", footer=True),
        Action(
            "loading.former",
            "Previous model",
            "Go back to the model loaded before.",
            "o",
            leader="B",
            footer=True,
        ),
        Action(
            "loading.abort",
            "Abort",
            "Stop loading and go back to the previous model or the list.",
            "escape",
            verb="back",
            footer=True,
        ),
        Action("loading.back", "Back", "Go back to the models.", "escape", footer=True),
        Action(
            "loading.log",
            "Full log",
            "Show the log on the whole screen, or only part of it.",
            leader="z",
            run="full_log",
            footer=True,
        ),
    ),
)

LOG = Scope(
    "log",
    "The engine: metrics and log",
    actions=(
        Action("log.close", "Back", "Close this screen.", "escape,q", verb="back", footer=True),
        Action("log.follow", "End", "Go to the newest line and follow.", "end,G", verb="last", footer=True),
        Action("log.oldest", "Top", "Go to the oldest line in memory.", "home,g", verb="first", footer=True),
        Action("log.metrics", "Metrics", "Show or hide what the engine is doing.", "M", leader="M", footer=True),
        Action("log.copy", "Copy", "Copy all lines to your clipboard.", "y", leader="y", footer=True),
        *search_actions("log"),
    ),
)

BEFORE_LOAD = Scope(
    "before_load",
    "Before a model is loaded",
    modal=True,
    actions=(Action("before_load.back", "Back", "Load nothing.", "escape", verb="back", footer=True),),
    fixed=(
        FixedKey("↑ ↓", "The option above or below."),
        FixedKey("enter", "Choose this option."),
    ),
)
