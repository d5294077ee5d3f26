"""Completion: the words that may follow, and the scripts in real shells."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from vlmtui.cli.completion import SCRIPTS, words_for
from vlmtui.engines.records import ADDED, EngineRecord, Engines
from vlmtui.paths import Paths
from vlmtui.store.store import Store

TITLE = "What is in \x1b[31mcat.png?"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Folders with a conversation, a downloaded model, a server in config.toml and an engine."""
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    paths = Paths.default()
    snapshot = tmp_path / "hub/models--acme--see-2b/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("abc")
    paths.config.mkdir(parents=True, mode=0o700)
    (paths.config / "config.toml").write_text('[engines.lab]\nurl = "http://127.0.0.1:8000"\n')
    record = EngineRecord(name="mine", version="0.32.0", variant=ADDED, interpreter=sys.executable, installed_at=1.0)
    Engines(paths).write(record)
    return paths


def offered(*words: str) -> set[str]:
    *before, current = words
    return {word.text for word in words_for(before, current)}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("conv",), {"conversations"}),
        (("store", "ver"), {"verify"}),
        (("store", "verify", "--da"), {"--data-dir"}),
        (("doctor", "--js"), {"--json"}),
        (("no-such-command-",), set()),
        (("completion", ""), {"bash", "zsh", "fish"}),
        (("--gra",), {"--graphics"}),
        (("--graphics", "si"), {"sixel"}),
        (("--graphics=si",), {"--graphics=sixel"}),
        (("--graphics", "=", "si"), {"sixel"}),
        (("ask", "--model", "qwen2_v"), {"qwen2_vl"}),
        (("ask", "--model", "acme/"), {"acme/see-2b"}),
        (("models", "show", "qwen2_v"), {"qwen2_vl"}),
        (("ask", "--engine", ""), {"lab"}),
        (("ask", "--backend", "tr"), {"transformers"}),
        (("--backend", "vllm="), {"vllm==0.32.0"}),
        (("ask", "--on", ""), {"here", "vllm", "vllm==0.32.0", "transformers", "lab"}),
        (("parity", "qwen2_v"), {"qwen2_vl"}),
        (("engines", "remove", ""), {"mine"}),
        (("engines", "probe", "lab", "l"), {"lab"}),
        (("help", "setti"), {"settings"}),
        (("stop", ""), set()),
        (("ask", "--", "--mod"), set()),
        (("ask", "--image", ""), set()),
        (("export", "x", ""), set()),
    ],
)
def test_the_words_that_may_follow(paths: Paths, typed: tuple[str, ...], expected: set[str]) -> None:
    assert offered(*typed) == expected


def test_conversations_are_offered_by_id_with_their_titles(paths: Paths) -> None:
    store = Store.open(paths.data, paths.media).store
    made = store.new_conversation(title=TITLE, model="shapes")
    store.close()
    for typed in (["export"], ["--resume"]):
        [word] = words_for(typed, made[:4])
        assert word.text == made
        assert word.meaning == "What is in ␛[31mcat.png?"


def test_completing_makes_no_store(paths: Paths) -> None:
    assert offered("export", "") == set()
    assert not (paths.data / "conversations.db").exists()


def test_names_that_a_shell_would_take_apart_are_not_offered(paths: Paths) -> None:
    (paths.config / "config.toml").write_text("this is no TOML")
    assert offered("ask", "--engine", "") == set()
    families = paths.families
    families.mkdir(mode=0o700)
    (families / "$(touch x).toml").write_text("")
    assert not any("$" in word for word in offered("models", "show", ""))


@pytest.fixture
def bin_folder(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a `vlmtui` that completes as the real one, and otherwise notes its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "vlmtui"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = completion ] && exec {sys.executable} -m vlmtui "$@"\n'
        f'printf "%s\\n" "$@" > {tmp_path}/noted.new && mv {tmp_path}/noted.new {tmp_path}/noted\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "src"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


EXAMPLES = [
    ("store ver", "verify"),
    ("doctor --js", "--json"),
    ("ask --model acme/", "acme/see-2b"),
    ("engines remove ", "mine"),
]


@pytest.mark.process
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    EXAMPLES,
)
def test_bash_completes(bin_folder: Path, typed: str, expected: str) -> None:
    asked = 'source <(vlmtui completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _vlmtui vlmtui "${!#}"; '
    asked += 'printf "%s\\n" "${COMPREPLY[@]}"'
    command = ["bash", "--norc", "-c", asked, "bash", "vlmtui", *typed.split(" ")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == [expected]
    assert not done.stderr


@pytest.mark.process
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    EXAMPLES,
)
def test_fish_completes(bin_folder: Path, typed: str, expected: str) -> None:
    asked = f"vlmtui completion fish | source; complete -C 'vlmtui {typed}'"
    done = subprocess.run(["fish", "--no-config", "-c", asked], capture_output=True, text=True, check=True, timeout=120)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [expected]
    assert not done.stderr


@pytest.mark.process
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    EXAMPLES,
)
def test_zsh_completes(bin_folder: Path, typed: str, expected: str) -> None:
    """Zsh completes only at its prompt, so the line is typed there with Tab; Enter then runs it."""
    terminal = pexpect.spawn("zsh", ["-f"], encoding="utf-8", timeout=60, dimensions=(24, 200))
    try:
        terminal.sendline("autoload -U compinit; compinit -u -D; source <(vlmtui completion zsh); print re''ady")
        terminal.expect("ready")
        terminal.send(f"vlmtui {typed}\t")
        terminal.expect(re.escape(expected))
        terminal.send("\r")
        terminal.sendline("print do''ne")
        terminal.expect("done")
    finally:
        terminal.close(force=True)
    assert (bin_folder.parent / "noted").read_text().split() == [*typed.split(" ")[:-1], expected]


@pytest.mark.parametrize("shell", sorted(SCRIPTS))
def test_a_script_names_no_word_of_its_own(shell: str) -> None:
    """Otherwise the shells would come to differ."""
    assert "conversations" not in SCRIPTS[shell]
    assert "completion words" in SCRIPTS[shell]
