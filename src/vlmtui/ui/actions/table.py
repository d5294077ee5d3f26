"""All scopes, and what is derived from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vlmtui.ui.actions.action import Action, Scope
from vlmtui.ui.actions.app import APP
from vlmtui.ui.actions.attachments import BROWSER, FRAME_PICKER, VIEWER
from vlmtui.ui.actions.batch import BATCH, BATCH_ROWS
from vlmtui.ui.actions.chat import CHAT
from vlmtui.ui.actions.compare import ANSWER_TILE, ANSWERS, COMPARISON, FAN_FORM, STORED_COMPARISON
from vlmtui.ui.actions.composer import COMPOSER, MESSAGE_CURSOR
from vlmtui.ui.actions.conversations import (
    CONVERSATION_LIST,
    CONVERSATION_ROWS,
    CONVERSATION_SEARCH,
    CONVERSATION_TITLE,
)
from vlmtui.ui.actions.dialogs import CHOICE, CONFIRM, HELP_SCREEN, LEADER_SCREEN, NAME, SETTINGS_FORM
from vlmtui.ui.actions.document import SEARCH_BAR
from vlmtui.ui.actions.editor import EDITOR
from vlmtui.ui.actions.inspector import INSPECTOR, LINT, LOGPROB_TEXT, TOKEN_TABLE
from vlmtui.ui.actions.models import BEFORE_LOAD, LOADING, LOG, MODEL_FILTER, MODEL_LIST
from vlmtui.ui.actions.seeing import MODEL_VIEW, OCCLUSION, PLACES

if TYPE_CHECKING:
    from textual.binding import BindingType

_ALL: tuple[Scope, ...] = (
    CHAT,
    COMPOSER,
    MESSAGE_CURSOR,
    EDITOR,
    APP,
    BROWSER,
    VIEWER,
    FRAME_PICKER,
    COMPARISON,
    STORED_COMPARISON,
    FAN_FORM,
    ANSWERS,
    ANSWER_TILE,
    INSPECTOR,
    TOKEN_TABLE,
    LOGPROB_TEXT,
    LINT,
    PLACES,
    MODEL_VIEW,
    OCCLUSION,
    CONVERSATION_LIST,
    CONVERSATION_SEARCH,
    CONVERSATION_TITLE,
    CONVERSATION_ROWS,
    BATCH,
    BATCH_ROWS,
    MODEL_LIST,
    MODEL_FILTER,
    BEFORE_LOAD,
    LOADING,
    LOG,
    SEARCH_BAR,
    SETTINGS_FORM,
    CONFIRM,
    CHOICE,
    NAME,
    HELP_SCREEN,
    LEADER_SCREEN,
)

SCOPES: dict[str, Scope] = {scope.name: scope for scope in _ALL}
"""Every screen and widget that has actions, by name."""
ACTIONS: dict[str, Action] = {action.id: action for scope in _ALL for action in scope.actions}
"""Every action once, by id."""


def bindings(scope: str) -> list[BindingType]:
    """Return the `BINDINGS` of the scope's screen or widget."""
    found = SCOPES[scope]
    return [action.binding(command=f"run('{action.id}')" if found.by_id else "") for action in found.actions]


def line_bindings() -> list[BindingType]:
    """Return the editor's bindings for a text field of one line."""
    names = ("kill_line_end", "kill_line_start", "kill_word_left", "kill_word_right", "yank")
    return [ACTIONS[f"editor.{name}"].binding() for name in names]
