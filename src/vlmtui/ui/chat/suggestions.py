"""Suggestions above the composer: commands, paths after an `@`, and files that a message names."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec
from textual.content import Content
from textual.widgets import OptionList, Static

from vlmtui.errors import VlmtuiError
from vlmtui.media.folder import natural
from vlmtui.media.mentions import Mention, MentionKind, find_mentions, may_name_files
from vlmtui.media.paths import looks_like_media
from vlmtui.session.dials import ParameterHelp
from vlmtui.session.draft import Draft
from vlmtui.text import human_bytes, one_line
from vlmtui.ui.actions import ACTIONS, Action

FOLDER_MAX = 5000
"""Most names read from a folder."""
LOOK_S = 0.5
"""Maximum seconds for finding completions, since files without a media suffix are opened to detect their type."""
_WORD = re.compile(r'(?<!\S)@(?:"([^"\n]*)|([^\s"]\S*)?)')
_SETS = re.compile(r"(/set\s+|/(?:fan|compare)\s+(?:\S+\s+)*)([\w.-]*)(?:(=)((?:[^\s,]+,)*)([^\s,]*))?")
"""The text of `/set`, `/fan` or `/compare`, in groups: the text before a parameter, its name, `=`, complete values, and
the value that is being typed."""
_PLAN = re.compile(r"/(?:fan|compare)\s+(.+)")
_COMMAND = 19
"""Columns of a command."""
_NAME = 25
"""Columns of a parameter's name."""
_NAME_MIN, _NAME_MAX = 19, 44
_SHOWN = 4
"""Files listed; others are counted."""
_MENTION_MAX = 60
"""Maximum characters shown of the name of a file."""
_LOOK_S = 3.0
"""Maximum seconds for looking up the files that a message names."""


class Span(msgspec.Struct, frozen=True):
    """A path after an `@`: `text[start:end]` is all of it, `fragment` the part before the cursor."""

    start: int
    """Offset of the `@`."""
    end: int
    """Offset after the path, including a closing quote."""
    fragment: str
    """Without the `@` and quotes."""


class PathCompletion(msgspec.Struct, frozen=True):
    """A folder or media file that completes a typed path."""

    path: Path
    is_folder: bool
    text: str
    """The whole path as typed: `~/pics/cat.png`, `sub/`."""
    size: int = 0
    """Bytes; 0 for a folder."""

    @property
    def name(self) -> str:
        """The path's last component, with a slash for a folder. May contain control characters."""
        return self.text.rstrip("/").rpartition("/")[2] + ("/" if self.is_folder else "")

    @property
    def mention(self) -> str:
        """The text that replaces the typed path: `@sub/`, `@"my file.png"`. For a folder the closing quote is missing,
        so that the user can type on."""
        if not any(char.isspace() for char in self.text) and not self.text.startswith('"'):
            return f"@{self.text}"
        return f'@"{self.text}' + ("" if self.is_folder else '"')


class ParameterCompletion(msgspec.Struct, frozen=True):
    """A parameter of a command, or a value of it, that completes the command; or the number of requests of a complete
    fan-out."""

    shown: str
    help: str
    text: str
    """The whole command with the completion: `/set thinking=`."""


def matching_parameters(text: str, known: Callable[[], Mapping[str, ParameterHelp]]) -> list[ParameterCompletion]:
    """Return the parameters that complete a command, and behind `=` the values of one; for a complete fan-out its
    number of requests. `known`: called only for such commands."""
    found = _SETS.fullmatch(text)
    if found is None:
        return _requests(text)
    from vlmtui.session.fan_out import FAN_PARAMETERS

    before, name, equals, values, value = found.groups(default="")
    parameters = known() if before.startswith("/set") else {**FAN_PARAMETERS, **known(), **FAN_PARAMETERS}
    if not equals:
        given = re.findall(r"([\w.-]+)=", before)
        names = [one for one in parameters if one.startswith(name)]
        names += [one for one in parameters if one not in names and name in one]
        offered = [ParameterCompletion(one, parameters[one].help, f"{before}{one}=") for one in names]
        return [*([] if name else _requests(text)), *(one for one in offered if one.shown not in given)]
    choices = parameters[name].values if name in parameters else ()
    left = [one for one in choices if one.startswith(value) and one not in values.split(",")]
    if left == [value]:
        left = []
    offered = [ParameterCompletion(one, parameters[name].help, f"{before}{name}={values}{one}") for one in left]
    return [*(_requests(text) if value else []), *offered]


def _requests(text: str) -> list[ParameterCompletion]:
    plan = _PLAN.fullmatch(text)
    if plan is None:
        return []
    from vlmtui.session.fan_out import parse_plan

    try:
        count = len(parse_plan(plan[1]).combinations)
    except VlmtuiError:
        return []
    return [ParameterCompletion(f"{count} requests", "Enter sends them at once.", text)] if count else []


