"""Readers of small files: models and their code, settings, records, caches, what workers leave, what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from tests.fuzz.campaign import Reader
from vlmtui.config.settings import load_settings, sources
from vlmtui.config.trust import TrustStore
from vlmtui.domain.conversation import ChatPrompt, user_turn
from vlmtui.domain.engine import LoadSpec
from vlmtui.domain.generation import Delta, Finished, GenerateRequest, Timings, Usage
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.machine import Machine, check_fit, fit_text
from vlmtui.engines.installed import Engines
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths, bundled_model
from vlmtui.protocol.endpoint import Endpoint, WorkerRecord
from vlmtui.protocol.messages import (
    MAX_MESSAGE_BYTES,
    ClientMessage,
    Hello,
    Welcome,
    WorkerMessage,
    decode_client_message,
    decode_worker_message,
    encode,
    read_line,
)
from vlmtui.protocol.spool import read_spooled, spool_path, write_spooled
from vlmtui.registry.estimate import tokens_of_size
from vlmtui.registry.hub_cache import downloaded_models, read_config, snapshot_of
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import family_of_config, family_of_name, model_of, resolve
from vlmtui.registry.remote_code import RemoteCode, remote_code_of
from vlmtui.registry.routes import route_name, status_of, why_closed
from vlmtui.session.comparison import SavedPrompts, draft_file, read_draft
from vlmtui.session.generation import make_request
from vlmtui.session.prompt_history import PromptHistory
from vlmtui.ui.terminal.driver import ReportFilter

STORED = Path(__file__).parents[1] / "data" / "stored"
_FAMILIES = Path(__file__).parents[2] / "src" / "vlmtui" / "registry" / "families"
_SPEC = LoadSpec(model="/models/x", name="x", engine_args={"dtype": "auto"})
_REQUEST = GenerateRequest(
    request_id="r1", prompt=ChatPrompt(turns=(user_turn("What is it?"),)), sampling=Sampling(temperature=0.5)
)
_EVENTS = (
    Delta(request_id="r1", text="A cat", tokens=2, token_ids=(1, 2)),
    Finished(
        request_id="r1", finish_reason="stop", usage=Usage(prompt_tokens=3, completion_tokens=2), timings=Timings()
    ),
)


def text_readers() -> list[Reader]:
    return [
        Reader("config.json", _configs, _read_config),
        Reader("configs that name code", _code_configs, _read_code),
        Reader("safetensors index", _indexes, _read_index),
        Reader("hub cache", lambda _: [b"a" * 40, b"main\n"], _read_hub_cache),
        Reader("trusted.json", _stored("trusted.json"), _read_trusted),
        Reader("family records", _families, _read_family),
        Reader("config.toml", _stored("config.toml"), _read_settings),
        Reader("engine records", _engine_records, _read_engines),
        Reader("worker record", _worker_records, _read_worker_record),
        Reader("kept answers", _spools, _read_spool),
        Reader("protocol frames", _frames, _read_frames),
        Reader("prompt history", lambda _: [b'"first"\n"second \\u00e9"\n', b'"x"\n' * 50], _read_history),
        Reader("raw drafts", _raw_drafts, _read_drafts),
        Reader("terminal reports", _reports, _read_reports),
    ]


def _stored(name: str) -> Callable[[Path], Sequence[bytes]]:
    return lambda _: [(STORED / name).read_bytes()]


def _put(folder: Path, name: str, data: bytes) -> Path:
    """Write a file below the folder; gives the folder."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.write_bytes(data)
    return folder


@cache
def _registry() -> Registry:
    return Registry.bundled()


@cache
def _machine() -> Machine:
    return Machine.measure()


def _configs(_: Path) -> Sequence[bytes]:
    larger = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "torch_dtype": "bfloat16",
        "text_config": {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "head_dim": 128},
        "hidden_size": 3584,
        "max_position_embeddings": 32768,
        "quantization_config": {"quant_method": "awq", "bits": 4},
        "vision_config": {"depth": 32},
    }
    return [(bundled_model() / "config.json").read_bytes(), msgspec.json.encode(larger)]


