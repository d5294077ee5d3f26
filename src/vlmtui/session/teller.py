"""The protocol by which a session tells its user something, on a screen or in lines."""

from __future__ import annotations

from typing import Literal, Protocol

from vlmtui.errors import Remedy, VlmtuiError

Severity = Literal["information", "warning", "error"]


class Teller(Protocol):
    """Implemented by the app, the chat screen, and plain mode."""

    def tell(
        self, text: str, remedy: Remedy | None = None, *, seconds: float = 4.0, severity: Severity = "information"
    ) -> None:
        """Tell something, with the way to remedy it. A screen shows it for `seconds`."""

    def tell_error(self, error: VlmtuiError) -> None:
        """Tell an error, with its remedy."""
