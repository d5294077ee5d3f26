"""Chat templates of families that reason: rendered with each value of their variables, they give what Transformers
gives, in every path, and the families' raw prompts make the same choice."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from tests.support.pictures import Easel
from tests.support.reasoning_templates import REASONING_TEMPLATES, ReasoningTemplate
from tests.zoo.kit import load_tokenizer, write_tokenizer
from vlmtui.domain.conversation import (
    Message,
    MessagesPrompt,
    RawPrompt,
    Text,
    Turn,
    assistant_turn,
    system_turn,
    user_turn,
)
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.template import check_variables
from vlmtui.registry.loader import Registry
from vlmtui.registry.prompts import raw_prompt
from vlmtui.registry.schema import Family, Thinking
from vlmtui.session.dials import variables_of, with_parameter
from vlmtui.worker.hf.rendering import TemplateProcesses, render_messages
from vlmtui.worker.hf.template_variables import read_variables
from vlmtui.worker.model_reader import render_once

SYSTEM = system_turn("Be brief.")
TEXTS = {
    "one turn": (SYSTEM, user_turn("Hello")),
    "two turns": (SYSTEM, user_turn("Hello"), assistant_turn("Hi."), user_turn("Count to 3.")),
}
BY_NAME = pytest.mark.parametrize("case", REASONING_TEMPLATES.values(), ids=REASONING_TEMPLATES)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder, ["<bos>", "<eos>"], bos="<bos>", eos="<eos>")
    return load_tokenizer(folder)


def conversations(folder: Path) -> list[tuple[Turn, ...]]:
    """Return texts, an image, and an image with a second turn, each with and without a system prompt."""
    picture = Easel(folder).picture(("red", "circle", "center")).attachment
    seen = (user_turn("What is in this image?", [picture]),)
    later = (*seen, assistant_turn("A red circle."), user_turn("Where is it?"))
    with_system: list[tuple[Turn, ...]] = [*TEXTS.values(), (SYSTEM, *seen), (SYSTEM, *later)]
    return [*with_system, *(turns[1:] for turns in with_system)]


def messages_of(turns: tuple[Turn, ...]) -> tuple[Message, ...]:
    def content(turn: Turn) -> Any:
        if not turn.attachments:
            return turn.text
        return tuple(
            {"type": "text", "text": one.text} if isinstance(one, Text) else {"type": "image"} for one in turn.parts
        )

    return tuple(Message(role=turn.role, content=content(turn)) for turn in turns)


def expected(tokenizer: Any, source: str, turns: tuple[Turn, ...], variables: Mapping[str, Any]) -> str:
    """Return the rendering of Transformers."""
    messages = [
        {"role": one.role, "content": one.content if isinstance(one.content, str) else list(one.content)}
        for one in messages_of(turns)
    ]
    given = {"tokenize": False, "add_generation_prompt": True, "chat_template": source}
    return str(tokenizer.apply_chat_template(messages, **given, **variables))


@BY_NAME
async def test_every_path_renders_what_transformers_renders(
    case: ReasoningTemplate, tokenizer: Any, tmp_path: Path, templates: TemplateProcesses
) -> None:
    source = case.source("<image>")
    seen = set()
    for turns in conversations(tmp_path):
        for variables in ({}, *case.choices):
            text = expected(tokenizer, source, turns, variables)
            prompt = MessagesPrompt(messages=messages_of(turns), by="tokenizer", chat_template=source)
            assert await render_messages(prompt, [tokenizer], variables, templates) == text
            messages = [{"role": one.role, "content": one.content} for one in messages_of(turns)]
            assert render_once(source, messages, {**variables, **tokenizer.special_tokens_map}).text == text
            seen.add(text)
    assert len(seen) > len(conversations(tmp_path)), "the variables change the prompt"


@BY_NAME
def test_the_variables_and_their_values_are_found(case: ReasoningTemplate) -> None:
    read = read_variables(case.source("<image>"))
    assert read is not None
    assert set(read) == {name for choice in case.choices for name in choice}
    for choice in case.choices:
        check_variables(choice, read)


def family_of(case: ReasoningTemplate) -> tuple[Family, Thinking]:
    family = Registry.bundled()[case.family]
    assert family.thinking is not None
    return family, family.thinking


@BY_NAME
def test_the_dials_of_reasoning_give_the_templates_own_values(case: ReasoningTemplate) -> None:
    family, thinking = family_of(case)
    read = read_variables(case.source("<image>"))
    for value in ("on", "off") if thinking.switch else ():
        check_variables(variables_of(with_parameter(Sampling(), family, "thinking", value)), read)
    for choice in case.choices:
        if isinstance(effort := choice.get(thinking.effort), str):
            assert variables_of(with_parameter(Sampling(), family, "effort", effort)) == {thinking.effort: effort}


@BY_NAME
@pytest.mark.parametrize("turns", TEXTS.values(), ids=TEXTS)
async def test_the_raw_prompt_makes_the_same_choice(
    case: ReasoningTemplate, tokenizer: Any, turns: tuple[Turn, ...], templates: TemplateProcesses
) -> None:
    family, _ = family_of(case)
    source = case.source("<image>")
    for variables in case.choices:
        prompt = raw_prompt(family, turns, variables)
        if isinstance(prompt, RawPrompt):
            text = prompt.text
        else:
            asked = MessagesPrompt(messages=prompt.messages, by="tokenizer", chat_template=source)
            text = await render_messages(asked, [tokenizer], variables, templates)
        assert text == expected(tokenizer, source, turns, variables)


def test_reasoning_without_a_system_prompt_opens_gemmas_system_turn(tokenizer: Any) -> None:
    case = REASONING_TEMPLATES["Gemma 4"]
    family, turns = family_of(case)[0], (user_turn("Hello"),)
    for variables in case.choices:
        prompt = raw_prompt(family, turns, variables)
        assert isinstance(prompt, RawPrompt)
        assert prompt.text == expected(tokenizer, case.source("<image>"), turns, variables)


def deepseek_encoder() -> Any:
    """Return the function of vLLM that writes DeepSeek-V4's chats, from its file alone."""
    found = find_spec("vllm")
    file = Path(found.origin or "").with_name("tokenizers") / "deepseek_v4_encoding.py" if found else Path()
    if not file.is_file():
        pytest.skip("this vLLM does not write DeepSeek-V4's chats")
    return run_path(str(file))["encode_messages"]


@pytest.mark.parametrize("turns", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize(
    ("variables", "mode", "effort"),
    [
        ({"thinking": True}, "thinking", "high"),
        ({"thinking": False}, "chat", None),
        ({"reasoning_effort": "none"}, "chat", None),
        ({"reasoning_effort": "low"}, "thinking", "low"),
        ({"reasoning_effort": "high"}, "thinking", "high"),
        ({"thinking": True, "reasoning_effort": "max"}, "thinking", "max"),
        ({"thinking": False, "reasoning_effort": "max"}, "chat", "max"),
    ],
)
def test_deepseeks_raw_prompt_is_the_text_of_vllms_encoder(
    turns: tuple[Turn, ...], variables: Mapping[str, Any], mode: str, effort: str | None
) -> None:
    """`mode` and `effort`: what vLLM's tokenizers/deepseek_v4.py makes of the variables."""
    messages = [{"role": turn.role, "content": turn.text} for turn in turns]
    prompt = raw_prompt(Registry.bundled()["deepseek_v4"], turns, variables)
    assert isinstance(prompt, RawPrompt)
    assert prompt.text == deepseek_encoder()(messages, thinking_mode=mode, reasoning_effort=effort)
