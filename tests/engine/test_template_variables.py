"""Variables of the chat template on the real engine: the prompt is the tokenizer's own rendering, in chat and raw, and
the model answers by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.asker import Asker
from tests.support.pictures import Easel
from tests.support.template_prompts import differing_prompts
from vlmtui.domain.conversation import Turn, assistant_turn, user_turn
from vlmtui.domain.generation import PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.errors import VlmtuiError
from vlmtui.registry.match import Model
from vlmtui.session.dials import variables_of, with_setting
from vlmtui.session.generation import PromptMode, make_request, render

pytestmark = pytest.mark.engine
TURNS = {
    "one turn": (user_turn("Hello"),),
    "two turns": (user_turn("Hello"), assistant_turn("Hi."), user_turn("Count to 3.")),
}


@pytest.fixture
def easel(tmp_path: Path) -> Easel:
    return Easel(tmp_path)


async def rendered(
    engine: WorkerClient, shapes: Model, turns: tuple[Turn, ...], mode: PromptMode, value: str
) -> PromptReady:
    sampling = with_setting(Sampling(), f"thinking {value}", shapes.family)
    request = make_request(shapes.family, turns, sampling, mode=mode)
    return await render(engine, request.prompt, request.sampling)


@pytest.mark.parametrize("turns", TURNS.values(), ids=TURNS)
@pytest.mark.parametrize("value", ["on", "off"])
async def test_the_prompt_is_the_tokenizers_own_rendering(
    engine: WorkerClient, shapes: Model, turns: tuple[Turn, ...], value: str
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(shapes.spec.model)
    variables = variables_of(with_setting(Sampling(), f"thinking {value}", shapes.family))
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **variables)
    ready = await rendered(engine, shapes, turns, "chat", value)
    assert ready.prompt == text
    assert list(ready.token_ids) == tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize("value", ["on", "off", "default"])
async def test_the_raw_prompt_makes_the_same_choice(
    engine: WorkerClient, shapes: Model, easel: Easel, value: str
) -> None:
    picture = easel.picture(("red", "circle", "center")).attachment
    turns = (user_turn("What is in this image?", [picture]), assistant_turn("A red circle."), user_turn("Where is it?"))
    chat, raw = [await rendered(engine, shapes, turns, mode, value) for mode in ("chat", "raw")]
    assert chat.token_ids == raw.token_ids
    assert ("Think first." in chat.prompt) == (value == "on")


async def test_the_templates_of_reasoning_families_give_the_tokenizers_prompt(
    engine: WorkerClient, shapes: Model, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    differing, count = await differing_prompts(engine, AutoTokenizer.from_pretrained(shapes.spec.model), tmp_path)
    assert differing == []
    assert count >= 150


async def test_thinking_changes_the_answer(engine: WorkerClient, shapes: Model, easel: Easel) -> None:
    asker, turn = (
        Asker(engine, shapes),
        user_turn("What is in this image?", [easel.picture(("red", "circle", "center")).attachment]),
    )
    answers = [
        await asker(turn, sampling=with_setting(Sampling(), f"thinking {value}", shapes.family))
        for value in ("on", "off")
    ]
    assert ["<think>" in answer.text for answer in answers] == [True, False]
    used = answers[0].used
    assert used is not None and variables_of(used) == {"thinking": True}


async def test_the_engine_tells_what_the_template_reads(engine: WorkerClient) -> None:
    assert engine.info is not None and engine.info.template_variables == {"thinking": (True, False)}


async def test_the_engine_refuses_a_variable_that_the_template_does_not_read(
    engine: WorkerClient, shapes: Model
) -> None:
    sampling = with_setting(Sampling(), "template.thinkin=true")
    request = make_request(shapes.family, [user_turn("Hello")], sampling)
    with pytest.raises(VlmtuiError, match="does not read thinkin") as failed:
        await render(engine, request.prompt, request.sampling)
    assert failed.value.hint == "Did you mean thinking? It reads thinking."


async def test_a_thinking_budget_ends_the_reasoning(engine: WorkerClient, shapes: Model, easel: Easel) -> None:
    turn = user_turn("What is in this image?", [easel.picture(("red", "circle", "center")).attachment])
    sampling = with_setting(with_setting(Sampling(), "thinking on", shapes.family), "thinking_budget 4")
    answer = await Asker(engine, shapes)(turn, sampling=sampling)
    parts = answer.parts(answer.text)
    assert parts.thinking and not parts.thinking.endswith(".") and parts.answer.strip() == "A red circle in the center."
