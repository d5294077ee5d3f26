"""Two prompts, one question: sent at the same time, stopped and failing apart, compared, kept."""

from __future__ import annotations

import asyncio
import json
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from tests.support.pictures import Easel
from tests.support.scripted_engine import DEFAULT_SPEC, Fail, Hold, ScriptedEngine, Step, scripted_info
from tests.support.toy_prompts import SHAPES, use_chat_template
from vlmtui.domain.conversation import (
    Attachment,
    MessagesPrompt,
    Prompt,
    RawPrompt,
    Turn,
    attachments_of,
    user_turn,
)
from vlmtui.domain.generation import Failed, Failure, PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, Remedy, VlmtuiError
from vlmtui.export.comparison import export_comparison
from vlmtui.inspection.prompt_turns import folded_runs, folds, placeholders
from vlmtui.inspection.replay import from_json
from vlmtui.paths import Paths
from vlmtui.registry.unlisted import unlisted_family
from vlmtui.session.comparison import (
    PromptComparison,
    RawDraft,
    RawDrafts,
    SavedPrompts,
    answer_of,
    difference_of,
)
from vlmtui.session.persistence import LiveConversation


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    use_chat_template(monkeypatch)


@pytest.fixture
def cat(tmp_path: Path) -> Attachment:
    item = Easel(tmp_path).picture(("red", "circle", "left")).attachment
    return msgspec.structs.replace(item, name="cat.jpg")


def comparing(
    *attachments: Attachment, sampling: Sampling | None = None, text: str = "What is this?"
) -> PromptComparison:
    turns: tuple[Turn, ...] = (user_turn(text, attachments),)
    return PromptComparison(turns, SHAPES, scripted_info(), sampling or Sampling(), RawDraft())


async def ready(*answers: list[Step]) -> ScriptedEngine:
    engine = ScriptedEngine(DEFAULT_SPEC, answers=answers)
    async for _ in engine.load():
        pass
    return engine


async def filled(comparison: PromptComparison, engine: ScriptedEngine) -> None:
    await comparison.render_chat(engine)
    comparison.draft.fill(*await comparison.template_text(lambda: engine))


async def asked(comparison: PromptComparison, engine: ScriptedEngine) -> None:
    comparison.prepare()
    comparison.begin(engine)
    await comparison.answer()


async def test_the_templates_text_is_the_left_prompt_again(cat: Attachment) -> None:
    comparison, engine = comparing(cat), await ready()
    await filled(comparison, engine)
    assert comparison.draft.text == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is this?<|im_end|>\n<|im_start|>assistant\n"
    )
    rendered, origin = await comparison.rendered_text(engine)
    assert rendered == comparison.draft.text
    assert origin == "from the chat template"
    assert comparison.check(rendered) == []


