"""Which changes of a model's files count as changes, and which don't."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from vlmtui.domain.engine import FOLDER_GONE, LoadSpec, LoraAdapter
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker import loaded_files
from vlmtui.worker.loaded_files import LoadedFiles, folder_signature

WEIGHTS = "model.safetensors"
SPEC = LoadSpec(model="owner/model", name="mine")


def write_model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "chat_template.jinja", "preprocessor_config.json", "vocab.txt"):
        (folder / name).write_text(f"{name} 1")
    write_weights(folder / WEIGHTS)
    return folder


def write_weights(path: Path, *, changed: str = "", at: int = 0) -> None:
    """Write three tensors of 6 kB; the byte `at` of the tensor `changed` is another."""
    tensors = {name: bytearray(6000) for name in "abc"}
    if changed:
        tensors[changed][at] = 1
    offsets = {name: {"dtype": "U8", "shape": [6000], "data_offsets": [n * 6000, n * 6000 + 6000]}
               for n, name in enumerate(tensors)}  # fmt: skip
    header = json.dumps({"__metadata__": {"format": "pt"}, **offsets}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"".join(tensors.values()))


def spec_of(folder: Path | str, **more: object) -> LoadSpec:
    return LoadSpec(model=str(folder), name="mine", engine_args=dict(more))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_model(tmp_path / "mine")


@pytest.fixture
def files(folder: Path) -> LoadedFiles:
    files = LoadedFiles(spec_of(folder))
    files.loaded(None)
    return files


def rewrite(path: Path) -> None:
    """Write the same content over a file."""
    path.write_bytes(path.read_bytes())


def replace(path: Path) -> None:
    """Put another file with the same content in a file's place, as `cp` and a training run do."""
    shutil.copy(path, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)


def link_to_copy(path: Path) -> None:
    """Put a link to a file with the same content in its place, as the cache of the hub has them."""
    blob = path.parents[1] / "blob"
    path.rename(blob)
    path.symlink_to(blob)


def leave_training_files(path: Path) -> None:
    for name in ("trainer_state.json", "optimizer.pt", "rng_state_0.pth", "training_args.bin", "eval_results.json"):
        (path.parent / name).write_text("new")
    for name in ("README.md", "photo.png", ".gitattributes", "answers.jsonl", "notes.txt", "events.out.tfevents.1"):
        (path.parent / name).write_text("new")
    write_model(path.parent / "checkpoint-100")


@pytest.mark.parametrize("name", [WEIGHTS, "chat_template.jinja"])
@pytest.mark.parametrize("touch", [os.utime, rewrite, replace, link_to_copy, leave_training_files])
def test_equal_content_is_no_change(
    name: str, touch: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_files, "_WHOLE_MAX", 4096)
    folder = write_model(tmp_path / f"of-{touch.__name__}" / "mine")
    files = LoadedFiles(spec_of(folder))
    digest = files.loaded(None)
    touch(folder / name)
    assert files.changed() == ()
    assert LoadedFiles(spec_of(folder)).loaded(None) == digest


def test_every_file_that_an_engine_reads_counts(folder: Path, files: LoadedFiles) -> None:
    for path in sorted(folder.iterdir()):
        before = path.read_bytes()
        path.write_bytes(before[:-1] + b"2")
        os.utime(path, (1, 1))
        assert files.changed() == (path.name,)
        path.write_bytes(before)
        assert files.changed() == ()
    (folder / "generation_config.json").write_text("{}")
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tools.jinja").write_text("")
    (folder / "tokenizer.json").unlink()
    assert files.changed() == (
        "additional_chat_templates/tools.jinja (new)", "generation_config.json (new)", "tokenizer.json (removed)",
    )  # fmt: skip
    shutil.rmtree(folder)
    assert files.changed() == (FOLDER_GONE,)
    write_model(folder)
    assert files.changed() == ()


@pytest.mark.parametrize("at", [0, 3000, 5999])
def test_one_changed_tensor_of_large_weights_is_noticed(at: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded_files, "_WHOLE_MAX", 4096)
    files = LoadedFiles(spec_of(folder))
    digests = {files.loaded(None)}
    for name in "abc":
        write_weights(folder / WEIGHTS, changed=name, at=at)
        assert files.changed() == (WEIGHTS,)
        digests.add(LoadedFiles(spec_of(folder)).loaded(None))
    assert len(digests) == 4


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b'{"a": {"data_offsets": [0, 99999999]}}', b'{"a": {"data_offsets": [-9, 1]}}', b"[" * 5000],
)  # fmt: skip
def test_large_files_of_another_format_are_sampled(
    header: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded_files, "_WHOLE_MAX", 4096)
    folder = write_model(tmp_path / "mine")
    content = bytearray(len(header).to_bytes(8, "little") + header + bytes(3_000_000))
    (folder / "model.gguf").write_bytes(content)
    files = LoadedFiles(spec_of(folder))
    files.loaded(None)
    content[2_000_000:2_004_000] = b"1" * 4000
    (folder / "model.gguf").write_bytes(content)
    assert files.changed() == ("model.gguf",)


