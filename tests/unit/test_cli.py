"""The command line as a shell sees it: stdout and stderr, exit codes, signals. No engine is loaded."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from tests.support.fake_worker import OPTIONS_VARIABLE, fake_cli
from tests.support.scripted_tokens import IMAGE_TOKENS
from tests.support.terminal import Terminal
from vlmtui.cli import main
from vlmtui.engine.local.processes import worker_processes
from vlmtui.paths import Paths, bundled
from vlmtui.protocol.endpoint import Endpoint

CIRCLE = str(bundled("samples") / "circle.png")
SHAPES = str(bundled("samples") / "two-shapes.png")
CLIP = str(bundled("samples") / "moving-circle.mp4")


class Shell:
    """Runs `vlmtui` with its own data folder and a fake worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = Paths.below(folder)
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VLMTUI_")},
            "VLMTUI_DATA_DIR": str(folder),
        }

    def run(
        self, *arguments: str, stdin: str = "", options: Mapping[str, object] | None = None
    ) -> tuple[int, str, str]:
        """Run `vlmtui`; return exit code, stdout and stderr."""
        done = subprocess.run(
            [*fake_cli(), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env={**self.env, OPTIONS_VARIABLE: json.dumps(options or {})},
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def start(self, *arguments: str, options: Mapping[str, object] | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*fake_cli(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.env, OPTIONS_VARIABLE: json.dumps(options or {})},
        )

    def processes(self) -> list[psutil.Process]:
        """Return the processes of all workers that were started here."""
        return [process for endpoint in Endpoint.all(self.paths) for process in worker_processes(endpoint)]


@pytest.fixture
def shell() -> Iterator[Shell]:
    with tempfile.TemporaryDirectory(prefix="vlmtui-test-") as folder:
        shell = Shell(Path(folder))
        yield shell
        shell.run("stop", "--all")
        assert shell.processes() == []


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in ((["--version"], "vlmtui 0."), (["--help"], "exit codes"), (["ask", "--help"], "--json")):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 0
        assert words in capsys.readouterr().out


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "vlmtui ask"),
        (["frobnicate"], 2, "invalid choice"),
        (["ask"], 2, "QUESTION"),
        (["ask", ""], 2, "empty"),
        (["ask", "what?", "--model", "nope"], 2, "vlmtui models"),
        (["ask", "what?", "--image", "/no/such.png"], 2, "such.png"),
        (["ask", "what?", "--image", "/"], 2, "folder"),
        (["ask", "what?", "--video", CIRCLE], 2, "circle.png"),
        (["ask", "what?", "--temperature", "99"], 2, "temperature"),
        (["ask", "what?", "--temperature", "hot"], 2, "invalid float"),
        (["ask", "what?", "--max-tokens", "0"], 2, "max tokens"),
        (["ask", "what?", "--keep-alive", "soon"], 2, "5m"),
        (["ask", b"\xff".decode(errors="surrogateescape")], 2, "not valid text"),
        (["ask", "what?", *["--image", CIRCLE] * 9], 2, "at most 8"),
        (["--model", "shapes", "ask", "what?"], 2, "must stand after"),
        (["--preset", "vllm-example", "ask", "what?"], 2, "must stand after"),
        (["--plain", "--preset", "vllm-example"], 2, "--preset needs a model."),
        (["stop"], 2, "which model"),
        (["stop", "shapes"], 2, "Running: none"),
        (["stop", "shapes", "--all"], 2, "not allowed with"),
        (["stop", "--all"], 0, "No model"),
        (["ps"], 0, "No model"),
    ],
)
def test_bad_input_is_reported_before_a_load(shell: Shell, arguments: list[str], status: int, words: str) -> None:
    code, out, error = shell.run(*arguments)
    assert (code, out) == (status, "")
    assert words in error
    assert "Traceback" not in error
    assert Endpoint.all(shell.paths) == []


