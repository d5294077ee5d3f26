"""A comparison as JSON, Markdown and HTML."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan, Timings, Usage
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.export.comparison import export_html, export_markdown
from vlmtui.inspection.answer_diff import answer_diff
from vlmtui.inspection.prompt_diff import PromptTokens, prompt_diff
from vlmtui.inspection.replay import (
    CandidateRecord,
    Comparison,
    DiffSummary,
    LogprobRecord,
    MediaRecord,
    Side,
    from_json,
    media_record,
    summary_of,
    to_json,
)

PICTURE = b"\x89PNG\r\n\x1a\n not really"
SHA = hashlib.sha256(PICTURE).hexdigest()
HOSTILE = "</pre><script>alert(1)</script>\x1b[31m\u202e``` & \"'[b]\n```\n# head"
PAD = "<|image_pad|>"
SPECIAL = tuple(sorted(sum(map(ord, text)) for text in ("<|im_start|>", "<|im_end|>", PAD)))


def attachment(name: str = "cat.png", modality: Any = "image", kind: str = "PNG") -> Attachment:
    return Attachment(modality=modality, name=name, path="/x", sha256=SHA, width=8, height=8, size_bytes=1, format=kind)


def side(mode: Any, texts: tuple[str, ...], answer: str, **more: Any) -> Side:
    spans = tuple(
        MediaSpan(modality="image", index=0, offset=texts.index(PAD), length=texts.count(PAD), tokens=texts.count(PAD))
        for _ in range(int(PAD in texts))
    )
    ids = tuple(sum(map(ord, text)) for text in texts)
    return Side(
        mode=mode, prompt="".join(texts), prompt_token_ids=ids, prompt_token_texts=texts, media=spans, answer=answer,
        special_token_ids=SPECIAL,
        usage=Usage(prompt_tokens=len(ids), completion_tokens=3, image_tokens=1280),
        timings=Timings(ttft_s=0.25, total_s=1.5), finish_reason="stop", stop="<|im_end|>", **more,
    )  # fmt: skip


LEFT = ("<|im_start|>", "user", "\n", *[PAD] * 1280, "What is this?", "<|im_end|>")
RIGHT = (*LEFT[:-2], "What", HOSTILE, "<|im_end|>")


def comparison(**more: Any) -> Comparison:
    sides = (
        side("chat", LEFT, "A red circle.", answer_token_ids=(1, 2, 3)),
        side(
            "raw", RIGHT, f"A blue circle. {HOSTILE}", answer_token_ids=(1, 4, 3),
            logprobs=(
                LogprobRecord(
                    token_id=1, text="A", logprob=-0.5, top=(CandidateRecord(token_id=9, text="The", logprob=-1.5),)
                ),
            ),
        ),
    )  # fmt: skip
    special = frozenset(SPECIAL)
    prompts = [
        PromptTokens(one.prompt_token_ids, one.prompt_token_texts, special, one.media, (attachment(),)) for one in sides
    ]
    answers = answer_diff(sides[0].answer, sides[1].answer, *(one.answer_token_ids for one in sides))
    fields: dict[str, Any] = {
        "model": "Qwen/Qwen2-VL-7B-Instruct", "revision": "c0ffee", "engine": "vLLM", "engine_version": "0.32.0",
        "engine_args": {"max_model_len": 4096, "limit_mm_per_prompt": {"image": 8}, "dtype": None},
        "sampling": Sampling(max_tokens=64, stop_tokens=("<|im_end|>",)),
        "attachments": (media_record(attachment(), PICTURE),),
        "sides": sides, "difference": summary_of(prompt_diff(prompts[0], prompts[1]), answers),
    }  # fmt: skip
    return Comparison(**{**fields, **more})


def test_a_document_survives_json() -> None:
    document = comparison()
    data = to_json(document)
    assert from_json(data) == document
    assert to_json(from_json(data)) == data
    assert data.endswith(b"}\n")
    assert document.difference is not None
    assert document.difference.prompt_first_divergence == 3 + 1280
    assert document.difference.answer_first_divergence == 1
    assert document.difference.answer_first_difference == 2


def test_a_document_may_have_one_side_and_no_bytes() -> None:
    document = comparison(sides=comparison().sides[:1], difference=None, attachments=(media_record(attachment()),))
    assert from_json(to_json(document)) == document
    assert b'"data": null' in to_json(document)


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(extra=1), "extra"),
        (lambda data: data["sides"][0].update(extra=1), "extra"),
        (lambda data: data["sides"][0]["usage"].update(extra=1), "$.sides[0].usage.extra"),
        (lambda data: data["sides"][1]["media"][0].update(extra=1), "$.sides[1].media[0].extra"),
        (lambda data: data["sampling"].update(extra_field=1), "$.sampling.extra_field"),
        (lambda data: data["sides"].clear(), "0 sides; the limit is 1 to 8"),
        (lambda data: data.update(sides=data["sides"][:1] * 9), "9 sides; the limit is 1 to 8"),
        (lambda data: data["sides"][0]["prompt_token_texts"].pop(), "different numbers"),
        (lambda data: data["sides"][0]["prompt_token_ids"].append(-1), "Expected `int` >= 0"),
        (lambda data: data["sides"][0].update(mode="other"), "mode"),
        (lambda data: data.update(format="vlmtui-comparison-2"), "format"),
        (lambda data: data.pop("model"), "model"),
        (lambda data: data["attachments"][0].update(sha256="0" * 64), "hash"),
        (lambda data: data["attachments"][0].update(sha256="../../etc/passwd"), "sha256"),
        (lambda data: data["attachments"][0].update(data="no base64!"), "hash"),
        (lambda data: data["attachments"][0].update(data="abc"), "hash"),
    ],
)
def test_an_invalid_document_is_rejected(change: Change, said: str) -> None:
    data = json.loads(to_json(comparison()))
    change(data)
    with pytest.raises(VlmtuiError) as caught:
        from_json(json.dumps(data).encode())
    assert caught.value.kind is ErrorKind.BAD_INPUT
    assert said in caught.value.detail


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"null"])
def test_other_files_are_rejected(data: bytes) -> None:
    with pytest.raises(VlmtuiError):
        from_json(data)


def test_an_unencodable_file_name_can_be_written() -> None:
    record = media_record(attachment("caf\udce9.png"))
    assert record.name == "caf?.png"
    assert msgspec.json.encode(record)


def test_only_known_image_formats_have_a_media_type() -> None:
    assert media_record(attachment(kind="JPEG")).media_type == "image/jpeg"
    assert media_record(attachment(kind="SVG")).media_type == "application/octet-stream"
    assert media_record(attachment(modality="video", kind="mp4")).media_type == "application/octet-stream"


class Reader(HTMLParser):
    """Checks that every tag is closed, and keeps what a browser would see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.marked: list[str] = []
        self.pre: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "mark":
            self.marked.append("")
        if tag == "pre":
            self.pre.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "mark" in self.open:
            self.marked[-1] += data
        if "pre" in self.open:
            self.pre[-1] += data


