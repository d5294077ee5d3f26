"""The arguments of `/attach`: paths, patterns, folders and addresses. No file is lost, no search is endless."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import examples
from vlmtui.media.gather import ASK_ABOVE, GatherResult, gather, natural_key


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that names count from; the process stands elsewhere."""
    made, elsewhere = tmp_path / "base", tmp_path / "elsewhere"
    made.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("HOME", str(made))
    return made


def _make(base: Path, *names: str) -> list[Path]:
    paths = [base / name for name in names]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return paths


def _names(found: GatherResult, base: Path) -> list[str]:
    assert found.problems == ()
    return [str(path.relative_to(base)) for path in found.paths]


def _problems(found: GatherResult) -> list[str]:
    return [problem.message for problem in found.problems]


def test_paths_in_any_quoting(base: Path) -> None:
    one, two, three = _make(base, "my cat.png", "it's.png", "notes.txt")
    for text in (
        "my cat.png",
        " my cat.png\n",
        "'my cat.png'",
        "my\\ cat.png",
        str(one),
        "./my cat.png",
        "~/my cat.png",
    ):
        assert gather(text, base=base) == GatherResult(paths=(one,)), text
    assert gather("it's.png", base=base).paths == (two,)
    assert gather("'my cat.png' \"it's.png\" notes.txt", base=base).paths == (one, two, three)
    assert gather(f"{one} {two}", base=base).paths == (one, two)
    assert gather(one.as_uri(), base=base).paths == (one,)
    assert gather(f"{one.as_uri()} https://host/x.png", base=base).paths == (one,)


def test_relative_names_count_from_base(base: Path) -> None:
    (here,) = _make(base, "cat.png")
    _make(base.parent, "elsewhere/cat.png", "elsewhere/only.png")
    assert gather("cat.png", base=base).paths == (here,)
    assert _problems(gather("only.png", base=base)) == ["only.png does not exist."]


def test_patterns(base: Path) -> None:
    _make(base, "10.png", "2.png", "1.PNG", "a.jpg", ".hidden.png", "notes.txt", "shots/b.png", "shots/deep/c.png")
    _make(base, ".git/x.png", "sub.png/inner.png")
    expected = {
        "*.png": ["2.png", "10.png"],
        "*.[pP][nN][gG]": ["1.PNG", "2.png", "10.png"],
        "?.png": ["2.png"],
        "*": ["1.PNG", "2.png", "10.png", "a.jpg"],
        "shots/*": ["shots/b.png"],
        "sh*/*.png": ["shots/b.png"],
        "**/*.png": ["2.png", "10.png", "shots/b.png", "shots/deep/c.png", "sub.png/inner.png"],
        "shots/**": ["shots/b.png", "shots/deep/c.png"],
        "**/**/c.png": ["shots/deep/c.png"],
        ".*.png": [".hidden.png"],
        "shots/../*.jpg": ["shots/../a.jpg"],
        "~/*.jpg": ["a.jpg"],
        "*.jpg *.png": ["a.jpg", "2.png", "10.png"],
        "2.png *.png": ["2.png", "10.png"],
    }
    for text, names in expected.items():
        assert _names(gather(text, base=base), base) == names, text
    assert _names(gather(f"{base}/*.jpg", base=base.parent), base) == ["a.jpg"]


def test_a_pattern_in_a_folder_with_spaces(base: Path) -> None:
    paths = _make(base, "my shots/1.png", "my shots/2.png", "other/3.png")
    for text in ("my shots/*.png", "'my shots/*.png'", "my\\ shots/*", f"{base}/my shots/*.png"):
        assert gather(text, base=base).paths == tuple(paths[:2]), text


def test_a_name_that_holds_a_pattern_wins(base: Path) -> None:
    star, red, inner = _make(base, "a*.png", "[red].png", "[x] y/1.png")
    _make(base, "ab.png", "r.png", "x/1.png")
    assert gather("a*.png", base=base).paths == (star,)
    assert gather("[red].png", base=base).paths == (red,)
    assert gather("'a*.png' '[red].png'", base=base).paths == (star, red)
    for text in ("[x] y/*.png", "'[x] y/*.png'", f"{base}/[x] y/*.png"):
        assert gather(text, base=base).paths == (inner,)