@pytest.mark.process
def test_the_answer_goes_to_stdout_and_all_else_to_stderr(shell: Shell) -> None:
    code, out, error = shell.run("ask", "what is this?")
    assert (code, out) == (0, "user: what is this? \n")
    assert "stays loaded for 5 minutes; `vlmtui stop shapes` frees it now" in error


@pytest.mark.process
def test_json_has_every_field_and_media_keep_their_order(shell: Shell) -> None:
    media = ["--image", CIRCLE, "--video", CLIP, "--image", SHAPES]
    code, out, _ = shell.run("ask", "--json", "--system", "Be brief.", *media, "-", stdin="from stdin\n")
    answer = json.loads(out)
    assert code == 0
    image, video = "<image>" * IMAGE_TOKENS, "<video>" * IMAGE_TOKENS
    assert answer["prompt"] == f"system: Be brief.\nuser: {image}{video}{image}from stdin"
    assert set(answer) == {"model", "answer", "finish_reason", "usage", "timings", "sampling", "prompt", "stop"}
    of_media = {"image_tokens", "video_tokens", "audio_tokens"}
    assert set(answer["usage"]) == {"prompt_tokens", "completion_tokens", *of_media}
    assert set(answer["timings"]) == {"load_s", "ttft_s", "total_s"}
    assert (answer["model"], answer["finish_reason"], answer["stop"]) == ("shapes", "stop", "<|im_end|>")


@pytest.mark.process
def test_a_worker_stays_is_attached_to_listed_and_stopped(shell: Shell) -> None:
    shell.run("ask", "--keep-alive", "1h", "one")
    before = [process.pid for process in shell.processes()]
    code, _, error = shell.run("ask", "two")
    assert code == 0
    assert "loading" not in error
    assert "1 hour" in error
    assert [process.pid for process in shell.processes()] == before
    [listed] = json.loads(shell.run("ps", "--json")[1])
    assert (listed["model"], listed["state"], listed["keep_alive_s"], listed["clients"]) == ("shapes", "idle", 3600, 0)
    assert "shapes" in shell.run("ps")[1]
    code, out, error = shell.run("stop", "shapes")
    assert (code, out) == (0, "")
    assert "was stopped" in error
    assert shell.processes() == []
    assert json.loads(shell.run("ps", "--json")[1]) == []


@pytest.mark.process
def test_keep_alive_0_leaves_nothing_behind(shell: Shell) -> None:
    code, _, error = shell.run("ask", "--keep-alive", "0", "one")
    assert code == 0
    assert "stays" not in error
    assert shell.processes() == []


@pytest.mark.process
def test_no_command_changes_the_keep_alive_of_an_engine_that_it_did_not_start(shell: Shell) -> None:
    shell.run("ask", "--keep-alive", "30m", "one")
    items = shell.folder / "items.jsonl"
    items.write_text('{"id": "1", "messages": [{"role": "user", "content": "two"}]}\n')
    commands = (
        ("ask", "--keep-alive", "0", "two"),
        ("ask", "--keep-alive", "0", "--fan-out", "seed=1,2", "two"),
        ("batch", str(items), "-o", str(items.with_suffix(".out")), "--keep-alive", "0"),
        ("check", "record", str(shell.folder / "cases"), "--model", "shapes", "--on", "here", "--case", "text"),
        ("check", str(shell.folder / "cases"), "--on", "here"),
        ("doctor",),
    )
    for command in commands:
        shell.run(*command)
        [listed] = json.loads(shell.run("ps", "--json")[1])
        assert (listed["keep_alive_s"], listed["clients"]) == (1800, 0), command


@pytest.mark.process
def test_a_failure_keeps_the_printed_text_and_exits_with_1(shell: Shell) -> None:
    code, out, error = shell.run("ask", "half fail")
    assert (code, out) == (1, "user: half \n")
    assert "too long" in error
    code, out, error = shell.run("ask", "half die")
    assert (code, out) == (1, "user: half \n")
    assert "stopped unexpectedly" in error
    assert "stays" not in error


