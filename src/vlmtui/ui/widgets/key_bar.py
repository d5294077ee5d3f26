"""The line of keys at the bottom of a screen."""

from __future__ import annotations

from textual.screen import Screen
from textual.widgets import Footer


class KeyBar(Footer):
    """Textual's footer, but made anew only when what it says is another: every key that is written asks for it."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._said: object = None

    def bindings_changed(self, screen: Screen[object]) -> None:
        self._bindings_ready = True
        if screen.app.app_focus and self.is_attached and screen is self.screen:
            self.call_after_refresh(self._say)

    async def _say(self) -> None:
        if not self.is_attached or self._pruning:  # the screen has been left since
            return
        says = [
            (binding.action, self.app.get_key_display(binding), binding.description, enabled, tooltip)
            for _, binding, enabled, tooltip in self.screen.active_bindings.values()
            if binding.show
        ]
        if says != self._said:
            self._said = says
            await self.recompose()
