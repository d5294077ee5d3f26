"""The footer: a line with keys at the bottom of a screen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import msgspec
from textual import events
from textual.content import Content
from textual.geometry import Region
from textual.reactive import var
from textual.screen import Screen
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from vlmtui.ui.actions import ACTIONS, SCOPES, UNBOUND
from vlmtui.ui.keys import LEADER, default_keys, key_bindings, lacking_of, leader_entries, prefers_leader, spell_path

_AROUND_KEY = 2
"""Blank cells around a key."""
_AROUND_TEXT = 1
"""Blank cells after a key's description."""
_RANKS = {id: number for number, id in enumerate(ACTIONS)}
"""The order of the other actions, which does not depend on the focus."""


class FooterItem(msgspec.Struct, frozen=True):
    """A key and its description."""

    id: str
    key: str
    """The key as Textual names it; a click presses it."""
    shown: str
    title: str
    tooltip: str = ""
    enabled: bool = True
    lacks: bool = False
    """True if the engine lacks a capability for the action: the item is dim, and a click says why."""
    is_led: bool = False
    """True if `key` is pressed after the leader key."""

    @property
    def width(self) -> int:
        return len(self.shown) + _AROUND_KEY + (len(self.title) + _AROUND_TEXT if self.title else 0)


class FooterBar(Widget):
    """The footer. A click on an item presses its key.

    Shows each action with the first of its `ways`; the leader key stands once, before the leader keys. If not all items
    fit, these have priority, in this order: the leader key and Help; actions that stop or leave; keys of the focused
    widget; other actions with a key; leader keys in the screen's `footer_leads`; other leader keys. One widget draws
    all items: a widget for each would take longer than the rest of the screen.
    """

    ALLOW_SELECT = False
    DEFAULT_CSS = """
    FooterBar {
        dock: bottom; height: 1; background: $footer-background; text-wrap: nowrap; text-overflow: clip;
    }
    """
    _hovered: var[FooterItem | None] = var(None)

    def __init__(self) -> None:
        super().__init__()
        self.items: list[FooterItem] = []
        """The visible items, from left to right."""
        self._is_ready = False
        """True once the screen's bindings are known."""
        self._is_due = False
        """True if an update of the items is scheduled."""

    def on_mount(self) -> None:
        self.screen.bindings_updated_signal.subscribe(self, self._bindings_changed)

    def on_unmount(self) -> None:
        self.screen.bindings_updated_signal.unsubscribe(self)

    def on_resize(self) -> None:
        self._update_items()

    def render_line(self, y: int) -> Strip:
        style, room = self.visual_style, self.content_size.width
        runs = [
            Content("").join(map(self._drawn, run)) for _, run in groupby(self.items, lambda item: bool(item.title))
        ]
        widths = [run.cell_length for run in runs]
        widths[-1:] = [max(0, room - sum(widths[:-1]))]  # the last run fills the line
        drawn = zip(runs or [Content()], widths, strict=True)
        # Right after a terminal has become narrower, the items are still those for the old width.
        strips = (Visual.to_strips(self, run, width, 1, style)[0] for run, width in drawn if width)
        return Strip.join(strips).crop(0, room)

    def _drawn(self, item: FooterItem) -> Content:
        drawn = _drawn(item)
        return drawn.stylize_before("on $block-hover-background") if item == self._hovered else drawn

    def placed(self) -> list[tuple[FooterItem, Region]]:
        """Return each item, and where it is on the screen."""
        found, x = [], self.content_region.x
        for item in self.items:
            width = _drawn(item).cell_length
            found.append((item, Region(x, self.content_region.y, width, 1)))
            x += width
        return found

    async def on_mouse_down(self, event: events.MouseDown) -> None:
        item = self._item_at(event)
        if item is None:
            return
        if not item.enabled:
            self.app.bell()
        elif item.is_led:
            entry = leader_entries(self.screen).get(item.key)
            if entry is not None:
                await self.app.run_action(entry.command, entry.node)
        else:
            self.app.simulate_key(item.key)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        self._hovered = self._item_at(event)

    def on_leave(self) -> None:
        self._hovered = None

    def watch__hovered(self, item: FooterItem | None) -> None:
        self.tooltip = item.tooltip or None if item is not None else None
        self.styles.pointer = "default" if item is None else "pointer"
        self.refresh()

    def _item_at(self, event: events.MouseEvent) -> FooterItem | None:
        return next((item for item, region in self.placed() if region.contains(*event.screen_offset)), None)

    def _bindings_changed(self, screen: Screen[object]) -> None:
        self._is_ready = True
        if screen.app.app_focus and self.is_attached and screen is self.screen and not self._is_due:
            self._is_due = self.call_later(self._update_items)

    def _update_items(self) -> None:
        """Choose the items again, and repaint if they have changed. Textual reports changed bindings after every key,
        even if they are the same."""
        self._is_due = False
        # Without a size, the first resize calls this again; not attached: the screen was closed meanwhile.
        if not self.is_attached or not self._is_ready or not self.size:
            return
        if (items := self._items()) != self.items:
            self.items = items
            self.refresh()

    def _items(self) -> list[FooterItem]:
        keyed = self._items_with_keys()
        led = self._leader_items(keyed)
        leader = [msgspec.structs.replace(item, title="") for item in keyed if led and item.id == LEADER]
        own_ids = self._own_ids()
        first = sorted(
            [item for item in keyed if item.id != LEADER],
            key=lambda item: (item.id not in own_ids, _RANKS.get(item.id, len(_RANKS))),
        )
        last = [item for item in (*first, *led) if item.id == "help"]
        urgent = [item for item in first if _leaves(item)]
        own = [item for item in first if item.id in own_ids]
        named = [item for item in led if item.id in self._footer_leads()]
        order = dict.fromkeys(item.id for item in (*leader, *last, *urgent, *own, *first, *named, *led))
        every = {item.id: item for item in (*first, *leader, *led)}
        fits = _fitting([every[id] for id in order], self.content_size.width)
        return sorted([item for item in every.values() if item in fits], key=lambda item: item.id == "help")

    def _own_ids(self) -> set[str]:
        """Return the ids of the focused widget's actions, unless it is a text field."""
        scope = SCOPES.get(getattr(self.screen.focused, "SCOPE", ""))
        return {action.id for action in scope.actions} if scope and not scope.types else set()

    def _items_with_keys(self) -> list[FooterItem]:
        """Return the items of actions whose own key works now and comes before their leader key."""
        found: dict[str, FooterItem] = {}
        for _, binding, enabled, tooltip in self.screen.active_bindings.values():
            id = binding.id or ""
            is_meant = binding.show or (id in self._footer_leads() and key_bindings(self.app).is_chosen(id))
            if not is_meant or binding.key == UNBOUND or binding.action in found:
                continue
            if id in ACTIONS and prefers_leader(self.app, ACTIONS[id]):
                continue
            shown = self.app.get_key_display(binding)
            found[binding.action] = FooterItem(
                binding.id or binding.action, binding.key, shown, binding.description, tooltip, enabled
            )
        return [self._dimmed(item) for item in found.values()]

    def _dimmed(self, item: FooterItem) -> FooterItem:
        """Return the item. If the engine lacks what its action needs, the item is dim, and its tooltip says why."""
        why = lacking_of(self.screen, ACTIONS[item.id]) if item.id in ACTIONS else ""
        return msgspec.structs.replace(item, lacks=True, tooltip=why) if why else item

    def _footer_leads(self) -> tuple[str, ...]:
        """Return the ids of actions that the footer of this screen shows with their leader keys."""
        scope = SCOPES.get(getattr(self.screen, "SCOPE", ""))
        return scope.footer_leads if scope else ()

    def _leader_items(self, items: list[FooterItem]) -> list[FooterItem]:
        """Return the items of leader keys: for actions in the screen's `footer_leads`, and for footer actions that have
        no item in `items`."""
        leaders = key_bindings(self.app).of(LEADER)
        if not leaders:
            return []
        named = self._footer_leads()
        hidden = getattr(self.screen, "not_in_footer", ())
        keyed = {item.id for item in items}
        meant = {ACTIONS[id].name for id in keyed & self._own_ids()}
        found = [
            FooterItem(entry.action.id, key, spell_path(key), entry.action.title, entry.action.help, is_led=True)
            for key, entry in leader_entries(self.screen).items()
            if (entry.action.id in named or entry.action.footer)
            and entry.action.id not in keyed
            and entry.action.name not in meant
        ]
        order = [*named, *ACTIONS]
        shown = [self._dimmed(item) for item in found if item.id not in hidden]
        return sorted(shown, key=lambda item: order.index(item.id))


def _leaves(item: FooterItem) -> bool:
    return item.id in ACTIONS and "escape" in default_keys(item.id)


def _fitting(items: Sequence[FooterItem], room: int) -> list[FooterItem]:
    """Return the items that fit into `room` cells; earlier ones have priority."""
    found: list[FooterItem] = []
    for item in items:
        if item.width <= room:
            found.append(item)
            room -= item.width
    return found


def _drawn(item: FooterItem) -> Content:
    """Return an item as styled text: ` Ctrl+X Title `; without a title, only the key."""
    key = f" {item.shown} " if item.title else item.shown
    text = Content.styled(key, "bold $footer-key-foreground")
    if item.title:
        text += Content.styled(f"{item.title} ", "$footer-description-foreground")
    return text if item.enabled and not item.lacks else text.stylize("dim")
