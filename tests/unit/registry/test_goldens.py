"""Every family's prompt against the seed documents, whose own code wrote `seeds.json`, and its chat template."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from tests.support.cases import in_one_test
from vlmtui.domain.conversation import (
    Attachment,
    ChatPrompt,
    MessagesPrompt,
    Modality,
    RawPrompt,
    Text,
    Turn,
    assistant_turn,
    user_turn,
)
from vlmtui.domain.engine import BackendChoice
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import EXAMPLE, engine_args_of
from vlmtui.registry.prompts import chat_prompt, raw_prompt
from vlmtui.registry.schema import Family

SEEDS = json.loads((Path(__file__).parent / "seeds.json").read_bytes())
QUESTION: str = SEEDS["question"]
REGISTRY = Registry.bundled()
SHOWN: dict[str, dict[Modality, int]] = {
    "image": {"image": 1}, "images2": {"image": 2}, "images3": {"image": 3}, "video": {"video": 1},
}  # fmt: skip
MOVED = {"microsoft/Florence-2-large": "florence-community/Florence-2-large"}
"""The same weights in the format that Transformers itself reads."""
DEVIATIONS: dict[tuple[str, str], str] = {
    ("qwen2_5_omni", "mm_processor_kwargs"): "fps is a number: the installed processor divides by it",
    ("phi4_mm", "mm_processor_kwargs"): "the newer example's dynamic_hd of several images",
    ("internvl_chat", "mm_processor_kwargs"): "the installed processor refuses max_dynamic_patch",
    ("mantis", "hf_overrides"): "served as LLaVA since its own class has gone",
    ("ernie45_vl", "limit_mm_per_prompt"): "the seed asks for one image also where it shows a video",
}
"""Engine arguments in which a record differs from the seeds on purpose."""


def shown(counts: dict[Modality, int]) -> list[Attachment]:
    return [
        Attachment(
            modality=modality, name=f"{modality}{number}", path="/x", sha256="0" * 64,
            width=8, height=8, size_bytes=1, format="PNG",
        )
        for modality, count in counts.items()
        for number in range(count)
    ]  # fmt: skip


OF_EVERY_SEED = in_one_test(
    {f"{name}-{case}": (name, case, seed) for name, found in SEEDS["families"].items() for case, seed in found.items()}
)


def test_every_family_of_the_seeds_has_a_record() -> None:
    assert set(SEEDS["families"]) <= set(REGISTRY)
    assert len(SEEDS["families"]) == 63
    assert len(REGISTRY) >= 63 + 15 + 1


@OF_EVERY_SEED
def test_the_prompt_is_the_seeds(name: str, case: str, seed: dict[str, Any]) -> None:
    prompt = raw_prompt(REGISTRY[name], [user_turn(QUESTION, shown(SHOWN[case]))])
    if isinstance(prompt, RawPrompt):
        assert seed["kind"] == "text"
        assert prompt.text == seed["prompt"]
    else:
        assert seed["kind"] == "messages"
        assert prompt.by == seed["by"]
        assert msgspec.json.decode(msgspec.json.encode(prompt.messages)) == _plain(seed["messages"])
        assert (prompt.chat_template or None) == seed.get("chat_template")


def _plain(messages: Any) -> Any:
    """The seeds' messages; some scripts hand over a list of conversations."""
    return messages[0] if isinstance(messages[0], list) else messages


@OF_EVERY_SEED
def test_the_engine_arguments_are_the_seeds(name: str, case: str, seed: dict[str, Any]) -> None:
    family = REGISTRY[name]
    given = engine_args_of(family, SHOWN[case], BackendChoice(), EXAMPLE)
    for argument, value in seed["engine_args"].items():
        match argument:
            case "model":
                wanted = value.removeprefix("snapshot:").partition("@")[0]
                assert MOVED.get(wanted, wanted) in [model.partition("@")[0] for model in family.models]
            case "trust_remote_code":
                # The newest script of Aria needs it no more, nor do the repositories that Transformers itself reads.
                assert family.trust_remote_code or name in ("aria", "florence2")
            case _ if (name, argument) in DEVIATIONS:
                continue
            case "limit_mm_per_prompt":
                assert {key: count for key, count in given[argument].items() if count} == value  # type: ignore[attr-defined]
            case _:
                assert given.get(argument) == value, argument
    if family.example and "mm_processor_kwargs" not in seed["engine_args"]:
        assert not given.get("mm_processor_kwargs")


def test_an_example_table_holds_only_what_the_record_has_otherwise() -> None:
    for family in REGISTRY.values():
        if family.example or family.example_several:
            assert {**family.engine_args, **family.example} != family.engine_args, family.family
            without = engine_args_of(family, {"image": 1}, BackendChoice())
            assert all(without.get(name) != value for name, value in family.example.items()), family.family