@pytest.mark.process
def test_a_failed_load_exits_with_1_and_a_reason(shell: Shell) -> None:
    code, out, error = shell.run("ask", "what?", options={"load": "fail"})
    assert (code, out) == (1, "")
    assert "does not fit" in error
    assert shell.processes() == []


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_a_load_ends_it(shell: Shell, number: signal.Signals) -> None:
    asking = shell.start("ask", "what?", options={"load": "hold", "children": 1})
    assert asking.stderr is not None
    while "loading" not in asking.stderr.readline():
        pass
    assert len(shell.processes()) >= 2
    asking.send_signal(number)
    assert asking.wait(60) == 128 + number
    assert shell.processes() == []


@pytest.mark.process
def test_a_signal_during_an_answer_keeps_the_printed_text_and_cancels(shell: Shell) -> None:
    asking = shell.start("ask", "half hold never")
    assert asking.stdout is not None
    assert asking.stdout.read(len("user: half ")) == "user: half "
    asking.send_signal(signal.SIGTERM)
    out, _ = asking.communicate(timeout=60)
    assert (asking.returncode, out) == (128 + signal.SIGTERM, "\n")
    [listed] = json.loads(shell.run("ps", "--json")[1])
    assert listed["running"] == 0


@pytest.mark.process
def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    asking = shell.start("ask", "half " * 2000)
    assert asking.stdout is not None
    assert asking.stderr is not None
    asking.stdout.close()
    assert asking.wait(60) == 128 + signal.SIGPIPE
    assert "Traceback" not in asking.stderr.read()


@pytest.mark.process
def test_control_characters_reach_a_pipe_raw_and_a_terminal_made_visible(shell: Shell) -> None:
    question = "\x1b[31mred\x07 \u202eback"
    assert "\x1b[31mred\x07" in shell.run("ask", question)[1]
    with Terminal([*fake_cli(), "ask", question], env=shell.env) as terminal:
        assert terminal.wait_for_end() == 0
        assert b"\x1b[31m" not in terminal.raw
        assert b"\x07" not in terminal.raw
        assert "\u202e".encode() not in terminal.raw
        assert "␛[31mred␇" in terminal.text


@pytest.mark.process
def test_a_load_on_a_terminal_is_one_updating_line(shell: Shell) -> None:
    with Terminal([*fake_cli(), "ask", "what?"], env={**shell.env, OPTIONS_VARIABLE: '{"load": "hold"}'}) as terminal:
        terminal.wait_for("loading shapes: warmup")
        terminal.wait_for(lambda text: re.search(r" [1-9]\d* s", text) is not None)
        assert terminal.text.count("loading") == 1
        terminal.press("ctrl+c")
        assert terminal.wait_for_end() == 130
        assert "loading" not in terminal.text


@pytest.mark.process
def test_models_lists_the_known_models(shell: Shell) -> None:
    names = [model["name"] for model in json.loads(shell.run("models", "--json")[1])]
    assert "shapes" in names
    assert "shapes" in shell.run("models")[1]


@pytest.mark.process
def test_a_failed_check_of_doctor_exits_with_1(shell: Shell) -> None:
    code, out, _ = shell.run("doctor", "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (1, False)
    checks = {check["name"]: check for check in report["checks"]}
    assert set(checks) >= {"python", "terminal", "settings", "vllm", "torch", "gpu", "memory", "data", "engine"}
    assert checks["engine"]["status"] == "fail"
    assert "wrong about" in checks["engine"]["message"]
    assert shell.processes() == []


def test_an_unexpected_exception_is_logged_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(arguments: object) -> int:
        raise RuntimeError("boom")

    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("vlmtui.cli.models.models", broken)
    assert main(["models"]) == 1
    assert "boom" in capsys.readouterr().err
    assert "Traceback" in (Paths.below(tmp_path).logs / "cli.log").read_text()
