"""Asks an engine what its model sees of the attachments of a prompt; `opened_view` opens the pictures."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.generation import Failed, GenerateRequest, PromptReady, SeenMedium
from vlmtui.domain.prompt import Prompt, attachments_of
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.errors import ErrorKind, VlmtuiError, bad_input
from vlmtui.paths import private_dir
from vlmtui.session.generation import new_request_id

_KEPT_S = 3600.0
"""Seconds after which the pictures of a look are deleted by the next one."""


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """One attachment, and what the model sees of it."""

    attachment: Attachment
    medium: SeenMedium
    times_s: tuple[float, ...] = ()
    """When the frames of a video appear, in seconds."""


async def ask_model_view(engine: Engine, prompt: Prompt, folder: Path) -> list[ModelView]:
    """Ask the engine what its model sees; the pictures are written into `folder`, which is created and made private.

    Raises VlmtuiError if the prompt has no attachments, the engine cannot tell, or rendering fails.
    """
    attachments = [item for item in attachments_of(prompt) if item.modality != "audio"]
    if not attachments:
        raise bad_input("This prompt has no images or videos.")
    require_capability(engine.info, "model_view")
    view = str(private_dir(folder.resolve()))
    await asyncio.to_thread(_remove_old, folder)
    request = GenerateRequest(
        request_id=new_request_id(), prompt=prompt, sampling=Sampling(), only_render=True, view=view
    )
    ready = await rendered_prompt(engine, request)
    found = []
    for attachment in attachments:
        same = [item for item in attachments if item.modality == attachment.modality]
        at = next(index for index, item in enumerate(same) if item is attachment)
        medium = next(
            (one for one in ready.seen if (one.modality, one.index) == (attachment.modality, at)),
            SeenMedium(modality=attachment.modality, index=at),
        )
        found.append(ModelView(attachment=attachment, medium=medium))
    return found


def _remove_old(folder: Path) -> None:
    """Delete pictures of earlier looks."""
    for file in folder.glob("*.png"):
        with suppress(OSError):
            if file.stat().st_mtime < time.time() - _KEPT_S:
                file.unlink()


async def rendered_prompt(engine: Engine, request: GenerateRequest) -> PromptReady:
    """Return the prompt of a request with `only_render`. Raises VlmtuiError if it fails."""
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            match event:
                case PromptReady():
                    return event
                case Failed(failure=failure):
                    raise failure.error()
    raise VlmtuiError(ErrorKind.INTERNAL, "The engine ended the request without a prompt.")
