"""`vlmtui serve`: the command line from a record, the reasons for its flags, and refused models."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.command_line import CommandLine, opened
from vlmtui.domain.engine import LoadSpec
from vlmtui.engines.serve import feature_flags, model_flags
from vlmtui.paths import bundled
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of

QWEN = model_of(Registry.bundled()["qwen2_5_vl"]).spec


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with opened(tmp_path / "vlmtui", monkeypatch, capsys) as cli:
        yield cli


def words_of(spec: LoadSpec) -> list[str]:
    return [word for flag in model_flags(spec) for word in flag.words]


def test_the_line_comes_from_the_record(cli: CommandLine) -> None:
    words = cli.json("serve", "qwen2_5_vl")["command"]
    assert words[:3] == ["vllm", "serve", QWEN.model]
    for name in ("limit_mm_per_prompt", "mm_processor_kwargs"):
        assert json.loads(words[words.index(f"--{name.replace('_', '-')}") + 1]) == QWEN.engine_args[name]
    assert words[words.index("--max-model-len") + 1] == str(QWEN.engine_args["max_model_len"])
    assert words[-4:] == ["--host", "127.0.0.1", "--port", "8000"]
    assert "--trust-remote-code" not in words


def test_every_flag_of_every_family_has_a_reason() -> None:
    for family in Registry.bundled().values():
        flags = [*model_flags(model_of(family).spec), *feature_flags(video="video" in family.takes)]
        assert all(flag.reason and flag.words[0].startswith("--") for flag in flags)
        assert len(flags) == len({flag.words[0] for flag in flags}), family.family


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
def test_values_are_written_as_vllm_reads_them(given: object, words: str) -> None:
    flags = model_flags(msgspec.structs.replace(QWEN, engine_args={"enforce_eager": given}))
    assert " ".join(word for flag in flags if "eager" in flag.words[0] for word in flag.words) == words


def test_code_is_run_only_where_it_is_allowed_and_pinned() -> None:
    assert "--trust-remote-code" not in words_of(QWEN)
    spec = msgspec.structs.replace(QWEN, trust_remote_code=True, revision="abc", code_revision="def")
    words = words_of(spec)
    assert "--trust-remote-code" in words
    pins = [words[words.index(f"--{name}") + 1] for name in ("revision", "tokenizer-revision", "code-revision")]
    assert pins == ["abc", "abc", "def"]


def test_one_line_is_printed_and_reasons_beside_it(cli: CommandLine, tmp_path: Path) -> None:
    ran = cli("serve", "shapes", "--engine-arg", "max_model_len=1024", "--engine-arg", "tensor_parallel_size=2")
    assert ran.code == 0 and ran.out.count("\n") == 1
    words = shlex.split(ran.out)
    assert words[:2] == ["vllm", "serve"] and words[words.index("--max-model-len") + 1] == "1024"
    assert words[words.index("--tensor-parallel-size") + 1] == "2"
    assert "the server's /inference/v1/generate" in ran.err


def test_a_context_that_is_fitted_is_vllms_auto(cli: CommandLine) -> None:
    words = shlex.split(cli("serve", "qwen3_vl").out)
    assert words[words.index("--max-model-len") + 1] == "auto"
    small = shlex.split(cli("serve", "qwen3_vl", "--preset", "vllm-example", "--engine-arg", "max_num_seqs=9").out)
    assert small[small.index("--max-model-len") + 1] == "32768"
    assert small[small.index("--max-num-seqs") + 1] == "9"
    limits = small[small.index("--mm-processor-kwargs") + 1]
    assert json.loads(limits) == {"min_pixels": 784, "max_pixels": 1003520, "fps": 1}


def test_the_line_can_be_pasted(cli: CommandLine, tmp_path: Path) -> None:
    folder = tmp_path / "it's; rm $HOME"
    shutil.copytree(bundled("shapes"), folder, ignore=shutil.ignore_patterns("*.safetensors", "adapters"))
    assert shlex.split(cli("serve", str(folder)).out)[2] == str(folder)


def test_an_open_address_is_warned_about_and_no_key_is_on_the_line(cli: CommandLine) -> None:
    told = cli.json("serve", "shapes", "--host", "0.0.0.0")
    assert "VLLM_API_KEY" in told["warnings"][0]
    assert "--api-key" not in told["command"]
    assert told["command"][3:] == [word for flag in told["flags"] for word in flag["words"]]


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "no-such-model"),
        ("serve", "shapes", "--port", "eighty"),
        ("serve", "shapes", "--engine-arg", "nonsense"),
        ("serve", "shapes", "--run"),
    ],
)
def test_bad_usage_is_reported(cli: CommandLine, words: tuple[str, ...]) -> None:
    ran = cli(*words)
    assert ran.code == 2 and not ran.out and ran.err
