"""Model configs, weight indexes and family records that somebody else wrote: a value or a named error, always."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.cases import examples
from tests.unit.registry.test_loader import GOOD
from vlmtui.cli import main
from vlmtui.engine.machine import estimate
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.hub_cache import downloaded_models, read_config, snapshot_of, weights_bytes
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import family_of_config, resolve, with_engine_args

DEEP = b"[" * 200_000
CONFIGS = {
    "a list among the architectures": b'{"architectures": [["x"]]}',
    "deep": DEEP,
    "deep inside": b'{"a": ' + DEEP,
    "no object": b"[]",
    "no JSON": b"\xff\xfe",
    "empty": b"",
    "numbers": b'{"architectures": [1, null], "model_type": {"a": 1}, "text_config": [3]}',
    "huge numbers": b'{"architectures": ["Qwen2VLForConditionalGeneration"], "num_hidden_layers": '
    + b"9" * 4000
    + b"}",
}


@pytest.fixture
def registry() -> Registry:
    return Registry.bundled()


def snapshot(cache: Path, name: str, config: bytes) -> Path:
    folder = cache / f"models--{name.replace('/', '--')}" / "snapshots" / "abc"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(config)
    return folder


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_one_odd_config_in_the_cache_leaves_the_list_whole(
    config: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = snapshot(tmp_path / "hub", "evil/m", config)
    snapshot(tmp_path / "hub", "Qwen/Qwen2-VL-7B-Instruct", b'{"model_type": "qwen2_vl"}')
    assert main(["models", "--json"]) == 0
    listed = {one["name"]: one["downloaded"] for one in json.loads(capsys.readouterr().out)}
    assert "Qwen/Qwen2-VL-7B-Instruct" in listed["qwen2_vl"]
    assert main(["models", "show", str(folder)]) in (0, 2)
    assert main(["prompt", str(folder), "hi"]) in (0, 2)
    assert "internal error" not in capsys.readouterr().err


@pytest.mark.parametrize("index", [*CONFIGS.values(), b'{"weight_map": [1]}', b'{"weight_map": {"a": ["b"]}}'])
def test_an_odd_index_of_weights_is_none(index: bytes, tmp_path: Path) -> None:
    folder = snapshot(tmp_path, "owner/m", b"{}")
    (folder / "model.safetensors").write_bytes(b"12345")
    (folder / "model.safetensors.index.json").write_bytes(index)
    assert weights_bytes(folder) == 5
    assert [one.name for one in downloaded_models(tmp_path)] == ["owner/m"]


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "huge"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    folder = snapshot(tmp_path, "owner/m", b"{}")
    for file in (folder / "config.json", folder / "model.safetensors.index.json", tmp_path / "mine.toml"):
        file.unlink(missing_ok=True)
        match kind:
            case "fifo":
                os.mkfifo(file)
            case "device":
                file.symlink_to("/dev/zero")
            case "folder":
                file.mkdir()
            case _:
                with file.open("wb") as made:
                    made.truncate(10**12)
    with pytest.raises(VlmtuiError, match=r"no readable config\.json"):
        read_config(folder)
    assert weights_bytes(folder) == 0
    (warning,) = Registry.with_users(tmp_path).warnings
    assert "mine.toml" in str(warning)


@pytest.mark.parametrize("main_commit", [b"../../../etc", b"/etc", b"\xff", b"a\0b", b"x" * 10_000])
def test_the_name_of_a_snapshot_stays_in_its_folder(main_commit: bytes, tmp_path: Path) -> None:
    folder = snapshot(tmp_path, "owner/m", b"{}")
    refs = folder.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_bytes(main_commit)
    assert snapshot_of("owner/m", tmp_path) == folder
    (refs / "main").unlink()
    os.mkfifo(refs / "main")
    assert snapshot_of("owner/m", tmp_path) == folder


WRONG = {
    "no model": ('models = ["me/mine"]', "models = []", "models"),
    "a part of a package": ("[raw]", '[[routes]]\nneeds = ["evilpkg.sub"]\n[raw]', "needs"),
    "a version of 5,000 digits": ("[raw]", f'[[routes]]\nsince = "{"9" * 5000}"\n[raw]', "since"),
    "deep": ('title = "Mine"', "title = " + "[" * 50_000, "not valid TOML"),
    "a number of 5,000 digits": ('title = "Mine"', "title = " + "9" * 5000, "not valid TOML"),
}


@pytest.mark.parametrize(("old", "new", "said"), WRONG.values(), ids=WRONG)
def test_a_wrong_record_is_a_warning_and_runs_nothing(
    old: str, new: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "packages" / "evilpkg"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("VLMTUI_DATA_DIR", str(tmp_path / "data"))
    families = tmp_path / "data" / "config" / "families"
    families.mkdir(parents=True)
    (families / "mine.toml").write_text(GOOD.replace(old, new))
    (warning,) = Registry.with_users(families).warnings
    assert "mine.toml" in str(warning) and said in str(warning)
    for command in (["models"], ["models", "show", "shapes"], ["prompt", "shapes", "hi"]):
        assert main(command) == 0
    assert "mine.toml" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists() and "evilpkg" not in sys.modules


@pytest.mark.parametrize("value", ["[" * 50_000, "9" * 5000])
def test_an_engine_argument_is_toml_or_text(value: str, registry: Registry) -> None:
    model = with_engine_args(resolve(registry, "shapes"), [f"x={value}"])
    assert model.spec.engine_args["x"] == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    [
        "architectures",
        "model_type",
        "text_config",
        "vision_config",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "hidden_size",
        "head_dim",
        "max_position_embeddings",
        "torch_dtype",
        "quantization_config",
    ]
)
NUMBERS = st.integers(min_value=-(10**400), max_value=10**400) | st.just(True)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=st.dictionaries(FIELDS, JSON | NUMBERS | st.dictionaries(FIELDS, NUMBERS), max_size=8))
def test_no_config_at_all_ends_anything(config: dict[str, object], tmp_path: Path) -> None:
    registry = Registry.bundled()
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"1")
    try:
        family_of_config(registry, read_config(tmp_path), "owner/name")
        estimate(resolve(registry, str(tmp_path)))
    except VlmtuiError as error:
        assert error.kind in (ErrorKind.MODEL_UNKNOWN, ErrorKind.BAD_INPUT)


@pytest.mark.parametrize("name", ["\0", "a/\0b", "x" * 5000])
def test_a_name_that_no_folder_can_have_is_of_no_download(name: str, tmp_path: Path) -> None:
    (tmp_path / "hub").mkdir()
    assert snapshot_of(name, tmp_path / "hub") is None