def path_at(text: str, cursor: int) -> Span | None:
    """Return the `@path` around or before the cursor (an offset), or None.

    An `@` counts only at the start and after white space, so not in `me@example.org`. After `@"` the path may contain
    spaces, up to the closing quote or the end of the line.
    """
    for match in _WORD.finditer(text, text.rfind("\n", 0, cursor) + 1):
        if match.start() >= cursor:
            return None
        is_quoted = match[1] is not None
        begin = match.start() + (2 if is_quoted else 1)
        if begin <= cursor <= match.end():
            is_closed = is_quoted and text[match.end() : match.end() + 1] == '"'
            end = match.end() + 1 if is_closed else cursor if is_quoted else match.end()
            return Span(match.start(), end, text[begin:cursor])
    return None


def complete(fragment: str, base: Path, *, limit: int = 50, look_s: float = LOOK_S) -> list[PathCompletion]:
    """Return folders and media files that complete `fragment`, best first. Blocking; never raises.

    A relative path starts at `base`. Names that begin with the path's last component come first, then names that
    contain it. Hidden files are included only if that component begins with a dot.
    """
    if fragment == "~":
        fragment = "~/"
    head, slash, wanted = fragment.rpartition("/")
    try:
        folder = base / os.path.expanduser(head + slash)  # noqa: PTH111  (Path.expanduser raises for an unknown user)
        matches = _matches(folder, wanted)
    except (OSError, ValueError, RuntimeError):
        return []
    found: list[PathCompletion] = []
    until = time.monotonic() + look_s
    for _, name, is_folder in matches:
        path = folder / name
        if is_folder:
            found.append(PathCompletion(path, True, f"{head}{slash}{name}/"))
        elif looks_like_media(path):
            with suppress(OSError):
                found.append(PathCompletion(path, False, head + slash + name, path.stat().st_size))
        if len(found) >= limit or time.monotonic() > until:
            break
    return found


def _matches(folder: Path, wanted: str) -> list[tuple[object, str, bool]]:
    """Return matching names in `folder`, with whether they are folders, best first. Files may be of any type."""
    found: list[tuple[tuple[int, bool, object], str, bool]] = []
    with os.scandir(folder) as items:
        for item in islice(items, FOLDER_MAX):
            if item.name.startswith(".") and not wanted.startswith("."):
                continue
            rank = _rank(item.name.casefold(), wanted.casefold())
            if rank is not None:
                is_folder = _is_folder(item)
                # A folder's name goes into the text, which takes no control characters.
                if is_folder and one_line(item.name) != item.name:
                    continue
                found.append(((rank, not is_folder, natural(item.name)), item.name, is_folder))
    if wanted == "..":
        found.append(((0, False, natural("..")), "..", True))
    return [(key, name, is_folder) for key, name, is_folder in sorted(found, key=lambda one: one[0])]


def _is_folder(item: os.DirEntry[str]) -> bool:
    try:
        return item.is_dir()
    except OSError:
        return False


def _rank(name: str, wanted: str) -> int | None:
    """Return how well a name matches the typed text (a lower number is better); None if it does not match."""
    if name.startswith(wanted):
        return 0
    return 1 if wanted in name else None


def matching_actions(text: str) -> list[Action]:
    """Return the actions whose slash command starts with `text`; empty unless it is one word after a slash."""
    if not text.startswith("/") or text.startswith("//") or any(char.isspace() for char in text):
        return []
    return [action for action in ACTIONS.values() if action.slash.startswith(text)]


Completion = Action | PathCompletion | ParameterCompletion


