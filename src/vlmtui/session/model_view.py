"""Asks an engine what its model sees of the attachments of a prompt; `opened_view` opens the pictures."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment
from vlmtui.domain.capabilities import require_capability
from vlmtui.domain.generation import SeenMedium
from vlmtui.domain.prompt import Prompt, attachments_of
from vlmtui.engine.interface import Engine
from vlmtui.errors import bad_input
from vlmtui.paths import private_dir
from vlmtui.session.generation import render

_KEPT_S = 3600.0
"""Seconds after which the pictures of a look are deleted by the next one."""


class ModelView(msgspec.Struct, frozen=True, kw_only=True):
    """One attachment, and what the model sees of it."""

    attachment: Attachment
    medium: SeenMedium


async def ask_model_view(engine: Engine, prompt: Prompt, folder: Path) -> list[ModelView]:
    """Ask the engine what its model sees; the pictures are written into `folder`, which is created and made private.

    Raises VlmtuiError if the prompt has no attachments, the engine cannot tell, or rendering fails.
    """
    attachments = [item for item in attachments_of(prompt) if item.modality != "audio"]
    if not attachments:
        raise bad_input("This prompt has no images or videos.")
    require_capability(engine.info, "model_view")
    view = private_dir(folder.resolve())
    await asyncio.to_thread(_remove_old, view)
    ready = await render(engine, prompt, view=str(view))
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
