"""Names below folders with nasty names; `test_paths.py` has the single styles."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import examples
from vlmtui.media.paths import parse_paths

_AWKWARD = " '\"\\()[]{}&;|<>*?!#$`~%=,:@+-_.\n\t\r\x01\x1b\x7fäé日ש\u202e\u200b\u00a0\udce9\udcff"
_names = st.text(alphabet=st.sampled_from(_AWKWARD + "abntrexuU019"), min_size=1, max_size=24).filter(
    lambda name: name not in (".", "..") and len(os.fsencode(name)) < 200
)


@contextmanager
def _files(names: list[str]) -> Iterator[list[Path]]:
    """Files of these names, each in a folder of the same name."""
    with TemporaryDirectory() as made:
        paths = [Path(made) / name / name for name in names]
        for path in paths:
            path.parent.mkdir(exist_ok=True)
            path.touch()
        yield paths


@given(names=st.lists(_names, min_size=1, max_size=6, unique=True), between=st.sampled_from([" ", "\n", " \n ", "\t"]))
@settings(max_examples=examples(150), deadline=None)
def test_below_nasty_folders(names: list[str], between: str) -> None:
    with _files(names) as paths:
        assert parse_paths(between.join(shlex.quote(str(path)) for path in paths)) == paths
        assert parse_paths(between.join(path.as_uri() for path in paths)) == paths


@given(name=_names, style=st.sampled_from(["plain", "quoted", "home"]))
@settings(max_examples=examples(150), deadline=None)
def test_relative_names(name: str, style: str) -> None:
    with TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setenv("HOME", made)
        (Path(made) / name).touch()
        text = {"plain": f"./{name}", "quoted": shlex.quote(f"./{name}"), "home": f"~/{name}"}[style]
        expected = Path(made, name) if style == "home" else Path(name)
        assert parse_paths(text) == [expected]


@given(text=st.text(alphabet=st.sampled_from("/~.ab 'file:\\\n$%"), max_size=60))
@settings(max_examples=examples(400), deadline=None)
def test_no_path_is_made_of_text_without_one(text: str) -> None:
    with TemporaryDirectory() as empty, pytest.MonkeyPatch.context() as patch:
        patch.chdir(empty)
        patch.setenv("HOME", empty)
        found = parse_paths(text)
        # Dots and slashes may well name the root or this folder; what is given back is there, and was named.
        assert found is None or (found and all(path.exists() for path in found) and "/" in text)


@given(name=_names, before=st.sampled_from(["look at", "x", "-"]), after=st.sampled_from(["please", "?", "and why"]))
@settings(max_examples=examples(150), deadline=None)
def test_a_question_about_a_path_stays_text(name: str, before: str, after: str) -> None:
    with _files([name]) as paths:
        quoted = shlex.quote(str(paths[0]))
        assert parse_paths(f"{before} {quoted}") is None
        assert parse_paths(f"{quoted} {after}") is None