def _read_config(folder: Path, data: bytes) -> None:
    (folder / "x.safetensors").write_bytes(b"1234")
    _put(folder, "config.json", data)
    family_of_config(_registry(), read_config(folder), "owner/name")
    fit_text(check_fit(resolve(_registry(), str(folder)), _machine()), _machine())


def _code_configs(_: Path) -> Sequence[bytes]:
    named = {"auto_map": {"AutoModel": "modeling_x.Model", "AutoConfig": ["other/repo--code.A", None]}}
    return [msgspec.json.encode(named), (bundled_model() / "preprocessor_config.json").read_bytes()]


def _read_code(folder: Path, data: bytes) -> None:
    for name in ("config.json", "tokenizer_config.json"):
        _put(folder, name, data)
    (folder / "modeling_x.py").write_bytes(data[:1000])
    code = remote_code_of(str(folder))
    assert code.digest


def _indexes(_: Path) -> Sequence[bytes]:
    return [b'{"metadata": {"total_size": 17}, "weight_map": {"a.weight": "x.safetensors", "b": "y.safetensors"}}']


def _read_index(folder: Path, data: bytes) -> None:
    snapshot = folder / "models--owner--name" / "snapshots" / "abc"
    _put(snapshot, "config.json", b"{}")
    _put(snapshot, "x.safetensors", b"12")
    _put(snapshot, "model.safetensors.index.json", data)
    assert [one.name for one in downloaded_models(folder)] == ["owner/name"]


def _read_hub_cache(folder: Path, data: bytes) -> None:
    """The name of a commit, and of a repository's folder."""
    root = folder / "models--owner--name"
    _put(root / "snapshots" / "abc", "config.json", b"{}")
    _put(root, "refs/main", data)
    found = snapshot_of("owner/name", folder)
    assert found is not None and found.is_relative_to(folder)
    name = "models--" + data[:60].decode(errors="replace").replace("/", "-").replace("\0", "-")
    _put(folder / name / "snapshots" / "abc", "config.json", b"{}")
    for one in downloaded_models(folder):
        family_of_name(_registry(), one.name)


def _read_trusted(folder: Path, data: bytes) -> None:
    paths = Paths.below(folder)
    _put(paths.config, "trusted.json", data)
    store = TrustStore(paths)
    code = RemoteCode(model="/models/mine", files={"a.py": "0" * 64})
    store.is_trusted(RemoteCode(model="owner/name", revision="abc"))
    store.changes(code)
    store.trust(code)
    assert store.is_trusted(code)


def _families(_: Path) -> Sequence[bytes]:
    return [file.read_bytes() for file in sorted(_FAMILIES.glob("*.toml"))[::8]]


def _read_family(folder: Path, data: bytes) -> None:
    """A family that is taken can be listed, shown and asked."""
    registry = Registry.with_users(_put(folder, "mine.toml", data))
    if registry.warnings:
        raise registry.warnings[0]
    changed = [family for name, family in registry.items() if _registry().get(name) != family]
    for family in changed:
        msgspec.json.encode(family)
        why_closed(family), route_name(family), status_of(family)
        fit_text(check_fit(model_of(family), _machine()), _machine())
    for family in changed:
        family_of_name(registry, "some-name-7b")
        for modality in ("image", "video"):
            for size in ((640, 480), (0, 0), (1, 9_000_000)):
                tokens_of_size(family, modality, size, frames=8)
        for mode in ("chat", "raw"):
            make_request(family, [user_turn("What?")], family.sampling or Sampling(), mode=mode)


def _read_settings(folder: Path, data: bytes) -> None:
    paths = Paths.below(folder)
    _put(paths.config, "config.toml", data)
    load_settings(paths, {})
    sources(paths, {})


