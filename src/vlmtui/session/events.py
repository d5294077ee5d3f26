"""The events of a conversation, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from vlmtui.session.exchange import Exchange


class RequestSent(msgspec.Struct, frozen=True):
    """The turn is stored, where that is possible, and its request goes out now."""

    exchange: Exchange


class AnswerReplaced(msgspec.Struct, frozen=True):
    """The exchange shows another answer than before, which may still be coming."""

    exchange: Exchange


class AnswerEnded(msgspec.Struct, frozen=True):
    """The exchange's answer has its outcome."""

    exchange: Exchange


class AttachmentsLeftOut(msgspec.Struct, frozen=True):
    """The exchange's attachments are left out of prompts from now on, or are sent again."""

    exchange: Exchange


ConversationEvent = RequestSent | AnswerReplaced | AnswerEnded | AttachmentsLeftOut
Subscriber = Callable[[ConversationEvent], None]


class Subscribers:
    """The subscribers of a conversation's events."""

    def __init__(self) -> None:
        self._subscribers: dict[object, Subscriber] = {}

    def add(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with every event from now on, in the event loop. Returns the function that ends it."""
        key = object()
        self._subscribers[key] = subscriber

        def remove() -> None:
            self._subscribers.pop(key, None)

        return remove

    def tell(self, event: ConversationEvent) -> None:
        """Call all of them, in the order in which they came."""
        for subscriber in list(self._subscribers.values()):
            subscriber(event)
