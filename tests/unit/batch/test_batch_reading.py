"""Items read from files in OpenAI's batch format and the short form."""

# ruff: noqa: E501  (a case a line)

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest
from PIL import Image

from tests.support.sounds import write_tone, write_with_pictures
from vlmtui.errors import VlmtuiError
from vlmtui.session.batch.items import BadItem, BatchItem, BatchReader, Expectation, ItemMessage, MediaSource
from vlmtui.session.batch.media_desk import MediaDesk

BASE = Path("/data")


def items(text: str) -> list[BatchItem | BadItem]:
    return list(BatchReader(io.BytesIO(text.encode()), base=BASE))


def one(value: object) -> BatchItem:
    (found,) = items(json.dumps(value))
    assert isinstance(found, BatchItem), found
    return found


def refusal(value: object) -> str:
    (found,) = items(json.dumps(value))
    assert isinstance(found, BadItem), found
    return f"{found.failure.message} {found.failure.hint}".strip()


def test_openais_format_is_read() -> None:
    content = [
        {"type": "text", "text": "what is "},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    body = {
        "model": "gpt",
        "messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": content}],
        "max_completion_tokens": 5,
        "temperature": 0.5,
        "stop": "x",
        "logprobs": True,
        "top_logprobs": 2,
        "stream": False,
    }
    found = one({"custom_id": "q", "method": "POST", "url": "/v1/chat/completions", "body": body})
    assert (found.id, found.line, found.logprobs) == ("q", 1, 2)
    assert found.sampling == {"max_tokens": 5, "temperature": 0.5, "stop": ("x",)}
    picture = MediaSource(modality="image", encoded="QUJD")
    other = MediaSource(modality="image", place="https://example.org/a.png")
    assert found.messages == (
        ItemMessage("system", ("Be brief.",)),
        ItemMessage("user", ("what is ", picture, other)),
    )
    assert found.sources == (picture, other)


def test_short_forms_are_read() -> None:
    found = one({"id": 7, "images": ["a.png", "/b.png"], "videos": "c.mp4", "prompt": "why?", "system": "s"})
    assert found.id == "7"
    assert [source.place for source in found.sources] == ["/data/a.png", "/b.png", "/data/c.mp4"]
    assert found.messages[0] == ItemMessage("system", ("s",))
    raw = one({"id": "r", "raw": "<image>why?", "images": "a.png"})
    assert (raw.raw, raw.messages, len(raw.media)) == ("<image>why?", (), 1)
    assert one({"id": "e", "prompt": "x", "expect": "yes"}).expect == Expectation(exact="yes")
    schema = {"json_schema": {"type": "object"}}
    assert one({"id": "e", "prompt": "x", "expect": schema}).expect == Expectation(json_schema={"type": "object"})


def test_an_item_sets_variables_of_the_chat_template() -> None:
    given = {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "low"}
    wanted = {"reasoning_effort": "low", "enable_thinking": False}
    short = one({"id": "a", "prompt": "x", "sampling": {**given, "seed": 1}})
    assert (short.variables, short.sampling) == (wanted, {"seed": 1})
    body = {"messages": [{"role": "user", "content": "x"}], **given}
    assert one({"custom_id": "a", "body": body}).variables == wanted


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1], "It is not an item: "),
        ({"id": "a"}, "An item has one of prompt, messages and raw."),
        ({"id": "a", "prompt": "x", "raw": "y"}, "An item has one of prompt, messages and raw."),
        ({"id": "a", "promtp": "x"}, "unknown field `promtp`"),
        ({"id": "a", "prompt": "x", "sampling": {"temprature": 1}}, "Unknown sampling parameter “temprature”. Known: "),
        ({"id": "a", "prompt": "x", "sampling": {"top_p": 3}}, "top-p must be above 0 and at most 1, not 3."),
        ({"id": "a", "prompt": "x", "sampling": {"seed": 1.5}}, "Expected `int | null`, got `float` - at `$.seed`"),
        ({"id": "a", "prompt": "x", "sampling": {"seed": True}}, "got `bool` - at `$.seed`"),
        ({"id": "a", "prompt": "x", "images": [None]}, "Expected `str`, got `null` - at `$.images[0]`"),
        ({"id": "a", "prompt": "x", "images": ["data:image/png,raw"]}, "it is not base64"),
        ({"id": "a", "prompt": "x", "expect": {"regexp": "x"}}, "unknown field `regexp`"),
        ({"id": "a", "prompt": "x", "expect": {"regex": "("}}, "regular expression that can't be checked"),
        ({"id": "a", "prompt": "x", "expect": {"json_schema": {"type": 1}}}, "JSON Schema that can't be checked"),
        ({"id": "a", "messages": []}, "at least one message"),
        ({"id": "a", "messages": [{"role": "tool", "content": "x"}]}, "Invalid enum value 'tool' - at `$.messages[0].role`"),
        ({"id": "a", "messages": [{"role": "user", "content": [{"type": "file"}]}]}, "Invalid enum value 'file'"),
        ({"custom_id": "a", "url": "/v1/embeddings", "body": {}}, "Invalid enum value '/v1/embeddings' - at `$.url`"),
        ({"custom_id": "a", "body": {"messages": [{"role": "user", "content": "x"}], "temprature": 1}}, "Unknown sampling parameter “temprature”"),
        ({"custom_id": "a", "body": {"messages": [{"role": "user", "content": "x"}], "n": 2}}, "n is more than 1"),
        ({"id": "a", "prompt": "x", "sampling": {"chat_template_kwargs": "y"}}, "chat_template_kwargs must be an object"),
        ({"id": "x" * 513, "prompt": "x"}, "it has 1 to 512"),
    ],
)  # fmt: skip
def test_a_wrong_line_has_a_reason(value: object, said: str) -> None:
    assert said in refusal(value)


