"""The protocol by which objects that are not widgets use their screen or the app."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

from vlmtui.errors import Remedy, VlmtuiError

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel

Steps = Callable[[], Coroutine[None, None, None]]


class View(Protocol):
    """Implemented by the chat screen and the app."""

    def tell(
        self,
        text: str,
        remedy: Remedy | None = None,
        *,
        seconds: float = 4.0,
        severity: SeverityLevel = "information",
    ) -> None:
        """Show a notification for `seconds`, with the key that remedies it."""

    def tell_error(self, error: VlmtuiError) -> None:
        """Show an error as a notification, with its remedy."""

    def start(self, steps: Steps, group: str, *, exclusive: bool = False) -> None:
        """Run `steps` in the background until the view ends. `exclusive` cancels other steps of the group."""

    def start_dialog(self, steps: Steps) -> None:
        """As `start`, for steps that show a screen: further keys wait until it is shown."""
