"""The capabilities of an engine, and the sentences about missing ones."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from tests.worker.hosted import INFO
from vlmtui.domain.capabilities import ALL, Capabilities, Capability, lack, lack_for, require_capability
from vlmtui.domain.conversation import Attachment, ChatPrompt, MessagesPrompt, Prompt, RawPrompt
from vlmtui.domain.generation import GenerateRequest, RenderRequest, Request, ScoreRequest, View
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind, VlmtuiError

NOTHING = msgspec.structs.replace(INFO, capabilities=Capabilities())
PICTURE = Attachment(modality="image", name="a", path="", sha256="", width=1, height=1, size_bytes=1, format="PNG")
CHAT = ChatPrompt(turns=())


def test_a_flag_is_named_as_it_is_asked_for() -> None:
    assert get_args(Capability) == Capabilities.__struct_fields__


@pytest.mark.parametrize("name", Capabilities.__struct_fields__)
def test_every_lack_has_its_sentence(name: Capability) -> None:
    assert lack(msgspec.structs.replace(INFO, capabilities=ALL), name) == ""
    assert lack(None, name) == ""
    assert lack(NOTHING, name).startswith("This engine (vLLM) ")
    with pytest.raises(VlmtuiError) as caught:
        require_capability(NOTHING, name)
    assert (caught.value.kind, caught.value.message) == (ErrorKind.UNSUPPORTED, lack(NOTHING, name))


@pytest.mark.parametrize(
    ("prompt", "more", "needs"),
    [
        (CHAT, {}, ()),
        (ChatPrompt(turns=(), fallback_template="x"), {}, ()),
        (ChatPrompt(turns=(), chat_template="x"), {}, ("template_override",)),
        (RawPrompt(text="x"), {}, ("raw_prompts",)),
        (RawPrompt(text="x", attachments=(PICTURE,)), {}, ("raw_prompts", "raw_media")),
        (MessagesPrompt(messages=(), by="tokenizer"), {}, ("message_prompts",)),
        (CHAT, {"logprobs": 0}, ("logprobs",)),
        (CHAT, {"from_cache": True}, ("media_by_id",)),
        (CHAT, {"keep": True}, ()),
    ],
)
def test_a_request_needs_only_the_capabilities_that_it_uses(
    prompt: Prompt, more: dict[str, object], needs: tuple[Capability, ...]
) -> None:
    request = GenerateRequest(request_id="r", prompt=prompt, sampling=Sampling(seed=1), **more)  # type: ignore[arg-type]
    granted = Capabilities(**dict.fromkeys(needs, True))
    assert lack_for(msgspec.structs.replace(INFO, capabilities=granted), request) == ""
    for needed in needs:
        without = msgspec.structs.replace(granted, **{needed: False})
        assert lack_for(msgspec.structs.replace(INFO, capabilities=without), request) == lack(NOTHING, needed)


@pytest.mark.parametrize(
    ("request_", "needs"),
    [
        (RenderRequest(request_id="r", prompt=CHAT, sampling=Sampling()), ("render_only",)),
        (
            RenderRequest(request_id="r", prompt=CHAT, sampling=Sampling(), view=View(folder="/v")),
            ("render_only", "model_view"),
        ),
        (ScoreRequest(request_id="r", prompt=CHAT, sampling=Sampling(), tokens=(1,)), ("scores",)),
        (ScoreRequest(request_id="r", prompt=CHAT, sampling=Sampling(), tokens=(1,), adapter="/a"), ("scores", "lora")),
    ],
)
def test_rendering_and_scoring_need_a_capability_each(request_: Request, needs: tuple[Capability, ...]) -> None:
    granted = Capabilities(**dict.fromkeys(needs, True))
    assert lack_for(msgspec.structs.replace(INFO, capabilities=granted), request_) == ""
    for needed in needs:
        without = msgspec.structs.replace(granted, **{needed: False})
        assert lack_for(msgspec.structs.replace(INFO, capabilities=without), request_) == lack(NOTHING, needed)
