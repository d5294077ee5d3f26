"""Models without a record, and the installed engine that decides whether they run: a package read as source text."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vlmtui.domain.engine import Activity, EngineStatus, LoadSpec
from vlmtui.engines.installed import EngineRecord
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry import architectures
from vlmtui.registry.architectures import engine_architectures, known_architectures, read_architectures
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, family_of_spec, resolve
from vlmtui.registry.unlisted import UNLISTED
from vlmtui.session.models import model_choices

REGISTRY = Registry.bundled()
NEW = "NewestForConditionalGeneration"
VLLM = f"""
import torch_that_is_not_there

_TEXT_GENERATION_MODELS = {{"LlamaForCausalLM": ("llama", "LlamaForCausalLM")}}
_MULTIMODAL_MODELS: dict[str, tuple[str, str]] = {{
    "LlavaForConditionalGeneration": ("llava", "LlavaForConditionalGeneration"),
    "{NEW}": (made_by_a_function(), "{NEW}"),
}}
_TRANSFORMERS_SUPPORTED_MODELS = {{
    "Emu3ForConditionalGeneration": ("transformers", "TransformersMultiModalForCausalLM"),
}}
_VLLM_MODELS = {{**_TEXT_GENERATION_MODELS, **_MULTIMODAL_MODELS}}
_PREVIOUSLY_SUPPORTED_MODELS = {{"GoneForConditionalGeneration": "0.31.0"}}
_OOT_SUPPORTED_MODELS = {{"PluggedForConditionalGeneration": "https://example.org/plugin"}}
"""
TRANSFORMERS = """
MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES = OrderedDict([("vipllava", "VipLlavaForConditionalGeneration")])
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The packages of an installed vLLM 0.99.0, which has one class more; the app's environment has no vLLM."""
    packages = tmp_path / "env" / "lib" / "python3.12" / "site-packages"
    write(packages / "vllm" / "model_executor" / "models" / "registry.py", VLLM)
    write(packages / "transformers" / "models" / "auto" / "modeling_auto.py", TRANSFORMERS)
    use(monkeypatch, packages.parents[2] / "bin" / "python")
    yield packages
    engine_architectures.cache_clear()


def use(monkeypatch: pytest.MonkeyPatch, interpreter: Path) -> None:
    record = EngineRecord(
        name="own", version="0.99.0", variant="added", interpreter=str(interpreter), installed_at=time.time()
    )
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(architectures, "installed_engine", lambda: record)
    for module in ("architectures", "match"):
        monkeypatch.setattr(f"vlmtui.registry.{module}.vllm_version", lambda: "0.99.0")
    engine_architectures.cache_clear()


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def a_model(
    folder: Path, architecture: str, *, template: str = "", tokens: dict[str, int] | None = None, **config: object
) -> Model:
    write(folder / "config.json", json.dumps({"architectures": [architecture], **config}))
    added = [{"id": id, "content": text, "special": True} for text, id in (tokens or {}).items()]
    write(folder / "tokenizer.json", json.dumps({"model": {"vocab": {}}, "added_tokens": added}))
    if template:
        write(folder / "chat_template.jinja", template)
    return resolve(REGISTRY, str(folder))


@pytest.mark.usefixtures("engine")
def test_the_installed_engine_decides_what_can_be_loaded(tmp_path: Path) -> None:
    assert NEW not in known_architectures().multimodal
    model = a_model(tmp_path / "new", NEW)
    assert not model.listed and model.spec.backend == "vllm"
    assert model.family.architectures == (NEW,)
    of_transformers = a_model(tmp_path / "other", "VipLlavaForConditionalGeneration")
    assert of_transformers.spec.backend == "transformers"
    assert a_model(tmp_path / "third", "Emu3ForConditionalGeneration").spec.backend == "vllm"


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("architecture", "told"),
    [
        ("MoonMoonForCausalLM", "A newer vLLM may have it: `vlmtui engines install VERSION`"),
        ("LlamaForCausalLM", "A newer vLLM may have it"),
        ("GoneForConditionalGeneration", "vLLM 0.31.0 had it: `--backend vllm==0.31.0`."),
        ("PluggedForConditionalGeneration", "A plugin of vLLM has it: https://example.org/plugin."),
    ],
)
def test_what_the_engine_lacks_is_refused_with_its_version(tmp_path: Path, architecture: str, told: str) -> None:
    with pytest.raises(VlmtuiError) as caught:
        a_model(tmp_path / "new", architecture)
    assert caught.value.kind is ErrorKind.MODEL_UNKNOWN
    assert caught.value.message == (
        f"Unknown architecture {architecture}: the installed vLLM 0.99.0 has no class of that name for images, videos "
        "or audio, and neither has Transformers."
    )
    assert told in caught.value.hint