def test_folders(base: Path) -> None:
    _make(base, "shots/10.png", "shots/9.png", "shots/.h.png", "shots/deep/x.png", "shots/t.txt", "none/t.txt")
    for text in ("shots", "shots/", "./shots"):
        assert _names(gather(text, base=base), base) == ["shots/9.png", "shots/10.png"]
    assert _problems(gather("none", base=base)) == ["There are no images or videos in the folder none."]


def test_addresses(base: Path) -> None:
    (cat,) = _make(base, "cat.png")
    found = gather("https://host/a.png?x='1' cat.png http://host/b.png", base=base)
    assert found.urls == ("https://host/a.png?x=1", "http://host/b.png") and found.paths == (cat,)
    alone = "https://host/it's.png?a=1&b=*"
    assert gather(f" {alone}\n", base=base) == GatherResult(urls=(alone,))
    assert gather(f"{alone} cat.png", base=base) == GatherResult(urls=(alone,), paths=(cat,))


def test_bad_files_are_reported_and_the_others_kept(base: Path) -> None:
    (cat,) = _make(base, "cat.png")
    (base / "dangling.png").symlink_to("nothing")
    found = gather("gone.png cat.png *.mp4 dangling.png ftp://host/x.png", base=base)
    assert found.paths == (cat,)
    gone, pattern, dangling, ftp = _problems(found)
    assert gone == "gone.png does not exist."
    assert pattern == "*.mp4 matches no image or video."
    assert "link to nothing" in dangling
    assert "does not exist" in ftp


@pytest.mark.parametrize(
    "text", ["", " \n", "a\0b", "x" * 200_000, "/" + "y" * 5000, "it's", "~nobody-such/x", "\ud800", "**"]
)
def test_nothing_useful(base: Path, text: str) -> None:
    found = gather(text, base=base)
    assert found.paths == () and found.urls == () and found.problems
    assert all(len(problem.message) < 400 for problem in found.problems)


def test_control_characters_are_made_visible(base: Path) -> None:
    assert "\x1b" not in "".join(_problems(gather("$'\\e[31m*.png' $'\\e]0;x'", base=base)))


def test_links_in_circles_end(base: Path) -> None:
    (cat,) = _make(base, "a/cat.png")
    (base / "a" / "up").symlink_to(base)
    assert gather("**/*.png", base=base).paths == (cat,)


def test_the_search_is_bounded(base: Path) -> None:
    _make(base, *(f"{number}.png" for number in range(50)), *(f"deep/{number}/x.txt" for number in range(50)))
    found = gather("*.png", base=base, files_max=30)
    assert len(found.paths) == 30
    assert _problems(found) == ["Only the first 30 files are attached."]
    found = gather("**/*.mp4", base=base, entries_max=60)
    assert found.paths == () and len(found.problems) == 1 and "Too many files to search" in found.problems[0].message
    assert gather("**/*.png", base=base).problems == ()
    assert ASK_ABOVE == 20


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read(base: Path) -> None:
    (base / "closed").mkdir(mode=0)
    assert "permission denied" in _problems(gather("closed", base=base))[0]


def test_natural_order() -> None:
    names = ["b.png", "a10.png", "a2.png", "A3.png", "٣.png", "1" * 200 + ".png", "a.png", "x/2.png", "x/10.png"]
    ordered = [str(path) for path in sorted(map(Path, names), key=natural_key)]
    assert ordered.index("a2.png") < ordered.index("A3.png") < ordered.index("a10.png") < ordered.index("b.png")
    assert ordered.index("x/2.png") < ordered.index("x/10.png")


@given(name=st.text(alphabet="abc \n'\"\\*?[]~$!#\u202e\udcff.-", min_size=1, max_size=20))
@settings(max_examples=examples(200), deadline=None)
def test_a_quoted_name_gives_the_file(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    if name in (".", ".."):
        return
    folder = tmp_path_factory.mktemp("nasty")
    path = folder / name
    path.touch()
    assert gather(shlex.quote(str(path)), base=Path("/")) == GatherResult(paths=(path,))
    assert gather(shlex.quote(f"./{name}"), base=folder) == GatherResult(paths=(path,))


@given(text=st.text(alphabet=st.sampled_from("ab *?[]!-/~.'\"\\$\n:\0\udcff"), max_size=30))
@settings(max_examples=examples(300), deadline=None)
def test_any_text_is_answered(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    found = gather(text, base=tmp_path_factory.getbasetemp() / "empty", entries_max=100, files_max=10)
    assert found.paths or found.urls or found.problems or not text.strip(" \t\r\n'\"\\$")