@OF_EVERY_SEED
def test_stops_sampling_and_lora_are_the_seeds(name: str, case: str, seed: dict[str, Any]) -> None:
    family = REGISTRY[name]
    assert list(family.stop_token_ids) == (seed.get("stop_token_ids") or [])
    assert set(seed.get("stop_tokens") or []) <= set(family.stop_tokens)
    if lora := seed.get("lora"):
        first = family.loras[0]
        assert (first.name, first.id, first.path) == tuple(lora[:3])
        assert family.engine_args["max_lora_rank"] == lora[3]
    if sampling := seed.get("sampling"):
        assert family.sampling is not None
        own = {**msgspec.structs.asdict(family.sampling), **family.sampling.extra}
        assert {key: own[key] for key in sampling} == sampling


def conversations(family: Family) -> Iterator[list[Turn]]:
    """Conversations for a family: one to three images, a video, two turns with an image each, text around an image."""
    images, videos = family.takes.get("image"), family.takes.get("video")
    most = images.max_items if images else 0
    for count in range(1, min(most, 3) + 1):
        yield [user_turn(QUESTION, shown({"image": count})), assistant_turn("An answer."), user_turn("And {i}?")]
    if most > 1:
        yield [
            user_turn("first", shown({"image": 1})),
            assistant_turn("a"),
            user_turn("second", shown({"image": 1})),
        ]
        first, second = user_turn("", shown({"image": 2})).parts[:2]
        yield [Turn("user", (first, Text("unlike "), second, Text(" how?")))]
    if videos:
        yield [user_turn(QUESTION, shown({"video": 1}))]
    if images and videos:
        yield [user_turn(QUESTION, shown({"image": 1, "video": 1}))]


ALL = {
    f"{family.family}-{number}": (family, turns)
    for family in REGISTRY.values()
    for number, turns in enumerate(conversations(family))
}


@in_one_test(ALL)
def test_every_attachment_has_its_placeholder_and_every_word_is_kept(family: Family, turns: list[Turn]) -> None:
    prompt = raw_prompt(family, turns)
    assert len(prompt.attachments) == sum(len(turn.attachments) for turn in turns)
    text = prompt.text if isinstance(prompt, RawPrompt) else _all_text(prompt)
    for modality, takes in family.takes.items():
        count = sum(item.modality == modality for item in prompt.attachments)
        mark = max(takes.placeholder.split("{i}"), key=len).strip()
        if isinstance(prompt, RawPrompt) and mark:
            assert text.count(mark) == count
    if family.question == "free":
        for turn in turns:
            position = 0
            for part in turn.parts:
                if isinstance(part, Text):
                    assert part.text.strip() in text[position:]
                    position = text.index(part.text.strip(), position)


def _all_text(prompt: MessagesPrompt) -> str:
    return "".join(
        message.content
        if isinstance(message.content, str)
        else "".join(str(part.get("text", "")) for part in message.content)
        for message in prompt.messages
    )


PROMPTS = Path(__file__).parent / "prompts.json"
"""The prompt of every family. `python tests/unit/registry/test_goldens.py` writes it again: read the diff."""


def sent(family: Family) -> list[Any]:
    """A family's raw prompts of `conversations`, as JSON has them."""
    return [
        prompt.text if isinstance(prompt, RawPrompt) else msgspec.json.decode(msgspec.json.encode(prompt.messages))
        for prompt in (raw_prompt(family, turns) for turns in conversations(family))
    ]


@cache
def expected() -> dict[str, list[Any]]:
    """The prompts of each family that are stored."""
    prompts: dict[str, list[Any]] = json.loads(PROMPTS.read_bytes())
    return prompts


@in_one_test({family.family: (family,) for family in REGISTRY.values()})
def test_no_prompt_changes_unnoticed(family: Family) -> None:
    assert sent(family) == expected()[family.family]


WRITTEN = {name: one for name, one in ALL.items() if isinstance(raw_prompt(*one), RawPrompt)}
"""Families whose raw prompt comes from the record, not from the model's own template."""


@in_one_test(WRITTEN)
def test_the_registrys_chat_template_writes_the_raw_prompt(family: Family, turns: list[Turn]) -> None:
    raw = raw_prompt(family, turns)
    assert isinstance(raw, RawPrompt)
    prompt = chat_prompt(msgspec.structs.replace(family, chat="registry"), turns)
    assert prompt.chat_template is not None
    assert _rendered(prompt.chat_template, prompt.turns) == raw.text


def test_only_families_without_a_template_of_their_own_are_given_one() -> None:
    for family in REGISTRY.values():
        prompt = chat_prompt(family, [user_turn("q")])
        assert isinstance(prompt, ChatPrompt)
        assert (prompt.chat_template is not None) == (family.chat == "registry")


def _rendered(template: str, turns: Sequence[Turn]) -> str:
    """Render as vLLM's renderer does: content is a list of parts."""
    messages = [
        {
            "role": turn.role,
            "content": [
                {"type": "text", "text": part.text} if isinstance(part, Text) else {"type": part.attachment.modality}
                for part in turn.parts
            ],
        }
        for turn in turns
    ]
    return compiled(template).render(messages=messages, add_generation_prompt=True)


@cache
def compiled(template: str) -> jinja2.Template:
    return jinja2.Environment().from_string(template)


if __name__ == "__main__":
    found = {family.family: sent(family) for family in REGISTRY.values()}
    PROMPTS.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
