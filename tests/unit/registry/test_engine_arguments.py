"""Engine arguments that only a person may set: the tables, and the gate before a launch."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import msgspec
import pytest

from vllm_arguments import KNOWN, declared
from vlmtui.config.settings import EngineSettings
from vlmtui.domain.conversation import Modality
from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.engine_arguments import GUARDED, HARMLESS, Names, check_engine_args, names_of, refused_argument
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import engine_args_of, model_of, with_engine_args
from vlmtui.registry.routes import choices_of
from vlmtui.worker.backends.remote.options import ServerOptions
from vlmtui.worker.backends.transformers.loading import Arguments

CLASSED = HARMLESS.union(*GUARDED.values())


def test_every_argument_of_the_installed_vllm_is_classed() -> None:
    """A new version of vLLM brings arguments: each goes into one of the tables, after a look at what it names."""
    found = importlib.util.find_spec("vllm")
    assert found is not None and found.submodule_search_locations
    names = declared(Path(found.submodule_search_locations[0]))
    assert len(names) > 250
    assert names - CLASSED == set()


@pytest.mark.parametrize("version", ["0.23.0", "0.32.0", "0.33.0"])
def test_every_argument_of_a_known_vllm_is_classed(version: str) -> None:
    assert set(json.loads(KNOWN.read_text())[version]) - CLASSED == set()


def test_every_argument_of_the_other_backends_is_classed() -> None:
    ours = {*Arguments.__struct_fields__, *ServerOptions.__struct_fields__, *EngineSettings.__struct_fields__}
    assert ours - CLASSED - {"family"} == set()


def test_an_argument_is_in_one_table_only() -> None:
    tables = [HARMLESS, *GUARDED.values()]
    assert sum(map(len, tables)) == len(CLASSED)


@pytest.mark.parametrize(
    "name",
    [
        "trust_remote_code",
        "worker_cls",
        "reasoning_parser_plugin",
        "logits_processors",
        "middleware",
    ],
)
def test_code_is_named_by(name: str) -> None:
    assert names_of(name) is Names.CODE
    assert refused_argument({name: "x"}) == (name, Names.CODE)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"hf_overrides": {"auto_map": {"AutoModel": "evil.Model"}}}, Names.CODE),
        ({"hf_overrides": {"text_config": {"tokenizer_class": "Evil"}}}, Names.CODE),
        ({"mm_processor_kwargs": {"processor": "/tmp/x"}}, Names.CODE),
        ({"quantization": "../evil"}, Names.CODE),
        ({"attention_backend": "evil.module:Backend"}, Names.CODE),
        ({"load_format": "runai_streamer"}, Names.FILE),
        ({"load_format": ["auto"]}, Names.FILE),
        ({"download_dir": "/tmp"}, Names.FILE),
        ({"api_key_file": "/etc/passwd"}, Names.SECRET),
        ({"url": "http://thief"}, Names.ADDRESS),
        ({"device_map": "auto"}, Names.DEVICE),
        ({"model_class_overrides": {"A": "evil.module:Class"}}, Names.CODE),
    ],
)
def test_values_that_name_code_or_files_are_refused(arguments: dict[str, object], kind: Names) -> None:
    refused = refused_argument(arguments)
    assert refused is not None and refused[1] is kind
    assert refused_argument(arguments, frozenset(arguments)) is None


def test_trust_remote_code_is_refused_as_a_typed_argument() -> None:
    spec = with_engine_args(model_of(Registry.bundled()["shapes"]), ["trust_remote_code=true"]).spec
    with pytest.raises(VlmtuiError) as caught:
        check_engine_args(spec)
    assert caught.value.kind is ErrorKind.BAD_ENGINE_ARGUMENT and "--trust-remote-code" in caught.value.hint


def test_an_unknown_argument_is_reported_with_the_nearest() -> None:
    spec = LoadSpec(model="m", name="m", engine_args={"max_model_length": 5})
    with pytest.raises(VlmtuiError, match="does not know") as caught:
        check_engine_args(spec)
    assert caught.value.hint == "Did you mean 'max_model_len'?"
    check_engine_args(msgspec.structs.replace(spec, typed=("max_model_length",)))


def test_typed_arguments_are_passed_on() -> None:
    model = with_engine_args(model_of(Registry.bundled()["shapes"]), ["max-model-len=64", "worker_cls=mine.Worker"])
    assert model.spec.typed == ("max_model_len", "worker_cls")
    check_engine_args(model.spec)
    with pytest.raises(VlmtuiError, match="`worker_cls` names code to run, and you did not type it"):
        check_engine_args(msgspec.structs.replace(model.spec, typed=()))


def test_every_bundled_record_passes_on_every_engine() -> None:
    for family in Registry.bundled().values():
        for choice in [None, *choices_of(family)]:
            limited: list[dict[Modality, int] | None] = [None, {"image": 1}, {"image": 2, "video": 1}]
            for limits in limited:
                assert refused_argument(engine_args_of(family, limits, choice)) is None, family.family


def test_a_plain_spec_passes() -> None:
    check_engine_args(LoadSpec(model="m", name="m", engine_args={"max_model_len": 4096, "dtype": "bfloat16"}))


RECORD = """
family = "mine"
title = "Mine"
models = ["owner/mine"]
architectures = ["MineForConditionalGeneration"]
[takes.image]
placeholder = "<image>"
[raw]
by = "processor"
"""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("[engine_args]\nworker_cls = 'evil.Worker'\n", "'worker_cls' names code to run"),
        ("[engine_args_video]\ndownload_dir = '/tmp'\n", "'download_dir' names a file or folder"),
        ("[[routes]]\nengine_args = { tokenizer = 'evil/one' }\n", "'tokenizer' names another model"),
        ("[[routes]]\nhf_overrides = { auto_map = { AutoModel = 'x.Y' } }\n", "'hf_overrides' names code to run"),
        ("[engine_args]\ntrust_remote_code = true\n", "can't set the engine argument"),
        ("[[routes]]\nengine_args = { trust_remote_code = true }\n", "can't set the engine argument"),
    ],
)
def test_a_users_record_with_a_forbidden_argument_is_a_warning(tmp_path: Path, more: str, said: str) -> None:
    (tmp_path / "mine.toml").write_text(RECORD + more)
    registry = Registry.with_users(tmp_path)
    assert "mine" not in registry
    assert len(registry.warnings) == 1 and said in registry.warnings[0].message


def test_a_users_record_may_set_numbers_and_bundled_arguments(tmp_path: Path) -> None:
    own = "[engine_args]\nmax_model_len = 64\nhf_overrides = { architectures = ['Other'] }\n"
    (tmp_path / "mine.toml").write_text(RECORD + own)
    (tmp_path / "near.toml").write_text('extends = "deepseek_ocr"\nfamily = "near"\ntitle = "N"\nmodels = ["o/n"]\n')
    registry = Registry.with_users(tmp_path)
    assert registry.warnings == ()
    assert "logits_processors" in registry["near"].engine_args
