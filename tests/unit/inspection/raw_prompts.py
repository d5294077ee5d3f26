"""Raw prompts of every family, and what the guard says of a text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from vlmtui.domain.conversation import (
    Attachment,
    Media,
    Message,
    MessagesPrompt,
    Modality,
    RawPrompt,
    Text,
    Turn,
    assistant_turn,
    user_turn,
)
from vlmtui.inspection.placeholders import Form, forms_of
from vlmtui.inspection.prompt_turns import own_tokens
from vlmtui.inspection.raw_prompt_check import Finding, FindingKind, Fix, check_raw
from vlmtui.registry.loader import Registry
from vlmtui.registry.prompts import raw_prompt
from vlmtui.registry.schema import Family

REGISTRY = Registry.bundled()
QUESTION = 'Was {das} "hier"?\n日本語 <b>'
COMMON = frozenset({"<|im_start|>", "<|im_end|>", "<|endoftext|>"})


def apply_fix(text: str, fix: Fix) -> str:
    return text[: fix.start] + fix.replacement + text[fix.end :]


def items(counts: dict[Modality, int]) -> list[Attachment]:
    return [
        Attachment(
            modality=modality, name=f"{modality}{number}", path="/x", sha256="0" * 64, width=8, height=8,
            size_bytes=1, format="PNG",
        )
        for modality, count in counts.items()
        for number in range(count)
    ]  # fmt: skip


def conversations(family: Family) -> Iterator[list[Turn]]:
    images = family.takes["image"].max_items if "image" in family.takes else 0
    for count in range(1, min(images, 3) + 1):
        yield [user_turn(QUESTION, items({"image": count})), assistant_turn("An answer."), user_turn("And {i}?")]
        yield [user_turn(QUESTION, items({"image": count}))]
    if images > 1:
        yield [user_turn("a", items({"image": 1})), assistant_turn("b"), user_turn("c", items({"image": 1}))]
        first, second = items({"image": 2})
        yield [Turn("user", (Media(first), Text("unlike "), Media(second), Text(" how?")))]
    if "video" in family.takes:
        yield [user_turn(QUESTION, items({"video": 1}))]
    if "video" in family.takes and images:
        yield [user_turn(QUESTION, items({"image": 1, "video": 1}))]


def written(family: Family, turns: Sequence[Turn]) -> tuple[str, tuple[Attachment, ...]]:
    """The prompt as text. Where the model's own template writes it, a stand-in of its shape."""
    prompt = raw_prompt(family, turns)
    if isinstance(prompt, RawPrompt):
        return prompt.text, prompt.attachments
    return stand_in(family, prompt), prompt.attachments


def stand_in(family: Family, prompt: MessagesPrompt) -> str:
    several = max(Counter(item.modality for item in prompt.attachments).values(), default=0) > 1
    waiting = iter(prompt.attachments)
    raw = family.raw

    def content(message: Message) -> str:
        if isinstance(message.content, str):
            return message.content
        return "".join(part_text(part) for part in message.content)

    def part_text(part: dict[str, object]) -> str:
        if part["type"] == "text":
            return str(part["text"])
        found = forms_of(family, next(waiting).modality, several=several)
        assert found is not None
        return found[1].numbered_as(1)

    if raw.by != "text":
        turns = (f"<|im_start|>{one.role}\n{content(one)}<|im_end|>\n" for one in prompt.messages)
        return "".join(turns) + "<|im_start|>assistant\n"
    layouts = {"user": raw.user, "assistant": raw.assistant, "system": raw.system or ""}
    turns = (layouts[one.role].replace("{content}", content(one)) for one in prompt.messages)
    return raw.bos + "".join(turns) + raw.generation_prompt


def check(
    text: str,
    attachments: Sequence[Attachment],
    family: Family,
    *,
    bos: str | None = None,
    adds_bos: bool = False,
    special: frozenset[str] | None = None,
    stops: tuple[str, ...] = ("<|im_end|>", "<|endoftext|>", "</s>"),
) -> list[Finding]:
    known = frozenset(own_tokens(family)) | COMMON if special is None else special
    return check_raw(
        text, attachments, family, special_tokens=known, stop_tokens=stops, bos=bos, adds_bos=adds_bos,
        families=REGISTRY.values(),
    )  # fmt: skip


def kinds(findings: Sequence[Finding]) -> list[FindingKind]:
    return [finding.kind for finding in findings]


def forms(family: Family, attachments: Sequence[Attachment]) -> Iterator[tuple[Form, int]]:
    wanted = Counter(item.modality for item in attachments)
    for modality, count in wanted.items():
        found = forms_of(family, modality, several=max(wanted.values()) > 1)
        if found:
            yield found[1], count


def prompts(family: Family) -> list[tuple[str, tuple[Attachment, ...]]]:
    return [written(family, turns) for turns in conversations(family)]
