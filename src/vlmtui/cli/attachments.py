"""The options --image, --video and --audio, and the conversation turns made from their files and the question."""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from vlmtui.cli.output import note
from vlmtui.domain.conversation import Attachment, Media, Modality, Part, Text, Turn, VideoSampling, system_turn
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.media.pages import split_pages
from vlmtui.media.sniff import Kind
from vlmtui.paths import Paths
from vlmtui.reading import is_file
from vlmtui.session.draft import token_text
from vlmtui.text import one_line

_KINDS: dict[Modality, tuple[Kind, ...]] = {
    "image": (Kind.IMAGE, Kind.ANIMATION, Kind.DOCUMENT),
    "video": (Kind.VIDEO, Kind.ANIMATION),
    "audio": (Kind.SOUND, Kind.VIDEO),
}
_TOKEN = re.compile(r"\[(?:Image|Video|Audio) #[0-9]+\]")


class AppendMedia(argparse.Action):
    """Collects --image, --video and --audio in one list of (kind, argument), in the order given."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        given = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*given, (self.const, values)])


def add_media_options(parser: argparse._ActionsContainer, texts: Mapping[str, str]) -> None:
    """Add --image, --video and --audio, which collect their arguments in `media`, a list of (kind, argument). `texts`:
    the help text of each option, by kind."""
    for kind, text in texts.items():
        parser.add_argument(f"--{kind}", dest="media", action=AppendMedia, const=kind, metavar="P", help=text)


def add_media(parser: argparse.ArgumentParser) -> None:
    """Add --image, --video and --audio for one question, and --many, which allows more than 20 files per argument."""
    articles = {"image": "an image", "video": "a video", "audio": "an audio file, or the audio track of a video"}
    texts = {kind: f"{name}, or several; may be repeated, the order is kept" for kind, name in articles.items()}
    add_media_options(parser, texts)
    parser.add_argument("--many", action="store_true", help="allow more than 20 files from one folder or pattern")


def stage_attachments(
    paths: Paths, given: Sequence[tuple[Modality, str]], *, num_frames: int, many: bool
) -> list[Attachment]:
    """Check, store and return the attachments in order; write a warning for those that are damaged or not as in a
    viewer. Raises VlmtuiError with the file and the reason.

    `given`: pairs of `image`, `video` or `audio` and an option's argument. `num_frames`: the number of frames to sample
    from a video. `many`: allow more than 20 files for one argument."""
    from vlmtui.media.notes import warning_of

    attachments = [
        _stage(paths, kind, source, page, dots, VideoSampling(num_frames=num_frames))
        for kind, text in given
        for source, page, dots in _sources(kind, text, many=many)
    ]
    for warning in filter(None, map(warning_of, attachments)):
        note(f"warning: {one_line(warning)}")
    return attachments


def turns_with_placed(system: str, question: str, attachments: Sequence[Attachment]) -> list[Turn]:
    """Return the system turn, if any, and the user turn. In the user turn, an attachment replaces its token (`[Image
    #1]`); attachments without a token come before the text."""
    tokens = {token_text(number, item): item for number, item in enumerate(attachments, start=1)}
    pieces = re.split(f"({'|'.join(map(re.escape, tokens))})", question) if tokens else [question]
    parts: list[Part] = [Media(item) for token, item in tokens.items() if token not in pieces]
    parts += [Media(tokens[piece]) if piece in tokens else Text(piece) for piece in pieces if piece]
    for stray in dict.fromkeys(_TOKEN.findall(question)):
        if tokens and stray not in tokens:
            note(f"warning: {stray} does not match any attachment and is sent as text.")
    return [*([system_turn(system)] if system else []), Turn("user", tuple(parts))]


def _sources(kind: Modality, text: str, *, many: bool) -> list[tuple[Path | str, int, int | None]]:
    """Return the files and addresses that an argument names. Each comes with the page to render, if it is a document,
    and the resolution in dots per inch (None: the default)."""
    from vlmtui.media.gather import ASK_ABOVE, gather

    pages, dots = range(1, 2), None
    if not is_file(Path(text)) and (chosen := split_pages(text)).pages:
        text, pages, dots = chosen
    found = gather(text, base=Path.cwd())
    if found.problems:
        raise found.problems[0]
    sources: list[Path | str] = [*found.paths, *found.urls]
    if len(found.paths) > 1:
        sources = [*(path for path in found.paths if _may_be(kind, path)), *found.urls]
    if not sources:
        raise bad_input(f"There is no {kind} in {one_line(text)}.")
    count = len(sources) * len(pages)
    if count > ASK_ABOVE and not many:
        what = "files" if len(pages) == 1 else "pages"
        message = f"{one_line(text)} matches {count} {what}, more than {ASK_ABOVE}."
        raise bad_input(message, hint="Allow it with --many, or choose fewer.")
    return [(source, page, dots) for source in sources for page in pages]


def _may_be(kind: Modality, path: Path) -> bool:
    """Return whether a file in a folder may be of this kind. True for an unreadable file: staging it later reports the
    reason."""
    from vlmtui.media.stage import file_type

    try:
        found = file_type(path).kind
    except VlmtuiError:
        return True
    return found in _KINDS[kind]


def _stage(
    paths: Paths, kind: Modality, source: Path | str, page: int, dots: int | None, sampling: VideoSampling
) -> Attachment:
    """Check, store and return a file as an image, video or audio attachment."""
    from vlmtui.media.stage import from_address, stage_as

    file = source if isinstance(source, Path) else _fetched(paths, source)
    attachment = stage_as(kind, file, paths.media, sampling=sampling, page=page, dots=dots)
    return attachment if isinstance(source, Path) else from_address(attachment, source)


def _fetched(paths: Paths, url: str) -> Path:
    from vlmtui.media.stage import download_source

    return asyncio.run(download_source(url, paths.cache / "downloads"))