def _engine_records(_: Path) -> Sequence[bytes]:
    record = {"name": "mine", "version": "0.32.0", "variant": "added", "interpreter": "/bin/sh", "installed_at": 1.5}
    return [msgspec.json.encode(record), b'{"phase": "ready", "variant": "cpu", "fingerprint": "ab"}']


def _read_engines(folder: Path, data: bytes) -> None:
    engines = Engines(Paths.below(folder))
    _put(engines.folder / "mine", "engine.json", data)
    engines.all()
    engines.incomplete()


def _worker_records(_: Path) -> Sequence[bytes]:
    return [msgspec.json.encode(WorkerRecord(spec=_SPEC, pid=123, started_at=1.5, log="/tmp/x.log"))]


def _read_worker_record(folder: Path, data: bytes) -> None:
    paths = Paths.below(folder)
    _put(paths.runtime, "x-1234.json", data)
    for endpoint in Endpoint.all(paths):
        endpoint.read_record()


def _spools(folder: Path) -> Sequence[bytes]:
    write_spooled(folder, _EVENTS)
    return [spool_path(folder, "r1").read_bytes()]


def _read_spool(folder: Path, data: bytes) -> None:
    path = spool_path(folder, "r1")
    _put(path.parent, path.name, data)
    read_spooled(folder, "r1")


def _frames(_: Path) -> Sequence[bytes]:
    sent: list[ClientMessage | WorkerMessage] = [
        Hello(version=5, client="app", pid=1),
        _REQUEST,
        *_EVENTS,
    ]
    return [*(encode(one) for one in sent), encode(Welcome(version=5, pid=1, spec=_SPEC, info=None))]


def _read_frames(_: Path, data: bytes) -> None:
    """Each line by itself: one that is refused is no reason to believe the next."""
    errors = [error for line in asyncio.run(_lines(data)) for error in _refusals(line)]
    if errors:
        raise errors[0]


async def _lines(data: bytes) -> list[bytes]:
    reader = asyncio.StreamReader(limit=MAX_MESSAGE_BYTES)
    reader.feed_data(data)
    reader.feed_eof()
    lines = []
    while (line := await read_line(reader)) is not None:
        lines.append(line)
    return lines


def _refusals(line: bytes) -> list[VlmtuiError]:
    errors = []
    for decode in (decode_client_message, decode_worker_message):
        try:
            decode(line)
        except VlmtuiError as error:
            errors.append(error)
    return errors


def _read_history(folder: Path, data: bytes) -> None:
    history = PromptHistory(_put(folder, "history.jsonl", data) / "history.jsonl")
    history.older("")
    history.add("new")
    assert PromptHistory(folder / "history.jsonl").older("") == "new"


def _raw_drafts(_: Path) -> Sequence[bytes]:
    return [b'{"text": "<image>Hi", "filled": "", "origin": "raw template", "saved_as": "mine"}']


def _read_drafts(folder: Path, data: bytes) -> None:
    paths = Paths.below(folder)
    file = draft_file(paths, "c1")
    _put(file.parent, file.name, data)
    read_draft(paths, "c1")
    _put(paths.config / "prompts" / "shapes", "mine.txt", data)
    prompts = SavedPrompts(paths, "shapes")
    assert prompts.names() == ["mine"]
    prompts.load("mine")


def _reports(_: Path) -> Sequence[bytes]:
    return [
        b"hello\x1b[?62;4c\x1b[6;20;10t\x1b]11;rgb:0000/0000/0000\x07\x1bP1$r0m\x1b\\\x1b_Gi=1;OK\x1b\\x\x1b[200~a\x1b[201~"
    ]


def _read_reports(_: Path, data: bytes) -> None:
    """However it is cut, the same is left over."""
    text = data.decode(errors="replace")
    whole, cut = ReportFilter(), ReportFilter()
    at_once = whole.feed(text) + whole.flush()
    pieces = [cut.feed(text[at : at + 7]) for at in range(0, len(text), 7)]
    assert len(text) > 60_000 or "".join(pieces) + cut.flush() == at_once
