"""Files of a model's folder that are damaged or missing are named before a load."""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest

from tests.support.cases import in_one_test
from vlmtui.cli.main import main
from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import VlmtuiError
from vlmtui.paths import bundled_model
from vlmtui.registry.engine_arguments import check_engine_args
from vlmtui.registry.hub_cache import read_config
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.registry.model_files import file_faults, files_error, require_adapter
from vlmtui.registry.size_limits import wrong_sizes
from vlmtui.session.models import LoadChecks
from vlmtui.worker.hf.processor_arguments import check_arguments

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 11600000\n"
XET = b"# xet version 0\nfilesize = 11600000\nhash = '00'\n"
HTML = b"\n<!DOCTYPE html>\n<html><head><title>Sign in</title>"
GONE = None


def weights(header: bytes, said: int | None = None, size: int = 0) -> bytes:
    """Return a safetensors file. `said`: the header's length that it claims."""
    return (len(header) if said is None else said).to_bytes(8, "little") + header + bytes(size)


TENSOR = b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
WEIGHTS = weights(TENSOR, size=8)
INDEX, BIN = "model.safetensors.index.json", "pytorch_model.bin"
SHARDS = json.dumps({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}).encode()
POINTER = "is a Git LFS pointer, not the file itself."
QWEN = b'{"tokenizer_class": "Qwen2Tokenizer"}'
Files = dict[str, bytes | None]

