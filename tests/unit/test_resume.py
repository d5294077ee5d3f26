"""A stored conversation names a model; this machine decides how to load it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from vlmtui.config.settings import EngineSettings
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.registry.engine_arguments import GUARDED, check_engine_args
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of
from vlmtui.session.resume import ResumePoint, not_used, resumed_model, stored_model, stored_sampling
from vlmtui.store.records import ConversationId, GenerationRecord, StoredModel

REGISTRY = Registry.bundled()
LAB = EngineSettings(url="http://lab:8000/v1", api_key_env="LAB_KEY", headers={"X-Team": "env:TEAM"})


def point(made_by: StoredModel | None, *, imported: bool = False, model: str = "") -> ResumePoint:
    record = GenerationRecord(model="m", made_by=made_by, imported=imported)
    return ResumePoint(ConversationId("c"), model, record, imported)


def downloaded(cache: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    (cache / f"models--{name.replace('/', '--')}" / "snapshots" / "abc").mkdir(parents=True)


@pytest.mark.parametrize("imported", [False, True])
def test_the_bundled_model_is_this_machines(imported: bool) -> None:
    """Its folder differs between machines."""
    there = StoredModel(name="shapes", model="/opt/vlmtui/bundled/shapes", family="shapes")
    assert resumed_model(REGISTRY, {}, point(there, imported=imported)) == model_of(REGISTRY["shapes"])


def test_the_stored_description_of_a_model_gives_back_that_model() -> None:
    for family in REGISTRY.values():
        model = model_of(family)
        assert resumed_model(REGISTRY, {}, point(stored_model(model.spec))).spec == model.spec


def test_a_revision_and_the_kind_of_engine_are_kept_by_name() -> None:
    name = "Qwen/Qwen2-VL-2B-Instruct"
    stored = StoredModel(name=name, model=name, family="qwen2_vl", revision="refs/pr/7", backend="transformers")
    spec = resumed_model(REGISTRY, {}, point(stored)).spec
    assert (spec.model, spec.backend, spec.revision) == (name, "transformers", "refs/pr/7")
    assert not spec.trust_remote_code and spec.typed == ()
    odd = msgspec.structs.replace(stored, revision="--trust-remote-code")
    assert resumed_model(REGISTRY, {}, point(odd)).spec.revision is None


def test_nothing_else_can_be_stored() -> None:
    """The stored record contains only names, not the spec's engine arguments."""
    spec = LoadSpec(
        model="m", name="m", engine_args={name: "x" for words in GUARDED.values() for name in words}, typed=("url",)
    )
    assert set(msgspec.to_builtins(stored_model(spec))) == {
        "name", "model", "family", "revision", "backend", "pinned", "server",
    }  # fmt: skip


def test_a_server_is_used_as_config_toml_has_it() -> None:
    stored = StoredModel(
        name="cats at lab", model="cats", family="qwen2_vl", backend="remote", server="http://lab:8000"
    )
    model = resumed_model(REGISTRY, {"lab": LAB}, point(stored, imported=True))
    assert model.spec.engine_args["url"] == LAB.url and model.spec.engine_args["api_key_env"] == "LAB_KEY"
    assert model.spec.engine_args["model"] == "cats" and model.family.family == "qwen2_vl"
    check_engine_args(model.spec)


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("server", ["http://thief", "http://lab:8001", "https://lab:8000", "http://u:p@lab:8000", ""])
def test_another_server_is_named_and_not_used(server: str, imported: bool) -> None:
    stored = StoredModel(name="cats", model="cats", family="shapes", backend="remote", server=server)
    with pytest.raises(VlmtuiError, match="not contacted") as caught:
        resumed_model(REGISTRY, {"lab": LAB}, point(stored, imported=imported))
    assert "Known here: lab" in caught.value.hint


@pytest.mark.parametrize("family", ["shapes", "qwen2_vl", None])
def test_a_folder_of_another_machine_is_not_loaded(family: str | None, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["Qwen2VLForConditionalGeneration"]}')
    stored = StoredModel(name=str(tmp_path), model=str(tmp_path), family=family)
    with pytest.raises(VlmtuiError, match="not on this machine"):
        resumed_model(REGISTRY, {}, point(stored, imported=True))
    assert resumed_model(REGISTRY, {}, point(stored)).spec.model == str(tmp_path)


@pytest.mark.parametrize("name", ["evil", "owner/evil", "./evil", "~/evil"])
def test_a_model_name_never_means_a_local_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in (tmp_path / "evil", tmp_path / "owner" / "evil"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"architectures": ["Qwen2VLForConditionalGeneration"]}')
    with pytest.raises(VlmtuiError):
        resumed_model(REGISTRY, {}, point(StoredModel(name=name, model=name), imported=True))
    with pytest.raises(VlmtuiError):
        resumed_model(REGISTRY, {}, point(None, imported=True, model=name))


def test_an_imported_conversation_downloads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "Qwen/Qwen2-VL-2B-Instruct"
    stored = StoredModel(name=name, model=name, family="qwen2_vl")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(VlmtuiError, match="not on this machine"):
        resumed_model(REGISTRY, {}, point(stored, imported=True))
    downloaded(tmp_path, name, monkeypatch)
    assert resumed_model(REGISTRY, {}, point(stored, imported=True)).spec.model == name


def test_unused_parts_of_a_document_are_reported() -> None:
    made_by = StoredModel(name="cats", model="cats", backend="remote", server="http://thief")
    record = GenerationRecord(
        model="m",
        engine="vLLM",
        engine_version="0.32.0",
        engine_args={"worker_cls": "evil\x1b[31m"},
        adapter="/x",
        made_by=made_by,
        imported=True,
    )
    assert not_used(record) == (
        "Imported. Made with cats on vLLM 0.32.0 at http://thief; not used here: adapter /x, worker_cls=evil␛[31m."
    )
    assert not_used(GenerationRecord(model="m", engine_args={"a": 1})) == ""


@pytest.mark.parametrize(
    "extra",
    [
        {"kv_transfer_params": {"host": "thief"}},
        {"model": "other"},
        {"mm_processor_kwargs": {"tokenizer": "/tmp/x"}},
        {"mm_processor_kwargs": {"auto_map": "x"}},
        {"extra_args": {"kv_transfer_params": {"do_remote_decode": True}}},
        {"media_io_kwargs": {"video": {"num_frames": -1}}},
    ],
)
def test_only_the_dials_of_a_stored_sampling_are_used(extra: dict[str, object]) -> None:
    dials = {
        "min_tokens": 3,
        "mm_processor_kwargs": {"size": {"longest_edge": 64}},
        "structured_outputs": {"regex": "a"},
    }
    sampling = Sampling(temperature=0.5, extra={**dials, **extra})
    taken = stored_sampling(sampling)
    assert taken.temperature == 0.5
    assert taken.extra == {name: value for name, value in dials.items() if name not in extra}


def test_the_bundled_records_sampling_is_used_completely() -> None:
    for family in REGISTRY.values():
        if family.sampling is not None:
            assert stored_sampling(family.sampling) == family.sampling
