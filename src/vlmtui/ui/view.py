"""The protocol by which an object that is no widget uses its screen, or the app."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Protocol

from vlmtui.errors import Remedy, VlmtuiError

if TYPE_CHECKING:
    from textual.notifications import SeverityLevel

Steps = Callable[[], Coroutine[None, None, None]]


class View(Protocol):
    """The chat screen and the app are one."""

    def tell(
        self,
        text: str,
        remedy: Remedy | None = None,
        *,
        seconds: float = 4.0,
        severity: SeverityLevel = "information",
    ) -> None:
        """Show a text for a while, and the key that does something about it."""

    def tell_error(self, error: VlmtuiError) -> None:
        """Show what went wrong and what to do."""

    def start(self, steps: Steps, group: str, *, exclusive: bool = False) -> None:
        """Run `steps` beside everything else; they end with the view. `exclusive` ends the others of the group."""

    def start_dialog(self, steps: Steps) -> None:
        """The same for steps that show a screen: the next keys wait until it is there."""