def test_unchanged_files_are_not_read_again(folder: Path, files: LoadedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(side_effect=loaded_files._content_digest)
    monkeypatch.setattr(loaded_files, "_content_digest", read)
    files.loaded(None)
    assert files.changed() == () and read.call_count == 0
    os.utime(folder / WEIGHTS)
    assert files.changed() == files.changed() == () and read.call_count == 1


def test_a_file_that_changes_during_the_load_ends_it(folder: Path) -> None:
    files = LoadedFiles(spec_of(folder))
    os.utime(folder / WEIGHTS)
    files.loaded(None)
    files = LoadedFiles(spec_of(folder))
    write_weights(folder / WEIGHTS, changed="a")
    (folder / "chat_template.json").write_text("{}")
    with pytest.raises(
        VlmtuiError, match=r"while it was loading: chat_template.json \(new\), model.safetensors"
    ) as told:
        files.loaded(None)
    assert told.value.kind is ErrorKind.MODEL_CHANGED


def test_adapters_and_files_of_engine_arguments_count(folder: Path, tmp_path: Path) -> None:
    for name in ("speech-lora", "unused-lora"):
        (folder / name).mkdir()
        (folder / name / "adapter_model.safetensors").write_text("1")
    other, template = write_model(tmp_path / "other"), tmp_path / "mine.jinja"
    template.write_text("1")
    lora = LoraAdapter(name="speech", id=1, path="speech-lora")
    arguments: dict[str, object] = {"tokenizer": str(other), "chat_template": str(template), "dtype": "auto",
                 "speculative_config": {"model": str(other), "tokens": 2}, "lora_modules": [f"x={other}"]}  # fmt: skip
    files = LoadedFiles(LoadSpec(model=str(folder), name="mine", engine_args=arguments, loras=(lora,)))
    files.loaded(None)
    assert files.changed() == ()
    for path in (folder / "unused-lora", folder / "speech-lora"):
        (path / "adapter_model.safetensors").write_text("2")
    template.write_text("2")
    (other / "tokenizer.json").write_text("2")
    assert files.changed() == (
        "chat_template: mine.jinja", "lora_modules: tokenizer.json", "speculative_config: tokenizer.json",
        "speech-lora/adapter_model.safetensors", "tokenizer: tokenizer.json",
    )  # fmt: skip


def test_no_file_that_is_none_is_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe.json")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "folder.json").mkdir()
    files = LoadedFiles(spec_of(folder))
    files.loaded(None)
    assert files.changed() == ()


def test_a_server_elsewhere_has_no_files_here(folder: Path) -> None:
    files = LoadedFiles(LoadSpec(model=str(folder), name="mine", backend="remote"))
    assert files.loaded(None) == ""
    (folder / "config.json").write_text("2")
    assert files.changed() == ()
    assert LoadedFiles(spec_of("owner/nowhere")).loaded(None) == ""


def test_an_adapters_signature_changes_with_any_file_of_it(folder: Path) -> None:
    before = folder_signature(folder)
    (folder / "README.md").write_text("new")
    assert folder_signature(folder) == before
    for name in (WEIGHTS, "config.json"):
        rewrite(folder / name)
        assert before != (before := folder_signature(folder))
    assert folder_signature(folder / "gone") == ()


def snapshot(cache: Path, commit: str, **files: str) -> Path:
    """Write a snapshot of owner/model as the hub's client does, and make it that of `main`."""
    root = cache / "models--owner--model"
    for name, text in files.items():
        (root / "blobs").mkdir(parents=True, exist_ok=True)
        (root / "snapshots" / commit).mkdir(parents=True, exist_ok=True)
        (root / "blobs" / text).write_text(text)
        (root / "snapshots" / commit / name.replace("_", ".")).symlink_to(root / "blobs" / text)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    return root


def test_a_hub_model_changes_when_main_has_another_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    fresh, pinned = LoadedFiles(spec_of("owner/model")), LoadedFiles(msgspec.structs.replace(SPEC, revision="one"))
    root = snapshot(tmp_path, "one", config_json="a", model_safetensors="w")
    digest = fresh.loaded("one")
    assert digest == pinned.loaded("one") != ""
    (root / "snapshots" / "one" / "tokenizer.json").write_text("downloaded later")
    assert fresh.changed() == ()
    snapshot(tmp_path, "two", config_json="a", model_safetensors="w", README_md="new")
    assert fresh.changed() == ()
    snapshot(tmp_path, "three", config_json="b", chat_template_jinja="c")
    assert fresh.changed() == ("chat.template.jinja (new)", "config.json", "model.safetensors (removed)")
    assert pinned.changed() == ()
    (root / "blobs" / "a").write_text("edited in the cache")
    assert pinned.changed() == ("config.json",)
    shutil.rmtree(root)
    assert fresh.changed() == pinned.changed() == ()


def test_a_snapshot_that_moves_during_the_load_counts_as_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot(tmp_path, "one", config_json="a", model_safetensors="w")
    files = LoadedFiles(SPEC)
    snapshot(tmp_path, "two", config_json="b", model_safetensors="v")
    assert files.loaded("two") != ""
    assert files.changed() == ()
