"""vlmtui's error type: what happened, technical detail, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, StrEnum, auto


class ErrorKind(StrEnum):
    """The kind of failure. It determines the exit code, and how the error is shown."""

    BAD_USAGE = "bad_usage"
    BAD_INPUT = "bad_input"
    NO_ENGINE = "no_engine"
    INSTALL_FAILED = "install_failed"
    NO_GPU = "no_gpu"
    OUT_OF_MEMORY = "out_of_memory"
    WEIGHTS_MISSING = "weights_missing"
    GATED_REPO = "gated_repo"
    NO_NETWORK = "no_network"
    ARCHITECTURE_UNSUPPORTED = "architecture_unsupported"
    CONTEXT_TOO_LONG = "context_too_long"
    BAD_ENGINE_ARGUMENT = "bad_engine_argument"
    REMOTE_CODE_REFUSED = "remote_code_refused"
    PLACEHOLDER_MISMATCH = "placeholder_mismatch"
    NO_CHAT_TEMPLATE = "no_chat_template"
    UNSUPPORTED = "unsupported"
    MODEL_UNKNOWN = "model_unknown"
    MODEL_CHANGED = "model_changed"
    ENGINE_DIED = "engine_died"
    ENGINE_BUSY = "engine_busy"
    NO_ANSWER = "no_answer"
    """The model or its server ended without an answer: a refusal, a filter, a tool call, no text."""
    NOT_KEPT = "not_kept"
    DISK_FULL = "disk_full"
    PROTOCOL = "protocol"
    FOREIGN_PEER = "foreign_peer"
    INTERNAL = "internal"


class Remedy(Enum):
    """What a user can do about a failure. The user interface shows a sentence for each, with the key to press."""

    LOAD_MODEL = auto()
    RESTART_ENGINE = auto()
    STOP_ANSWER = auto()
    MAKE_BRANCH = auto()
    EDIT_EARLIER = auto()
    SHRINK_MESSAGE = auto()
    LEAVE_OUT_OLDEST = auto()
    SEND_AGAIN = auto()
    ATTACH_FILE = auto()
    START_CONVERSATION = auto()
    RESTORE_CONVERSATION = auto()
    FILL_RAW_PROMPT = auto()
    APPLY_FIX = auto()
    STOP_COMPARISON = auto()
    COMPUTE_DIFFERENCE = auto()
    STOP_FAN_OUT = auto()
    SET_TEMPERATURE = auto()


_INPUT_KINDS = frozenset({ErrorKind.BAD_USAGE, ErrorKind.BAD_INPUT, ErrorKind.MODEL_UNKNOWN, ErrorKind.DISK_FULL})


class VlmtuiError(Exception):
    """A failure to show to the user.

    Args:
        kind: the kind of failure.
        message: what happened; one plain sentence without markup.
        detail: technical detail (an exception's text, the last log lines); may be empty.
        hint: what to do about it; may be empty.
        remedy: an action of the user interface that helps.
    """

    def __init__(
        self, kind: ErrorKind, message: str, *, detail: str = "", hint: str = "", remedy: Remedy | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail
        self.hint = hint
        self.remedy = remedy

    @property
    def exit_code(self) -> int:
        """2 for bad usage or bad input, 1 for everything else."""
        return 2 if self.kind in _INPUT_KINDS else 1

    def __str__(self) -> str:
        return self.message if not self.hint else f"{self.message} {self.hint}"


def bad_input(message: str, *, detail: str = "", hint: str = "", remedy: Remedy | None = None) -> VlmtuiError:
    """Return a BAD_INPUT error about something the user provided: a file, a path, a value."""
    return VlmtuiError(ErrorKind.BAD_INPUT, message, detail=detail, hint=hint, remedy=remedy)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes, the innermost last, also those that it hides."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def require_text(text: str, message: str, *, hint: str = "") -> None:
    """Raise VlmtuiError (BAD_INPUT) with this message if a text has bytes that are not UTF-8, which Python keeps as
    surrogates in names, arguments and variables: neither SQLite nor JSON takes them."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise bad_input(message, detail=str(error), hint=hint) from error
