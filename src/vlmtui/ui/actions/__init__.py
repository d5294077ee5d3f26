"""The table of all user actions: keys, footer, command palette, slash commands and help come from it."""

from vlmtui.ui.actions.action import SUBMENUS, UNBOUND, Action, FixedKey, Scope, method_of
from vlmtui.ui.actions.table import ACTIONS, SCOPES, bindings, line_bindings

__all__ = [
    "ACTIONS",
    "SCOPES",
    "SUBMENUS",
    "UNBOUND",
    "Action",
    "FixedKey",
    "Scope",
    "bindings",
    "line_bindings",
    "method_of",
]
