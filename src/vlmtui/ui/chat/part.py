"""The base class of the chat screen's parts, and decorators for their actions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from vlmtui.ui.chat.screen import ChatScreen

_Part = TypeVar("_Part", bound="ChatPart")
_Given = ParamSpec("_Given")
_Steps = Callable[Concatenate[_Part, _Given], Coroutine[None, None, None]]
_Action = Callable[Concatenate[_Part, _Given], None]


class ChatPart:
    """A part of the chat screen. A method `action_ID` runs the action with this id in the table of actions
    (`ui/actions`).

    If an action, or work that it starts, raises VlmtuiError, the user is notified.
    """

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._app = screen.main_app
        self._chat = screen.chat
        self._engines = screen.engines


def dialog(steps: _Steps[_Part, _Given]) -> _Action[_Part, _Given]:
    """Decorate an async action that may open another screen: keys typed ahead wait until it is open."""

    @wraps(steps)
    def run(part: _Part, /, *given: _Given.args, **named: _Given.kwargs) -> None:
        part._screen.start_dialog(partial(steps, part, *given, **named))

    return run


def background(group: str) -> Callable[[_Steps[_Part, _Given]], _Action[_Part, _Given]]:
    """Decorate an async action that runs in the background, beside all others, until the screen closes."""

    def decorate(steps: _Steps[_Part, _Given]) -> _Action[_Part, _Given]:
        @wraps(steps)
        def run(part: _Part, /, *given: _Given.args, **named: _Given.kwargs) -> None:
            part._screen.start(partial(steps, part, *given, **named), group)

        return run

    return decorate