@pytest.mark.parametrize("config", [{"architectures": ["MineForConditionalGeneration"]}, {"model_type": "mine"}])
def test_files_can_be_read_of_what_no_engine_knows(tmp_path: Path, config: dict[str, object]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(VlmtuiError, match="Unknown"):
        resolve(REGISTRY, str(tmp_path))
    assert not resolve(REGISTRY, str(tmp_path), to_load=False).listed


def test_without_an_engine_the_version_that_would_be_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Path
) -> None:
    for module in ("architectures", "match"):
        monkeypatch.setattr(f"vlmtui.registry.{module}.vllm_version", lambda: None)
    engine_architectures.cache_clear()
    assert engine_architectures() is known_architectures()
    with pytest.raises(VlmtuiError, match=f"{NEW}: vLLM {known_architectures().vllm} has no class"):
        a_model(tmp_path / "new", NEW)


def test_an_engine_whose_source_has_another_form_falls_back_to_the_known_list(engine: Path) -> None:
    for text in ("_MULTIMODAL_MODELS = load()", "_MULTIMODAL_MODELS = {", "\0"):
        write(engine / "vllm" / "model_executor" / "models" / "registry.py", text)
        engine_architectures.cache_clear()
        assert engine_architectures() is known_architectures()


def test_the_folder_of_an_editable_installation_is_asked_of_its_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Path
) -> None:
    interpreter = write(
        tmp_path / "own" / "bin" / "python",
        f'#!/bin/sh\necho \'{{"vllm": "{engine}/vllm/__init__.py"}}\'\n',
    )
    interpreter.chmod(0o700)
    use(monkeypatch, interpreter)
    assert NEW in engine_architectures().multimodal
    assert engine_architectures().transformers == ()


def test_the_list_of_a_package_is_read_without_importing_it(engine: Path) -> None:
    found = read_architectures("1.0", engine / "vllm", engine / "transformers")
    assert found.multimodal == ("Emu3ForConditionalGeneration", "LlavaForConditionalGeneration", NEW)
    assert found.removed == {"GoneForConditionalGeneration": "0.31.0"}
    assert read_architectures("1.0", engine / "vllm", engine / "elsewhere").transformers == ()


@pytest.mark.usefixtures("engine")
def test_the_engines_own_class_overrides_a_name_like_that_of_a_family(tmp_path: Path) -> None:
    assert not a_model(tmp_path / "llava-1.5-new", NEW).listed
    assert a_model(tmp_path / "llava-1.5-7b", "SomebodysOwn").family.family == "llava"


@pytest.mark.usefixtures("engine")
def test_the_config_tells_placeholders_media_and_context(tmp_path: Path) -> None:
    model = a_model(
        tmp_path / "new", NEW, template="{{ '<image>' }}", tokens={"<image>": 7, "<sound>": 8},
        image_token_index=7, audio_token_id=8, vision_config={}, text_config={"max_position_embeddings": 8192},
    )  # fmt: skip
    takes = model.family.takes
    assert {modality: one.placeholder for modality, one in takes.items()} == {
        "image": "<image>",
        "video": "",
        "audio": "",
    }
    assert model.family.context == 8192
    assert "Not in the registry" in model.family.note


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    "facts",
    [
        {"template": "{{ '<start_of_image>' }}", "tokens": {"<image_soft_token>": 7}, "image_token_index": 7},
        {"template": "<image>", "tokens": {}, "image_token_id": 7},
        {"template": "<image>", "tokens": {"<image>": 7}, "image_token_id": "7"},
        {"tokens": {"<image>": 7}, "image_token_id": 7},
    ],
)
def test_a_token_that_the_template_does_not_write_is_no_placeholder(tmp_path: Path, facts: dict[str, object]) -> None:
    model = a_model(tmp_path / "new", NEW, **facts)  # type: ignore[arg-type]
    assert model.family.takes["image"].placeholder == ""


@pytest.mark.usefixtures("engine")
def test_a_model_for_audio_takes_neither_images_nor_videos(tmp_path: Path) -> None:
    assert set(a_model(tmp_path / "new", NEW, audio_config={}).family.takes) == {"audio"}
    assert set(a_model(tmp_path / "omni", NEW, audio_config={}, vision_config={}).family.takes) == {
        "image",
        "video",
        "audio",
    }


def test_a_running_engine_without_a_record_is_listed_and_can_be_continued() -> None:
    served = LoadSpec(model="mystery", name="mystery at http://box:8000", backend="remote")
    gone = LoadSpec(model="/gone/model", name="/gone/model")
    for spec in (served, gone):
        family = family_of_spec(REGISTRY, spec)
        assert (family.family, family.title) == (UNLISTED, spec.name)
        status = EngineStatus(
            spec=spec,
            state=Activity.IDLE,
            clients=0,
            running=0,
            idle_s=0,
            keep_alive_s=None,
            rss_bytes=0,
            gpu_bytes=None,
        )
        rows = [row for row in model_choices(REGISTRY, running=[status]) if row.running]
        assert [row.model.spec for row in rows] == [spec]
    known = LoadSpec(model="m", name="m at http://box:8000", backend="remote", family="llava")
    assert family_of_spec(REGISTRY, known) is REGISTRY["llava"]
