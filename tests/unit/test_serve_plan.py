"""The command lines of `vllm serve`: flags from the record, ranks over nodes, memory, and what is refused."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.command_line import CommandLine, opened
from vlmtui.engine.machine import GIB, Gpu, Machine
from vlmtui.engine.serve_plan import RankLayout, ServePlan, plan_serving
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, model_of

TWO = Machine(tuple(Gpu("L4", 22 * GIB, 24 * GIB) for _ in range(2)), 64 * GIB)


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.bundled()


@pytest.fixture(autouse=True)
def no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with opened(tmp_path / "vlmtui", monkeypatch, capsys) as cli:
        yield cli


@pytest.fixture(scope="module")
def qwen(registry: Registry) -> Model:
    return model_of(registry["qwen2_5_vl"])


def value(plan: ServePlan, flag: str, node: int = 0) -> str:
    words = plan.commands[node]
    return words[words.index(flag) + 1]


def test_flags_come_from_the_record(qwen: Model) -> None:
    plan = plan_serving(qwen, RankLayout(), None)
    assert plan.commands[0][:3] == ("vllm", "serve", qwen.spec.model)
    for name in ("limit_mm_per_prompt", "mm_processor_kwargs"):
        assert json.loads(value(plan, f"--{name.replace('_', '-')}")) == qwen.spec.engine_args[name]
    assert value(plan, "--max-model-len") == str(qwen.spec.engine_args["max_model_len"])
    assert (value(plan, "--host"), value(plan, "--port")) == ("127.0.0.1", "8000")
    assert plan.warnings == ()


def test_every_flag_of_every_family_has_a_reason(registry: Registry) -> None:
    for family in registry.values():
        plan = plan_serving(model_of(family), RankLayout(), None)
        assert all(flag.reason and flag.words[0].startswith("--") for flag in (*plan.flags, *plan.node_flags[0]))
        flags = [flag.words[0] for flag in plan.flags]
        assert len(flags) == len(set(flags)), family.family


def test_a_line_can_be_pasted(qwen: Model) -> None:
    spec = msgspec.structs.replace(qwen.spec, model="/models/it's; rm $HOME", name="two words")
    plan = plan_serving(msgspec.structs.replace(qwen, spec=spec), RankLayout(), None)
    assert tuple(shlex.split(plan.lines[0][0])) == plan.commands[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (True, "--enforce-eager"),
        (False, "--no-enforce-eager"),
        (["a", "b"], "--enforce-eager a b"),
        (3, "--enforce-eager 3"),
        (None, ""),
        ({}, ""),
    ],
)
def test_values_are_written_as_vllm_reads_them(qwen: Model, given: object, words: str) -> None:
    spec = msgspec.structs.replace(qwen.spec, engine_args={"enforce_eager": given})
    plan = plan_serving(msgspec.structs.replace(qwen, spec=spec), RankLayout(), None)
    found = [flag for flag in plan.flags if "eager" in flag.words[0]]
    assert " ".join(word for flag in found for word in flag.words) == words


def test_code_is_run_only_where_it_is_allowed_and_pinned(qwen: Model) -> None:
    assert "--trust-remote-code" not in plan_serving(qwen, RankLayout(), None).commands[0]
    spec = msgspec.structs.replace(qwen.spec, trust_remote_code=True, revision="abc", code_revision="def")
    plan = plan_serving(msgspec.structs.replace(qwen, spec=spec), RankLayout(), None)
    assert "--trust-remote-code" in plan.commands[0]
    pins = [value(plan, f"--{name}") for name in ("revision", "tokenizer-revision", "code-revision")]
    assert pins == ["abc", "abc", "def"]


def test_replicas_are_spread_over_nodes(qwen: Model) -> None:
    plan = plan_serving(qwen, RankLayout(tensor=2, data=4, nodes=2, node_address="10.0.0.1"), None)
    assert plan.layout.gpus_per_node == 4
    for node in (0, 1):
        assert value(plan, "--data-parallel-size", node) == "4"
        assert value(plan, "--data-parallel-size-local", node) == "2"
        assert value(plan, "--data-parallel-address", node) == "10.0.0.1"
    first, second = plan.commands
    assert "--port" in first and "--headless" not in first
    assert "--port" not in second and "--headless" in second
    assert value(plan, "--data-parallel-start-rank", 1) == "2"


def test_one_replica_is_split_over_nodes(qwen: Model) -> None:
    plan = plan_serving(qwen, RankLayout(tensor=2, pipeline=2, nodes=2, node_address="10.0.0.1"), None)
    assert [value(plan, "--node-rank", node) for node in (0, 1)] == ["0", "1"]
    assert value(plan, "--nnodes", 1) == "2" and value(plan, "--master-addr", 1) == "10.0.0.1"
    assert plan.layout.gpus_per_node == 2


@pytest.mark.parametrize(
    ("layout", "flags"),
    [
        (RankLayout(tensor=2, pipeline=2), {"--distributed-executor-backend": "ray"}),
        (RankLayout(data=4), {"--data-parallel-backend": "ray", "--data-parallel-size-local": "2"}),
    ],
)
def test_ray_starts_the_other_nodes_and_one_line_serves(qwen: Model, layout: RankLayout, flags: dict[str, str]) -> None:
    two = msgspec.structs.replace(layout, nodes=2, node_address="10.0.0.1", ray=True)
    plan = plan_serving(qwen, two, None)
    first, second = plan.lines
    assert first[0] == "ray start --head --node-ip-address 10.0.0.1 --port 6379"
    assert second == ("ray start --address 10.0.0.1:6379",)
    [command] = plan.commands
    assert first[1].startswith("vllm serve ") and "--headless" not in command and "--nnodes" not in command
    assert {name: value(plan, name) for name in flags} == flags
    assert any("not run" in one for one in plan.warnings) and any("6379" in one for one in plan.warnings)


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (RankLayout(ray=True), "Ray is for several nodes"),
        (RankLayout(nodes=2, data=2, ray=True), "address of the first one"),
        (RankLayout(nodes=2, data=2), "address of the first one"),
        (RankLayout(nodes=2, data=3, node_address="a"), "3 replicas do not spread evenly over 2 nodes"),
        (RankLayout(nodes=3, tensor=2, node_address="a"), "2 GPUs of one replica do not spread evenly over 3 nodes"),
    ],
)
def test_what_does_not_spread_evenly_is_refused(qwen: Model, layout: RankLayout, said: str) -> None:
    with pytest.raises(VlmtuiError, match=said) as caught:
        plan_serving(qwen, layout, None)
    assert caught.value.kind is ErrorKind.BAD_USAGE and caught.value.hint


def test_heads_must_divide(registry: Registry) -> None:
    with pytest.raises(VlmtuiError, match="shapes has 3 attention heads, which 2 does not divide") as caught:
        plan_serving(model_of(registry["shapes"]), RankLayout(tensor=2), None)
    assert "1, 3" in caught.value.hint


def test_memory_is_told_for_each_gpu(registry: Registry) -> None:
    model = model_of(msgspec.structs.replace(registry["qwen2_vl"], parameters_b=14.0))
    one, two = (plan_serving(model, RankLayout(tensor=size), TWO) for size in (1, 2))
    assert one.bytes_per_gpu is not None and two.bytes_per_gpu is not None
    assert 26 * GIB < one.bytes_per_gpu < 40 * GIB
    assert two.bytes_per_gpu < 0.6 * one.bytes_per_gpu
    assert any("of each GPU; here 22 GiB can be used" in warning for warning in one.warnings)
    assert two.warnings == ()
    assert any("4 GPUs" in warning for warning in plan_serving(model, RankLayout(tensor=4), TWO).warnings)


def test_copies_do_not_share_a_gpu(registry: Registry) -> None:
    model = model_of(msgspec.structs.replace(registry["qwen2_vl"], parameters_b=2.0))
    single, double = (plan_serving(model, RankLayout(data=size), TWO) for size in (1, 2))
    assert single.bytes_per_gpu == double.bytes_per_gpu
    assert double.layout.gpus_per_node == 2


def test_an_open_address_is_warned_about_and_no_key_is_on_a_line(qwen: Model) -> None:
    plan = plan_serving(qwen, RankLayout(host="0.0.0.0"), None)
    assert any("VLLM_API_KEY" in warning for warning in plan.warnings)
    assert "--api-key" not in plan.commands[0]


def test_the_command_prints_lines_and_reasons(cli: CommandLine) -> None:
    ran = cli("serve", "shapes", "--engine-arg", "max_model_len=1024")
    assert ran.code == 0 and ran.out.count("\n") == 1
    words = shlex.split(ran.out)
    assert words[:2] == ["vllm", "serve"] and words[words.index("--max-model-len") + 1] == "1024"
    assert "the server's /inference/v1/generate" in ran.err
    two = cli("serve", "shapes", "--data", "2", "--nodes", "2", "--node-address", "10.0.0.1")
    assert two.code == 0 and "# node 2 of 2\n" in two.out


def test_the_command_prints_json(cli: CommandLine) -> None:
    ran = cli("serve", "shapes", "--data", "2", "--json")
    told = json.loads(ran.out)
    assert ran.code == 0 and told["gpus_per_node"] == 2 and len(told["nodes"]) == 1
    flags = told["nodes"][0]["flags"]
    assert told["nodes"][0]["command"][3:] == [word for flag in flags for word in flag["words"]]


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "no-such-model"),
        ("serve", "shapes", "--tensor", "2"),
        ("serve", "shapes", "--tensor", "0"),
        ("serve", "shapes", "--port", "70000"),
        ("serve", "shapes", "--nodes", "2"),
        ("serve", "shapes", "--engine-arg", "nonsense"),
    ],
)
def test_bad_usage_is_told(cli: CommandLine, words: tuple[str, ...]) -> None:
    ran = cli(*words)
    assert ran.code == 2 and not ran.out and ran.err