NEEDED: dict[str, tuple[Files, str]] = {
    "weights": ({"model.safetensors": LFS}, f"model.safetensors {POINTER}"),
    "a tokenizer": ({"tokenizer.json": LFS}, f"tokenizer.json {POINTER}"),
    "a template": ({"chat_template.jinja": LFS}, f"chat_template.jinja {POINTER}"),
    "a processor": ({"preprocessor_config.json": LFS}, f"preprocessor_config.json {POINTER}"),
    "a video processor": ({"video_preprocessor_config.json": HTML}, "video_preprocessor_config.json is a web page"),
    "a generation config": ({"generation_config.json": b"{"}, "generation_config.json is cut off"),
    "a pointer with a BOM": ({"tokenizer.json": b"\xef\xbb\xbf" + LFS}, f"tokenizer.json {POINTER}"),
    "Xet": ({"model.safetensors": XET}, "model.safetensors is a Xet pointer"),
    "a page": ({"model.safetensors": HTML}, "model.safetensors is a web page (HTML)"),
    "XML": ({"model.safetensors": b'<?xml version="1.0"?><Error><Code>AccessDenied'}, "is an XML document"),
    "a message": ({"model.safetensors": b"Entry not found"}, "is a server's error message"),
    "a message in JSON": ({"tokenizer.json": b'{"error":"Repository not found"}'}, "is a server's error message"),
    "another message": ({"chat_template.jinja": b"404: Not Found"}, "is a server's error message"),
    "empty weights": ({"model.safetensors": b""}, "model.safetensors is empty (0 bytes)."),
    "an empty template": ({"chat_template.jinja": b""}, "chat_template.jinja is empty (0 bytes)."),
    "zeros": ({"tokenizer.json": b"\0" * 5000}, "tokenizer.json is not JSON."),
    "a cut tokenizer": ({"tokenizer.json": b'{"model": {"vocab": {"a": 1,'}, "tokenizer.json is cut off"),
    "no tokenizer": ({"tokenizer.json": GONE}, "tokenizer.json is missing."),
    "a vocabulary": ({"tokenizer.json": GONE, "tokenizer.model": LFS}, f"tokenizer.model {POINTER}"),
    "a shard": ({INDEX: SHARDS, "m-1.safetensors": WEIGHTS}, f"m-2.safetensors is missing: {INDEX} names 2 files."),
    "all shards": (
        {INDEX: SHARDS, "model.safetensors": GONE},
        f"m-1.safetensors, m-2.safetensors are missing: {INDEX} names 2 files.",
    ),
    "a shard of two": (
        {INDEX: SHARDS, "m-1.safetensors": WEIGHTS, "m-2.safetensors": LFS},
        f"m-2.safetensors {POINTER}",
    ),
    "old weights": ({"model.safetensors": GONE, BIN: LFS}, f"{BIN} {POINTER}"),
    "a download": ({"model.safetensors": GONE, "model.safetensors.incomplete": b"x"}, "is an unfinished download."),
    "a browser's": ({"tokenizer.json.crdownload": b"x", "tokenizer.json": GONE}, "is an unfinished download."),
    "aria2": ({"model.safetensors.aria2": b"x"}, "model.safetensors.aria2 is an unfinished download."),
    "huggingface_hub's": (
        {"model.safetensors": GONE, ".cache/huggingface/download/a.b.incomplete": b"x"},
        ".cache/huggingface/download has .incomplete files.",
    ),
}
NEEDED |= {
    "a long header": ({"model.safetensors": weights(b"{}", 9 * 10**9)}, "its header says 9,000,000,000 bytes"),
    "a header that is too long": ({"model.safetensors": weights(b"{}", 3)}, "its header says 3 bytes; the file has 10"),
    "one byte": ({"model.safetensors": b"x"}, "its header says 120 bytes; the file has 1."),
    "a header of text": ({"model.safetensors": weights(b"[1]")}, "its header is not JSON that lists tensors."),
    "tensors that are cut off": ({"model.safetensors": weights(TENSOR, size=7)}, "its tensors end at byte 77"),
}
NUMBERS: dict[str, tuple[str, dict[str, object], str]] = {
    "pixels": ("preprocessor_config.json", {"min_pixels": 10**10}, "min_pixels = 10,000,000,000; the limit is"),
    "an edge": ("preprocessor_config.json", {"size": {"longest_edge": 1e300}}, "longest_edge = "),
    "a side": ("preprocessor_config.json", {"size": {"height": 10**6, "width": 10**6}}, "width = 1,000,000; the limit"),
    "no patch": ("preprocessor_config.json", {"patch_size": 0}, "patch_size = 0; it must be greater than 0"),
    "a negative patch": ("config.json", {"vision_config": {"spatial_merge_size": -2}}, "spatial_merge_size = -2"),
    "not a number": ("video_preprocessor_config.json", {"temporal_patch_size": float("nan")}, "temporal_patch_size"),
    "crops": ("processor_config.json", {"image_processor": {"num_crops": 10**6}}, "num_crops = 1,000,000"),
    "frames": ("video_preprocessor_config.json", {"num_frames": 10**9}, "num_frames = 1,000,000,000"),
    "an image": ("config.json", {"vision_config": {"image_size": [14, 10**9]}}, "image_size = 1,000,000,000"),
    "layers": ("config.json", {"text_config": {"num_hidden_layers": 10**9}}, "num_hidden_layers"),
    "a vocabulary": ("config.json", {"vocab_size": 10**12}, "vocab_size"),
}
SPARE: dict[str, tuple[Files, int]] = {
    "weights of another kind": ({BIN: LFS, f"{BIN}.index.json": b'{"weight_map": {"a": "b.bin"}}'}, 1),
    "weights that no index names": (
        {INDEX: SHARDS, "m-1.safetensors": WEIGHTS, "m-2.safetensors": WEIGHTS, "c.safetensors": LFS},
        1,
    ),
    "a vocabulary beside tokenizer.json": ({"tokenizer.model": LFS}, 1),
    "state of a training": ({"optimizer.pt": LFS, "rng_state_0.pth": LFS, "trainer_state.json": b""}, 0),
    "a stale download": ({"model.safetensors.part": b"x"}, 0),
    "notes": ({"README.md": LFS, "notes.txt": b"", "figure.png": LFS}, 0),
    "own code's vocabulary": (
        {"tokenizer.json": GONE, "tokenizer_config.json": b'{"auto_map": {"AutoTokenizer": "a.B"}}'},
        0,
    ),
    "an older Mistral's vocabulary": ({"tokenizer.json": GONE, "tokenizer.model.v3": b"x"}, 0),
    "a vocabulary of another name": ({"tokenizer.json": GONE, "dict.txt": b"x"}, 0),
    "no weights at all": ({"model.safetensors": GONE}, 0),
}


def folder_with(folder: Path, files: Files) -> Path:
    """Link the bundled model into `folder`, and replace files; None: left out."""
    folder.mkdir()
    for own in bundled_model().iterdir():
        (folder / own.name).symlink_to(own)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)
        if content is not None:
            (folder / name).write_bytes(content)
    return folder


def said_of(folder: Path, **arguments: object) -> str:
    error = files_error(LoadSpec(model=str(folder), name="m", engine_args=arguments))
    return error.message if error is not None else ""


def test_a_file_that_the_engine_needs_is_named(tmp_path: Path) -> None:
    @in_one_test(NEEDED)
    def check(files: Files, wanted: str) -> None:
        assert wanted in said_of(folder_with(Path(mkdtemp(dir=tmp_path)) / "m", files))

    check()
    assert said_of(bundled_model()) == ""


