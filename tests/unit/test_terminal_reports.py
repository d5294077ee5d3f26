"""Reports of a terminal in the input, whole and split anywhere."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmtui.ui.terminal.driver import ReportFilter

REPORTS = [
    "\x1b[?6c", "\x1b[?62;4;22c", "\x1b[>41;377;0c", "\x1b[6;24;12t", "\x1b[4;768;1024t", "\x1b[?1u", "\x1b[?997;1n",
    "\x1b[0n",
    "\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\", "\x1b]52;c;aGVsbG8=\x07", "\x1b]lwindow\x1b\\", "\x1bP>|tmux 3.4\x1b\\",
    "\x1bP1$r0m\x1b\\", "\x1b_Gi=31;OK\x1b\\",
]  # fmt: skip
KEYS = [
    "a", "ü", "\x1b", "\x1b[A", "\x1b[1;5C", "\x1b[200~pasted\x1b[201~", "\x1bOP", "\x1bx", "\x1b[24~", "\x1b[<0;3;4M",
    "\x1b[48;24;80;480;800t", "\x1b[?2026;2$y", "\x1b[12;40R", "\x1b[97;5u", "\r",
]  # fmt: skip


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_is_dropped_wherever_it_is_cut(report: str) -> None:
    for cut in range(len(report) + 1):
        reports = ReportFilter()
        assert reports.feed("a" + report[:cut]) + reports.feed(report[cut:] + "b") == "ab"
        assert reports.patience_s is None


@pytest.mark.parametrize("key", KEYS)
def test_a_key_passes_unchanged(key: str) -> None:
    reports = ReportFilter()
    assert reports.feed(key) + reports.flush() == key


def test_escape_is_held_only_as_long_as_a_key_may_be() -> None:
    reports = ReportFilter()
    assert reports.feed("\x1b") == ""
    assert reports.patience_s is not None
    assert reports.patience_s < 0.05
    assert reports.flush() == "\x1b"
    assert reports.patience_s is None


@pytest.mark.parametrize("report", REPORTS)
def test_pasted_text_is_never_changed(report: str) -> None:
    pasted = f"\x1b[200~before{report}after\x1b[201~"
    for cut in range(len(pasted) + 1):
        reports = ReportFilter()
        assert reports.feed(pasted[:cut]) + reports.feed(pasted[cut:]) == pasted
        assert reports.feed(f"x{report}y") == "xy", "the paste has ended"


def test_endless_data_is_given_up() -> None:
    reports = ReportFilter()
    text = "\x1b]0;" + "x" * 100_000
    assert reports.feed(text) + reports.flush() == text


@given(st.lists(st.sampled_from([*REPORTS, *KEYS]), max_size=12), st.randoms(use_true_random=False))
def test_keys_between_reports_keep_their_order(pieces: list[str], random: Random) -> None:
    """The input is split into reads of any size. A single Escape before another key means Alt, and is left out here."""
    pieces = [piece for piece in pieces if piece != "\x1b"]
    text = "".join(pieces)
    reports, passed, at = ReportFilter(), "", 0
    while at < len(text):
        size = random.randint(1, 7)
        passed += reports.feed(text[at : at + size])
        at += size
    assert passed + reports.flush() == "".join(piece for piece in pieces if piece in KEYS)
