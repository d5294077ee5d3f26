"""LoRA adapters in folders, and plans over them."""

from __future__ import annotations

import json
import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vlmtui.domain.conversation import Modality, user_turn
from vlmtui.domain.engine import LoraAdapter, adapter_for
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve, with_engine_args
from vlmtui.session.adapters import (
    adapters_near,
    find_adapter,
    list_adapters,
    takes_adapter,
    with_adapters,
)
from vlmtui.session.fan_out import parse_plan, planned_specs, verdict
from vlmtui.session.generation import make_request
from vlmtui.session.lanes import LaneScore, TokenDrop
from vlmtui.session.settings import ChatSettings
from vlmtui.worker.backends.vllm.engine import AdapterShelf
from vlmtui.worker.backends.vllm.engine_args import engine_arguments

REGISTRY = Registry.bundled()


def make(folder: Path, **config: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 8, "peft_type": "LORA", **config}))
    return folder


def test_a_folder_with_a_lora_is_an_adapter(tmp_path: Path) -> None:
    adapter = find_adapter(str(make(tmp_path / "ocr", base_model_name_or_path="owner/base")))
    assert (adapter.name, adapter.rank, adapter.base) == ("ocr", 8, "owner/base")


def test_the_bundled_models_adapter_has_a_name_and_is_found_beside_it() -> None:
    adapter = find_adapter("bundled:boxes")
    assert (adapter.name, adapter.base) == ("boxes", "shapes")
    model = resolve(REGISTRY, "shapes")
    assert takes_adapter(with_adapters(model, adapter).spec, adapter)
    assert adapter in list_adapters(Path(model.spec.model) / "adapters")
    for name in ("bundled:gone", "bundled:../samples", "bundled:"):
        with pytest.raises(VlmtuiError, match="There is no adapter"):
            find_adapter(name)


def test_the_error_lists_the_adapters_in_subfolders(tmp_path: Path) -> None:
    make(tmp_path / "b")
    make(tmp_path / "a")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "adapter_config.json").write_text("{")
    assert [adapter.name for adapter in list_adapters(tmp_path)] == ["a", "b"]
    with pytest.raises(VlmtuiError, match="is no adapter") as raised:
        find_adapter(str(tmp_path))
    assert raised.value.hint == "Adapters in it: a, b."


def test_adapters_of_the_model_and_nearby_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = make(tmp_path / "model" / "adapters" / "ocr")
    near = make(tmp_path / "here" / "loras" / "mine")
    monkeypatch.chdir(tmp_path / "here")
    offered = adapters_near("", str(tmp_path / "model"))
    assert [adapter.folder for adapter in offered] == [str(near), str(beside)]
    make(tmp_path / "here" / "owner" / "model" / "adapters" / "a-name-is-no-folder")
    assert [adapter.folder for adapter in adapters_near("", "owner/model")] == [str(near)]


@pytest.mark.parametrize(
    "config", [{"r": "8"}, {"r": 0}, {"r": 600}, {"peft_type": "PREFIX_TUNING"}, {"r": None}, {"r": 1e99}]
)
def test_other_folders_are_refused_as_adapters(tmp_path: Path, config: dict[str, object]) -> None:
    with pytest.raises(VlmtuiError):
        find_adapter(str(make(tmp_path / "odd", **config)))
    with pytest.raises(VlmtuiError, match="There is no adapter"):
        find_adapter(str(tmp_path / "gone"))


def test_a_plan_over_adapters_names_them_in_the_requests(tmp_path: Path) -> None:
    folder = make(tmp_path / "my [ocr]")
    plan = parse_plan(f'adapter=none,"{folder}"')
    specs = planned_specs(plan, Registry.bundled()["shapes"], [user_turn("Hi")], Sampling())
    assert [spec.request.adapter for spec in specs] == ["", str(folder)]
    assert [spec.label for spec in specs] == ["no adapter", "adapter my [ocr]"]
    assert {spec.request.prompt for spec in specs} == {specs[0].request.prompt}
    with pytest.raises(VlmtuiError, match="There is no adapter"):
        parse_plan("adapter=none,/gone")


def test_the_engine_is_loaded_for_all_adapters(tmp_path: Path) -> None:
    one, other = (find_adapter(str(make(tmp_path / name, r=rank))) for name, rank in (("one", 9), ("other", 64)))
    model = resolve(REGISTRY, "shapes")
    assert with_adapters(model, one).spec.engine_args["max_lora_rank"] == 16
    arguments = with_adapters(model, one, other).spec.engine_args
    assert arguments == {**model.spec.engine_args, "enable_lora": True, "max_lora_rank": 64, "max_loras": 4}
    typed = with_engine_args(model, ["max_loras=8"])
    assert with_adapters(typed, one).spec.engine_args["max_loras"] == 8


def test_the_verdict_names_an_adapters_effect(tmp_path: Path) -> None:
    plan = parse_plan(f"adapter=none,{make(tmp_path / 'ocr')}")
    changed = LaneScore(-4.6, 5, TokenDrop(3, "red", 0.9, 0.01))
    said = "The adapter changes the model: with it this answer is 99 times less likely (−4.6 nats), most at token 3"
    assert verdict(plan, [None, changed]) == f"{said}, “red”: 90% → 1%."
    assert "changes nothing here" in verdict(plan, [None, LaneScore(0.0, 5, None, True)])


