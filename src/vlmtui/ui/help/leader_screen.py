"""The strip of keys that work after the leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual import events, on
from textual.app import App, ComposeResult
from textual.content import Content
from textual.screen import ModalScreen, SystemModalScreen
from textual.widgets import Static

from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import LEADER, hint, key_bindings, key_of, spell_key
from vlmtui.ui.leader import LeaderEntry, leader_entries

_GAP = 3
_GROUPS = ("Message", "Look closer", "Attachments", "Chats and models")
"""Headings that come first; then those of the screen, and the app's last."""

Lines = list[Content]


class LeaderScreen(ModalScreen[LeaderEntry | None]):
    """Returns the entry of the pressed key; Escape returns None, and an unused key shows a note."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    LeaderScreen {
        align: left bottom;
        background: $background 0%;
        & > #strip {
            width: 100%;
            height: auto;
            max-height: 100%;
            padding: 0 2;
            background: $panel;
            border-top: solid $accent;
        }
    }
    """
    SCOPE = "leader_screen"
    BINDINGS = bindings(SCOPE)

    def __init__(self, entries: Mapping[str, LeaderEntry]) -> None:
        super().__init__()
        self._entries = entries
        self._said = ""

    def compose(self) -> ComposeResult:
        yield Static(id="strip", markup=False)

    @on(events.Resize)
    def _show(self) -> None:
        close = f" then a key · {hint(self.app, 'leader_screen.close')}"
        said = Content.styled(f"   {self._said}", "$text-warning") if self._said else Content()
        title = Content.assemble((key_of(self.app, LEADER), "bold $accent"), close, said)
        width = (self.query_one("#strip").content_size.width or self.app.size.width) - 1
        self.query_one("#strip", Static).update(Content("\n").join([title, *_columns(self._blocks(), width)]))

    async def on_key(self, event: events.Key) -> None:
        keys = key_bindings(self.app)
        if event.key in (*keys.of("leader_screen.close"), *keys.of("interrupt")):
            return
        event.stop()
        event.prevent_default()
        entry = self._entries.get(event.key)
        if entry is not None:
            self.dismiss(entry)
        else:
            self._said = f"{spell_key(event.key)} does nothing here."
            self._show()

    def action_close(self) -> None:
        self.dismiss(None)

    def _blocks(self) -> list[Lines]:
        """Return for each group its heading and keys."""
        groups: dict[str, list[LeaderEntry]] = {group: [] for group in _GROUPS}
        for entry in self._entries.values():
            groups.setdefault(entry.group, []).append(entry)
        last = groups.pop("App", [])
        groups["App"] = last
        return [_block(group, entries) for group, entries in groups.items() if entries]


def show_leader(app: App[Any]) -> None:
    """Show the strip for the app's screen and run the chosen action; if it is shown already, close it."""
    screen = app.screen

    async def run(entry: LeaderEntry | None) -> None:
        if entry is not None and entry.node.is_attached:
            await app.run_action(entry.command, entry.node)

    if isinstance(screen, LeaderScreen):
        screen.dismiss()
    elif not isinstance(screen, SystemModalScreen):
        app.push_screen(LeaderScreen(leader_entries(screen)), run)


def _block(group: str, entries: Sequence[LeaderEntry]) -> Lines:
    keys = [spell_key(entry.action.leader) for entry in entries]
    width = max(map(len, keys))
    rows = (
        Content.assemble((key.rjust(width), "bold $accent"), " ", (entry.action.title, "dim" if entry.lacking else ""))
        for key, entry in zip(keys, entries, strict=True)
    )
    return [Content.styled(group, "$muted"), *rows]


def _columns(blocks: Sequence[Lines], width: int) -> Lines:
    """Arrange the blocks in columns, each in the shortest one, in order if equal."""
    if not blocks:
        return []
    widest = max(line.cell_length for block in blocks for line in block) + _GAP
    columns: list[Lines] = [[] for _ in range(max(1, min(len(blocks), width // widest)))]
    for block in blocks:
        shortest = min(columns, key=len)
        shortest += block
    rows = max(map(len, columns))
    cells = [[column[at] if at < len(column) else Content() for column in columns] for at in range(rows)]
    return [Content.assemble(*(cell.pad_right(widest - cell.cell_length) for cell in row)) for row in cells]
