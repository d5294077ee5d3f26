"""A second, simple account of what the store must hold, and what it does hold in the same form."""

from __future__ import annotations

from dataclasses import dataclass, field

from vlmtui.store.store import Store

State = tuple[object, ...]
"""All conversations without their ids, comparable."""


@dataclass
class ShadowTurn:
    parent: int | None
    role: str
    text: str
    state: str = "complete"
    tokens: int = 0
    left_out: bool = False
    comparisons: list[str] = field(default_factory=list)
    child: int | None = None
    """Of the branch that is shown."""


@dataclass
class ShadowConversation:
    title: str
    model: str = ""
    is_pinned: bool = False
    is_deleted: bool = False
    draft: str = ""
    turns: dict[int, ShadowTurn] = field(default_factory=dict)
    root: int | None = None

    def leaf(self) -> int | None:
        at = self.root
        while at is not None and (below := self.turns[at].child) is not None:
            at = below
        return at

    def show(self, turn: int) -> None:
        """Make the branch through a turn the shown one."""
        while (parent := self.turns[turn].parent) is not None:
            self.turns[parent].child = turn
            turn = parent
        self.root = turn


@dataclass
class Shadow:
    conversations: dict[int, ShadowConversation] = field(default_factory=dict)

    def state(self) -> State:
        return tuple(sorted((_conversation(one) for one in self.conversations.values()), key=repr))


def _conversation(one: ShadowConversation) -> State:
    place = {key: number for number, key in enumerate(one.turns)}
    turns = tuple(
        (
            None if turn.parent is None else place[turn.parent],
            turn.role,
            turn.text,
            turn.state,
            turn.tokens,
            turn.left_out,
            tuple(turn.comparisons),
        )
        for turn in one.turns.values()
    )
    leaf = one.leaf()
    shown = None if leaf is None else place[leaf]
    return (one.title, one.model, one.is_pinned, one.is_deleted, one.draft, turns, shown)


def observed(store: Store) -> State:
    """Return what the store holds. Raises VlmtuiError."""
    listed = [entry.conversation for entry in store.conversations(limit=10_000)]
    found: list[State] = []
    for one in (*listed, *store.deleted()):
        tree = store.tree(one.id)
        place = {turn.id: number for number, turn in enumerate(tree)}
        turns = tuple(
            (
                None if turn.parent is None else place.get(turn.parent, -1),
                turn.role,
                turn.text,
                turn.state,
                turn.tokens,
                turn.left_out,
                tuple(str(stored.document) for stored in store.comparisons(turn.id)),
            )
            for turn in tree
        )
        shown = None if one.leaf is None else place.get(one.leaf, -1)
        is_deleted = one.deleted_ms is not None
        found.append((one.title, one.model, one.pinned, is_deleted, store.draft(one.id).text, turns, shown))
    return tuple(sorted(found, key=repr))


def turn_texts(state: State) -> set[object]:
    """Return the texts of all turns."""
    return {turn[2] for conversation in state for turn in conversation[5]}  # type: ignore[index]