def page(document: Comparison, content: bytes | None = PICTURE) -> Reader:
    reader = Reader()
    reader.feed(export_html(document, lambda _: content))
    reader.close()
    assert reader.open == []
    return reader


def test_the_page_needs_nothing_else_and_runs_nothing() -> None:
    text = export_html(comparison(model=HOSTILE), lambda _: None)
    reader = page(comparison(model=HOSTILE))
    tags = {tag for tag, _ in reader.seen}
    assert tags.isdisjoint({"script", "link", "iframe", "object", "a", "form", "base"})
    for _, attributes in reader.seen:
        assert not [name for name in attributes if name.startswith("on") or name in ("href", "style")]
        assert (attributes.get("src") or "data:").startswith("data:")
    assert "prefers-color-scheme: dark" in text
    assert "default-src 'none'" in text
    assert "http" not in text.replace("http-equiv", "")
    assert not set(text) & {"\x1b", "\u202e"}
    assert "alert(1)" in reader.text


def test_the_page_shows_pictures_and_folds_their_tokens() -> None:
    reader = page(comparison())
    sources = [attributes["src"] for tag, attributes in reader.seen if tag == "img"]
    assert sources == ["data:image/png;base64," + base64.b64encode(PICTURE).decode()]
    assert reader.text.count(f"{PAD} ×") == 2
    assert f"{PAD} × 1,280 from cat.png" in reader.text


def test_the_page_marks_differences_and_special_tokens() -> None:
    reader = page(comparison())
    assert "What is this?" in reader.marked
    assert {"red", "blue"} <= set(reader.marked)
    classes = [attributes.get("class") for tag, attributes in reader.seen if tag == "span"]
    assert classes.count("special") >= 4
    assert classes.count("media") == 2


def test_an_answer_is_kept_to_the_letter() -> None:
    answer = "\n\n  <b>Two</b>\n\tlines &amp; &#60;\n"
    sides = (msgspec.structs.replace(comparison().sides[0], answer=answer),)
    reader = page(comparison(sides=sides, difference=None))
    assert reader.pre[1] == "\n" + answer


def test_media_that_cannot_be_shown_are_named() -> None:
    bare = comparison(attachments=(media_record(attachment(name=HOSTILE)),))
    gone = page(bare, None)
    assert "no longer available" in gone.text
    assert not [tag for tag, _ in gone.seen if tag == "img"]
    record = MediaRecord(sha256=SHA, name="x.svg", modality="image", media_type='image/svg+xml"onload="x')
    assert not [tag for tag, _ in page(comparison(attachments=(record,))).seen if tag == "img"]


def test_without_token_texts_the_words_are_compared() -> None:
    sides = tuple(
        msgspec.structs.replace(one, prompt=text, prompt_token_texts=(), prompt_token_ids=(), media=())
        for one, text in zip(comparison().sides, ("<|user|> a b", "<|user|> a c"), strict=True)
    )
    reader = page(comparison(sides=sides))
    assert {"b", "c"} <= set(reader.marked)
    assert ("span", {"class": "special"}) in reader.seen


def test_failures_and_equal_sides_are_shown() -> None:
    one = msgspec.structs.replace(comparison().sides[0], failure="The engine <died>.", finish_reason=None, stop=None)
    found = DiffSummary(prompts_identical=True, answers_identical=True, findings=("no difference",))
    document = comparison(sides=(one, one), difference=found)
    reader = page(document)
    assert "The engine <died>." in reader.text
    assert "The prompts are identical." in reader.text
    assert reader.marked == []
    assert "Failed: `The engine <died>.`" in export_markdown(document)


def test_markdown_keeps_hostile_text_inside_code() -> None:
    document = comparison(model=f"a`b``{HOSTILE}")
    text = export_markdown(document)
    assert not set(text) & {"\x1b", "\u202e"}
    outside, fence = [], ""
    for line in text.splitlines():
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if not fence and len(ticks) >= 3 and line == ticks + "text":
            fence = ticks
        elif fence and line == fence:
            fence = ""
        elif not fence:
            outside.append(line)
    assert fence == ""
    assert "# head" not in outside
    assert [line for line in outside if line.startswith("## ")] == ["## Difference", "## Chat", "## Raw"]
    assert not [line for line in outside if "<script>" in line and "`" not in line.partition("<script>")[0]]
    assert f"[{PAD} × 1,280 from cat.png]" in text
    assert "including 1,280 image" in text