class SuggestionMenu(OptionList):
    """A menu of commands, parameters or paths above the composer. Hidden while empty; never takes the focus."""

    can_focus = False
    DEFAULT_CSS = """
    SuggestionMenu {
        display: none;
        height: auto;
        max-height: 8;
        margin: 0 2;
        border: none;
        background: $panel;
        padding: 0;
        scrollbar-size-vertical: 1;
        text-wrap: nowrap;
        text-overflow: ellipsis;
        & > .option-list--option { padding: 0 1; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="menu", markup=False)
        self.offered: Sequence[Completion] = ()
        """What the menu shows, in order."""

    def show_commands(self, actions: Sequence[Action]) -> None:
        """Show commands; hide the menu if there are none."""
        lines = [
            Content.assemble((f"{action.usage:{_COMMAND}}", "bold"), (action.help, "$muted")) for action in actions
        ]
        self._show(actions, lines)

    def show_parameters(self, found: Sequence[ParameterCompletion]) -> None:
        """Show parameters or values; hide the menu if there are none."""
        self._show(found, [Content.assemble((f"{one.shown:{_NAME}} ", "bold"), (one.help, "$muted")) for one in found])

    def show_paths(self, candidates: Sequence[PathCompletion]) -> None:
        """Show paths; hide the menu if there are none."""
        names = [Content(one_line(candidate.name)) for candidate in candidates]
        longest = max((name.cell_length for name in names), default=0)
        width = max(_NAME_MIN, min(_NAME_MAX, longest))
        lines = []
        for name, candidate in zip(names, candidates, strict=True):
            cell = name.truncate(width, ellipsis=True)
            cell = cell.pad_right(width - cell.cell_length)
            size = "" if candidate.is_folder else human_bytes(candidate.size)
            style = "bold $text-accent" if candidate.is_folder else "bold"
            lines.append(Content.assemble(cell.stylize(style), (f"  {size:>8}", "$muted")))
        self._show(candidates, lines)

    def _show(self, offered: Sequence[Completion], lines: Sequence[Content]) -> None:
        self.offered = offered
        self.clear_options()
        self.add_options(lines)
        self.highlighted = 0 if lines else None
        self.display = bool(lines)

    @property
    def chosen(self) -> Completion | None:
        """The highlighted command, parameter, file or folder."""
        return None if self.highlighted is None else self.offered[self.highlighted]


class PathOffer(Static):
    """Asks above the composer whether to attach the files that a message names. Never takes the focus."""

    can_focus = False
    DEFAULT_CSS = """
    PathOffer {
        display: none;
        height: auto;
        margin: 1 2 0 2;
        padding: 0 1;
        border-left: outer $warning;
        background: $panel;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    """

    def __init__(self) -> None:
        super().__init__(id="path-offer", markup=False)
        self.mentions: list[Mention] = []
        self._words = ""
        """The draft's text without attachment tokens, when the question was asked."""
        self._outside: list[int] = []
        """The offset in the draft's whole text of each character of `_words`."""
        self._as_text: str | None = None
        """The text for which the user chose to send paths as text."""

    @property
    def is_open(self) -> bool:
        return bool(self.mentions)

    def is_due(self, text: str) -> bool:
        """Return True if `text` may name files and the user has not chosen to leave this text as it is."""
        return text != self._as_text and may_name_files(text)

    def asks_about(self, draft: Draft) -> bool:
        """Return True while the question is open and the draft's words are unchanged; its attachments may have
        changed."""
        return self.is_open and draft.words == self._words

    def mentions_in(self, draft: Draft) -> list[Mention]:
        """Return the files that were found, with their offsets in the draft's current text."""
        now = dict(zip(self._outside, draft.outside, strict=True))
        return [msgspec.structs.replace(one, start=now[one.start], end=now[one.end - 1] + 1) for one in self.mentions]

    def leave_as_text(self, text: str) -> None:
        """Do not offer to attach the files in this text again."""
        self._as_text = text

    async def find(self, text: str) -> list[Mention]:
        """Return the files that a text names, looked up in a thread. Raises TimeoutError if that takes too long."""
        return await asyncio.wait_for(asyncio.to_thread(find_mentions, text, Path.cwd()), _LOOK_S)

    def ask(self, mentions: Sequence[Mention], draft: Draft | None = None) -> None:
        """Ask whether to attach the files found in the draft, and show the keys for it. If no files were found, hide
        the question."""
        self.mentions = list(mentions)
        self._words, self._outside = (draft.words, draft.outside) if draft else ("", [])
        self.display = self.is_open
        if self.is_open:
            self.update(offer_content(self.mentions))


def offer_content(mentions: Sequence[Mention]) -> Content:
    """Return the lines of the question."""
    shown = mentions if len(mentions) == _SHOWN + 1 else mentions[:_SHOWN]
    lines = [_line(mention) for mention in shown]
    more = len(mentions) - len(lines)
    lines += [Content.styled(f"  … and {more} more", "$muted")] if more else []
    count = sum(len(mention.sources) for mention in mentions)
    does = {"Tab": f"Attach {f'{count} files' if count > 1 else 'it'}"} if count else {}
    does |= {"Enter": "Send as text", "Esc": "Edit"}
    keys = [Content.assemble((key, "bold $text-accent"), f" {what}") for key, what in does.items()]
    asked = Content.assemble(("Not attached. ", "bold"), Content(" · ").join(keys))
    return Content("\n").join([*lines, asked])


def _line(mention: Mention) -> Content:
    name = one_line(mention.name)
    name = name if len(name) <= _MENTION_MAX else f"…{name[1 - _MENTION_MAX :]}"
    sign, style = ("▣", "$text-accent") if mention.sources else ("✗", "$text-error")
    return Content.assemble((f"{sign} ", style), (name, "bold"), (f"  {_about(mention)}", "$muted"))


def _about(mention: Mention) -> str:
    match mention.kind:
        case MentionKind.MEDIA:
            return f"{mention.title} · {human_bytes(mention.size)}"
        case MentionKind.FOLDER:
            count = len(mention.sources)
            return f"a folder with {count} image{'s' * (count != 1)} or video{'s' * (count != 1)}"
        case MentionKind.WEB:
            return "a web address, not opened unless you attach it"
        case MentionKind.OTHER:
            return f"{mention.title}: not an image, video or sound"
        case MentionKind.MISSING:
            return "no such file"
        case MentionKind.UNREADABLE:
            return f"can't be read{f': {one_line(mention.title)}' if mention.title else ''}"
