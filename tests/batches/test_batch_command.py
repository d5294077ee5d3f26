"""`vlmtui batch` as a process, with the scripted worker of `tests.torture`: what it says, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batches.campaign import BatchCampaign

_ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.process


class Client:
    """The command in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.input = folder / "in.jsonl"
        self.output = folder / "out.jsonl"

    def write(self, *lines: object) -> None:
        self.input.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))

    def start(self, *options: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        environment = {
            "HOME": str(self.folder),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")])),
            "VLMTUI_DATA_DIR": str(self.folder / "data"),
        }
        command = [sys.executable, "-m", "tests.batches.client", "scripted", str(self.folder / "full"), "batch"]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*command, "-o", str(self.output), *options],
            env=environment,
            cwd=self.folder,
            stdin=stdin,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def run(self, *options: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        with self.start(*options) as process:
            out, error = process.communicate()
        return process.returncode, out, error

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.output.read_text("utf-8").splitlines()]


@pytest.fixture
def client(short_path: Path) -> Iterator[Client]:
    campaign = BatchCampaign(short_path, items=1)
    yield Client(short_path)
    campaign.end_workers()


def test_the_summary_the_score_and_the_exit_code(client: Client) -> None:
    client.write(
        {"id": "a", "prompt": "say 2 a", "expect": "a-0 a-1"},
        {"id": "b", "prompt": "say 2 b", "expect": {"contains": "x"}},
    )
    code, out, error = client.run(str(client.input), "--json", "--min-score", "0.6")
    assert code == 1
    summary = json.loads(out)
    assert (summary["answered"], summary["failed"]) == (2, 0)
    assert "As expected: 1 of 2: 50.0 % (9.5 to 90.5)." in error
    assert "below --min-score 0.6" in error
    code, _, error = client.run(str(client.input), "--min-score", "0.5")
    assert (code, "2 answered before" in error) == (0, True)


def test_from_stdin_while_it_is_written(client: Client) -> None:
    with client.start("-", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        for name in ("a", "b"):
            process.stdin.write(json.dumps({"id": name, "prompt": f"say 1 {name}"}) + "\n")
        process.communicate()
    assert process.returncode == 0
    assert {line["id"]: line["answer"] for line in client.lines()} == {"a": "a-0 ", "b": "b-0 "}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_whole_lines_and_prints_the_command_to_continue(client: Client, number: signal.Signals) -> None:
    """A short answer and long ones; the long ones are given up."""
    client.write({"id": "short", "prompt": "say 1 short"}, *({"id": f"{n}", "prompt": "say 9999 x"} for n in range(20)))
    with client.start(str(client.input)) as process:
        while not client.output.exists() or b"short" not in client.output.read_bytes():
            assert process.poll() is None
            os.sched_yield()
        process.send_signal(number)
        _, error = process.communicate()
    assert process.returncode == 128 + number
    assert "To go on: vlmtui batch" in error
    assert "1 answered · 0 failed" in error
    assert [line["id"] for line in client.lines()] == ["short"]
    client.write({"id": "short", "prompt": "say 1 short"}, {"id": "0", "prompt": "say 1 x"})
    assert client.run(str(client.input))[0] == 0
    assert {line["id"] for line in client.lines()} == {"short", "0"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "IN is missing, and so is --image, --video or --audio."),
        (("missing.jsonl",), "missing.jsonl does not exist."),
        (("in.jsonl", "--image", "x.png"), "IN has its own media"),
        (("in.jsonl", "--modality", "video"), "--modality goes with --num-prompts."),
        (("in.jsonl", "--set", "temprature=1"), "has no parameter temprature."),
        (("out.jsonl",), "IN and OUT are the same file."),
        (("--num-prompts", "2", "--modality", "video", "--image-repeat-prob", "0.5"), "goes with images"),
    ],
)
def test_impossible_requests_are_reported_at_once(client: Client, options: tuple[str, ...], said: str) -> None:
    client.write({"id": "a", "prompt": "x"})
    if options == ("out.jsonl",):
        client.output.touch()
    code, _, error = client.run(*options)
    assert code == 2
    assert said in error
    assert "Traceback" not in error
