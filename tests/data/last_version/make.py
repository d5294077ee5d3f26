"""Make the files of this folder: what a released vlmtui left on a disk, for today's code to open.

Run it with the code of that version: `PYTHONPATH=<its src> python make.py FOLDER`. It names that version's modules at
run time only, for they have other names now. It was last run with version 0.1.0, commit e6ba2c1. The database names its
media below `/vlmtui-last-version/media`; a test puts its own folder there.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import struct
import sys
import tempfile
import zlib
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

MEDIA = "/vlmtui-last-version/media"
CONFIG = """\
model = "qwen2_vl"
keep_alive = "10m"
hang_s = 45.0
graphics = "halfcell"
theme = "light"
system_prompt = "Be brief."

[sampling]
temperature = 0.7
top_p = 0.9
max_tokens = 256
seed = 7
"""


def png(colour: tuple[int, int, int]) -> bytes:
    """A picture of 4 x 3 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes(colour) * 4) * 3
    header = struct.pack(">IIBBBBB", 4, 3, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Library:
    """The classes and functions of the version that is run, by module."""

    def __getattr__(self, name: str) -> Any:
        return import_module(f"vlmtui.{name.replace('__', '.')}")


old = Library()


def stored(media: Path, colour: tuple[int, int, int], name: str) -> Any:
    """A stored picture as an attachment."""
    content = png(colour)
    sha256 = hashlib.sha256(content).hexdigest()
    path = old.store__blobs.keep(media, sha256, ".png", content)
    return old.domain__attachment.Attachment(
        modality="image", name=name, path=str(path), sha256=sha256, width=4, height=3, size_bytes=len(content),
        format="PNG", source=f"/home/user/{name}", notes=("turned upright by EXIF",),
    )  # fmt: skip


def recipe(mode: str, attachment: Any) -> Any:
    engine, sampling = old.domain__engine, old.domain__sampling
    return old.store__records.Recipe(
        model="Qwen/Qwen2-VL-2B-Instruct", revision="c0ffee", family="qwen2_vl", record_sha256="f" * 64,
        vllm_version="0.32.0", mode=mode, prompt="<|image_pad|>What is it?", seed=7,
        sampling=sampling.Sampling(temperature=0.7, top_p=0.9, stop=("</s>",), extra={"min_p": 0.1}),
        attachments=(attachment.sha256,), engine_args={"dtype": "bfloat16"}, system_prompt="Be brief.",
        request_id="request-1",
        spec=engine.LoadSpec(
            model="Qwen/Qwen2-VL-2B-Instruct", name="qwen2_vl", family="qwen2_vl", engine_args={"max_model_len": 4096},
            lora=engine.LoraAdapter(name="vision", id=1, path="vision-lora"),
        ),
    )  # fmt: skip


def comparison(attachment: Any, *, content: bytes | None = None) -> Any:
    """What `ask --mode both --export` writes."""
    engine, conversation, replay = old.domain__engine, old.domain__conversation, old.inspection__replay
    build, sampling = old.inspection__made, old.domain__sampling
    entries = {
        token: engine.Token(text=text, special=token < 10)
        for token, text in ((1, "<|im_start|>"), (2, "<|im_end|>"), (3, "<|image_pad|>"), (11, "What"), (12, " is it?"),
                            (13, "A red"), (14, " square."))
    }  # fmt: skip
    info = engine.EngineInfo(
        spec=engine.LoadSpec(model="Qwen/Qwen2-VL-2B-Instruct", name="Qwen/Qwen2-VL-2B-Instruct", family="qwen2_vl"),
        architecture="Qwen2VLForConditionalGeneration", vllm_version="0.32.0", device="cpu", dtype="bfloat16",
        max_model_len=4096, has_chat_template=True, limits={"image": 8}, load_s=1.0, revision="c0ffee",
        engine_args={"max_model_len": 4096},
    )  # fmt: skip
    span = engine.MediaSpan(modality="image", index=0, offset=1, length=2, tokens=2)
    sides = []
    for mode, ids in (("chat", (1, 3, 3, 11, 12, 2)), ("raw", (1, 3, 3, 11, 12))):
        ready = engine.PromptReady(
            request_id="request-1", prompt="".join(entries[one].text for one in ids), token_ids=ids, media=(span,),
            vocabulary=entries,
        )  # fmt: skip
        finished = engine.Finished(
            request_id="request-1", finish_reason="stop", stop="<|im_end|>",
            usage=engine.Usage(prompt_tokens=len(ids), completion_tokens=2, image_tokens=2),
            timings=engine.Timings(ttft_s=0.25, total_s=1.5),
        )  # fmt: skip
        request = (
            engine.ChatPrompt(turns=(conversation.user_turn("What is it?", [attachment]),))
            if mode == "chat"
            else engine.RawPrompt(text="<|im_start|><|image_pad|>What is it?", attachments=(attachment,))
        )
        logprob = engine.TokenLogprob(token_id=13, logprob=-0.5)
        sides.append(
            build.side_of(
                mode, ready, text="A red square.", token_ids=(13, 14), vocabulary=entries, logprobs=(logprob,),
                outcome=finished, request=request,
            )
        )  # fmt: skip
    bytes_of = {attachment.sha256: content} if content is not None else {}
    made = build.comparison_of(
        info, sampling.Sampling(max_tokens=64, seed=7), (attachment,), sides, content=bytes_of
    )  # fmt: skip
    assert isinstance(made, replay.Comparison)
    return made


def fill(folder: Path) -> tuple[Any, Any]:
    """A store with a conversation of two branches, a deleted one, and one that is only a draft."""
    conversation, records, failure = old.domain__conversation, old.store__records, old.domain__engine
    store = old.store__store.Store.open(folder, folder / "media", now=lambda: 1_760_000_000.0).store
    red, blue = stored(store.media, (200, 0, 0), "red.png"), stored(store.media, (0, 0, 200), "blue.png")
    cats = store.new_conversation(title="A red square", model="qwen2_vl")
    asked = store.add_turn(
        cats, None, conversation.Turn("user", (conversation.Media(red), conversation.Text("What is it?")))
    )
    statistics = records.Statistics(
        usage=failure.Usage(prompt_tokens=12, completion_tokens=3, image_tokens=8),
        timings=failure.Timings(ttft_s=0.25, total_s=1.5), finish_reason="stop", stop="</s>",
    )  # fmt: skip
    first = store.begin_answer(asked, recipe("chat", red))
    store.end_answer(first, "A red square.", records.Outcome(state="complete", statistics=statistics))
    failed = store.begin_answer(asked, recipe("raw", red))
    told = failure.Failure(kind=old.errors.ErrorKind.OUT_OF_MEMORY, message="No memory.", hint="Use less.")
    store.end_answer(failed, "A r", records.Outcome(state="failed", failure=told))
    store.add_comparison(first, comparison(red), [red])
    store.activate(first)
    store.pin(cats)
    store.save_draft(cats, records.StoredDraft(text="[Image #1] and this?", attachments={1: blue}))
    gone = store.new_conversation(title="Deleted", model="shapes")
    store.add_turn(gone, None, conversation.user_turn("Gone?", [blue]))
    store.delete(gone)
    draft = store.new_conversation(model="shapes")
    store.save_draft(draft, records.StoredDraft(text="not sent"))
    return store, cats


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, cats = fill(folder)
        document = old.store__document.document_of(store, cats)
        exported = old.store__export.to_json_document(document, inline=True)
        red = document.turns[0].attachments[0]
        (out / "conversation.json").write_text(exported.text, encoding="utf-8")
        (out / "comparison.json").write_bytes(
            old.inspection__replay.to_json(comparison(red, content=Path(red.path).read_bytes()))
        )
        store.close()
        shutil.copytree(folder / "media", out / "media", dirs_exist_ok=True)
        with closing(sqlite3.connect(folder / "conversations.db")) as database:
            for table, column in (("turns", "parts"), ("drafts", "attachments")):
                database.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?)", (f"{name}/media", MEDIA))
            database.commit()
            database.execute("VACUUM")
            database.execute("PRAGMA journal_mode = DELETE")
        shutil.copyfile(folder / "conversations.db", out / "conversations.db")
    (out / "config.toml").write_text(CONFIG, encoding="utf-8")
    (out / "trusted.json").write_text('[\n "owner/model@0123abcd",\n "owner/other@next"\n]\n', encoding="utf-8")
    (out / "family.toml").write_text(old.registry__skeleton.skeleton("mine"), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
