"""Actions in small dialogs."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, FixedKey, Scope

SETTINGS_FORM = Scope(
    "settings_form",
    "In the settings",
    modal=True,
    types=True,
    actions=(
        Action(
            "settings_form.apply",
            "Apply",
            "Use these settings from now on.",
            "ctrl+s",
            leader="s",
            verb="save",
            footer=True,
            priority=True,
        ),
        Action("settings_form.cancel", "Cancel", "Change nothing.", "escape", verb="back", footer=True, priority=True),
    ),
    fixed=(FixedKey("tab", "The next field."),),
)

CONFIRM = Scope(
    "confirm",
    "At a question",
    modal=True,
    actions=(Action("confirm.no", "No", "Change nothing.", "escape", verb="back", run="refuse", footer=True),),
    fixed=(
        FixedKey("↑ ↓", "The other answer."),
        FixedKey("enter", "Give this answer."),
    ),
)

CHOICE = Scope(
    "choice",
    "At a choice",
    modal=True,
    actions=(Action("choice.back", "Back", "Choose nothing.", "escape", run="refuse", footer=True),),
    fixed=(
        FixedKey("↑ ↓", "The line above or below."),
        FixedKey("enter", "Choose this line."),
    ),
)

NAME = Scope(
    "name",
    "Typing a name",
    modal=True,
    types=True,
    actions=(Action("name.back", "Back", "Change nothing.", "escape", run="refuse", footer=True),),
    fixed=(FixedKey("enter", "Save the name."),),
)

HELP_SCREEN = Scope(
    "help_screen",
    "In this help",
    modal=True,
    actions=(
        Action("help_screen.close", "Close", "Close the help.", "escape,q", verb="back", footer=True),
        Action(
            "help_screen.filter",
            "Filter",
            "Show only the lines that have a word.",
            "slash,ctrl+f",
            leader="slash",
            verb="search",
        ),
        Action("help_screen.up", "Up", "Scroll up.", "up,k", run="scroll('up')", moves=True),
        Action("help_screen.down", "Down", "Scroll down.", "down,j", run="scroll('down')", moves=True),
        Action("help_screen.page_up", "A page up", "A page up.", "pageup", run="scroll('page_up')", moves=True),
        Action(
            "help_screen.page_down",
            "A page down",
            "A page down.",
            "pagedown,space",
            run="scroll('page_down')",
            moves=True,
        ),
        Action("help_screen.home", "First", "To the top.", "home,g", verb="first", run="scroll('home')", moves=True),
        Action("help_screen.end", "Last", "To the end.", "end,G", verb="last", run="scroll('end')", moves=True),
    ),
)

LEADER_SCREEN = Scope(
    "leader_screen",
    "After the leader",
    modal=True,
    actions=(Action("leader_screen.close", "Close", "Do nothing.", "escape", verb="back"),),
    fixed=(FixedKey("a key", "Run the action shown for the key."),),
)
