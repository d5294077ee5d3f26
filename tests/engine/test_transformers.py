"""The bundled model in Hugging Face Transformers, in a real worker: all that the app asks of an engine, and the same
tokens and log-probabilities as vLLM's."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest

from tests.engine.test_life import Life, is_guardian, is_server, kill_while_answering
from tests.support.asker import Asker
from tests.support.hosts import patient_host
from tests.support.other_requests import to_render, to_score
from tests.support.pictures import Easel
from vlmtui.domain.capabilities import Capabilities
from vlmtui.domain.conversation import Attachment, ChatPrompt, RawPrompt, user_turn
from vlmtui.domain.engine import BackendChoice, EngineReady
from vlmtui.domain.generation import Cancelled, Delta, Finished, PromptReady, View
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.engine.machine import Machine
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths, private_dir
from vlmtui.registry.match import Model, with_backend
from vlmtui.session.generation import Answer, PromptMode, make_request, request_for

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]
HAS_GPU = bool(Machine.measure().gpus)
QUESTION = "What is in this image?"


@pytest.fixture(scope="module")
def in_transformers(shapes: Model) -> Model:
    return with_backend(shapes, BackendChoice("transformers"))


@pytest.fixture(scope="module")
def other_worker(engine_paths: Paths, in_transformers: Model) -> Iterator[Paths]:
    """A worker that has loaded it; ends with the module."""

    async def load() -> None:
        client = await patient_host(engine_paths).open(in_transformers.spec, client="tests", keep_alive_s=None)
        events = [event async for event in client.load()]
        assert isinstance(events[-1], EngineReady), events[-1]
        await client.close()

    async def end() -> None:
        host = patient_host(engine_paths)
        for worker in await host.find_all():
            if worker.status is not None and worker.status.spec == in_transformers.spec:
                await host.stop(worker.endpoint)

    asyncio.run(load())
    yield engine_paths
    asyncio.run(end())


@pytest.fixture
async def other(other_worker: Paths, in_transformers: Model) -> AsyncIterator[WorkerClient]:
    client = await patient_host(other_worker).open(in_transformers.spec, client="tests", keep_alive_s=None)
    assert client.attached
    yield client
    await client.close()


@pytest.fixture
def ask(other: WorkerClient, in_transformers: Model) -> Asker:
    return Asker(other, in_transformers)


@pytest.fixture
def easel(tmp_path: Path) -> Easel:
    return Easel(tmp_path)


async def test_it_has_every_capability_but_metrics(other: WorkerClient) -> None:
    info = other.info
    assert info is not None
    dtype = "bfloat16" if HAS_GPU else "float32"
    assert (info.engine, info.architecture, info.dtype) == ("Transformers", "Qwen2VLForConditionalGeneration", dtype)
    assert info.limits == {"image": 8, "video": 2}
    assert info.chat_template
    assert info.stop_tokens == ("<|im_end|>", "<|endoftext|>")
    missing = [name for name in Capabilities.__struct_fields__ if not getattr(info.capabilities, name)]
    assert set(missing) == {"metrics", "media_by_id"}


@pytest.mark.parametrize("mode", ["chat", "raw"])
async def test_tokens_and_log_probabilities_equal_vllms(
    engine: WorkerClient, shapes: Model, ask: Asker, easel: Easel, mode: PromptMode
) -> None:
    one, two = easel.picture(("red", "circle", "top left")), easel.picture(("blue", "star", "center"))
    clip = easel.clip("green", "square", "left")
    for given in ([one], [one, two], [clip], []):
        attachments = [picture.attachment for picture in given]
        request = make_request(
            shapes.family, [user_turn(QUESTION, attachments)], Sampling(temperature=0), mode=mode, logprobs=5
        )
        theirs = await Asker(engine, shapes).run(request)
        ours = await ask.run(msgspec.structs.replace(request, request_id=f"{request.request_id}-2"))
        assert_alike(ours, theirs)
        if given == [one]:
            assert ours.text == one.answer
        if given == [clip]:
            assert ours.text == clip.answer


def assert_alike(ours: Answer, theirs: Answer) -> None:
    assert ours.prompt is not None and theirs.prompt is not None
    assert ours.prompt.token_ids == theirs.prompt.token_ids
    assert ours.prompt.prompt == theirs.prompt.prompt
    assert [(one.modality, one.index, one.tokens, one.resized, one.grid) for one in ours.prompt.media] == [
        (one.modality, one.index, one.tokens, one.resized, one.grid) for one in theirs.prompt.media
    ]
    assert (ours.text, ours.token_ids) == (theirs.text, theirs.token_ids)
    assert isinstance(ours.outcome, Finished) and isinstance(theirs.outcome, Finished)
    assert (ours.outcome.finish_reason, ours.outcome.stop) == (theirs.outcome.finish_reason, theirs.outcome.stop)
    # vLLM finds a part of the prompt in its cache.
    assert ours.usage == msgspec.structs.replace(theirs.usage, cached_tokens=ours.usage.cached_tokens)
    for mine, other in zip(ours.logprobs, theirs.logprobs, strict=True):
        assert mine.token_id == other.token_id
        assert math.isclose(mine.logprob, other.logprob, abs_tol=1e-2)
        assert len(mine.top) == len(other.top) == 5


async def test_a_seed_repeats_an_answer_beside_others(ask: Asker) -> None:
    def sampled(seed: int) -> Sampling:
        return Sampling(temperature=2.0, seed=seed, max_tokens=20)

    turn = user_turn("Count to 20.")
    first = await ask(turn, sampling=sampled(5))
    again, other = await asyncio.gather(ask(turn, sampling=sampled(5)), ask(turn, sampling=sampled(6)))
    assert first.token_ids == again.token_ids != other.token_ids
    assert first.used is not None
    assert (first.used.seed, first.used.temperature) == (5, 2.0)


async def test_requests_at_once_get_the_answers_of_single_ones(ask: Asker, easel: Easel) -> None:
    turn = user_turn(
        "What is different?", [easel.picture((one, "circle", "left")).attachment for one in ("red", "blue")]
    )

    def sampled(seed: int) -> Sampling:
        return Sampling(temperature=1.5, seed=seed, max_tokens=8 + seed)

    alone = [(await ask(turn, sampling=sampled(seed))).token_ids for seed in range(4)]
    together = await asyncio.gather(*(ask(turn, sampling=sampled(seed)) for seed in range(4)))
    assert [answer.token_ids for answer in together] == alone
    assert len({tuple(one) for one in alone}) > 1


async def test_a_stop_string_a_limit_and_a_stop_token_end_an_answer(ask: Asker, easel: Easel) -> None:
    turn = user_turn(QUESTION, [easel.picture(("red", "circle", "top left")).attachment])
    stopped = await ask(turn, sampling=Sampling(stop=("circle",)))
    assert stopped.text == "A red "
    assert isinstance(stopped.outcome, Finished)
    assert (stopped.outcome.finish_reason, stopped.outcome.stop) == ("stop", "circle")
    short = await ask(turn, sampling=Sampling(max_tokens=2))
    assert isinstance(short.outcome, Finished)
    assert (short.outcome.finish_reason, len(short.token_ids)) == ("length", 2)
    token = await ask(turn, sampling=Sampling(stop_token_ids=(stopped.token_ids[1],)))
    assert isinstance(token.outcome, Finished)
    assert (token.text, len(token.token_ids)) == ("A", 2)


async def test_cancel_stops_between_two_tokens_and_the_next_request_works(
    other: WorkerClient, in_transformers: Model, ask: Asker
) -> None:
    endless = make_request(
        in_transformers.family, [user_turn("Count.")], Sampling(max_tokens=None, extra={"ignore_eos": True})
    )
    seen: list[object] = []
    async with aclosing(other.generate(endless)) as events:
        async for event in events:
            seen.append(event)
            if sum(isinstance(one, Delta) for one in seen) == 2:
                await other.cancel(endless.request_id)
    assert isinstance(seen[-1], Cancelled)
    assert 0 < seen[-1].usage.completion_tokens < 3000
    assert (await ask(user_turn("Hello"))).text


async def test_scoring_an_answer_gives_its_log_probabilities(in_transformers: Model, ask: Asker, easel: Easel) -> None:
    turn = user_turn(QUESTION, [easel.picture(("red", "circle", "top left")).attachment])
    request = make_request(in_transformers.family, [turn], Sampling(temperature=0), logprobs=1)
    said = await ask.run(request)
    again = make_request(in_transformers.family, [turn], Sampling(temperature=0), logprobs=1)
    scored = await ask.run(to_score(again, said.token_ids))
    assert scored.token_ids == said.token_ids
    assert [one.logprob for one in scored.logprobs] == pytest.approx([one.logprob for one in said.logprobs], abs=1e-4)
    grey = make_request(in_transformers.family, [user_turn(QUESTION)], Sampling(temperature=0), logprobs=0)
    without = await ask.run(to_score(grey, said.token_ids))
    assert sum(one.logprob for one in without.logprobs) < sum(one.logprob for one in said.logprobs) - 1


async def test_a_prompt_is_rendered_without_an_answer(
    other: WorkerClient, in_transformers: Model, easel: Easel, tmp_path: Path
) -> None:
    picture = easel.picture(("red", "circle", "top left"))
    request = make_request(in_transformers.family, [user_turn(QUESTION, [picture.attachment])], Sampling())
    folder = private_dir(tmp_path / "seen")
    events = [event async for event in other.generate(to_render(request, View(folder=str(folder))))]
    ready = next(event for event in events if isinstance(event, PromptReady))
    assert ready.media[0].tokens == 36
    (medium,) = ready.seen
    assert (medium.layout, medium.is_exact, len(medium.pictures)) == ("patches", True, 1)
    assert (medium.pictures[0].width, medium.pictures[0].height) == ready.media[0].resized
    assert list(folder.iterdir())


@pytest.mark.parametrize(
    ("text", "attached"),
    [
        ("<|im_start|>user\nWhat?<|im_end|>\n", 1),
        ("<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|im_end|>\n", 0),
        ("<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|im_end|>\n", 2),
        ("<|im_start|>user\n<|image_pad|><|image_pad|>What?<|im_end|>\n", 1),
    ],
)
async def test_wrong_placeholders_are_refused(
    ask: Asker, in_transformers: Model, easel: Easel, text: str, attached: int
) -> None:
    pictures = tuple(easel.picture(("red", "circle", "top left")).attachment for _ in range(attached))
    answer = await ask.run(request_for(RawPrompt(text=text, attachments=pictures), in_transformers.family, Sampling()))
    assert answer.failure is not None
    assert answer.failure.kind is ErrorKind.PLACEHOLDER_MISMATCH
    assert answer.failure.hint


async def test_a_prompt_over_the_context_length_is_refused(ask: Asker, in_transformers: Model, easel: Easel) -> None:
    long = await ask(user_turn("word " * 9000))
    assert long.failure is not None and long.failure.kind is ErrorKind.CONTEXT_TOO_LONG
    many: list[Attachment] = [easel.picture(("red", "circle", "top left")).attachment] * 9
    prompt = ChatPrompt(turns=(user_turn(QUESTION, many),))
    crowded = await ask.run(request_for(prompt, in_transformers.family, Sampling()))
    assert crowded.failure is not None and crowded.failure.kind is ErrorKind.BAD_INPUT


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"engine_args": {"max_model_length": 5}, "typed": ("max_model_length",)}, ErrorKind.BAD_ENGINE_ARGUMENT),
        pytest.param(
            {"engine_args": {"device": "cuda"}, "typed": ("device",)},
            ErrorKind.NO_GPU,
            marks=pytest.mark.skipif(HAS_GPU, reason="needs a machine without a GPU"),
        ),
        ({"model": "/nowhere/at/all"}, ErrorKind.MODEL_UNKNOWN),
    ],
)
async def test_a_failed_load_gives_the_reason(
    short_path: Path, in_transformers: Model, changes: dict[str, object], kind: ErrorKind
) -> None:
    spec = msgspec.structs.replace(in_transformers.spec, **changes)
    client = await patient_host(Paths.below(short_path)).open(spec, client="tests", keep_alive_s=0)
    last = [event async for event in client.load()][-1]
    failure = getattr(last, "failure", None)
    assert failure is not None
    assert failure.kind is kind, failure
    assert failure.hint
    await client.close()


async def test_after_a_kill_nothing_is_left(short_path: Path, in_transformers: Model) -> None:
    life = Life(Paths.below(short_path), in_transformers)
    for victim in (is_server, is_guardian):
        client = await life.ready()
        failed = await kill_while_answering(life, client, victim)
        assert failed.failure.kind is ErrorKind.ENGINE_DIED
        assert await life.nothing_is_left()
        await client.close()
    await life.host.stop(life.endpoint)
    assert life.files_left() == []
