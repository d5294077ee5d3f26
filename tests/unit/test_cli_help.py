"""`vlmtui help`, and the generated page about settings."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import settings_table
from vlmtui.cli import main
from vlmtui.cli.help import docs_folder, for_terminal, topics
from vlmtui.config.settings import EngineSettings, SamplingSettings, Settings

ROOT = Path(__file__).parents[2]


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["help", *arguments]) == 0
    return capsys.readouterr().out


def test_help_alone_lists_every_page_of_docs(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {line.split()[0] for line in told(capsys).splitlines()[1:] if line.strip()}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} <= listed


@pytest.mark.parametrize("topic", sorted(topics()))
def test_a_page_is_plain_text_in_a_pipe(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_the_pages_are_found_in_a_checkout() -> None:
    assert docs_folder() == ROOT / "docs"
