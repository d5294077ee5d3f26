"""Finds out whether a server uses all frames of a video: vLLM drops those after the 32nd without a word."""

from __future__ import annotations

import msgspec

from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.worker.backends.remote.bodies import MediaPart
from vlmtui.worker.backends.remote.http_api import ServerApi

_ALWAYS_KEPT = 32
"""Frames that vLLM keeps unless it is told otherwise."""
_HINT = (
    "Send 32 frames or fewer (/frames), or start the server with "
    """--media-io-kwargs '{"video": {"num_frames": -1}}'."""
)


class FrameLimit:
    """Asks a server that counts tokens, once."""

    def __init__(self, api: ServerApi, model: str) -> None:
        self._api = api
        self._model = model
        self._keeps_all = False

    async def check(self, video: MediaPart) -> None:
        """Raise VlmtuiError(UNSUPPORTED) if the video takes as many tokens as its first 32 frames alone."""
        head, _, frames = (video.url or "").partition(";base64,")
        pictures = frames.split(",")
        if self._keeps_all or len(pictures) <= _ALWAYS_KEPT:
            return
        fewer = msgspec.structs.replace(video, url=f"{head};base64,{','.join(pictures[:_ALWAYS_KEPT])}", uuid="")
        whole = await self._count(msgspec.structs.replace(video, uuid=""))
        if whole is None:
            return
        if whole == await self._count(fewer):
            message = f"{self._api.shown} drops frames: of the video's {len(pictures)} it uses {_ALWAYS_KEPT}."
            raise VlmtuiError(ErrorKind.UNSUPPORTED, message, hint=_HINT)
        self._keeps_all = True

    async def _count(self, video: MediaPart) -> int | None:
        body = {"model": self._model, "messages": [{"role": "user", "content": [video.part]}]}
        found = await self._api.post("/tokenize", body)
        count = found.get("count") if isinstance(found, dict) else None
        return count if isinstance(count, int) else None
