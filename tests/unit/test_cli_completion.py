"""Completion: the words that may follow, and argcomplete's scripts in real shells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from vlmtui.paths import Paths
from vlmtui.store.store import Store

pytestmark = pytest.mark.process
TITLE = "What is in \x1b[31mcat.png?"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """Return folders with a downloaded model."""
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    paths = Paths.default()
    snapshot = tmp_path / "hub/models--acme--see-2b/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs/main").write_text("abc")
    return paths


def offered(folder: Path, typed: str) -> dict[str, str]:
    """Return the words that a shell is offered, each with its description."""
    line = f"vlmtui {typed}"
    shell = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "fish", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_DFS": "\t"}
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_STDOUT_FILENAME": str(folder / "words")}
    subprocess.run([sys.executable, "-m", "vlmtui"], env={**os.environ, **shell, **asked}, check=True, timeout=60)
    rows = (word.partition("\t") for word in (folder / "words").read_text().split("\n"))
    return {word.strip(): meaning for word, _, meaning in rows if word.strip()}


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("conv", {"conversations"}),
        ("store ver", {"verify"}),
        ("store verify --da", {"--data-dir"}),
        ("doctor --js", {"--json"}),
        ("no-such-command-", set()),
        ("completion ", {"bash", "zsh", "fish", "tcsh"}),
        ("--gra", {"--graphics"}),
        ("--graphics si", {"sixel"}),
        ("--graphics=si", {"--graphics=sixel"}),
        ("ask --model qwen2_v", {"qwen2_vl"}),
        ("ask --model acme/", {"acme/see-2b"}),
        ("models show qwen2_v", {"qwen2_vl"}),
        ("check --model qwen2_v", {"qwen2_vl"}),
        ("stop ", set()),
    ],
)
def test_the_words_that_may_follow(paths: Paths, tmp_path: Path, typed: str, expected: set[str]) -> None:
    assert offered(tmp_path, typed).keys() == expected


def test_conversations_are_offered_by_id_with_their_titles(paths: Paths, tmp_path: Path) -> None:
    store = Store.open(paths.data, paths.media)
    made = {store.new_conversation(title=TITLE, model="shapes") for _ in range(2)}
    store.close()
    for typed in ("export ", "--resume "):
        assert offered(tmp_path, typed) == dict.fromkeys(made, "What is in ␛[31mcat.png?")


def test_completing_makes_no_store(paths: Paths, tmp_path: Path) -> None:
    assert offered(tmp_path, "export ") == {}
    assert not (paths.data / "conversations.db").exists()


def test_names_that_a_shell_would_take_apart_are_not_offered(paths: Paths, tmp_path: Path) -> None:
    families = paths.families
    families.mkdir(parents=True, mode=0o700)
    (families / "mine.toml").write_text('family = "$(touch x)"\ntitle = "X"\nmodels = ["a/b"]\n')
    assert not any("$" in word for word in offered(tmp_path, "models show "))


@pytest.fixture
def bin_folder(tmp_path: Path, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on PATH with a `vlmtui` that completes like the real one, and otherwise records its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "vlmtui"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = completion ] || [ -n "$_ARGCOMPLETE" ] && exec {sys.executable} -m vlmtui "$@"\n'
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
]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "expected"),
    EXAMPLES,
)
def test_bash_completes(bin_folder: Path, typed: str, expected: str) -> None:
    asked = 'source <(vlmtui completion bash); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMP_TYPE=9; '
    asked += '_python_argcomplete vlmtui "${!#}"; printf "%s\\n" "${COMPREPLY[@]}"'
    command = ["bash", "--norc", "-c", asked, "bash", "vlmtui", *typed.split(" ")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == [expected]
    assert not done.stderr


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
