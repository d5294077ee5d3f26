"""How `vlmtui doctor` checks the terminal and its ways to draw images."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from vlmtui.cli.doctor import Check, check_disk, check_logout, check_terminal, printed_check
from vlmtui.terminal import Answers, Terminal, best_way, picture_ways

_TMUX = {"TERM": "tmux-256color", "TMUX": "/tmp/tmux", "TMUX_PANE": "%1"}


def terminal(environment: dict[str, str], answers: Answers) -> Terminal:
    ways = picture_ways(environment, answers)
    best = best_way(ways)
    return Terminal(best.name if best else "off", (9, 18), tuple(ways), answers)


def test_tmux_without_passthrough_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "tmux-256color")
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: True)
    check = check_terminal(terminal(_TMUX, Answers(own_attributes=frozenset({2}))))
    assert check.status == "warn"
    assert "allow-passthrough on" in check.hint
    table = list(printed_check(Check(check.name, "ok", check.message, table=check.table)))[1:]
    assert sum("allow-passthrough" in line for line in table) == 1, "once, not for each way"
    assert [line for line in table if line.split(",")[0].strip() == "quadrants" and " yes " in line]


def test_pictures_through_tmux_are_reported_with_the_cell_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _TMUX.items():
        monkeypatch.setenv(name, value)
    answers = Answers("kitty(0.35.2)", frozenset({22}), frozenset({2}), speaks_kitty=True)
    check = check_terminal(terminal(_TMUX, answers))
    assert check.status == "ok" and "kitty's protocol through tmux, 9×18 pixels a cell" in check.message
    assert [way.name for way in check.table] == ["kitty", "iterm", "sixel", "sextant", "quadrant", "halfcell"]


def test_a_terminal_that_only_prints_shows_none() -> None:
    check = check_terminal(terminal({"TERM": "dumb"}, Answers()))
    assert "no images: the terminal only prints" in check.message
    assert not any(way.is_possible for way in check.table)


def test_in_screen_pictures_are_drawn_with_characters_and_tmux_is_named() -> None:
    ways = picture_ways({"TERM": "screen", "STY": "1.pts"}, Answers(own_attributes=frozenset({2})))
    assert not any(way.is_possible for way in ways[:3])
    assert all("Use tmux, which can pass images on" in way.hint for way in ways[:3])


@pytest.mark.parametrize(("sty", "colours"), [("1.pts", "256 colours"), ("", "true colour")])
def test_screen_is_reported_without_true_colours(sty: str, colours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "truecolor", "STY": sty, "TMUX": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert colours in check_terminal(terminal({}, Answers())).message


@pytest.mark.parametrize(
    ("group", "told", "warns"),
    [
        ("/user.slice/user-7.slice/user@UID.service/app.slice/vte.scope", "Linger=no", "loginctl enable-linger"),
        ("/user.slice/user-7.slice/user@UID.service/app.slice/vte.scope", "Linger=yes", ""),
        ("/user.slice/user-7.slice/session-3.scope", 'b true\nas 0\nas 1 "other"', "systemd-run --user --scope"),
        ("/user.slice/user-7.slice/session-3.scope", 'b true\nas 0\nas 1 "ME"', ""),
        ("/user.slice/user-7.slice/session-3.scope", 'b true\nas 1 "other"\nas 0', ""),
        ("/user.slice/user-7.slice/session-3.scope", 'b false\nas 0\nas 1 "other"', ""),
        ("/user.slice/user-7.slice/session-3.scope", "", ""),
        ("/", "Linger=no", ""),
    ],
)
def test_what_systemd_does_at_logout_is_told_if_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: str, told: str, warns: str
) -> None:
    (tmp_path / "cgroup").write_text(f"0::{group}\n".replace("UID", str(os.getuid())))
    for name in ("loginctl", "busctl"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{told.replace('ME', getpass.getuser())}\nEND\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    hints = [check.hint for check in check_logout(tmp_path / "cgroup")]
    assert len(hints) == bool(warns)
    assert all(warns in hint for hint in hints)


def test_a_network_file_system_and_the_machine_that_saves_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmtui.cli.doctor.file_system_of", lambda folder: "nfs4")
    monkeypatch.setattr("vlmtui.cli.doctor.is_on_network", lambda path: True)
    check = check_disk("data", tmp_path)
    assert check.status == "ok" and "a network file system (nfs4): one machine at a time saves" in check.message
    monkeypatch.setattr("vlmtui.cli.doctor.other_holder", lambda path: "node17")
    check = check_disk("data", tmp_path)
    assert check.status == "warn" and check.message.endswith(", now node17") and "store take" in check.hint
