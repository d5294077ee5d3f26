"""From wherever it is to an attachment: a file of this machine, or a picture or video at a web address."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vlmtui.domain.attachment import Attachment, VideoSampling
from vlmtui.errors import bad_input
from vlmtui.media.stage import stage


def stage_source(source: Path | str, store: Path, downloads: Path, sampling: VideoSampling | None = None) -> Attachment:
    """As `stage`; a text is an address, fetched into `downloads` first. Blocking: call it in a thread.

    Raises VlmtuiError: BAD_INPUT, or NO_NETWORK where the server cannot be reached.
    """
    if isinstance(source, Path):
        return stage(source, store, sampling=sampling)
    from vlmtui.media.remote import fetch  # the standard library's http takes a while to import

    attachment = stage(fetch(source, downloads), store, sampling=sampling)
    return msgspec.structs.replace(attachment, source=source)


def restage(attachment: Attachment, *, store: Path, page: int = 1, still: bool = False) -> Attachment:
    """Another page or frame of the file that an attachment came from, or the file as a still picture. Blocking.

    Raises VlmtuiError when that file is gone, changed to something else, or has no such page.
    """
    if attachment.source.startswith(("http://", "https://")):
        raise bad_input(f"{attachment.name} came from the web: attach it again as a file to take another part of it.")
    return stage(Path(attachment.source), store, page=page, still=still)
