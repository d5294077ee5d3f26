"""Records from files: the package's, a user's own, and those that are wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry, parse_family
from vlmtui.registry.match import resolve
from vlmtui.registry.skeleton import skeleton

GOOD = """
family = "mine"
title = "Mine"
models = ["me/mine"]
architectures = ["MineForConditionalGeneration"]

[takes.image]
placeholder = "<image>"

[raw]
user = "{content}"
assistant = "{content}"
"""


def test_a_users_record_adds_a_family(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    registry = Registry.with_users(tmp_path)
    assert resolve(registry, "me/mine").family.title == "Mine"
    assert "shapes" in registry
    assert not registry.warnings


def test_records_are_read_lazily_except_the_bundled_models(tmp_path: Path) -> None:
    registry = Registry.with_users(tmp_path)
    assert list(registry.at_hand()) == ["shapes"]
    (tmp_path / "mine.toml").write_text(GOOD)
    assert "mine" in registry
    assert registry.at_hand() is registry


def test_a_users_record_changes_a_known_family(tmp_path: Path) -> None:
    text = (
        'family = "qwen2_vl"\nextends = "qwen2_vl"\ntitle = "Q"\nmodels = ["me/q"]\n[engine_args]\nmax_model_len = 99\n'
    )
    (tmp_path / "q.toml").write_text(text)
    family = Registry.with_users(tmp_path)["qwen2_vl"]
    assert (family.title, family.models) == ("Q", ("me/q",))
    assert (family.engine_args["max_model_len"], family.engine_args["max_num_seqs"]) == (99, 5)


@pytest.mark.parametrize(
    ("change", "said", "hint"),
    [
        (("placeholder =", "place_holder ="), r"bad\.toml: .*unknown field `place_holder` - at `\$\.takes", ""),
        (("title = ", "title = 3 # "), r"bad\.toml: Expected `str`, got `int` - at `\$\.title`", ""),
        (("[takes.image]", "[takes.sound]"), r"Invalid model record .*bad\.toml", ""),
        (('family = "mine"', ""), r"bad\.toml has no field 'family'", "family ="),
        (("[raw]", "[raw"), r"bad\.toml is not valid TOML", ""),
        (('title = "Mine"', ""), r"bad\.toml: .*missing required field `title`", ""),
        (
            ('title = "Mine"', 'title = "Mine"\nextends = "qwen2-vl"'),
            r"unknown family 'qwen2-vl'",
            "qwen2_vl",
        ),
    ],
)
def test_a_users_bad_record_is_a_warning_and_harms_nothing_else(
    tmp_path: Path, change: tuple[str, str], said: str, hint: str
) -> None:
    (tmp_path / "bad.toml").write_text(GOOD.replace(*change))
    (tmp_path / "good.toml").write_text(GOOD.replace('"mine"', '"good"'))
    registry = Registry.with_users(tmp_path)
    assert "good" in registry
    assert "mine" not in registry
    (warning,) = registry.warnings
    with pytest.raises(VlmtuiError, match=said):
        raise warning
    assert hint in warning.hint


def test_a_file_that_is_not_text_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.toml").mkdir()
    assert len(Registry.with_users(tmp_path).warnings) == 2


def test_a_missing_folder_is_no_fault(tmp_path: Path) -> None:
    assert not Registry.with_users(tmp_path / "nowhere").warnings


def test_extends_goes_one_level(tmp_path: Path) -> None:
    extending = next((name for name in Registry.bundled() if _extends(name)), None)
    if extending is None:
        pytest.skip("no record of the package extends another")
    (tmp_path / "mine.toml").write_text(f'family = "mine"\nextends = "{extending}"\ntitle = "M"\nmodels = ["a/b"]\n')
    (warning,) = Registry.with_users(tmp_path).warnings
    assert "itself extends another family" in warning.message


def _extends(name: str) -> bool:
    import vlmtui.registry

    file = Path(vlmtui.registry.__file__).parent / "families" / f"{name}.toml"
    return file.exists() and "\nextends = " in file.read_text()


@pytest.mark.parametrize("known", [None, "qwen2_vl"])
def test_the_skeleton_is_a_valid_record(tmp_path: Path, known: str | None) -> None:
    bundled = Registry.bundled()
    name = known or "brand-new"
    (tmp_path / f"{name}.toml").write_text(skeleton(name, bundled.get(name)))
    registry = Registry.with_users(tmp_path)
    assert not registry.warnings
    assert registry[name].family == name


def test_a_record_of_the_package_names_its_file() -> None:
    with pytest.raises(VlmtuiError, match=r"broken\.toml: .*`placeholders`"):
        parse_family(b'family = "x"\nplaceholders = 1', "broken.toml")


def test_loading_every_record_brings_in_nothing_heavy() -> None:
    program = (
        "import sys; from vlmtui.registry.loader import Registry; from vlmtui.registry.match import resolve;"
        "resolve(Registry.bundled(), 'qwen2_vl');"
        "print(sorted({'vllm', 'torch', 'transformers', 'jinja2', 'textual', 'PIL', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