def test_a_number_that_takes_all_memory_or_time_is_named(tmp_path: Path) -> None:
    @in_one_test(NUMBERS)
    def check(name: str, content: dict[str, object], wanted: str) -> None:
        folder = folder_with(Path(mkdtemp(dir=tmp_path)) / "m", {name: json.dumps(content).encode()})
        assert f"{name} has a number that no model needs: " in said_of(folder)
        assert wanted in said_of(folder)

    check()


def test_no_record_has_a_number_beyond_the_limits() -> None:
    for family in Registry.bundled().read().values():
        assert list(wrong_sizes(msgspec.to_builtins(family))) == [], family.family


def test_what_is_no_regular_file_is_named_and_not_waited_for(tmp_path: Path) -> None:
    for name in ("model.safetensors", "config.json", "chat_template.jinja", "tokenizer.json", "merges.txt"):
        folder = folder_with(Path(mkdtemp(dir=tmp_path)) / "m", {name: GONE})
        os.mkfifo(folder / name)
        assert any(one.message == f"{name} is a pipe (FIFO), not a file." for one in file_faults(folder)), name


def test_an_adapters_files_are_looked_at(tmp_path: Path) -> None:
    require_adapter(bundled_model() / "adapters" / "boxes")
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(weights(b"{}", 10**9))
    with pytest.raises(VlmtuiError, match="Can't load the LoRA adapter") as caught:
        require_adapter(tmp_path)
    assert "its header says 1,000,000,000 bytes" in caught.value.detail
    (tmp_path / "adapter_model.safetensors").unlink()
    os.mkfifo(tmp_path / "adapter_model.safetensors")
    with pytest.raises(VlmtuiError, match="is a pipe"):
        require_adapter(tmp_path)


def test_sizes_in_arguments_have_the_same_limits() -> None:
    spec = LoadSpec(model="m", name="m", engine_args={"mm_processor_kwargs": {"max_pixels": 10**12}})
    with pytest.raises(VlmtuiError, match="max_pixels = 1,000,000,000,000"):
        check_engine_args(spec)
    with pytest.raises(VlmtuiError, match="min_pixels"):
        check_arguments(None, {"min_pixels": 10**12})


def test_a_file_that_no_engine_needs_stops_no_load(tmp_path: Path) -> None:
    @in_one_test(SPARE)
    def check(files: Files, found: int) -> None:
        folder = folder_with(Path(mkdtemp(dir=tmp_path)) / "m", files)
        assert (said_of(folder), len(file_faults(folder))) == ("", found)

    check()


def test_an_argument_replaces_a_damaged_file(tmp_path: Path) -> None:
    folder = folder_with(tmp_path / "m", {"model.safetensors": LFS, "tokenizer.json": LFS})
    assert said_of(folder, load_format="dummy", tokenizer="owner/other") == ""
    assert "model.safetensors" in said_of(folder, tokenizer="owner/other")


def test_the_hubs_cache_may_lack_files_but_holds_no_pointers(tmp_path: Path) -> None:
    (tmp_path / "snapshots").mkdir()
    folder = folder_with(tmp_path / "snapshots" / "abc", {INDEX: SHARDS, "model.safetensors": GONE})
    assert file_faults(folder) == []
    (folder / "m-1.safetensors").symlink_to(tmp_path / "no-blob")
    assert file_faults(folder) == []
    (folder / "m-2.safetensors").write_bytes(LFS)
    assert [one.name for one in file_faults(folder)] == ["m-2.safetensors"]


def test_a_config_that_is_a_pointer_is_called_one(tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError, match=r"config\.json is a Git LFS pointer") as found:
        read_config(folder_with(tmp_path / "m", {"config.json": LFS}))
    assert "git lfs pull" in found.value.hint


def test_every_way_to_a_load_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_with(tmp_path / "m", {"model.safetensors": LFS})
    model = resolve(Registry.bundled(), str(folder))
    check = LoadChecks(None).first(model, None)  # type: ignore[arg-type]
    assert check is not None and POINTER in check.text and len(check.options) == 1
    for command, code in ((["ask", "--model", str(folder), "hi"], 1), (["prompt", str(folder), "hi"], 0)):
        assert main(command) == code
        assert f"model.safetensors {POINTER}" in capsys.readouterr().err
    assert main(["models", "show", str(folder)]) == 0
    assert f"model.safetensors {POINTER}" in capsys.readouterr().out
