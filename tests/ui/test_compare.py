"""The comparison's screen: two prompts, their answers, the guard, what is kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from PIL import Image
from textual import events
from textual.widgets import Input, OptionList, Static

from tests.support.documents import written
from tests.support.scripted_engine import Die, Fail, Hold, Step
from tests.support.toy_prompts import use_chat_template
from tests.ui.conftest import Chat, StartChat, picture
from vlmtui.domain.conversation import ChatPrompt, RawPrompt
from vlmtui.domain.generation import Cancelled, Failure
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind
from vlmtui.inspection.replay import Comparison, DiffSummary, Side, from_json
from vlmtui.session.comparison import LoadedComparison
from vlmtui.session.engines import EngineState
from vlmtui.store.records import StoredComparison
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.compare.answers import AnswerPane, PictureStrip
from vlmtui.ui.compare.raw_prompt import FindingsList, RawEditor
from vlmtui.ui.compare.screen import CompareScreen
from vlmtui.ui.compare.sides import StoredComparisonScreen, stored_line
from vlmtui.ui.compare.turns import PromptView
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.dialogs import ChoiceScreen, NameScreen
from vlmtui.ui.widgets.footer_bar import FooterBar

TEMPLATE = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
CAT = "<|vision_start|><|image_pad|><|vision_end|>"


@dataclass
class Comparing:
    """The app with the comparison shown."""

    chat: Chat

    @property
    def screen(self) -> CompareScreen:
        assert isinstance(self.chat.app.screen, CompareScreen)
        return self.chat.app.screen

    @property
    def editor(self) -> RawEditor:
        return self.screen.query_one(RawEditor)

    @property
    def findings(self) -> FindingsList:
        return self.screen.query_one(FindingsList)

    @property
    def left(self) -> str:
        return written(self.screen.query_one("#chat-prompt", PromptView))

    @property
    def difference(self) -> str:
        return written(self.screen.query_one("#difference", DocumentView))

    def answer(self, mode: str) -> str:
        return self.screen.query_one(f"#{mode}-answer", AnswerPane).text.text

    def told(self, mode: str) -> str:
        """Return all that stands in an answer's place: its text, and why it failed."""
        return written(self.screen.query_one(f"#{mode}-answer", AnswerPane).view)

    def facts(self, mode: str) -> str:
        return self.text_of(f"#{mode}-answer .facts")

    def text_of(self, selector: str) -> str:
        return str(self.screen.query_one(selector, Static).render())

    async def until(self, condition: Callable[[], bool]) -> None:
        await self.chat.until(condition)

    async def press(self, *keys: str) -> None:
        await self.chat.pilot.press(*keys)

    async def write(self, text: str) -> None:
        """Let the editor hold this text, as if it was typed."""
        self.editor.fill(text)
        await self.until(lambda: self.screen.comparison.draft.text == text)

    async def send(self) -> None:
        """Ask both and wait for their ends."""
        await self.press("ctrl+r")
        await self.until(lambda: self.screen.comparison.is_over)
        await self.until(lambda: all("Stop" not in self.facts(mode) for mode in ("chat", "raw")))

    async def kept(self, count: int = 1) -> list[StoredComparison]:
        """The comparisons in the store, once there are so many."""
        await self.until(lambda: len(self._stored()) == count)
        return self._stored()

    def _stored(self) -> list[StoredComparison]:
        turn = self.chat.last.user_id
        keeper = self.chat.controller.recorder.store
        return [] if turn is None else keeper.run_now(lambda store: store.comparisons(turn))


StartComparing = Callable[..., AbstractAsyncContextManager[Comparing]]


