"""The line of keys at the bottom of a screen."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from vlmtui.ui.actions import UNBOUND


class FooterBar(Footer):
    """Textual's footer, but made anew only when what it says is another: every key that is written asks for it."""

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._said: object = None

    def compose(self) -> ComposeResult:
        """All but the actions that the user has left without a key.

        Textual's own footer binds each key to its `compact`, which computes the key's styles once more.
        """
        if not self._bindings_ready:
            return
        said: set[str] = set()
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            if not binding.show or binding.key == UNBOUND or binding.action in said:
                continue
            said.add(binding.action)
            key = FooterKey(
                binding.key,
                self.app.get_key_display(binding),
                binding.description,
                binding.action,
                disabled=not enabled,
                tooltip=tooltip,
            )
            key.set_reactive(FooterKey.compact, False)
            yield key

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
