"""A conversation: its events, and requests that contain what the store has."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from tests.support.scripted_engine import Die, Hold, ScriptedEngine, Step
from tests.unit.store.made import opened
from vlmtui.domain.conversation import Attachment, ChatPrompt, Media, Text, Turn, user_turn
from vlmtui.domain.generation import Cancelled, Failed, Finished, Timings, Usage
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve
from vlmtui.session.answer_line import answer_line
from vlmtui.session.async_store import AsyncStore
from vlmtui.session.conversation import Conversation
from vlmtui.session.exchange import AnswerEnded, AnswerReplaced, AttachmentsLeftOut, ConversationEvent, RequestSent
from vlmtui.session.generation import Answer, make_request
from vlmtui.session.persistence import Recorder
from vlmtui.session.prompt_report import report_of
from vlmtui.session.resume import Generation
from vlmtui.session.settings import ChatSettings
from vlmtui.store.records import StoredTurn
from vlmtui.ui.inspector.prompt_lines import request_lines

MODEL = resolve(Registry.bundled(), "shapes")
PICTURE = Attachment(
    modality="image", name="a.png", path="/x", sha256="0" * 64, width=8, height=8, size_bytes=1, format="PNG"
)


@asynccontextmanager
async def having(folder: Path) -> AsyncIterator[Conversation]:
    store = AsyncStore(Paths.below(folder))
    recorder = Recorder(store, on_trouble=lambda error: None)
    yield Conversation(ChatSettings(), recorder)
    await recorder.close(2.0)
    await store.close()


async def engine_of(*answers: list[Step]) -> ScriptedEngine:
    engine = ScriptedEngine(MODEL.spec, answers=answers, load=[])
    async for _ in engine.load():
        pass
    return engine


async def say(conversation: Conversation, text: str, answer: str) -> None:
    conversation.draft.text = text
    engine = await engine_of([answer])
    await conversation.answers.answer(engine, conversation.begin(MODEL, engine.info))


def finished(text: str, turn: Turn, sampling: Sampling | None = None, model: Model = MODEL) -> Generation:
    """Return an answer that ended elsewhere."""
    request = make_request(model.family, [turn], sampling or Sampling())
    answer = Answer(request.request_id, [text], tokens=1)
    answer.outcome = Finished(
        request_id=request.request_id, finish_reason="stop", usage=Usage(completion_tokens=1), timings=Timings()
    )
    return Generation(request, answer, model, sampling=sampling)


def told(conversation: Conversation) -> list[ConversationEvent]:
    events: list[ConversationEvent] = []
    conversation.subscribers.append(events.append)
    return events


async def stored(conversation: Conversation) -> list[StoredTurn]:
    """Return the branch on screen, as stored."""
    assert conversation.id is not None
    id = conversation.id
    await conversation.recorder.settle(2.0)
    return await conversation.recorder.store.run(lambda store: store.path(id))


async def test_listeners_learn_of_the_start_and_end_of_an_answer(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        hold = asyncio.Event()
        engine = await engine_of(["half ", Hold(hold), "whole"])
        events = told(conversation)
        conversation.draft.text = "Hi"
        exchange = conversation.begin(MODEL, engine.info)
        assert events == []
        answering = asyncio.ensure_future(conversation.answers.answer(engine, exchange))
        await conversation.answers.wait_until_sent(exchange)
        assert exchange.user_id is not None and exchange.answer_id is not None, "it is stored before it is sent"
        over = asyncio.ensure_future(conversation.answers.wait_until_over(exchange))
        await asyncio.sleep(0)
        assert events == [RequestSent(exchange)] and not over.done()
        hold.set()
        await over
        await answering
        assert events == [RequestSent(exchange), AnswerEnded(exchange)]
        assert exchange.answer.text == "half whole" and not exchange.is_running
        await conversation.answers.wait_until_sent(exchange)
        await conversation.answers.wait_until_over(exchange)


async def test_a_request_stopped_before_it_is_sent_is_never_sent(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        engine = await engine_of(["never"])
        conversation.draft.text = "Hi"
        exchange = conversation.begin(MODEL, engine.info)
        await conversation.cancel(engine)
        await conversation.answers.answer(engine, exchange)
        assert isinstance(exchange.answer.outcome, Cancelled)
        assert engine.requests == []
        assert [turn.state for turn in await stored(conversation)] == ["complete", "stopped"]


async def test_a_caller_that_is_cancelled_does_not_stop_the_answer(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        hold = asyncio.Event()
        engine = await engine_of(["half ", Hold(hold), "whole"])
        conversation.draft.text = "Hi"
        exchange = conversation.begin(MODEL, engine.info)
        answering = asyncio.ensure_future(conversation.answers.answer(engine, exchange))
        await asyncio.sleep(0)
        answering.cancel()
        await conversation.answers.wait_until_sent(exchange)
        hold.set()
        await conversation.answers.wait_until_over(exchange)
        assert isinstance(exchange.answer.outcome, Finished) and exchange.answer.text == "half whole"


async def test_every_exchange_has_an_outcome_whatever_dies(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        engine = await engine_of(["half ", Die("gone")])
        conversation.draft.text = "Hi"
        exchange = conversation.begin(MODEL, engine.info)
        await conversation.answers.answer(engine, exchange)
        assert isinstance(exchange.answer.outcome, Failed)
        assert [turn.text for turn in await stored(conversation)] == ["Hi", "half "]


async def test_a_seed_and_log_probabilities_apply_to_one_request(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        conversation.settings = ChatSettings("Be brief.", Sampling(temperature=0.7))
        engine = await engine_of(["Hello"])
        conversation.draft.text = "Hi"
        exchange = conversation.begin(MODEL, engine.info, seed=5, logprobs=3)
        assert exchange.request is not None and exchange.record is not None
        assert (exchange.request.sampling.seed, exchange.request.logprobs) == (5, 3)
        assert conversation.settings.sampling == Sampling(temperature=0.7)
        assert (exchange.record.sampling, exchange.record.seed) == (Sampling(temperature=0.7), 5)
        await conversation.answers.answer(engine, exchange)


async def test_the_settings_of_an_opened_conversation_do_not_stay_for_later_ones(tmp_path: Path) -> None:
    theirs = ChatSettings("Be terse.", Sampling(temperature=0), MODEL.family.family)
    mine = msgspec.structs.replace(theirs, system_prompt="", sampling=Sampling(temperature=0.7))
    async with having(tmp_path) as conversation:
        conversation.settings = theirs
        engine = await engine_of(["Hello"])
        conversation.draft.text = "Hi"
        await conversation.answers.answer(engine, conversation.begin(MODEL, engine.info))
        await conversation.recorder.flush()
        opened = conversation.id
        assert opened is not None
        conversation.clear()
        conversation.settings = mine
        for _ in range(2):
            await conversation.open(opened)
        assert conversation.settings == theirs
        conversation.clear()
        assert conversation.settings == mine
        await conversation.open(opened)
        conversation.settings = changed = msgspec.structs.replace(theirs, system_prompt="Be kind.")
        conversation.clear()
        assert conversation.settings == changed, "the user has set them"


async def test_a_draft_that_the_family_rejects_stays(tmp_path: Path) -> None:
    deaf = msgspec.structs.replace(MODEL.family, takes={"image": MODEL.family.takes["image"]})
    video = msgspec.structs.replace(PICTURE, modality="video")
    async with having(tmp_path) as conversation:
        conversation.draft.put("[Video #1] what?", {1: video})
        with pytest.raises(VlmtuiError):
            conversation.begin(msgspec.structs.replace(MODEL, family=deaf))
        assert conversation.draft.text == "[Video #1] what?" and conversation.exchanges == []


async def test_an_adopted_answer_is_a_sibling_of_the_earlier_ones(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        await say(conversation, "Hi", "Hello")
        exchange = conversation.last
        assert exchange is not None
        events = told(conversation)
        made = finished("Hallo", exchange.user, Sampling(temperature=1.0))
        await conversation.adopt(exchange, made)
        assert events == [AnswerReplaced(exchange)]
        assert (exchange.answer, exchange.request) == (made.answer, made.request)
        assert exchange.answer_siblings.count == 2
        assert [turn.text for turn in await stored(conversation)] == ["Hi", "Hallo"]
        assert exchange.record is not None and exchange.record.sampling.temperature == 1.0
        assert await conversation.step(-1)
        assert conversation.last is not None and conversation.last.answer.text == "Hello"
        with pytest.raises(VlmtuiError, match="last message"):
            await conversation.adopt(exchange, finished("x", exchange.user))


async def test_another_answer_is_a_sibling_of_the_first(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        with pytest.raises(VlmtuiError, match="no finished answer"):
            conversation.answer_again(MODEL)
        await say(conversation, "Hi", "Hello")
        engine = await engine_of(["Hallo"])
        exchange = conversation.answer_again(MODEL, engine.info)
        with pytest.raises(VlmtuiError, match="no finished answer"):
            conversation.answer_again(MODEL)
        await conversation.answers.answer(engine, exchange)
        assert [turn.text for turn in await stored(conversation)] == ["Hi", "Hallo"]
        assert exchange.answer_siblings.count == 2


async def test_another_wording_is_a_branch_and_a_draft_is_used_up(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        await say(conversation, "Hi", "Hello")
        await say(conversation, "How?", "Well")
        first, second = conversation.exchanges
        other = user_turn("How so?")
        forked = await conversation.fork(other, finished("So", other), instead_of=second)
        assert (forked.above, conversation.exchanges) == (first, [first, forked])
        assert [turn.text for turn in await stored(conversation)] == ["Hi", "Hello", "How so?", "So"]
        assert forked.user_siblings.count == 2
        with pytest.raises(VlmtuiError, match="last message"):
            await conversation.fork(other, finished("x", other), instead_of=second)
        conversation.draft.text = "And?"
        conversation.draft_changed()
        turn = Turn("user", conversation.draft.parts)
        added = await conversation.fork(turn, finished("Then", turn))
        assert added.above is forked and conversation.draft.text == ""
        assert [turn.text for turn in await stored(conversation)][-2:] == ["And?", "Then"]
        id = conversation.id
        assert id is not None
        assert (await conversation.recorder.store.run(lambda store: store.draft(id))).text == ""


async def test_an_edited_message_makes_a_branch(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        for text in ("one", "two", "three"):
            await say(conversation, text, text.upper())
        edited = conversation.begin_edit(2)
        assert (conversation.editing, conversation.draft.text, conversation.number_of(edited)) == (edited, "two", 2)
        assert [turn.text for turn in conversation.turns_until()] == ["one", "ONE", "two"]
        await say(conversation, "zwei", "ZWEI")
        assert [turn.text for turn in await stored(conversation)] == ["one", "ONE", "zwei", "ZWEI"]
        assert conversation.editing is None
        await conversation.show_branch(1)
        assert [item.user.text for item in conversation.exchanges] == ["one", "two", "three"]


async def test_excluded_attachments_stay_excluded_until_included(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        conversation.draft.put("[Image #1] this", {1: PICTURE})
        engine = await engine_of(["that"])
        await conversation.answers.answer(engine, conversation.begin(MODEL, engine.info))
        assert next(turn.attachments for turn in conversation.turns_until()) == (PICTURE,)
        events: list[object] = []
        conversation.subscribers.append(events.append)
        exchange = conversation.leave_out_oldest()
        assert exchange is not None and exchange is conversation.last
        assert events == [AttachmentsLeftOut(exchange)]
        assert next(turn.attachments for turn in conversation.turns_until()) == ()
        assert (conversation.attachments_sent, conversation.attachments_by_number()) == (0, {})
        assert conversation.leave_out_oldest() is None
        report = await report_of(conversation, exchange, None)
        assert report.attachments == (PICTURE,), "its own prompt had it"
        identity = conversation.id
        assert identity is not None
        conversation.clear()
        await conversation.open(identity)
        assert conversation.attachments_sent == 0
        assert [turn.attachments for turn in conversation.turns_until()][:1] == [()]
        assert conversation.take_in_again() is conversation.last
        assert conversation.attachments_by_number() == {1: PICTURE}
        conversation.clear()
        await conversation.open(identity)
        assert conversation.attachments_sent == 1
        assert conversation.take_in_again() is None


async def lose(conversation: Conversation) -> None:
    """Purge the conversation like another process, then write a draft in it."""
    gone = conversation.id
    assert gone is not None
    await conversation.recorder.flush()
    await conversation.recorder.store.run(lambda store: store.purge(gone))
    conversation.draft.text = "next"
    conversation.draft_changed()
    await conversation.recorder.flush()
    assert conversation.id not in (None, gone)


async def test_an_exclusion_before_storing_is_stored(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        conversation.draft.put("[Image #1] this", {1: PICTURE})
        engine = await engine_of(["that"])
        exchange = conversation.begin(MODEL, engine.info)
        assert exchange.user_id is None
        assert conversation.leave_out_oldest() is exchange
        await conversation.answers.answer(engine, exchange)
        assert [turn.left_out for turn in await stored(conversation)] == [True, False]


async def test_exclusions_survive_writing_a_lost_conversation_again(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        conversation.draft.put("[Image #1] this", {1: PICTURE})
        engine = await engine_of(["that"])
        await conversation.answers.answer(engine, conversation.begin(MODEL, engine.info))
        conversation.leave_out_oldest()
        await lose(conversation)
        assert [turn.left_out for turn in await stored(conversation)] == [True, False]


async def test_the_engines_sampling_is_stored_with_the_answer(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        conversation.settings = ChatSettings("", Sampling(temperature=None, top_p=0.8))
        await say(conversation, "Hi", "Hello")
        used = conversation.exchanges[0].answer.used
        assert used is not None
        assert (used.temperature, used.top_p, used.top_k, used.seed) == (0.6, 0.8, 20, 12345)
        assert [turn.used for turn in await stored(conversation)] == [None, used]
        assert conversation.id is not None
        await conversation.open(conversation.id)
        (exchange,) = conversation.exchanges
        assert answer_line(exchange.answer).endswith("temperature 0.6 · top-p 0.8 · top-k 20 · seed 12345")
        report = await report_of(conversation, exchange, None)
        assert report.used == used
        shown = "\n".join(line.plain for line in request_lines(report))
        assert "temperature         0.6 (model default)" in shown
        assert "seed                12345 (drawn)" in shown

        await lose(conversation)
        assert [turn.used for turn in await stored(conversation)] == [None, used]


async def test_an_answer_without_a_record_says_so(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        await say(conversation, "Hi", "Hello")
        report = await report_of(conversation, conversation.exchanges[0], None)
        assert report.used is None
        assert any("not recorded" in line.plain for line in request_lines(report))


async def test_a_raw_answer_is_marked_now_and_when_it_is_opened_again(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        await say(conversation, "Hi", "Hello")
        exchange = conversation.exchanges[0]
        assert exchange.marks() == ""
        made = finished("Hallo", exchange.user)
        await conversation.adopt(exchange, Generation(made.request, made.answer, MODEL, None, "raw"))
        assert exchange.marks() == "raw · answer 2/2"
        await stored(conversation)
        assert conversation.id is not None
        await conversation.open(conversation.id)
        assert conversation.exchanges[0].marks() == "raw · answer 2/2"
        await conversation.step(-1)
        assert conversation.exchanges[0].marks() == "answer 1/2"


async def test_an_earlier_prompt_is_shown_unchanged(tmp_path: Path) -> None:
    """The first picture is excluded after the first answer, the other after the second."""
    other = msgspec.structs.replace(PICTURE, sha256="b" * 64, name="other.png")
    async with having(tmp_path) as conversation:
        engine = await engine_of(["one"], ["two"], ["three"])
        for number, picture in enumerate((PICTURE, other, None), 1):
            attached = {1: picture} if picture is not None else {}
            conversation.draft.put(f"[Image #1] {number}" if attached else f"{number}", attached)
            await conversation.answers.answer(engine, conversation.begin(MODEL, engine.info))
            conversation.leave_out_oldest()
        assert conversation.id is not None
        await conversation.open(conversation.id)
        reports = [await report_of(conversation, exchange, None) for exchange in conversation.exchanges]
        assert [report.attachments for report in reports] == [(PICTURE,), (other,), ()]


@pytest.mark.parametrize("chance", range(12))
async def test_the_sent_branch_is_the_stored_branch(tmp_path: Path, chance: int) -> None:
    """After any sends, edits, adoptions, forks and switches, a request has the turns of the stored branch."""
    dice = random.Random(chance)
    async with having(tmp_path) as conversation:
        conversation.settings = ChatSettings(dice.choice(["", "Be brief."]), Sampling())
        for step in range(25):
            last, act = conversation.last, dice.randrange(8)
            if last is None or act <= 1:
                await say(conversation, f"say {step}", dice.choice([f"answer {step}", ""]))
            elif act == 2:
                engine = await engine_of([f"again {step}"])
                await conversation.answers.answer(engine, conversation.answer_again(MODEL, engine.info))
            elif act == 3:
                conversation.begin_edit(dice.randint(1, len(conversation.branch.all)))
                await say(conversation, f"edited {step}", f"answer {step}")
            elif act == 4:
                await conversation.adopt(last, finished(f"adopted {step}", last.user))
            elif act == 5:
                turn = Turn(
                    "user", (Text(f"wording {step}"), *(part for part in last.user.parts if isinstance(part, Media)))
                )
                await conversation.fork(turn, finished(f"forked {step}", turn), instead_of=last)
            elif act == 6:
                await conversation.step(dice.choice([-1, 1]))
            else:
                assert conversation.id is not None
                settings = conversation.settings
                await conversation.recorder.settle(2.0)
                await conversation.open(conversation.id)
                conversation.settings = settings
            await check(conversation)
        store = opened(Paths.below(tmp_path).data)
        store.close()


async def check(conversation: Conversation) -> None:
    path = await stored(conversation)
    exchanges = conversation.branch.all
    assert [one.user.text for one in exchanges] == [turn.text for turn in path if turn.role == "user"]
    assert [one.answer.text for one in exchanges] == [turn.text for turn in path if turn.role == "assistant"]
    system = conversation.settings.system_prompt
    head = [system] if system else []
    for at, exchange in enumerate(exchanges):
        said = [text for one in exchanges[:at] if one.answer.text for text in (one.user.text, one.answer.text)]
        assert [turn.text for turn in conversation.turns_until(exchange)] == [*head, *said, exchange.user.text]
    conversation.draft.text = "next"
    prompt = conversation.preview(MODEL.family).prompt
    conversation.draft.clear()
    assert isinstance(prompt, ChatPrompt)
    said = [text for one in exchanges if one.answer.text for text in (one.user.text, one.answer.text)]
    assert [turn.text for turn in prompt.turns] == [*head, *said, "next"]


async def test_a_draft_survives_another_answer_that_begins_before_it_is_written(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        await say(conversation, "Hi", "Hello")
        conversation.draft.text = "typed just now"
        conversation.draft_changed()
        engine = await engine_of(["Hello again"])
        await conversation.answers.answer(engine, conversation.answer_again(MODEL, engine.info))
        await conversation.recorder.settle(2.0)
        id = conversation.id
        assert id is not None
        draft = await conversation.recorder.store.run(lambda store: store.draft(id))
    assert draft.text == "typed just now"


async def test_another_wording_of_the_last_message_leaves_the_draft_stored(tmp_path: Path) -> None:
    async with having(tmp_path) as conversation:
        await say(conversation, "Hi", "Hello")
        conversation.draft.text = "typed just now"
        conversation.draft_changed()
        turn = Turn("user", (Text("Hey"),))
        await conversation.fork(turn, finished("Hello", turn), instead_of=conversation.last)
        await conversation.recorder.settle(2.0)
        id = conversation.id
        assert id is not None
        draft = await conversation.recorder.store.run(lambda store: store.draft(id))
    assert draft.text == "typed just now"