@pytest.fixture
def comparing(chatting: StartChat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StartComparing:
    """`async with comparing(answer, …, image=True) as compare`: "What is this?" written, and F10 pressed."""
    use_chat_template(monkeypatch)

    @asynccontextmanager
    async def start(
        *answers: list[Step], size: tuple[int, int] = (120, 40), image: bool = False
    ) -> AsyncIterator[Comparing]:
        async with chatting(*answers, size=size) as chat:
            if image:
                chat.app.run_action_id("attach", str(picture(tmp_path)))
                await chat.until(lambda: len(chat.controller.draft.attachments) == 1)
            await chat.write("What is this?")
            yield await opened(chat)

    return start


async def opened(chat: Chat) -> Comparing:
    await chat.pilot.press("f10")
    await chat.until(lambda: isinstance(chat.app.screen, CompareScreen) and chat.app.screen.is_mounted)
    compare = Comparing(chat)
    await compare.until(lambda: bool(compare.left) and bool(compare.editor.text))
    return compare


async def test_both_prompts_are_shown_with_chips_that_name_the_image(comparing: StartComparing) -> None:
    async with comparing(image=True) as compare:
        assert "[Image #1 cat.png · 16 tokens]" in compare.left
        assert "<|image_pad|>" not in compare.left
        assert compare.text_of("#chat-head") == "Chat template · 29 tokens (16 image)"
        assert compare.editor.text == TEMPLATE.format(CAT + "What is this?")
        assert compare.text_of(".legend") == "<|image_pad|> = Image #1 cat.png"
        await compare.until(lambda: compare.text_of("#raw-head") == "Raw prompt · from the record")
        marked = compare.editor.get_line(1)
        assert [marked.plain[span.start : span.end] for span in marked.spans] == [
            "<|vision_start|>",
            "<|vision_end|>",
            "<|im_end|>",
            "<|image_pad|>",
        ]
        await compare.until(lambda: compare.findings.findings == [])
        assert not compare.findings.display


async def test_both_prompts_are_sent_and_their_answers_shown_and_stored(comparing: StartComparing) -> None:
    go = asyncio.Event()
    async with comparing(["A ", Hold(go), "cat."], ["A ", Hold(go), "cat."], image=True) as compare:
        await compare.press("ctrl+r")
        await compare.until(lambda: compare.answer("chat") == compare.answer("raw") == "A ")
        go.set()
        await compare.until(lambda: compare.answer("chat") == compare.answer("raw") == "A cat.")
        await compare.until(lambda: "stop <|im_end|>" in compare.facts("chat"))
        for mode in ("chat", "raw"):
            assert "2 tokens" in compare.facts(mode)
            assert "TTFT 50 ms" in compare.facts(mode)
            assert "tok/s" in compare.facts(mode)
            assert "(16 image)" in compare.facts(mode)
        await compare.press("f6")
        await compare.until(lambda: "Answers: identical" in compare.difference)
        assert "Prompts: identical" in compare.difference
        left, right = compare.chat.host.engine.requests
        assert isinstance(left.prompt, ChatPrompt)
        assert isinstance(right.prompt, RawPrompt)
        assert right.prompt.text == TEMPLATE.format(CAT + "What is this?")
        (kept,) = await compare.kept()
        assert isinstance(kept.document, dict)
        assert [side["answer"] for side in kept.document["sides"]] == ["A cat.", "A cat."]
        assert "data" not in kept.document["attachments"][0] or kept.document["attachments"][0]["data"] is None


async def test_the_left_answer_belongs_to_the_chat_and_the_right_answer_can_be_used(comparing: StartComparing) -> None:
    async with comparing(["Left."], ["Right."], ["Next."]) as compare:
        chat = compare.chat
        await compare.send()
        assert chat.last.answer.text == "Left."
        assert chat.controller.draft.text == ""
        await compare.press("alt+u")
        await compare.until(lambda: chat.last.answer.text == "Right.")
        await compare.until(lambda: "Raw answer is now answer 2/2 of this chat." in chat.notes)
        await compare.press("alt+u")
        await compare.until(lambda: "already" in chat.notes)
        await compare.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.until(lambda: chat.shown() == "Right.")
        assert (chat.last.answer_siblings.position, chat.last.answer_siblings.count) == (2, 2)
        await chat.say("And now?")
        sent = chat.host.engine.requests[-1].prompt
        assert isinstance(sent, ChatPrompt)
        assert [turn.text for turn in sent.turns] == ["What is this?", "Right.", "And now?"]


async def test_comparing_a_sent_message_keeps_its_answer(chatting: StartChat, monkeypatch: pytest.MonkeyPatch) -> None:
    use_chat_template(monkeypatch)
    async with chatting(["One."], ["Two."], ["Three."]) as chat:
        await chat.say("first")
        compare = await opened(chat)
        assert compare.editor.text == TEMPLATE.format("first")
        await compare.send()
        assert (compare.answer("chat"), compare.answer("raw")) == ("Two.", "Three.")
        assert chat.last.answer.text == "One."
        assert len(await compare.kept()) == 1


async def test_escape_stops_both_and_then_goes_back(comparing: StartComparing) -> None:
    never = asyncio.Event()
    async with comparing(["Half ", Hold(never)], ["Half ", Hold(never)]) as compare:
        await compare.press("ctrl+r")
        await compare.until(lambda: compare.answer("chat") == compare.answer("raw") == "Half ")
        comparison = compare.screen.comparison
        await compare.press("escape")
        await compare.until(lambda: comparison.is_over)
        assert isinstance(compare.chat.app.screen, CompareScreen)
        assert comparison.chat.answer is not None
        assert isinstance(comparison.chat.answer.outcome, Cancelled)
        await compare.press("f6")
        await compare.until(lambda: "is incomplete" in compare.difference)
        await compare.press("escape")
        await compare.until(lambda: isinstance(compare.chat.app.screen, ChatScreen))


async def test_one_side_fails_and_the_other_goes_on(comparing: StartComparing) -> None:
    failure = Failure(kind=ErrorKind.CONTEXT_TOO_LONG, message="Too long [/x].", hint="Shorten it.")
    async with comparing(["Fine."], [Fail(failure)]) as compare:
        await compare.send()
        assert compare.answer("chat") == "Fine."
        assert "Too long [/x]." in compare.told("raw")
        assert "Shorten it." in compare.told("raw")
        await compare.press("f6")
        await compare.until(lambda: "Prompts: identical" in compare.difference)
        assert "The answer to the raw prompt is incomplete." in compare.difference


async def test_a_dead_engine_is_reported_and_used_again_after_its_restart(comparing: StartComparing) -> None:
    both, never = asyncio.Event(), asyncio.Event()
    answers = ["Half ", Hold(both), Die()], ["Half ", Hold(never)], ["Whole."], ["Whole."]
    async with comparing(*answers) as compare:
        await compare.press("ctrl+r")
        await compare.until(lambda: compare.answer("chat") == compare.answer("raw") == "Half ")
        both.set()
        await compare.until(lambda: compare.screen.comparison.is_over)
        await compare.until(lambda: "The engine was killed." in compare.told("chat"))
        await compare.until(lambda: "The engine was killed." in compare.told("raw"))
        host = compare.chat.host
        await compare.until(lambda: len(host.engines) == 2)
        await compare.until(lambda: compare.chat.app.engines.state is EngineState.READY)
        await compare.send()
        assert compare.answer("chat") == compare.answer("raw") == "Whole."


async def test_an_engine_that_stays_dead_is_loaded_again_by_the_send_key(
    comparing: StartComparing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vlmtui.session.engines._RESTARTS", 0)
    async with comparing(["Whole."], ["Whole."]) as compare:
        engines = compare.chat.app.engines
        compare.chat.host.engine.die()
        await compare.until(lambda: engines.state is EngineState.DEAD)
        await compare.press("ctrl+r")
        await compare.until(lambda: engines.state is EngineState.READY)
        await compare.send()
        assert compare.answer("chat") == compare.answer("raw") == "Whole."


async def test_the_guard_names_a_finding_and_a_key_fixes_it(comparing: StartComparing) -> None:
    async with comparing(image=True) as compare:
        whole = compare.editor.text
        await compare.write(whole.replace(CAT, ""))
        await compare.until(lambda: len(compare.findings.findings) == 1)
        (finding,) = compare.findings.findings
        assert finding.blocks
        await compare.press("ctrl+r")
        await compare.until(lambda: "Not sent" in compare.text_of(".refusal"))
        assert "Ctrl+X . fixes it." in compare.text_of(".refusal") and not compare.chat.notes
        assert compare.chat.host.engine.requests == []
        assert compare.chat.controller.draft.words == "What is this?"
        await compare.press("f7")
        assert compare.editor.cursor_location == compare.editor._location_of(finding.start)
        await compare.press("f8")
        await compare.until(lambda: compare.editor.text == whole)
        await compare.until(lambda: not compare.findings.display)
        assert not compare.screen.query_one(".refusal").display
        await compare.press("ctrl+z")
        await compare.until(lambda: compare.editor.text == whole.replace(CAT, ""))


async def test_the_legend_names_the_image_of_each_placeholder(comparing: StartComparing, tmp_path: Path) -> None:
    async with comparing(image=True) as compare:
        chat = compare.chat
        await compare.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        Image.new("RGB", (40, 20), "blue").save(tmp_path / "dog.png")
        chat.app.run_action_id("attach", str(tmp_path / "dog.png"))
        await chat.until(lambda: len(chat.controller.draft.attachments) == 2 and not chat.controller.draft.pending)
        await opened(chat)
        legend = "#raw-prompt .legend"
        both = "<|image_pad|> = Image #1 cat.png\n<|image_pad|> = Image #2 dog.png"
        await compare.until(lambda: compare.text_of(legend) == both)
        whole = compare.editor.text
        await compare.write(whole.replace(CAT, "", 1))
        await compare.until(lambda: compare.text_of(legend) == "<|image_pad|> = Image #1 cat.png")
        await compare.write(whole)
        await compare.until(lambda: compare.text_of(legend) == both)


async def test_harmless_findings_are_marked_and_sent(comparing: StartComparing) -> None:
    async with comparing(["A."], ["B."]) as compare:
        await compare.write(compare.editor.text.replace("<|im_end|>", ""))
        await compare.until(lambda: len(compare.findings.findings) == 1)
        assert not compare.findings.findings[0].blocks
        await compare.send()
        assert shown(compare).count("The user turn is not closed") == 1, "it is said once"
        await compare.press("f6")
        await compare.until(lambda: "Prompts: different" in compare.difference)
        assert "− chat template" in compare.difference
        assert "<|im_end|>" in compare.difference
        assert "Answers: different" in compare.difference


async def test_the_prompts_are_compared_before_anything_is_sent(comparing: StartComparing) -> None:
    async with comparing(image=True) as compare:
        await compare.write(compare.editor.text.replace("user\n", "user"))
        await compare.press("f6")
        said = "the raw prompt lacks “↵” after “<|im_start|>user”"
        await compare.until(lambda: said in compare.difference)
        assert "Compared once both answers are complete." in compare.difference
        assert compare.chat.host.engine.requests == []
        await compare.press("d")
        await compare.until(lambda: compare.screen.view == "chat")


async def test_wrapped_rows_of_the_difference_stay_beside_their_label(comparing: StartComparing) -> None:
    async with comparing(image=True) as compare:
        await compare.write(compare.editor.text + " and more" * 40)
        await compare.press("f6")
        await compare.until(lambda: "+ raw prompt" in compare.difference)
        rows = [
            line.plain
            for block in compare.screen.query_one("#difference", DocumentView).document.blocks
            for line in block.lines
        ]
        at = next(number for number, row in enumerate(rows) if row.startswith("+ raw prompt"))
        assert rows[at + 1].startswith(" " * 16)


async def test_a_change_after_the_answers_is_reported(comparing: StartComparing) -> None:
    async with comparing(["A."], ["A."]) as compare:
        await compare.send()
        await compare.write(compare.editor.text + "x")
        await compare.press("f6")
        await compare.until(lambda: "The answers are to the raw prompt before your edit" in compare.difference)
        assert "Prompts: different" in compare.difference


async def test_an_answer_is_stale_until_its_prompt_is_restored_or_sent(
    comparing: StartComparing,
) -> None:
    async with comparing(["A."], ["A."], ["B."], ["B."]) as compare:
        await compare.send()
        sent = compare.editor.text
        assert "Stale" not in compare.text_of("#raw-answer .mark")
        await compare.write(sent + "x")
        await compare.until(lambda: "Stale: the raw prompt was edited" in compare.text_of("#raw-answer .mark"))
        await compare.write(sent)
        await compare.until(lambda: "Stale" not in compare.text_of("#raw-answer .mark"))
        await compare.write(sent + "x")
        await compare.until(lambda: "Stale" in compare.text_of("#raw-answer .mark"))
        await compare.send()
        assert "Stale" not in compare.text_of("#raw-answer .mark")


def test_the_lines_of_stored_comparisons_all_differ() -> None:
    sides = (
        Side(mode="chat", prompt="", prompt_token_ids=(), answer="A." * 30),
        Side(mode="raw", prompt="", prompt_token_ids=(), answer="A." * 30),
    )
    document = Comparison(
        model="m",
        engine="e",
        engine_version="1",
        sampling=Sampling(),
        sides=sides,
        difference=DiffSummary(prompts_identical=False, answers_identical=True),
    )
    kept = LoadedComparison(1_700_000_000_000, document)
    lines = [stored_line(number, kept).plain for number in (2, 1)]
    assert lines[0] != lines[1]
    assert lines[0].startswith("2  2023-11-1") and lines[0].endswith("…")
    assert "prompts differ, answers identical" in lines[0]


async def test_a_side_opens_in_the_inspector(comparing: StartComparing) -> None:
    async with comparing(["A."], ["B."]) as compare:
        await compare.send()
        await compare.press("f12")
        await compare.until(lambda: isinstance(compare.chat.app.screen, InspectorScreen))
        inspector = compare.chat.app.screen
        assert isinstance(inspector, InspectorScreen)
        assert inspector.inspected.answer == "B."
        for key in ("escape", "f6"):  # both at once, as a slow connection brings them
            compare.chat.app.post_message(events.Key(key, None))
        await compare.until(lambda: compare.chat.app.screen is not inspector)
        await compare.until(lambda: compare.screen.view == "difference")


async def test_log_probabilities_stand_at_the_first_differing_token(comparing: StartComparing) -> None:
    async with comparing(["A", " red", " cat."], ["A", " blue", " cat."]) as compare:
        await compare.send()
        await compare.until(lambda: "Answers differ at token 1:" in compare.text_of("#verdict"))
        assert "chat ·red −0.25 (·blue unlikely)  raw ·blue −0.25 (·red unlikely)" in compare.text_of("#verdict")
        await compare.press("f12")
        await compare.until(lambda: isinstance(compare.chat.app.screen, InspectorScreen))
        inspector = compare.chat.app.screen
        assert isinstance(inspector, InspectorScreen) and inspector.inspected.logprobs, "the inspector has the others"


async def test_a_verdict_says_where_the_prompts_differ_while_one_types(comparing: StartComparing) -> None:
    async with comparing(["A."], ["A."]) as compare:
        await compare.until(lambda: compare.text_of("#verdict").startswith("Prompts identical · "))
        whole = compare.editor.text
        await compare.write(whole.removesuffix("<|im_start|>assistant\n"))
        told = "raw prompt lacks “<|im_start|>assistant↵” at the end"
        await compare.until(lambda: told in compare.text_of("#verdict"))
        assert re.match(r"Prompts differ at token \d+: ", compare.text_of("#verdict"))
        assert compare.chat.host.engine.requests == []
        await compare.send()
        await compare.until(lambda: compare.text_of("#verdict").endswith("\nAnswers identical"))
        await compare.write(whole)
        await compare.until(lambda: compare.text_of("#verdict").startswith("Prompts identical"))
        assert compare.text_of("#verdict").endswith("Answers identical  before your edit")


@pytest.mark.parametrize("size", [(80, 24), (99, 30)])
async def test_a_narrow_terminal_shows_one_side_at_a_time(comparing: StartComparing, size: tuple[int, int]) -> None:
    async with comparing(size=size) as compare:
        sides = [compare.screen.query_one(name) for name in ("#chat-side", "#raw-side", "#difference")]

        def shown() -> list[bool]:
            return [side.region.area > 0 for side in sides]

        for expected in ([False, True, False], [False, False, True], [True, False, False], [False, True, False]):
            await compare.until(lambda expected=expected: shown() == expected)  # type: ignore[misc]
            await compare.press("f6")
        assert compare.text_of("#tabs").split()[:3] == ["Chat", "Raw", "Difference"]


@pytest.mark.parametrize("view", ["chat", "raw", "difference"])
async def test_the_narrowest_footer_leads_to_the_other_view_and_to_the_answers(
    comparing: StartComparing, view: Literal["chat", "raw", "difference"]
) -> None:
    async with comparing(size=(80, 24)) as compare:
        compare.screen.turn_to(view)
        await compare.until(lambda: {*footer(compare)} >= {"Next view", "Send both", "Back"})


async def test_the_footer_has_one_order_in_all_views(comparing: StartComparing) -> None:
    titles = ["Send both", "Back", "Next view"]
    async with comparing(size=(80, 24)) as compare:
        for side in ("#raw-side", "#difference", "#chat-side"):
            await compare.until(lambda side=side: compare.screen.query_one(side).has_pseudo_class("focus-within"))  # type: ignore[misc]
            await compare.until(lambda: [title for title in footer(compare) if title in titles] == titles)
            await compare.press("f6")


def footer(compare: Comparing) -> list[str]:
    return [item.title for item in compare.screen.query_one(FooterBar).items]


async def test_a_wide_terminal_shows_both(comparing: StartComparing) -> None:
    async with comparing(size=(100, 30)) as compare:
        sides = [compare.screen.query_one(name) for name in ("#chat-side", "#raw-side")]
        await compare.until(lambda: all(side.region.area > 0 for side in sides))


async def test_the_raw_prompt_is_remembered(comparing: StartComparing) -> None:
    async with comparing() as compare:
        await compare.write("my own prompt")
        await compare.press("escape")
        chat = compare.chat
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert chat.controller.draft.words == "What is this?"
        again = await opened(chat)
        assert again.editor.text == "my own prompt"
        await again.until(lambda: again.text_of("#raw-head") == "Raw prompt · edited")


def dialog(compare: Comparing) -> str:
    """Return the text of the screen on top."""
    return "\n".join(strip.text for strip in compare.chat.app.screen._compositor.render_strips())


async def test_prompts_are_saved_and_filled_in(comparing: StartComparing) -> None:
    async with comparing() as compare:
        template = compare.editor.text
        await compare.write("my own prompt")
        await compare.press("ctrl+s")
        await compare.until(lambda: isinstance(compare.chat.app.screen, NameScreen))
        await compare.until(lambda: "Overwrites an existing prompt of that name." in dialog(compare))
        compare.chat.app.screen.query_one(Input).value = "mine"
        await compare.press("enter")
        await compare.until(lambda: "Saved as mine" in compare.chat.notes)
        for line, expected in ((1, template), (2, "my own prompt"), (0, template)):
            await compare.chat.lead("P")
            await compare.until(
                lambda: isinstance(compare.chat.app.screen, ChoiceScreen) and compare.chat.app.screen.is_mounted
            )
            await compare.until(lambda: "Load the raw prompt from" in dialog(compare))
            lines = compare.chat.app.screen.query_one(OptionList)
            assert "mine" in str(lines.get_option_at_index(2).prompt)
            lines.highlighted = line
            await compare.press("enter")
            await compare.until(lambda: isinstance(compare.chat.app.screen, CompareScreen))
            await compare.until(lambda expected=expected: compare.editor.text == expected)  # type: ignore[misc]


async def test_a_stored_comparison_opens_read_only_and_runs_again(comparing: StartComparing) -> None:
    async with comparing(["Left."], ["Right."], ["More."], ["More."], image=True) as compare:
        await compare.write(compare.editor.text.replace("user\n", "user"))
        await compare.send()
        await compare.kept()
        chat = compare.chat
        await compare.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.lead("b", "c")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and chat.app.screen.is_mounted)
        assert "prompts differ, answers differ" in str(
            chat.app.screen.query_one(OptionList).get_option_at_index(0).prompt
        )
        await compare.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, StoredComparisonScreen))
        kept = chat.app.screen
        assert not kept.query(RawEditor)
        await chat.until(lambda: kept.query_one("#raw-answer", AnswerPane).text.text == "Right.")
        assert "[Image #1 cat.png · 16 tokens]" in written(kept.query_one("#raw-prompt", PromptView))
        await compare.press("f6")
        await chat.until(lambda: "Answers: different" in written(kept.query_one("#difference", DocumentView)))
        assert "the raw prompt lacks “↵” after" in written(kept.query_one("#difference", DocumentView))
        await compare.press("ctrl+r")
        await chat.until(lambda: isinstance(chat.app.screen, CompareScreen))
        await compare.until(lambda: compare.text_of("#raw-head") == "Raw prompt · edited")
        await compare.send()
        assert len(await compare.kept(2)) == 2


