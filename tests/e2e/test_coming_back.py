"""Coming back, in a pseudo-terminal with the real engine: answers that went on, drafts, two apps in one place."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psutil
import pytest

from tests.support.hosts import patient_host
from tests.support.terminal import Terminal, search_paths
from vlmtui.engine.local.host import WorkerInfo
from vlmtui.paths import Paths
from vlmtui.store.records import StoredTurn
from vlmtui.store.store import Store

pytestmark = [pytest.mark.engine, pytest.mark.e2e]
APP = [sys.executable, "-m", "vlmtui"]
EMPTY = "Message, or / for commands"
AWAY = "Finished:"
LONG = "Count to 100."
TALK = 3000
"""Tokens of a long answer: ten seconds and more."""


def open_app(paths: Paths, *options: str) -> Terminal:
    """In a terminal that has no room for the side pane, so that an answer's rows have nothing beside them."""
    folder = str(paths.config.parent)
    env = {"HOME": folder, "VLMTUI_DATA_DIR": folder, **search_paths(), "VLMTUI_GRAPHICS": "halfcell"}
    return Terminal([*APP, *options], env=env, columns=100)


@contextmanager
def opened(paths: Paths) -> Iterator[Store]:
    store = Store.open(paths.data, paths.media)
    try:
        yield store
    finally:
        store.close()


def answers_to(paths: Paths, question: str) -> list[StoredTurn]:
    """The newest stored conversation that begins with the question: all its answers."""
    with opened(paths) as store:
        for listed in store.conversations(limit=20):
            path = store.path(listed.conversation.id)
            if path and path[0].text == question:
                return [turn for turn in path if turn.role == "assistant"]
    return []


def worker(paths: Paths) -> WorkerInfo:
    [found] = asyncio.run(patient_host(paths).find_all())
    return found


def wait_until_idle(paths: Paths, within_s: float = 120.0) -> None:
    deadline = time.monotonic() + within_s
    while (status := worker(paths).status) is None or status.running:
        assert time.monotonic() < deadline, "the worker does not finish"
        time.sleep(0.25)


def ask(terminal: Terminal, question: str) -> None:
    terminal.type(question)
    terminal.wait_for(question)
    terminal.press("enter")


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


@pytest.fixture
def talkative(loaded_worker: Paths) -> Iterator[Paths]:
    """The bundled model with a record of the user's that lets it talk on after its last word.

    An answer takes many seconds then, however fast the machine is and however long the test is kept waiting.
    """
    record = loaded_worker.config / "families" / "shapes.toml"
    record.parent.mkdir(parents=True, exist_ok=True)
    record.write_text(
        f"""
        family = "shapes"
        extends = "shapes"
        title = "Shapes, talking on"
        models = ["bundled:shapes"]
        stop_tokens = []
        [sampling]
        temperature = 0.0
        max_tokens = {TALK}
        extra = {{ ignore_eos = true }}
        """
    )
    try:
        yield loaded_worker
    finally:
        record.unlink()


@pytest.mark.parametrize(("loss", "option"), [("hang up", ""), ("kill", ""), ("hang up", "--continue")])
def test_an_answer_goes_on_without_a_terminal(talkative: Paths, loss: Literal["hang up", "kill"], option: str) -> None:
    before = worker(talkative)
    with open_app(talkative, "--model", "shapes") as terminal:
        terminal.wait_for(EMPTY)
        ask(terminal, LONG)
        terminal.wait_for("1 2")
        app = psutil.Process(terminal.pid)
        if loss == "kill":
            terminal.signal(signal.SIGKILL)
        else:
            terminal.lose()
        app.wait(60)
    [left] = answers_to(talkative, LONG)
    assert left.state in ("running", "interrupted")
    status = worker(talkative).status
    assert status is not None
    assert status.running, "nothing was left to go on"
    wait_until_idle(talkative)
    [kept] = answers_to(talkative, LONG)
    assert kept.text == left.text, "nobody was there to write the rest"
    with open_app(talkative, *([option] if option else [])) as terminal:
        shown = terminal.wait_for(lambda text: AWAY in text and f"{TALK:,} tokens" in text)
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0
    [whole] = answers_to(talkative, LONG)
    assert whole.state == "complete"
    assert whole.text.startswith(left.text)
    assert numbers(whole.text)[:100] == list(range(1, 101))
    assert whole.statistics is not None
    assert whole.statistics.finish_reason == "length"
    assert whole.statistics.usage.completion_tokens == TALK
    assert "".join(whole.text.split())[-100:] in "".join(shown.split())
    after = worker(talkative)
    assert (after.pid, after.name) == (before.pid, before.name)


