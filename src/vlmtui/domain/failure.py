"""Errors as data, to be stored or sent between processes."""

from __future__ import annotations

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A `VlmtuiError` as data."""

    kind: ErrorKind
    message: str
    detail: str = ""
    hint: str = ""

    @classmethod
    def of(cls, error: VlmtuiError) -> Failure:
        return cls(kind=error.kind, message=error.message, detail=error.detail, hint=error.hint)

    def error(self) -> VlmtuiError:
        return VlmtuiError(self.kind, self.message, detail=self.detail, hint=self.hint)