async def test_the_chat_opens_its_comparisons(comparing: StartComparing) -> None:
    async with comparing(["Left."], ["Right."]) as compare:
        chat = compare.chat
        await compare.send()
        await compare.kept()
        await compare.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        await chat.send("/comparisons")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
        await compare.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, StoredComparisonScreen))
        await compare.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))


async def test_the_user_chooses_the_exported_file(comparing: StartComparing, tmp_path: Path) -> None:
    async with comparing(["Left."], ["Right."]) as compare:
        await compare.chat.lead("w")
        await compare.until(lambda: "nothing to export" in compare.chat.notes)
        await compare.send()
        for name in ("a.json", "a.html", "a.md"):
            await compare.chat.lead("w")
            await compare.until(
                lambda: isinstance(compare.chat.app.screen, NameScreen) and compare.chat.app.screen.is_mounted
            )
            await compare.until(lambda: ".md to read · .html with images · .json to check again" in dialog(compare))
            compare.chat.app.screen.query_one(Input).value = str(tmp_path / name)
            await compare.press("enter")
            await compare.until(lambda name=name: (tmp_path / name).exists())  # type: ignore[misc]
        assert [side.answer for side in from_json((tmp_path / "a.json").read_bytes()).sides] == ["Left.", "Right."]


async def test_hostile_text_is_made_visible(comparing: StartComparing) -> None:
    async with comparing(["a\x1b[2Jb"], ["[/x] \u202eok"]) as compare:
        await compare.write("raw \x1b]0;t\x07 [/x]")
        await compare.send()
        assert compare.answer("chat") == "a␛[2Jb"
        assert "\u202e" not in compare.answer("raw")
        text = "\n".join(strip.text for strip in compare.screen._compositor.render_strips())
        assert "\x1b" not in text
        assert "raw ␛]0;t␇ [/x]" in text
        assert compare.screen.comparison.draft.text == "raw \x1b]0;t\x07 [/x]"


