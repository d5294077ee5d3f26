"""A name, a repository or a folder finds its family."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from vlmtui.domain.engine import FITTED, TRANSFORMERS_BACKEND, BackendChoice
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import bundled_model
from vlmtui.registry.hub_cache import downloaded_models, hub_cache_folder, snapshot_of
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import (
    DEFAULT_MODEL,
    EXAMPLE,
    engine_args_of,
    resolve,
    with_engine_args,
    with_preset,
    with_trust,
)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.bundled()


def a_folder(folder: Path, config: Mapping[str, object] | str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return folder


def a_repository(cache: Path, name: str, config: Mapping[str, object], commit: str = "c0ffee") -> Path:
    root = cache / f"models--{name.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    return a_folder(root / "snapshots" / commit, config)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_the_default_model_ships_with_the_package(registry: Registry) -> None:
    model = resolve(registry, DEFAULT_MODEL)
    assert model.spec.name == "shapes"
    assert model.spec.engine_args["limit_mm_per_prompt"] == {"image": 8, "video": 2}
    assert not model.spec.trust_remote_code
    assert resolve(registry, str(bundled_model())).family.family == "shapes"


def test_every_family_and_every_listed_repository_finds_itself(registry: Registry, cache: Path) -> None:
    for family in registry.values():
        assert resolve(registry, family.family).family is family
        for name in family.models:
            found = resolve(registry, name)
            assert family.family in (found.family.family, *_shared(registry, name))
            assert name.startswith("bundled:") or found.spec.model == name


def _shared(registry: Registry, name: str) -> list[str]:
    return [family.family for family in registry.values() if name in family.models]


@pytest.mark.parametrize(
    ("config", "family"),
    [
        ({"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}, "qwen2_vl"),
        ({"architectures": ["InternVLChatModel"], "model_type": "internvl_chat"}, "internvl_chat"),
        ({"model_type": "idefics3"}, "idefics3"),
        (
            {"architectures": ["LlavaForConditionalGeneration"], "vision_config": {"model_type": "pixtral"}},
            "pixtral_hf",
        ),
        (
            {"architectures": ["PaliGemmaForConditionalGeneration"], "text_config": {"model_type": "gemma2"}},
            "paligemma2",
        ),
    ],
)
def test_a_local_folder_finds_its_family_by_its_config(
    registry: Registry, tmp_path: Path, config: dict[str, object], family: str
) -> None:
    folder = a_folder(tmp_path / "some-finetune", config)
    model = resolve(registry, str(folder))
    assert model.family.family == family
    assert model.spec.model == str(folder)


def test_a_repository_that_is_not_here_is_found_by_the_longest_pattern(registry: Registry, cache: Path) -> None:
    assert resolve(registry, "someone/Qwen2-VL-7B-Instruct-finetuned").family.family == "qwen2_vl"
    assert resolve(registry, "someone/InternVL3-78B-AWQ").family.family == "internvl_chat"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("Qwen/Qwen3.6-27B", "qwen3_5"),
        ("nvidia/Qwen3.6-27B-NVFP4", "qwen3_5"),
        ("Qwen/Qwen3.6-35B-A3B-FP8", "qwen3_5_moe"),
        ("Qwen/Qwen3.8-27B-FP8", "qwen3_5"),
        ("ByteDance-Seed/UI-TARS-1.5-7B", "qwen2_5_vl"),
        ("ByteDance-Seed/UI-TARS-7B-DPO", "qwen2_vl"),
        ("allenai/olmOCR-2-7B-1025-FP8", "qwen2_5_vl"),
        ("allenai/olmOCR-7B-0825", "qwen2_5_vl"),
        ("allenai/olmOCR-7B-0225-preview", "qwen2_vl"),
        ("reducto/RolmOCR", "qwen2_5_vl"),
        ("nanonets/Nanonets-OCR2-3B", "qwen2_5_vl"),
        ("nanonets/Nanonets-OCR2-1.5B-exp", "qwen2_vl"),
        ("allenai/MolmoWeb-8B", "molmo2"),
        ("zai-org/Glyph", "glm4_1v"),
        ("zai-org/GLM-GA", "glm4_1v"),
    ],
)
def test_a_new_name_of_a_known_architecture_finds_its_family(
    registry: Registry, cache: Path, name: str, family: str
) -> None:
    assert resolve(registry, name).family.family == family


@pytest.mark.parametrize("name", ["Qwen/Qwen3.8-2.4T-A95B", "allenai/MolmoWeb-8B-Native"])
def test_a_name_that_only_looks_like_a_familys_has_no_record(registry: Registry, cache: Path, name: str) -> None:
    assert not resolve(registry, name).listed


SEEDS = json.loads((Path(__file__).parent / "seeds.json").read_bytes())["families"]
"""The prompts and engine arguments of the seeds' families, by family and case."""