def test_in_plain_mode_an_answer_streams_until_ctrl_c(talkative: Paths) -> None:
    with open_app(talkative, "--plain", "--model", "shapes") as terminal:
        terminal.wait_for("is ready")
        terminal.type("Count to 99.\r")
        terminal.wait_for("1 2")
        app = psutil.Process(terminal.pid)
        terminal.lose()
        app.wait(60)
    [left] = answers_to(talkative, "Count to 99.")
    assert left.state in ("running", "interrupted")
    with open_app(talkative, "--plain", "--continue") as terminal:
        terminal.wait_for("The answer goes on; Ctrl+C stops it.")
        terminal.press("ctrl+c")
        terminal.wait_for(lambda text: "stopped by you" in text and text.rstrip().endswith("\n>"))
        terminal.type("\x04")
        assert terminal.wait_for_end() == 0
        written = terminal.raw.decode().replace("\r\n", "\n")
    [stopped] = answers_to(talkative, "Count to 99.")
    assert stopped.text.startswith(left.text)
    assert len(stopped.text) > len(left.text)
    assert written.count(left.text.strip()[:40]) == 1, "what was written before is not written again"
    assert stopped.statistics is None or stopped.statistics.usage.completion_tokens < TALK


def test_the_printed_command_restores_conversation_and_draft(loaded_worker: Paths, tmp_path: Path) -> None:
    with open_app(loaded_worker, "--model", "shapes") as terminal:
        terminal.wait_for(EMPTY)
        ask(terminal, "Count to 12.")
        terminal.wait_for("11 12")
        terminal.wait_for("<|im_end|>")
        terminal.type("half a thought")
        terminal.wait_for("half a thought")
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0
        hint = re.search(rb"Continue with: vlmtui --resume (\w+)", terminal.raw)
        assert hint is not None, terminal.text
    for options in (["--resume", hint[1].decode()], ["--continue"]):
        with open_app(loaded_worker, *options) as terminal:
            terminal.wait_for("half a thought")
            terminal.wait_for("11 12")
            terminal.press("ctrl+q")
            assert terminal.wait_for_end() == 0
    with open_app(loaded_worker, "--resume", hint[1].decode()) as terminal:
        terminal.wait_for("half a thought")
        terminal.type("\x7f" * len("half a thought"))
        terminal.wait_for(EMPTY)
        ask(terminal, "Count to 7.")
        terminal.wait_for(lambda text: text.count("6 7") == 2 and "<|im_end|>" in text)
        terminal.press("ctrl+q")
        assert terminal.wait_for_end() == 0
    assert [answer.state for answer in answers_to(loaded_worker, "Count to 12.")] == ["complete", "complete"]


def test_an_unknown_conversation_is_reported_before_the_app_opens(loaded_worker: Paths) -> None:
    with open_app(loaded_worker, "--resume", "nothing") as terminal:
        assert terminal.wait_for_end() == 2
    assert "There is no conversation 'nothing'" in terminal.text


def test_two_apps_share_a_data_folder(loaded_worker: Paths) -> None:
    with (
        open_app(loaded_worker, "--model", "shapes") as one,
        open_app(loaded_worker, "--model", "shapes") as two,
    ):
        one.wait_for(EMPTY)
        two.wait_for(EMPTY)
        ask(one, "Count to 60.")
        ask(two, "Count to 70.")
        one.wait_for("59 60")
        two.wait_for("69 70")
        for terminal in (one, two):
            terminal.wait_for("<|im_end|>")
            terminal.press("ctrl+q")
        for terminal in (one, two):
            assert terminal.wait_for_end() == 0
    for last in (60, 70):
        [answer] = answers_to(loaded_worker, f"Count to {last}.")
        assert answer.state == "complete"
        assert numbers(answer.text)[:last] == list(range(1, last + 1))
