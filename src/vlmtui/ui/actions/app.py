"""What can be done on every screen."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, Scope

APP = Scope(
    "app",
    "Everywhere",
    actions=(
        Action("models", "Models", "Pick another model.", "f3", slash="/model"),
        Action(
            "conversations",
            "Conversations",
            "Search, open, rename or delete what was said.",
            "ctrl+l",
            slash="/conversations",
        ),
        Action("undelete", "Undelete", "Bring back the conversation that was deleted last.", slash="/undelete"),
        Action("show_log", "Engine log", "The engine's own log, live.", "f4", slash="/log"),
        Action("cleanup", "Clean up", "End workers of yours that cannot be used any more.", slash="/cleanup"),
        Action("help", "Help", "Every key and command.", "f1", slash="/help", footer=True, priority=True),
        Action("command_palette", "Commands", "Search every command.", "ctrl+p", footer=True),
        Action(
            "quit",
            "Quit",
            "Leave; a loaded model stays for its keep-alive time.",
            "ctrl+q",
            slash="/quit",
            footer=True,
            priority=True,
        ),
        Action(
            "interrupt",
            "Copy or stop",
            "Copy, stop the answer, or say how to leave; pressed twice, leave.",
            "ctrl+c",
            run="help_quit",
            system=True,
        ),
    ),
)