def test_the_models_of_the_seeds_still_find_their_families(registry: Registry, cache: Path) -> None:
    assert len(SEEDS) == 63
    named = {(case["engine_args"]["model"], family) for family, cases in SEEDS.items() for case in cases.values()}
    found = {name: resolve(registry, name).family.family for name, _ in named if not name.startswith("snapshot:")}
    assert found == {name: family for name, family in named if name in found}
    assert len(found) >= 61  # Phi-4 Multimodal's two families are named by folders


def test_no_newer_record_claims_an_architecture_of_the_seeds(registry: Registry) -> None:
    claimed = {name for family in SEEDS for name in registry[family].architectures}
    newer = [family for family in registry.values() if family.family not in SEEDS and not family.config]
    assert [family.family for family in newer if claimed & set(family.architectures)] == []


def test_the_config_of_a_repository_overrides_its_name(registry: Registry, cache: Path) -> None:
    a_repository(cache, "someone/Qwen2-VL-in-name-only", {"model_type": "idefics3"})
    assert resolve(registry, "someone/Qwen2-VL-in-name-only").family.family == "idefics3"


def test_a_draw_names_the_candidates(registry: Registry, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "mine", {"architectures": ["QWenLMHeadModel"], "visual": {"image_size": 448}})
    with pytest.raises(VlmtuiError, match=r"qwen_vl.*qwen_vl_chat") as caught:
        resolve(registry, str(folder))
    assert caught.value.kind is ErrorKind.MODEL_UNKNOWN


def test_a_model_that_only_vllm_knows_runs_with_its_own_template(registry: Registry, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "new", {"architectures": ["Moondream3ForCausalLM"], "model_type": "moondream3"})
    model = resolve(registry, str(folder))
    assert not model.listed
    assert "not in the registry" in model.family.note.lower()
    assert model.spec.backend == "vllm"


def test_a_model_that_only_transformers_knows_runs_there(registry: Registry, tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "new", {"architectures": ["Idefics2ForConditionalGeneration"]})
    model = resolve(registry, str(folder))
    assert not model.listed
    assert "not in the registry" in model.family.note.lower()
    assert model.spec.backend == "transformers"


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ('{"architectures": ["NobodyKnows"]}', ErrorKind.MODEL_UNKNOWN),
        ("{}", ErrorKind.MODEL_UNKNOWN),
        ("[]", ErrorKind.BAD_INPUT),
        ("{", ErrorKind.BAD_INPUT),
    ],
)
def test_a_folder_that_is_no_known_model_is_refused(
    registry: Registry, tmp_path: Path, config: str, kind: ErrorKind
) -> None:
    with pytest.raises(VlmtuiError) as caught:
        resolve(registry, str(a_folder(tmp_path, config)))
    assert caught.value.kind is kind
    assert caught.value.exit_code == 2


def test_a_folder_without_a_config_is_refused(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError, match=r"no readable config\.json"):
        resolve(registry, str(tmp_path))


def test_a_misspelt_name_gets_the_nearest(registry: Registry) -> None:
    with pytest.raises(VlmtuiError) as caught:
        resolve(registry, "qwen2-vll")
    assert "qwen2_vl" in caught.value.hint


