"""`vlmtui help`, the manual pages, and the page of settings: all made from what the program is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

import man_pages
import settings_table
from vlmtui.cli import main
from vlmtui.cli.help import command_parsers, docs_folder, for_terminal, topics
from vlmtui.config.engines import EngineSettings
from vlmtui.config.settings import SamplingSettings, Settings

ROOT = Path(__file__).parents[2]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["help", *arguments]) == 0
    return capsys.readouterr().out


def test_help_alone_lists_every_page_of_docs(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {line.split()[0] for line in told(capsys).splitlines()[1:] if line.strip()}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} <= listed


@pytest.mark.parametrize("topic", sorted(topics()))
def test_a_page_is_plain_when_it_goes_to_a_pipe(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = told(capsys, topic)
    assert "\x1b" not in page
    assert "](" not in for_terminal(topics()[topic].read_text(encoding="utf-8")).replace("](http", "")
    assert len(page.splitlines()) > 10
    assert max(map(len, page.splitlines())) <= 100


def test_a_link_to_a_page_names_the_command_that_shows_it() -> None:
    assert for_terminal("See [comparing](comparing.md#keys), [code](../src/x.py).\n![x](y.svg)\n") == (
        "See comparing (`vlmtui help comparing`), code.\n"
    )


def test_help_of_a_command_lists_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--report" in told(capsys, "doctor")
    assert "vlmtui batch --help lists" in told(capsys, "batch")


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("compairing", "vlmtui help comparing"),
        ("setings", "settings"),
        ("ak", "ask"),
        ("\x1b[31mx", "lists the topics"),
    ],
)
def test_an_unknown_topic_offers_the_nearest(typed: str, nearest: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", typed]) == 2
    error = capsys.readouterr().err
    assert nearest in error
    assert "\x1b" not in error


def test_the_page_of_settings_is_current_and_whole() -> None:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert page == settings_table.page(), "run `make settings`"
    for kind in (Settings, SamplingSettings, EngineSettings):
        for field in msgspec.structs.fields(kind):
            assert f"`{field.name}`" in page or field.name == "sampling"


def test_every_command_and_topic_has_a_manual_page() -> None:
    pages = man_pages.pages()
    assert {f"vlmtui-{name}.1" for name in command_parsers()} <= set(pages)
    assert {f"vlmtui-{name}.7" for name in topics()} <= set(pages)
    assert "vlmtui.1" in pages
    assert r"\-\-report" in pages["vlmtui-doctor.1"]
    assert "keep_alive" in pages["vlmtui-settings.7"]


def test_what_roff_would_take_for_a_request_is_text() -> None:
    assert man_pages.escaped(".so /etc/passwd") == r"\&.so /etc/passwd"
    page = man_pages.topic_page("x", "# X\n\n```\n.so /etc/passwd\n\\*[x]\n```\n\n- 'tis\n")
    assert "\n.so" not in page and "\n'tis" not in page
    assert r"\e*[x]" in page


@pytest.mark.skipif(shutil.which("mandoc") is None, reason="mandoc is not installed")
def test_mandoc_finds_no_error_in_any_page(tmp_path: Path) -> None:
    files = man_pages.write_pages(tmp_path)
    command = ["mandoc", "-T", "lint", "-W", "error", *map(str, files)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.process
@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_man_shows_a_page(tmp_path: Path) -> None:
    man_pages.write_pages(tmp_path)
    command = ["man", "-l", str(tmp_path / "vlmtui-store.1")]
    bare = {"PATH": "/usr/bin:/bin"}
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, env=bare, check=True)
    assert "VERIFY" in shown.stdout
    assert "restore an archive or a daily backup" in " ".join(shown.stdout.split())


def test_the_pages_are_found_in_a_checkout() -> None:
    assert docs_folder() == ROOT / "docs"
