"""The events of a conversation."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from vlmtui.session.exchange import Exchange


class RequestSent(msgspec.Struct, frozen=True):
    """The turn is stored if possible, and its request is being sent."""

    exchange: Exchange


class AnswerReplaced(msgspec.Struct, frozen=True):
    """The exchange shows another answer, which may still be running."""

    exchange: Exchange


class AnswerEnded(msgspec.Struct, frozen=True):
    """The exchange's answer has its outcome."""

    exchange: Exchange


class AttachmentsLeftOut(msgspec.Struct, frozen=True):
    """The exchange's attachments are left out of later prompts, or included again."""

    exchange: Exchange


ConversationEvent = RequestSent | AnswerReplaced | AnswerEnded | AttachmentsLeftOut
Subscriber = Callable[[ConversationEvent], None]


class Subscribers:
    """The subscribers of a conversation's events."""

    def __init__(self) -> None:
        self._subscribers: dict[object, Subscriber] = {}

    def add(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` with every event from now on, in the event loop. Return a function that unsubscribes."""
        key = object()
        self._subscribers[key] = subscriber

        def remove() -> None:
            self._subscribers.pop(key, None)

        return remove

    def notify(self, event: ConversationEvent) -> None:
        """Call all subscribers, in the order of subscription."""
        for subscriber in list(self._subscribers.values()):
            subscriber(event)