@pytest.mark.parametrize("name", ["", "no[/x]such", "a/b/c", "../x", "~nobody/x", "/no/such", "owner/", "a b/c"])
def test_an_invalid_name_is_refused(registry: Registry, name: str) -> None:
    with pytest.raises(VlmtuiError) as caught:
        resolve(registry, name)
    assert caught.value.kind in (ErrorKind.MODEL_UNKNOWN, ErrorKind.BAD_INPUT)


def test_the_hub_cache_is_looked_through(cache: Path) -> None:
    folder = a_repository(cache, "owner/name", {"model_type": "qwen2_vl"})
    (folder / "model.safetensors").write_bytes(b"x" * 10)
    (cache / "models--owner--empty" / "snapshots").mkdir(parents=True)
    (cache / "datasets--owner--data").mkdir()
    (found,) = downloaded_models()
    assert (found.name, found.folder, found.weights_bytes, found.complete) == ("owner/name", folder, 10, True)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "other.safetensors"}}))
    assert not downloaded_models()[0].complete
    assert snapshot_of("owner/nowhere") is None
    assert hub_cache_folder({"HF_HOME": "/x"}) == Path("/x/hub")


def test_engine_arguments_follow_the_case(registry: Registry) -> None:
    family = registry["idefics3"]
    single = engine_args_of(family, {"image": 1})
    several = engine_args_of(family, {"image": 2})
    assert (single["max_num_seqs"], several["max_num_seqs"]) == (2, 16)
    assert "mm_processor_kwargs" not in {*single, *several}
    assert single["limit_mm_per_prompt"] == {"image": 1, "video": 0}


def test_the_preset_has_the_values_of_vllms_example(registry: Registry) -> None:
    family = registry["idefics3"]
    several = engine_args_of(family, {"image": 2}, preset=EXAMPLE)
    assert several["mm_processor_kwargs"] == {"size": {"longest_edge": 728}}
    assert (several["max_model_len"], several["max_num_seqs"]) == (8192, 16)
    one = engine_args_of(registry["qwen2_vl"], {"image": 1}, preset=EXAMPLE)
    assert one["mm_processor_kwargs"] == {"min_pixels": 784, "max_pixels": 1003520}
    model = resolve(registry, "qwen3_vl")
    small = with_engine_args(with_preset(model, EXAMPLE), ["max_num_seqs=9"]).spec
    assert (model.spec.engine_args["max_model_len"], small.engine_args["max_model_len"]) == (FITTED, 32768)
    assert small.engine_args["mm_processor_kwargs"] == {"min_pixels": 784, "max_pixels": 1003520, "fps": 1}
    assert small.engine_args["max_num_seqs"] == 9 and small.typed == ("max_num_seqs",)
    assert with_preset(model, None) is model
    plain = resolve(registry, "aria")  # its record has the example's values
    assert with_preset(plain, EXAMPLE) == plain


def test_the_preset_is_for_any_engine(registry: Registry) -> None:
    model = with_preset(resolve(registry, "qwen2_vl", BackendChoice(TRANSFORMERS_BACKEND)), EXAMPLE)
    assert set(model.spec.engine_args) == {"max_model_len", "limit_mm_per_prompt", "mm_processor_kwargs"}
    assert model.spec.engine_args["max_model_len"] == 32768


def test_a_user_sets_engine_arguments(registry: Registry) -> None:
    model = with_engine_args(
        resolve(registry, "shapes"),
        ["max-model-len=128", "enforce_eager=true", "kv_cache_dtype=fp8", "mm_processor_kwargs={ fps = 1 }"],
    )
    given = model.spec.engine_args
    assert (given["max_model_len"], given["enforce_eager"], given["kv_cache_dtype"]) == (128, True, "fp8")
    assert given["mm_processor_kwargs"] == {"fps": 1}
    assert given["max_num_seqs"] == 8
    with pytest.raises(VlmtuiError, match="not an engine argument"):
        with_engine_args(model, ["max_model_len"])


def test_trust_is_given_to_one_model_at_a_time(registry: Registry) -> None:
    model = resolve(registry, "internvl_chat")
    assert not model.spec.trust_remote_code
    assert with_trust(model).spec.trust_remote_code
    assert not any(resolve(registry, name).spec.trust_remote_code for name in registry)
