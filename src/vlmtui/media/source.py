"""From wherever it is to an attachment: a file of this machine, or a picture or video at a web address."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.media.stage import stage


def stage_source(source: Path | str, store: Path, downloads: Path, sampling: VideoSampling | None = None) -> Attachment:
    """As `stage`; a text is an address, fetched into `downloads` first. Blocking: call it in a thread.

    Raises VlmtuiError: BAD_INPUT, or NO_NETWORK where the server cannot be reached.
    """
    if isinstance(source, Path):
        return stage(source, store, sampling=sampling)
    from vlmtui.media.remote import fetch

    attachment = stage(fetch(source, downloads), store, sampling=sampling)
    return msgspec.structs.replace(attachment, source=source)
