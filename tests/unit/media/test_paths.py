"""A paste that is nothing but paths becomes paths, in every quoting style; anything else stays text."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.cases import examples
from tests.unit.media.made import corners
from vlmtui.media.paths import looks_like_media, parse_paths, pasted_media, split_words

_AWKWARD = " '\"\\()[]{}&;|<>*?!#$`~%=,:@+-_.\n\tübяש日\u202e\u200b\x1b\udce9\udcff"
_names = st.text(alphabet=st.sampled_from(_AWKWARD + "abcABC019"), min_size=1, max_size=24).filter(
    lambda name: name not in (".", "..") and len(os.fsencode(name)) < 250
)


def _backslashed(text: str) -> str:
    """Escape a name like Konsole, iTerm and readline's completion; a newline can't be escaped this way."""
    return "".join(char if char.isalnum() or char in "/._-" else "\\" + char for char in text)


def _double_quoted(text: str) -> str:
    return '"' + "".join("\\" + char if char in '"\\' else char for char in text) + '"'


def _url(text: str) -> str:
    return "file://" + quote(os.fsencode(text))


_STYLES: dict[str, Callable[[str], str]] = {
    "single": lambda text: "'" + text.replace("'", "'\\''") + "'",
    "double": _double_quoted,
    "shlex": shlex.quote,
    "url": _url,
    "url with host": lambda text: "file://localhost" + quote(os.fsencode(text)),
    "backslash": _backslashed,
}


@contextmanager
def _folder() -> Iterator[Path]:
    """A fresh one for each example: a name left behind may be what another's quoting looks like."""
    with TemporaryDirectory() as made:
        yield Path(made)


def _touch(folder: Path, name: str) -> Path:
    path = folder / name
    path.touch()
    return path


@given(name=_names, style=st.sampled_from(sorted(_STYLES)), tail=st.sampled_from(["", "\n", " ", "\r\n", " \n"]))
@settings(max_examples=examples(400), deadline=None)
def test_every_style_gives_the_path_back(name: str, style: str, tail: str) -> None:
    assume(style != "backslash" or "\n" not in name)
    with _folder() as folder:
        path = _touch(folder, name)
        assert parse_paths(_STYLES[style](str(path)) + tail) == [path]


@given(name=_names)
@settings(max_examples=examples(200), deadline=None)
def test_plain_path_as_it_is(name: str) -> None:
    with _folder() as folder:
        path = _touch(folder, name)
        assert parse_paths(str(path)) == [path]


@given(
    names=st.lists(_names.filter(lambda name: "\n" not in name), min_size=2, max_size=10, unique=True),
    styles=st.lists(st.sampled_from(sorted(_STYLES)), min_size=10, max_size=10),
    between=st.sampled_from([" ", "\n", "  ", "\r\n"]),
)
@settings(max_examples=examples(200), deadline=None)
def test_several_in_any_mix_of_styles(names: list[str], styles: list[str], between: str) -> None:
    with _folder() as folder:
        paths = [_touch(folder, name) for name in names]
        text = between.join(_STYLES[style](str(path)) for path, style in zip(paths, styles, strict=False))
        assert parse_paths(text) == paths


@pytest.mark.slow
@given(text=st.text(max_size=200))
@settings(max_examples=examples(500), deadline=None)
def test_text_without_a_path_is_never_eaten(text: str) -> None:
    with TemporaryDirectory() as empty:
        before = Path.cwd()
        os.chdir(empty)
        try:
            found = parse_paths(text)
            # Hypothesis tries strings of our own source too, such as /tmp and ~/: those do name a place.
            assert found is None or (all(path.exists() for path in found) and "/" in text)
        finally:
            os.chdir(before)


@given(words=st.text(alphabet=st.sampled_from("abc d\n.,/'\"\\~é?-"), min_size=1, max_size=60), name=_names)
@settings(max_examples=examples(300), deadline=None)
def test_a_path_inside_a_sentence_stays_text(words: str, name: str) -> None:
    with _folder() as folder:
        path = _touch(folder, name)
        assert parse_paths(f"What about x{words} and {shlex.quote(str(path))}?") is None
        assert parse_paths(f"{shlex.quote(str(path))} x{words}") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n",
        "/",
        "~",
        "~root",
        ".",
        "..",
        "/..",
        "/ /",
        "hello",
        "What is in this picture?",
        "it's a cat",
        '"quoted"',
        "/attach",
        "/help me",
        "a\0b",
        "\udc80",
        "\ud800",
        "$HOME/x.png",
        "x" * 200_000,
        "/" + "x" * 5000,
        "https://example.org/cat.png",
        "file://elsewhere.example/etc/hostname",
        "file:relative.png",
        "file://",
        "C:\\Users\\me\\cat.png",
    ],
)
def test_ordinary_text(text: str) -> None:
    assert parse_paths(text) is None


