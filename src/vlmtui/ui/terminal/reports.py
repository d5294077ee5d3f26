"""Removes terminal reports from the input; they may arrive seconds after the query."""

from __future__ import annotations

import re

_PASTE_BEGIN, _PASTE_END = "\x1b[200~", "\x1b[201~"
_REPORT = re.compile(
    r"\x1b\[[?>=][0-9;:]*c"  # device attributes, primary to tertiary
    r"|\x1b\[(?!48;)[0-9]+(?:;[0-9]+)+t"  # sizes in cells or pixels; 48 is a resize, which Textual takes
    r"|\x1b\[\?[0-9;]*[un]"  # keyboard protocol, colour scheme
    r"|\x1b\[[03]n"  # status
    r"|\x1b\](?:[0-9]+;|[lL])[^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: colours, titles, the clipboard
    r"|\x1bP[0-9;]*[$+>|!][^\x1b]*\x1b\\"  # DCS: version, capabilities, settings
    r"|\x1b_G[^\x1b]*\x1b\\"  # APC: kitty's pictures
)
_BEGUN = re.compile(
    r"\x1b(?:"
    r"\[[?>=]?[0-9;:]*"
    r"|\](?:[0-9]*|(?:[0-9]+;|[lL])[^\x07\x1b]*\x1b?)"
    r"|P(?:[0-9;]*|[0-9;]*[$+>|!][^\x1b]*\x1b?)"
    r"|_(?:G[^\x1b]*\x1b?)?"
    r")?\Z"
)
"""The possible start of a report at the end of the input."""
_KEYS = frozenset({"\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b_"})
"""Possible starts that are also complete keys: Escape, and Alt with a character."""
_KEY_WAIT_S, _REPORT_WAIT_S = 0.03, 0.5
_LONGEST = 64 * 1024
"""Longest report in characters; longer input is not a report."""


class ReportFilter:
    """Drops terminal reports from the input, however they are split across reads. Pasted text passes unchanged.

    The possible start of a report is held back; the caller releases it with `flush` if nothing follows within
    `patience_s`, since a key may start in the same way.
    """

    def __init__(self) -> None:
        self._held = ""
        self._pasting = False

    @property
    def patience_s(self) -> float | None:
        """Seconds to wait for the rest of the input held back; None if nothing is."""
        if not self._held:
            return None
        return _KEY_WAIT_S if self._held in _KEYS else _REPORT_WAIT_S

    def feed(self, text: str) -> str:
        """Return the input for the app."""
        text, self._held = self._held + text, ""
        passed: list[str] = []
        while text:
            before, mark, after = text.partition(_PASTE_END if self._pasting else _PASTE_BEGIN)
            if not self._pasting:
                before = _REPORT.sub("", before)
            if not mark:
                at = self._unfinished_from(before)
                before, self._held = before[:at], before[at:]
            passed += [before, mark]
            self._pasting ^= bool(mark)
            text = after
        return "".join(passed)

    def flush(self) -> str:
        """Return the input held back: it was typed."""
        held, self._held = self._held, ""
        return held

    def _unfinished_from(self, text: str) -> int:
        """Return where the end of the text may be the start of a report, or of the mark that ends a paste."""
        if self._pasting:
            cuts = (len(text) - size for size in range(len(_PASTE_END) - 1, 0, -1))
            return next((cut for cut in cuts if cut >= 0 and _PASTE_END.startswith(text[cut:])), len(text))
        starts = (found.start() for found in re.finditer("\x1b", text))
        at = next((start for start in starts if _BEGUN.match(text, start)), len(text))
        return at if len(text) - at <= _LONGEST else len(text)