def test_a_line_names_no_engine() -> None:
    """`model` in OpenAI's format has no effect, and no other field of a line selects an engine."""
    body = {"model": "/evil", "messages": [{"role": "user", "content": "x"}]}
    assert one({"custom_id": "a", "body": body}).id == "a"
    for name in ("model", "engine", "engine_args", "adapter", "lora", "chat_template", "mm_processor_kwargs", "url"):
        assert "unknown field" in refusal({"id": "a", "prompt": "x", name: "y"})
        assert "Unknown sampling parameter" in refusal({"id": "a", "prompt": "x", "sampling": {name: "y"}})
        if name != "model":
            assert "Unknown sampling parameter" in refusal({"custom_id": "a", "body": {**body, name: "y"}})


def test_lines_are_counted_through_empty_ones_and_a_byte_order_mark() -> None:
    found = items('\ufeff{"id": "a", "prompt": "x"}\n\n{"id": "b", "prompt": "y"}')
    assert [(item.id, item.line) for item in found] == [("a", 1), ("b", 3)]


def test_invalid_text_and_deep_json_are_reported() -> None:
    data = b'{"id": "\xff", "prompt": "x"}\n' + b"[" * 100_000 + b"\n" + b'{"id": "c", "prompt": "x"}\n'
    found = list(BatchReader(io.BytesIO(data), base=BASE))
    assert [isinstance(item, BadItem) for item in found] == [True, True, False]


def test_audio_is_read() -> None:
    found = one({"id": 1, "audios": ["a.wav", "clip.mp4#sound"], "prompt": "who speaks?"})
    assert [(source.modality, source.place) for source in found.sources] == [
        ("audio", "/data/a.wav"),
        ("audio", "/data/clip.mp4#sound"),
    ]
    parts = [
        {"type": "input_audio", "input_audio": {"data": "QUJD", "format": "wav"}},
        {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64,QUJD"}},
        {"type": "audio_url", "audio_url": "a.mp3"},
    ]
    message = one({"id": 1, "messages": [{"role": "user", "content": parts}]}).messages[0]
    encoded = MediaSource(modality="audio", encoded="QUJD")
    assert message.parts == (encoded, encoded, MediaSource(modality="audio", place="/data/a.mp3"))
    for broken in ({}, {"data": 3}, None):
        content = [{"type": "input_audio", "input_audio": broken}]
        assert "input_audio" in refusal({"id": 1, "messages": [{"role": "user", "content": content}]})


async def test_audio_of_a_video_and_of_bytes_is_read(tmp_path: Path) -> None:
    clip = write_with_pictures(tmp_path / "clip.mp4")
    wave = write_tone(tmp_path / "a.wav")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    desk = MediaDesk(tmp_path / "cache", num_frames=4)
    encoded = base64.b64encode(wave.read_bytes()).decode()
    sources = [MediaSource(modality="audio", place=str(place)) for place in (wave, clip, f"{clip}#sound")]
    sources.append(MediaSource(modality="audio", encoded=encoded))
    try:
        found = [await desk.prepare(source) for source in sources]
        assert {one.modality for one in found} == {"audio"}
        assert all(one.duration_s == pytest.approx(1, abs=0.1) for one in found)
        assert len({desk.content(source) for source in sources}) == 4
        for refused in ("a.png", "gone.wav"):
            with pytest.raises(VlmtuiError, match=refused):
                await desk.prepare(MediaSource(modality="audio", place=str(tmp_path / refused)))
    finally:
        desk.close()
