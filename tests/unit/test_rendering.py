"""Raw prompts that the model's own chat template writes."""

from __future__ import annotations

import io
from base64 import b64decode
from typing import Any

import pytest
from PIL import Image

from vlmtui.domain.conversation import Attachment, Message, MessagesPrompt, user_turn
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.hf.media_items import MediaItem
from vlmtui.worker.hf.rendering import TemplateProcesses, chat_message, render_messages, with_image_urls

pytestmark = pytest.mark.process
STRINGS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
PARTS = (
    "{% for m in messages %}[{{ m.role }}]{% for p in m.content %}"
    "{% if p.type == 'image' %}<i>{% elif p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}{% endfor %}>"
)


class Applier:
    """The parts of a tokenizer or processor that the renderer uses."""

    def __init__(self, chat_template: str | None) -> None:
        self.chat_template = chat_template

    def apply_chat_template(self) -> None:
        raise AssertionError("a template runs in a process of its own")


Applier.apply_chat_template.__module__ = Applier.__module__ = "transformers.tokenization_utils_base"


async def rendered(prompt: MessagesPrompt, sources: list[Any]) -> str:
    templates = TemplateProcesses()
    try:
        return await render_messages(prompt, sources, {}, templates)
    finally:
        templates.close()


def asked(*content: str | tuple[dict[str, object], ...], template: str | None = None) -> MessagesPrompt:
    roles = ("user", "assistant", "user")
    messages = tuple(Message(role=role, content=one) for role, one in zip(roles, content, strict=False))  # type: ignore[arg-type]
    return MessagesPrompt(messages=messages, by="tokenizer", chat_template=template)


async def test_the_template_is_applied() -> None:
    assert await rendered(asked("q", "a", "r"), [Applier(STRINGS)]) == "[user]q[assistant]a[user]r>"


async def test_the_first_with_a_template_is_taken() -> None:
    assert await rendered(asked("q"), [None, Applier(None), Applier(STRINGS)]) == "[user]q>"


async def test_a_template_that_is_given_comes_first() -> None:
    assert await rendered(asked("q", template="{{ messages[0].content }}!"), [Applier(STRINGS)]) == "q!"


async def test_a_template_that_drops_strings_is_given_parts() -> None:
    parts: tuple[dict[str, object], ...] = ({"type": "image"}, {"type": "text", "text": "what?"})
    assert await rendered(asked(parts, "a", "and?"), [Applier(PARTS)]) == "[user]<i>what?[assistant]a[user]and?>"


async def test_a_template_that_leaves_the_question_out_is_refused() -> None:
    with pytest.raises(VlmtuiError, match="drops part"):
        await rendered(asked("what?"), [Applier("nothing")])


async def test_a_refusing_template_gives_the_reason() -> None:
    with pytest.raises(VlmtuiError, match="rejects this") as caught:
        await rendered(asked("q"), [Applier("{{ nothing.at.all }}")])
    assert "nothing" in caught.value.detail


async def test_no_template_at_all() -> None:
    with pytest.raises(VlmtuiError) as caught:
        await rendered(asked("q"), [Applier(None)])
    assert caught.value.kind is ErrorKind.NO_CHAT_TEMPLATE


def test_an_image_in_a_url_has_all_its_pixels() -> None:
    image = Image.effect_noise((20, 10), 90).convert("RGB")
    shown = Attachment(
        modality="image", name="a.png", path="", sha256="", width=20, height=10, size_bytes=0, format="PNG"
    )
    message = chat_message(user_turn("What?", [shown]), iter([MediaItem("image", image, "id")]))
    picture, text = with_image_urls(message)["content"]
    kind, _, data = picture["image_url"]["url"].partition(",")
    assert (picture["type"], kind) == ("image_url", "data:image/png;base64")
    assert Image.open(io.BytesIO(b64decode(data))).tobytes() == image.tobytes()
    assert text == {"type": "text", "text": "What?"}
    assert with_image_urls({"role": "user", "content": "q"}) == {"role": "user", "content": "q"}