async def test_comparing_needs_a_message(chatting: StartChat) -> None:
    async with chatting() as chat:
        await chat.pilot.press("f10")
        await chat.until(lambda: "nothing to compare yet" in chat.notes)
        assert isinstance(chat.app.screen, ChatScreen)


def shown(compare: Comparing) -> str:
    """Return the text of the screen."""
    return "\n".join(strip.text for strip in compare.screen._compositor.render_strips())


async def test_the_pictures_are_in_view_where_there_is_room(comparing: StartComparing) -> None:
    async with comparing(image=True, size=(120, 40)) as compare:
        strip = compare.screen.query_one(PictureStrip)
        await compare.until(lambda: strip.display and len(strip.query(AttachmentView)) == 1)
        await compare.until(lambda: "▣ 1 cat.png" in shown(compare) and "32 × 24" in shown(compare))
        await compare.until(lambda: "16 tokens" in shown(compare).split("▣ 1 cat.png")[1])
        await compare.chat.pilot.resize_terminal(120, 24)
        await compare.until(lambda: not strip.display and "▣ 1 cat.png" not in shown(compare))
        await compare.chat.pilot.resize_terminal(200, 60)
        await compare.until(lambda: "▣ 1 cat.png" in shown(compare))


@pytest.mark.slow
async def test_a_megabyte_is_pasted_into_the_raw_prompt_and_taken_back(comparing: StartComparing) -> None:
    async with comparing(size=(80, 24)) as compare:
        await compare.until(lambda: compare.editor.has_focus)
        before = compare.editor.text
        pasted = "".join(f"line {number} with <|im_start|> in it\n" for number in range(30_000))
        assert len(pasted) > 1_000_000
        compare.editor.select_all()
        compare.chat.app.post_message(events.Paste(pasted))
        await compare.until(lambda: compare.editor.text == pasted)
        await compare.press("ctrl+home", "x")
        await compare.until(lambda: compare.editor.text.startswith("xline 0"))
        await compare.press("ctrl+end")
        await compare.until(lambda: compare.editor.cursor_location[0] == 30_000)
        await compare.press("ctrl+z", "ctrl+z")
        await compare.until(lambda: compare.editor.text == before)
