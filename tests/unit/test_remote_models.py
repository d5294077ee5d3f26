"""Servers by name, and the message about a server that does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.fault_server import FaultServer, fault_server, sends
from vlmtui.config.settings import EngineSettings
from vlmtui.engine.remote_models import engine_settings, find_remote_model, look_at_server
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.loader import Registry

REGISTRY = Registry.bundled()
SERVED = [
    {"id": "lora-a", "root": "/adapters/a", "parent": "qwen"},
    {"id": "other", "root": "/weights/llava-1.5-7b-hf"},
    {"id": "qwen", "root": "Qwen/Qwen2.5-VL-7B-Instruct", "max_model_len": 32768},
]


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as found:
        yield found


def test_a_server_has_a_name_or_an_address() -> None:
    engines = {"box": EngineSettings(url="http://box:8000", api_key_file="~/key")}
    assert engine_settings(engines, "box") is engines["box"]
    assert engine_settings(engines, "box", key_env="K") == EngineSettings(url="http://box:8000", api_key_env="K")
    assert engine_settings(engines, "http://b:1") == EngineSettings(url="http://b:1")
    assert engine_settings(engines, "b:1") == EngineSettings(url="http://b:1"), "the scheme may be left out"
    with pytest.raises(VlmtuiError, match=r"No engine is called 'bux'\..*\[engines\.bux\].*Known: box"):
        engine_settings(engines, "bux")


async def test_adapters_follow_their_models(server: FaultServer) -> None:
    server.replies["/v1/models"] = [sends({"data": SERVED})]
    found = await asyncio.to_thread(look_at_server, REGISTRY, "box", EngineSettings(url=server.url))
    assert found.error is None
    assert [model.spec.name for model in found.models] == ["other at box", "qwen at box", "lora-a at box"]
    assert [model.family.family for model in found.models][1:] == ["qwen2_5_vl", "qwen2_5_vl"]
    assert found.facts is not None and found.facts.version == "0.32.0"


async def test_a_given_family_is_used(server: FaultServer) -> None:
    settings = EngineSettings(url=server.url, family="llava")
    found = await asyncio.to_thread(look_at_server, REGISTRY, "box", settings)
    assert [model.family.family for model in found.models] == ["llava"]


async def test_an_unknown_family_of_a_server_is_named_with_the_nearest(server: FaultServer) -> None:
    settings = EngineSettings(url=server.url, family="lava")
    found = await asyncio.to_thread(look_at_server, REGISTRY, "box", settings)
    assert found.error is not None and found.error.kind is ErrorKind.MODEL_UNKNOWN
    assert found.error.message == "Unknown family of the server in config.toml: 'lava'."
    assert "Did you mean llava" in found.error.hint


@pytest.mark.parametrize(
    ("root", "id", "family"),
    [
        ("somebody/experiment-7", "Qwen2.5-VL-7B-Instruct", "qwen2_5_vl"),
        ("somebody/experiment-7", "experiment", ""),
        ("/weights/experiment", "experiment", ""),
        ("", "llava", "llava"),
    ],
)
async def test_a_model_that_no_record_knows_can_be_used(server: FaultServer, root: str, id: str, family: str) -> None:
    server.replies["/v1/models"] = [sends({"data": [{"id": id, "root": root}]})] * 2
    model = await asyncio.to_thread(find_remote_model, REGISTRY, {}, server.url)
    assert model.family.family == family
    assert ("--model FAMILY" in model.family.note) is not model.listed
    assert model.spec.family == (family or None) and set(model.family.takes) >= {"image"}
    named = await asyncio.to_thread(find_remote_model, REGISTRY, {}, server.url, name="gemma3")
    assert named.family.family == "gemma3" and named.spec.model == id


async def test_one_of_several_models_must_be_named(server: FaultServer) -> None:
    server.replies["/v1/models"] = [sends({"data": SERVED})] * 2
    engines = {"box": EngineSettings(url=server.url)}
    with pytest.raises(VlmtuiError, match=r"several models.*lora-a, other, qwen"):
        await asyncio.to_thread(find_remote_model, REGISTRY, engines, "box")
    model = await asyncio.to_thread(find_remote_model, REGISTRY, engines, "box", name="lora-a")
    assert model.spec.model == "lora-a" and model.family.family == "qwen2_5_vl"


async def test_an_unreachable_server_is_reported_and_the_others_are_listed(server: FaultServer) -> None:
    server.replies["/v1/models"] = [sends({"data": []})]
    settings = EngineSettings(url=server.url)
    assert "serves no model" in str((await asyncio.to_thread(look_at_server, REGISTRY, "box", settings)).error)
    nobody = EngineSettings(url="unix:/nowhere/socket")
    assert "Nothing listens" in str((await asyncio.to_thread(look_at_server, REGISTRY, "box", nobody)).error)