def test_a_word_that_is_a_file_stays_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("README", "notes.txt", "cat.png", "two cats.JPG"):
        (tmp_path / name).touch()
    (tmp_path / "src").mkdir()
    for text in ("README", "src", "notes.txt", "README notes.txt", "README cat.png"):
        assert parse_paths(text) is None
    assert parse_paths("cat.png") == [Path("cat.png")]
    assert parse_paths("two cats.JPG") == [Path("two cats.JPG")]
    assert parse_paths("./README") == [Path("README")]


def test_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = _touch(tmp_path, "my cat.png")
    assert parse_paths("~/my\\ cat.png") == [path]
    assert parse_paths("~/my cat.png\n") == [path]
    assert parse_paths("'~/my cat.png'") == [path]
    assert parse_paths("$HOME/my cat.png") is None
    assert parse_paths("~nobody-of-that-name/cat.png") is None


def test_unquoted_names_with_spaces_in_a_row(tmp_path: Path) -> None:
    one, two = _touch(tmp_path, "one cat.png"), _touch(tmp_path, "two cats.png")
    assert parse_paths(f"{one} {two}") == [one, two]
    assert parse_paths(f"{one}\n{two}\n") == [one, two]
    assert parse_paths(f"{one}\r\n{_url(str(two))}") == [one, two]


def test_a_name_that_looks_quoted_is_taken_as_it_is(tmp_path: Path) -> None:
    for name in ("'x'.png", "a\\ b.png", "%20.png", "~"):
        path = _touch(tmp_path, name)
        _touch(tmp_path, "a b.png")
        assert parse_paths(str(path)) == [path]


def test_urls(tmp_path: Path) -> None:
    path = _touch(tmp_path, "ä %41.png")
    assert parse_paths(_url(str(path))) == [path]
    assert parse_paths(f"file:{quote(str(path))}") == [path]
    assert parse_paths(f"file://{socket.gethostname()}{quote(str(path))}") == [path]


def test_one_missing_file_makes_it_text(tmp_path: Path) -> None:
    path = _touch(tmp_path, "here.png")
    assert parse_paths(f"{path} {tmp_path}/gone.png") is None
    assert parse_paths(f"{path}\n{tmp_path}/gone.png") is None


def test_a_drop_of_ten_files_and_a_folder(tmp_path: Path) -> None:
    paths = [_touch(tmp_path, f"frame {number}.png") for number in range(10)]
    assert parse_paths(" ".join(_backslashed(str(path)) for path in paths) + " ") == paths
    assert parse_paths(str(tmp_path)) == [tmp_path]


def test_open_quotes_are_no_words() -> None:
    assert split_words("it's") is None
    assert split_words('say "') is None
    assert split_words("end\\") is None
    assert split_words("") == []
    assert split_words("''") == [""]


def test_looks_like_media(tmp_path: Path) -> None:
    corners().save(tmp_path / "noname", "PNG")
    (tmp_path / "note.txt").write_text("hello")
    (tmp_path / "empty.JPG").touch()
    (tmp_path / "folder.png").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    assert looks_like_media(tmp_path / "noname")
    assert looks_like_media(tmp_path / "empty.JPG")
    for name in ("note.txt", "folder.png", "pipe.png", "gone.png"):
        assert not looks_like_media(tmp_path / name)


def test_a_name_that_typescript_has_too_is_decided_by_the_content(tmp_path: Path) -> None:
    packets = b"".join(b"\x47" + bytes(187) for _ in range(30))
    (tmp_path / "app.ts").write_text("Good day\n" * 500)
    (tmp_path / "clip.ts").write_bytes(packets)
    (tmp_path / "camera.MTS").write_bytes(b"".join(bytes(4) + packets[:188] for _ in range(30)))
    assert not looks_like_media(tmp_path / "app.ts")
    assert looks_like_media(tmp_path / "clip.ts")
    assert looks_like_media(tmp_path / "camera.MTS")


def test_a_path_that_is_no_picture_stays_text(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    corners().save(tmp_path / "a.png")
    assert pasted_media(str(tmp_path / "note.txt")) is None
    assert pasted_media(str(tmp_path)) is None
    assert pasted_media("just words") is None
    both = [tmp_path / "note.txt", tmp_path / "a.png"]
    assert pasted_media(" ".join(map(str, both))) == both
