"""Actions on every screen."""

from __future__ import annotations

from vlmtui.ui.actions.action import Action, Scope

_CHATS, _APP = "Chats and models", "App"

APP = Scope(
    "app",
    "Everywhere",
    actions=(
        Action(
            "leader",
            "More",
            "Show the keys that work here after the leader.",
            "ctrl+x",
            footer=True,
            priority=True,
            system=True,
        ),
        Action("models", "Models", "Pick another model.", "f3", leader="m", group=_CHATS, slash="/model"),
        Action(
            "engine",
            "Engine",
            "Use another engine: one of config.toml, an address, or one that is loaded. The present one stays loaded "
            "where that costs no memory.",
            slash="/engine",
            argument="NAME",
        ),
        Action(
            "conversations",
            "Chats",
            "Search, open, rename or delete conversations.",
            "ctrl+l",
            leader="l",
            group=_CHATS,
            slash="/conversations",
        ),
        Action(
            "batch",
            "Batch",
            "The results of `vlmtui batch` in FILE (answers.jsonl).",
            slash="/batch",
            argument="FILE",
        ),
        Action("undelete", "Undelete", "Restore the conversation deleted last.", slash="/undelete"),
        Action(
            "show_log",
            "Engine",
            "What the engine is doing: requests, caches, speed and times; and its own log, live.",
            "f4",
            leader="g",
            group=_APP,
            slash="/log",
        ),
        Action(
            "restart_engine", "Restart engine", "Load the model again.", "f5", leader="R", group=_APP, slash="/restart"
        ),
        Action("cleanup", "Clean up", "Stop your workers that are no longer usable.", slash="/cleanup"),
        Action(
            "help",
            "Help",
            "Every key and command.",
            "f1",
            leader="question_mark",
            group=_APP,
            slash="/help",
            footer=True,
            priority=True,
        ),
        Action("command_palette", "Commands", "Search every command.", "ctrl+p", footer=True),
        Action(
            "quit",
            "Quit",
            "Quit; a loaded model stays for its keep-alive time.",
            "ctrl+q",
            leader="q",
            group=_APP,
            slash="/quit",
            priority=True,
        ),
        Action(
            "interrupt",
            "Copy or stop",
            "Copy, stop the answer, or show how to quit; pressed twice, quit.",
            "ctrl+c",
            run="help_quit",
            system=True,
        ),
    ),
)