async def test_one_slot_stays_empty_on_a_cpu(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(resolve(REGISTRY, "shapes").spec, engine_args={"enable_lora": True})
    known = {"enable_lora", "max_loras"}
    assert engine_arguments(spec, known=known, on_cpu=True)["max_loras"] == 2
    assert "max_loras" not in engine_arguments(spec, known=known, on_cpu=False)
    shelf = AdapterShelf(spec, {"enable_lora": True, "max_loras": 1}, on_cpu=True)
    request = make_request(REGISTRY["shapes"], [user_turn("Hello")], Sampling())

    async def take(shelf: AdapterShelf, folder: str) -> object:
        async with shelf.used_by(msgspec.structs.replace(request, adapter=folder), None) as chosen:
            return chosen

    assert await take(shelf, "") is None
    with pytest.raises(VlmtuiError, match="On a CPU this engine takes 0 different adapters"):
        await take(shelf, str(make(tmp_path / "ocr")))
    with pytest.raises(VlmtuiError, match="loaded without LoRA"):
        await take(AdapterShelf(spec, {}, on_cpu=True), "/adapter")


class FakeVllm:
    """Notes the adapters that vLLM is told to remove."""

    def __init__(self) -> None:
        self.removed: list[int] = []

    async def remove_lora(self, number: int) -> bool:
        self.removed.append(number)
        return True


async def test_a_folder_that_is_written_again_is_another_adapter(tmp_path: Path) -> None:
    spec = resolve(REGISTRY, "shapes").spec
    shelf, llm = AdapterShelf(spec, {"enable_lora": True, "max_loras": 3}, on_cpu=True), FakeVllm()
    one, other = make(tmp_path / "one"), make(tmp_path / "other")
    request = make_request(REGISTRY["shapes"], [user_turn("Hello")], Sampling())

    def using(folder: Path) -> AbstractAsyncContextManager[Any]:
        return shelf.used_by(msgspec.structs.replace(request, adapter=str(folder)), llm)

    numbers = []
    for folder in (one, other, one):
        async with using(folder) as chosen:
            numbers.append(chosen.lora_int_id)
    assert numbers == [2, 3, 2]
    config = one / "adapter_config.json"
    async with using(one) as before:
        config.write_text(config.read_text() + " ")
        with pytest.raises(VlmtuiError, match="takes 2 different adapters"):  # the earlier one still answers
            async with using(one):
                pass
    for _ in range(5):
        stamp = config.stat()
        config.write_text(config.read_text() + " ")
        os.utime(config, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        async with using(one) as chosen:
            assert chosen.lora_int_id not in (before.lora_int_id, *llm.removed)
            assert chosen.lora_name not in (before.lora_name, "one-2")
    assert len(llm.removed) == 5
    async with using(other) as chosen:
        assert chosen.lora_int_id == 3


def test_the_media_of_a_message_choose_the_models_adapter() -> None:
    spec = resolve(REGISTRY, "phi4_mm").spec
    assert [one.name for one in spec.loras] == ["vision", "speech"]

    def chosen(*shown: Modality) -> str | None:
        found = adapter_for(spec, shown)
        return None if found is None else found.path

    assert chosen("image") == chosen("audio", "image") == "vision-lora"
    assert chosen("audio") == "speech-lora"
    assert chosen() is None
    assert adapter_for(resolve(REGISTRY, "shapes").spec, ["image"]) is None
    always = msgspec.structs.replace(spec, loras=(LoraAdapter(name="all"),))
    assert adapter_for(always, []) == always.loras[0]


def test_a_conversations_adapter_is_in_its_requests_and_shown(tmp_path: Path) -> None:
    folder = str(make(tmp_path / "my\x1b ocr"))
    settings = ChatSettings(adapter=folder)
    family = REGISTRY["shapes"]
    assert settings.request(family, [user_turn("Hi")], seed=3).adapter == folder
    assert settings.summary == "T 0 · LoRA my␛ ocr"
    assert ChatSettings().changed_to(settings) == "adapter none → my␛ ocr"
    assert settings.for_family(family, {}).adapter == folder
    assert settings.for_family(family, {}).for_family(REGISTRY["qwen2_vl"], {}).adapter == ""
    plan = parse_plan("seed=1,2")
    specs = planned_specs(plan, family, [user_turn("Hi")], Sampling(temperature=1), adapter=folder)
    assert [spec.request.adapter for spec in specs] == [folder] * 2


def test_a_model_is_loaded_again_only_if_it_takes_no_adapter(tmp_path: Path) -> None:
    adapter = find_adapter(str(make(tmp_path / "ocr", r=20)))
    model = resolve(REGISTRY, "shapes")
    assert not takes_adapter(model.spec, adapter)
    again = with_adapters(model, adapter)
    assert takes_adapter(again.spec, adapter)
    assert again.spec.engine_args["max_lora_rank"] == 32
    assert not takes_adapter(again.spec, find_adapter(str(make(tmp_path / "large", r=64))))
    assert takes_adapter(msgspec.structs.replace(model.spec, backend="transformers"), adapter)
