"""The content of the inspector, without the inspector."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from tests.support.scripted_engine import DEFAULT_SPEC, Fail, Say, ScriptedEngine, Step, scripted_info
from vlmtui.domain.conversation import Attachment, ChatPrompt, user_turn
from vlmtui.domain.engine import LoraAdapter
from vlmtui.domain.generation import Failure, MediaSpan, PromptReady, Token
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.session.generation import Answer, make_request, media_items, run_turn
from vlmtui.session.prompt_report import (
    PromptReport,
    answer_tokens,
    media_facts,
    part_file,
    part_text,
    prompt_pieces,
    rendered_again,
    template_of,
    with_logprobs,
)
from vlmtui.store.records import GenerationRecord
from vlmtui.ui.inspector.prompt_lines import TokenRows, prompt_lines, request_lines, styled_prompt, template_lines

SHAPES = Registry.bundled()["shapes"]


def picture(name: str = "cat.jpg") -> Attachment:
    return Attachment(
        modality="image", name=name, path="/x", sha256="0" * 64, width=224, height=224, size_bytes=1, format="PNG"
    )


async def engine_of(*answers: list[Step]) -> ScriptedEngine:
    engine = ScriptedEngine(DEFAULT_SPEC, answers=answers)
    async for _ in engine.load():
        pass
    return engine


async def asked(engine: ScriptedEngine, text: str, *items: Attachment) -> PromptReport:
    request = make_request(SHAPES, [user_turn(text, items)], Sampling(seed=7))
    answer = Answer(request.request_id)
    async for event, _ in run_turn(engine, request):
        answer.take(event)
    return PromptReport.of_answer("exchange 1", answer, request=request, info=engine.info)


def long_prompt(count: int) -> PromptReport:
    """Return a prompt of `count` tokens, half of them an image in the middle."""
    ids = (*[5] * (count // 4), 1, *[9] * (count // 2), 2, *[6] * (count - count // 4 - count // 2 - 2))
    vocabulary = {
        1: Token(text="<|vision_start|>", special=True), 2: Token(text="<|vision_end|>", special=True),
        5: Token(text=" a"), 6: Token(text="\nb"), 9: Token(text="<|image_pad|>", special=True),
    }  # fmt: skip
    span = MediaSpan(modality="image", index=0, offset=count // 4 + 1, length=count // 2, tokens=count // 2)
    prompt = PromptReady(
        request_id="r", prompt="".join(vocabulary[token].text for token in ids), token_ids=ids, media=(span,),
        vocabulary=vocabulary,
    )  # fmt: skip
    return PromptReport(title="long", prompt=prompt, vocabulary=vocabulary, attachments=(picture(),))


def test_an_image_is_one_line_that_can_be_unfolded() -> None:
    known = long_prompt(40)
    rows = TokenRows(prompt_pieces(known), known.vocabulary)
    assert len(rows) == 21
    head = rows[11]
    assert (head.label, head.first, head.last) == ("<|image_pad|> × 20 from cat.jpg", 11, 30)
    assert rows[10].kind == "special"
    assert rows.toggle(11) == 11
    assert len(rows) == 41
    assert [(rows[row].first, rows[row].is_inner, rows[row].id) for row in (12, 31, 32)] == [
        (11, True, 9), (30, True, 9), (31, False, 2),
    ]  # fmt: skip
    assert rows.toggle(20) == 11, "folding from inside goes back to the head"
    assert len(rows) == 21
    assert rows.toggle(0) == 0
    with pytest.raises(IndexError):
        rows[21]


def test_two_unfolded_images_do_not_mix() -> None:
    spans = tuple(MediaSpan(modality="image", index=at, offset=at * 4, length=3, tokens=3) for at in range(2))
    vocabulary = {9: Token(text="<image>", special=True), 5: Token(text="x")}
    prompt = PromptReady(request_id="r", prompt="", token_ids=(9, 9, 9, 5, 9, 9, 9), media=spans, vocabulary=vocabulary)
    known = PromptReport(title="", prompt=prompt, vocabulary=vocabulary, attachments=(picture("a"), picture("b")))
    rows = TokenRows(prompt_pieces(known), vocabulary)
    rows.toggle(2)
    rows.toggle(0)
    assert len(rows) == 9
    assert [rows[at].first for at in range(9)] == [0, 0, 1, 2, 3, 4, 4, 5, 6]
    assert [rows[at].is_head for at in range(9)] == [True, *[False] * 4, True, *[False] * 3]


def test_the_prompt_is_its_own_text_with_the_images_folded() -> None:
    known = long_prompt(40)
    stretches = styled_prompt(known)
    assert [stretch.style for stretch in stretches] == ["text", "special", "media", "special", "text"]
    assert stretches[2].text == "<|image_pad|> × 20 from cat.jpg"
    lines = prompt_lines(known)
    assert lines[0].plain.startswith(" a a")
    assert lines[0].plain.endswith("<|vision_end|>")
    assert [line.plain for line in lines[1:]] == ["b"] * 8


def test_a_hundred_thousand_tokens_make_no_more_lines_than_they_have_pieces() -> None:
    known = long_prompt(100_000)
    rows = TokenRows(prompt_pieces(known), known.vocabulary)
    assert len(rows) == 50_001
    assert rows[50_000].first == 99_999
    assert len(styled_prompt(known)) == 5


def test_a_stored_prompt_is_folded_by_its_looks() -> None:
    text = "<|im_start|>user\n" + "<|image_pad|>" * 64 + "Hi<|im_end|>\n"
    known = PromptReport(title="exchange 1", prompt_text=text)
    assert [(one.text, one.style) for one in styled_prompt(known)] == [
        ("<|im_start|>", "special"), ("user\n", "text"), ("<|image_pad|> × 64", "media"), ("Hi", "text"),
        ("<|im_end|>", "special"), ("\n", "text"),
    ]  # fmt: skip
    assert part_text(known, "prompt") == text, "what is copied is not folded"
    assert prompt_pieces(known) == []


def test_hostile_text_is_visible_in_every_part() -> None:
    vocabulary = {1: Token(text="\x1b[31m[/x]"), 2: Token(text="\u202e")}
    prompt = PromptReady(request_id="r", prompt="\x1b[31m[/x]\u202e", token_ids=(1, 2), media=(), vocabulary=vocabulary)
    info = replace(scripted_info(), chat_template="{{ '\x1b' }}", revision="\x1b]0;t\x07")
    known = PromptReport(title="x", prompt=prompt, vocabulary=vocabulary, info=info)
    for lines in (prompt_lines(known), template_lines(template_of(known)), request_lines(known)):
        assert lines
        assert "\x1b" not in "".join(line.plain for line in lines)
    assert "␛[31m[/x]<U+202E>" in prompt_lines(known)[0].plain


async def test_the_request_has_all_fields_that_were_sent() -> None:
    engine = await engine_of(["Hi"])
    known = await asked(engine, "Hello", picture())
    assert known.info is not None
    spec = replace(known.info.spec, loras=(LoraAdapter(name="vision", path="vision-lora"),))
    info = replace(known.info, spec=spec, stop_tokens=("</s>",), bos_token="<s>", adds_bos=True)
    sampling = Sampling(temperature=0.5, stop=("\n\n",), extra={"min_p": 0.1}, max_tokens=None)
    assert known.request is not None
    request = replace(known.request, sampling=sampling)
    told = "\n".join(line.plain for line in request_lines(replace(known, info=info, request=request)))
    for word in (
        "vision (id 1",
        "</s>",
        "<s> (added to a raw prompt",
        "'\\n\\n'",
        "min_p",
        "0.5",
        "what the context holds",
        "4096",
    ):
        assert word in told, word


async def test_asking_for_probabilities_keeps_the_first_answer() -> None:
    engine = await engine_of(["A ", "red "], [Say("A ", top={"A ": -0.1, "The ": -2.5}), "red "])
    known = await asked(engine, "Hello")
    assert [token.probability for token in answer_tokens(known)] == [None, None]
    told = await with_logprobs(engine, known)
    first = answer_tokens(told)[0]
    assert first.probability == pytest.approx(0.905, abs=0.001)
    assert [(text, logprob) for text, _, logprob in first.alternatives] == [("A ", -0.1), ("The ", -2.5)]
    sent = engine.requests[-1]
    assert (sent.logprobs, sent.keep) == (5, False)
    assert sent.request_id != engine.requests[0].request_id
    assert not known.logprobs
    assert told.answer == known.answer == "A red "


async def test_failures_are_reported_with_a_reason() -> None:
    engine = await engine_of(["Hi"], [Fail(Failure(kind=ErrorKind.ENGINE_BUSY, message="Too busy."))])
    known = await asked(engine, "Hello")
    with pytest.raises(VlmtuiError, match="Too busy"):
        await with_logprobs(engine, known)
    with pytest.raises(VlmtuiError, match="was not stored"):
        await with_logprobs(engine, replace(known, request=None))
    other = replace(known, info=None, recipe=GenerationRecord(model="org/other"))
    with pytest.raises(VlmtuiError, match="org/other generated this answer"):
        await with_logprobs(engine, other)
    assert len(engine.requests) == 2


async def test_a_prompt_is_rendered_again_for_an_answer_of_an_earlier_session() -> None:
    engine = await engine_of(["Hi"])
    first = await asked(engine, "Hello", picture())
    recipe = GenerationRecord(model=DEFAULT_SPEC.model, prompt=first.text, sampling=Sampling())
    stored = PromptReport.of_answer("exchange 1", Answer("", ["Hi"]), recipe=recipe, attachments=[picture()])
    assert (stored.text, stored.prompt, stored.answer) == (first.text, None, "Hi")
    assert first.request is not None
    again = await rendered_again(engine, stored, first.request)
    assert again.prompt is not None
    assert again.text == first.text
    assert len(engine.requests) == 1, "nothing is generated"
    assert prompt_pieces(again)


async def test_every_part_can_be_copied_as_it_is() -> None:
    engine = await engine_of(["A ", "red\t"])
    known = await asked(engine, "Hello", picture())
    assert part_text(known, "prompt") == known.text
    assert known.prompt is not None
    rows = part_text(known, "tokens").splitlines()
    assert len(rows) == len(known.prompt.token_ids) + 1
    assert json.loads(rows[1].split("\t")[2]) == "user:"
    assert json.loads(part_text(known, "media"))[0]["in_prompt"]["resized"] == [112, 112]
    assert json.loads(part_text(known, "request"))["request"]["sampling"]["seed"] == 7
    assert [token["text"] for token in json.loads(part_text(known, "answer"))["tokens"]] == ["A ", "red\t"]
    assert part_file(known, "prompt") == "vlmtui-exchange-1-prompt.txt"
    assert part_file(replace(known, title="../\x1b[31m!"), "request") == "vlmtui-31m-request.json"


async def test_the_report_describes_a_processed_image() -> None:
    engine = await engine_of(["Hi"])
    known = await asked(engine, "Hello", picture("a.png"), picture("b.png"))
    items = media_items(known.prompt, known.attachments)
    assert [item.attachment.name for item in items] == ["a.png", "b.png"]
    facts = dict(media_facts(items[1]))
    assert facts["resized to"] == "112 × 112 pixels"
    assert facts["grid"] == "1 × 8 × 8 = 64 patches or tiles"
    assert facts["pixel_values"] == "shape (64, 1176)"
    assert items[1].spans[0].offset > items[0].spans[0].offset


async def test_the_template_is_the_one_that_wrote_the_prompt() -> None:
    engine = await engine_of(["Hi"])
    known = await asked(engine, "Hello")
    assert known.info is not None
    own = replace(known, info=replace(known.info, chat_template="own", has_chat_template=True))
    assert template_of(own) == "own"
    none = replace(known, info=replace(known.info, chat_template="", has_chat_template=False))
    assert known.request is not None
    prompt = known.request.prompt
    assert isinstance(prompt, ChatPrompt)
    assert template_of(none) == (prompt.fallback_template or "")


def test_an_image_has_the_tokens_of_all_its_tiles() -> None:
    spans = tuple(MediaSpan(modality="image", index=0, offset=at, length=64, tokens=64) for at in (2, 70))
    ready = PromptReady(request_id="1", prompt="", token_ids=(), media=spans)
    assert [item.tokens for item in media_items(ready, (picture(), picture()))] == [128, None]
