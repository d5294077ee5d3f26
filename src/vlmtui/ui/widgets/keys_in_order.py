"""Keys that act in the order they are pressed, however fast they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events

if TYPE_CHECKING:
    from textual.widget import Widget
else:
    # A second widget among the bases would hide the styles of the first.
    Widget = object


class KeysInOrder(Widget):
    """To be named before the widget that is written in.

    Textual asks a widget's bindings only when their key has gone all the way up to the app. When several keys come at
    once, as they do over a slow connection, letters that follow a cursor key would be written before the cursor moves.
    """

    async def _on_key(self, event: events.Key) -> None:
        # Textual calls the handlers of the classes below after this one, unless their default is prevented.
        if event.is_printable:
            return
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if not binding.priority and await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