async def test_a_model_without_a_record_starts_with_the_text_that_its_template_wrote(
    cat: Attachment, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, engine = comparing(cat), await ready()
    comparison = PromptComparison(
        known.turns, unlisted_family("mystery"), scripted_info(), Sampling(), RawDraft(), families=(SHAPES,)
    )
    rendered, _ = await comparison.rendered_text(engine)
    assert rendered == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What is this?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert comparison.check(rendered) == []  # Shapes' placeholder may be the model's, too
    asked: list[Prompt] = []

    async def written(_: object, prompt: Prompt, sampling: Sampling) -> PromptReady:
        asked.append(prompt)
        return PromptReady(request_id="", prompt="<image><image>Hello", token_ids=(1, 1, 2), media=(), text="<i>Hello")

    monkeypatch.setattr("vlmtui.session.comparison.render", written)
    assert await comparison.template_text(lambda: engine) == ("<i>Hello", "from the record")
    assert isinstance(asked[0], MessagesPrompt) and asked[0].turns == comparison.turns


async def test_image_tokens_are_folded_into_chips_that_name_their_image(cat: Attachment) -> None:
    comparison, engine = comparing(cat), await ready()
    made = await comparison.render_chat(engine)
    assert made.prompt.count("<|image_pad|>") == 16
    (fold,) = folds(made)
    assert made.prompt[fold.start : fold.end] == "<|image_pad|>" * 16
    runs = folded_runs(made, (cat,), (cat,), comparison.special_tokens())
    assert [run.text for run in runs if run.style == "media"] == ["[Image #1 cat.jpg · 16 tokens]"]
    assert [run.text for run in runs if run.style == "special"][:2] == ["<|im_start|>", "<|vision_start|>"]
    assert "".join(run.text for run in runs).count("<|image_pad|>") == 0


async def test_placeholders_name_their_attachment(cat: Attachment) -> None:
    text = "<|image_pad|> and <|image_pad|>"
    first, second = placeholders(text, SHAPES, (cat,))
    assert (first.attachment, second.attachment) == (cat, None)
    assert text[second.start : second.end] == "<|image_pad|>"


async def test_both_requests_are_sent_together_with_one_seed(cat: Attachment) -> None:
    both = asyncio.Event()
    engine = await ready(["a ", Hold(both), "cat"], ["a ", Hold(both), "cat"])
    comparison = comparing(cat, sampling=Sampling(temperature=0.7))
    await filled(comparison, engine)
    comparison.prepare()
    comparison.begin(engine)
    task = asyncio.ensure_future(comparison.answer())
    while not all(side.answer and side.answer.text == "a " for side in comparison.sides):
        await asyncio.sleep(0)
    assert comparison.is_running
    both.set()
    await task
    left, right = engine.requests
    assert left.sampling == right.sampling
    assert left.sampling.seed is not None
    assert left.sampling.stop_tokens == SHAPES.stop_tokens
    assert [side.answer.text for side in comparison.sides if side.answer] == ["a cat", "a cat"]
    assert comparison.is_over


async def test_a_seed_that_is_set_or_does_not_matter_is_left_alone() -> None:
    for sampling in (Sampling(temperature=0.7, seed=5), Sampling(temperature=0.0)):
        comparison, engine = comparing(sampling=sampling), await ready()
        await filled(comparison, engine)
        await asked(comparison, engine)
        assert {request.sampling.seed for request in engine.requests} == {sampling.seed}


async def test_identical_prompts_and_answers_are_reported(cat: Attachment) -> None:
    comparison, engine = comparing(cat), await ready(["a red circle"], ["a red circle"])
    await filled(comparison, engine)
    await asked(comparison, engine)
    difference = comparison.difference()
    assert difference.prompts is not None
    assert difference.answers is not None
    assert difference.prompts.identical
    assert difference.answers.identical
    assert difference.divergence is None


async def test_the_first_differing_token_has_requested_log_probabilities(cat: Attachment) -> None:
    comparison, engine = comparing(cat), await ready(["a", " red", " circle"], ["a", " blue", " circle"])
    await filled(comparison, engine)
    comparison.draft.text = comparison.draft.text.replace("user\n", "user")
    await asked(comparison, engine)
    assert [request.logprobs for request in engine.requests] == [5, 5]
    difference = comparison.difference()
    assert difference.prompts is not None
    assert not difference.prompts.identical
    assert any(said.startswith("the raw prompt lacks “↵”") for said in difference.prompts.findings)
    found = difference.divergence
    assert found is not None
    assert found.left is not None
    assert found.right is not None
    assert (found.index, found.left.text, found.right.text) == (1, " red", " blue")
    assert found.left.logprob == -0.25
    assert found.left.top == ((" red", -0.25), (" red?", -1.75), (" red!", -3.0))


async def test_one_side_fails_and_the_other_goes_on() -> None:
    failure = Failure(kind=ErrorKind.CONTEXT_TOO_LONG, message="Too long.")
    comparison, engine = comparing(), await ready([Fail(failure)], ["Fine."])
    await filled(comparison, engine)
    await asked(comparison, engine)
    assert comparison.chat.answer is not None
    assert comparison.raw.answer is not None
    assert isinstance(comparison.chat.answer.outcome, Failed)
    assert comparison.raw.answer.text == "Fine."
    difference = comparison.difference()
    assert difference.answers is None
    assert difference.failed == ("chat",)
    assert comparison.document().sides[0].failure == "Too long."


async def test_a_prompt_that_would_harm_the_engine_is_not_sent(cat: Attachment) -> None:
    comparison, engine = comparing(cat), await ready()
    await filled(comparison, engine)
    comparison.draft.text = comparison.draft.text.replace("<|image_pad|>", "")
    with pytest.raises(VlmtuiError) as refused:
        comparison.prepare()
    assert refused.value.kind is ErrorKind.PLACEHOLDER_MISMATCH
    assert "insert <|image_pad|> between" in refused.value.hint and refused.value.remedy is Remedy.APPLY_FIX
    assert comparison.raw.answer is None
    comparison.draft.text = ""
    with pytest.raises(VlmtuiError, match="empty"):
        comparison.prepare()
    assert engine.requests == []


async def test_harmless_findings_are_reported_and_sent() -> None:
    comparison, engine = comparing(), await ready()
    await filled(comparison, engine)
    comparison.draft.text = comparison.draft.text.replace("<|im_end|>", "")
    (finding,) = comparison.check(comparison.draft.text)
    comparison.prepare()
    assert "<|im_end|>" in finding.message
    comparison.begin(engine)
    await comparison.answer()
    sent = engine.requests[1].prompt
    assert isinstance(sent, RawPrompt)
    assert sent.text == comparison.draft.text


async def test_a_document_is_read_again_as_it_was(cat: Attachment) -> None:
    comparison, engine = comparing(cat), await ready(["a", " red", " circle"], ["a", " blue", " circle"])
    await filled(comparison, engine)
    await asked(comparison, engine)
    document = comparison.document()
    again = from_json(msgspec.json.encode(document))
    assert again == document
    assert difference_of(again.sides) == difference_of(document.sides)
    for side, original in zip(again.sides, comparison.sides, strict=True):
        answer = answer_of(side)
        assert original.answer is not None
        assert answer.text == original.answer.text
        assert original.answer.outcome is not None
        assert answer.outcome == msgspec.structs.replace(original.answer.outcome, request_id="")
        assert answer.usage == original.answer.usage
        assert answer.prompt is not None
        assert original.prompt is not None
        own = attachments_of(side.request) if side.request else ()
        runs = [folded_runs(made, own, own, frozenset()) for made in (answer.prompt, original.prompt)]
        assert runs[0] == runs[1]


class _Page(HTMLParser):
    """Collects what a page shows and what it would load."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def test_exports_are_whole(cat: Attachment, tmp_path: Path) -> None:
    comparison, engine = comparing(cat, text="<script>x</script>"), await ready(["a <b>red</b> circle"], ["no"])
    await filled(comparison, engine)
    await asked(comparison, engine)
    document, media = comparison.document(), tmp_path / "store"
    page = _Page()
    page.feed(export_comparison(document, tmp_path / "a.html", media).read_text())
    assert page.open == []
    assert len(page.loads) == 1
    assert page.loads[0].startswith("data:image/png;base64,")
    assert "a <b>red</b> circle" in page.text
    assert "<script>x</script>" in page.text
    markdown = export_comparison(document, tmp_path / "a.md", media).read_text()
    assert "<|image_pad|> × 16 from cat.jpg" in markdown
    replay = from_json(export_comparison(document, tmp_path / "a.json", media).read_bytes())
    assert replay.attachments[0].content == Path(cat.path).read_bytes()
    assert export_comparison(document, tmp_path / "a.md", media).name == "a-2.md"
    assert json.loads((tmp_path / "a.json").read_bytes())["sides"][1]["answer"] == "no"
    with pytest.raises(VlmtuiError, match=r"a\.txt"):
        export_comparison(document, tmp_path / "a.txt", media)


def test_prompts_are_saved_by_name(tmp_path: Path) -> None:
    saved = SavedPrompts(Paths.below(tmp_path), "shapes")
    assert saved.names() == []
    text = "<|im_start|>\r\n  ä\t"
    assert saved.save(" two images ", text) == "two images"
    assert saved.load("two images") == text
    assert saved.save("two images", "other") == "two images"
    assert saved.load("two images") == "other"
    assert saved.names() == ["two images"]
    assert (tmp_path / "config" / "prompts" / "shapes" / "two images.txt").read_text() == "other"
    for name in ("", "..", "../x", "a/b", ".hidden", "x" * 81, "a\nb"):
        with pytest.raises(VlmtuiError):
            saved.save(name, text)
    with pytest.raises(VlmtuiError):
        saved.load("gone")


async def test_a_raw_draft_outlives_the_session(tmp_path: Path) -> None:
    conversation = LiveConversation()
    drafts = RawDrafts(Paths.below(tmp_path))
    draft = await drafts.of(conversation)
    draft.fill("a", "raw template")
    draft.text = "ab"
    await drafts.write(conversation)
    assert await drafts.of(conversation) is draft
    conversation.id = msgspec.convert("abc", type=str)  # type: ignore[assignment]
    await drafts.write(conversation)
    again = await RawDrafts(Paths.below(tmp_path)).of(LiveConversation(conversation.id))
    assert (again.text, again.filled, again.origin, again.is_edited) == ("ab", "a", "raw template", True)
