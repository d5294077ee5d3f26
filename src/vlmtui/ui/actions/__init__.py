"""The one table of what a user can do: keys, footer, palette, slash commands and help all come from it."""

from vlmtui.ui.actions.action import UNBOUND, Action, ActionMethods, FixedKey, HasActions, Scope
from vlmtui.ui.actions.table import ACTIONS, SCOPES, bindings

__all__ = ["ACTIONS", "SCOPES", "UNBOUND", "Action", "ActionMethods", "FixedKey", "HasActions", "Scope", "bindings"]
