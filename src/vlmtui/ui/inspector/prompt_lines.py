"""What the inspector's tabs show: the prompt's text, the template and the request as lines, and the table of tokens."""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec
from textual import on
from textual.content import Content

from vlmtui.domain.conversation import ChatPrompt, MessagesPrompt, RawPrompt
from vlmtui.domain.engine import EngineInfo
from vlmtui.domain.generation import GenerateRequest, Vocabulary, usage_of
from vlmtui.domain.sampling import PARAMETERS, Parameter, Sampling
from vlmtui.inspection.prompt_turns import LOOKS_SPECIAL, Run, folds, special_pattern, text_runs
from vlmtui.inspection.tokens import Kind, Piece, attachment_of
from vlmtui.session.prompt_report import PromptReport
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.widgets.row_list import RowList

SPECIAL_STYLE = "bold $secondary"
MEDIA_STYLE = "bold $accent on $panel"
BREAK_STYLE = "$faint"
_REPEATED = 4
"""Repetitions of a special token that probably are an image, in prompts whose tokens are unknown."""
_LABEL = 20
_INDENT = "  "
_INDEX, _ID, _KIND = 15, 9, 8
_BREAKS = {"\n": "↵", "\t": "⇥", " ": "·"}
_KINDS = {"text": "", "special": "special", "media": "image"}
HEADING = f" {'index':>{_INDEX}} {'id':>{_ID}}  {'kind':<{_KIND}}text"


def styled_prompt(inspected: PromptReport) -> list[Run]:
    """Split the prompt's text into runs: text, special tokens, and one label for each image.

    The text can't be made by joining single tokens: some tokenizers drop a space before a single token.
    """
    text, position, found = inspected.text, 0, list[Run]()
    pattern = _pattern(inspected)
    for start, end, label in _media(inspected):
        found += _plain(text[position:start], pattern)
        found.append(Run(label, "media"))
        position = end
    found += _plain(text[position:], pattern)
    return found


def prompt_lines(inspected: PromptReport) -> list[Content]:
    styles = {"text": "", "special": SPECIAL_STYLE, "media": MEDIA_STYLE}
    lines: list[list[tuple[str, str]]] = [[]]
    for run in styled_prompt(inspected):
        if run.style == "media":
            lines[-1].append((f" {one_line(run.text)} ", MEDIA_STYLE))
            continue
        first, *others = run.text.split("\n")
        lines[-1].append((one_line(first), styles[run.style]))
        for other in others:
            lines.append([(one_line(other), styles[run.style])])
    return [Content.assemble(*line) for line in lines]


def template_lines(source: str) -> list[Content]:
    """Return a template's lines with Jinja's syntax highlighted."""
    if not source:
        return []
    from textual.highlight import highlight

    shown = "\n".join(one_line(line) for line in source.split("\n"))
    return highlight(shown, language="jinja").split("\n", allow_blank=True)


def request_lines(inspected: PromptReport) -> list[Content]:
    """Return the request's known settings under headings."""
    lines: list[Content] = []
    for heading, rows in _sections(inspected):
        told = [(name, value) for name, value in rows if value]
        if told:
            lines += [Content("")] if lines else []
            lines.append(Content.styled(heading, "bold $accent"))
            lines += [
                Content.assemble((_INDENT + name.ljust(_LABEL), "$muted"), one_line(value)) for name, value in told
            ]
    return lines


def _pattern(inspected: PromptReport) -> re.Pattern[str]:
    known = {token.text for token in inspected.vocabulary.values() if token.special}
    known.update(inspected.info.special_tokens if inspected.info else ())
    return special_pattern(known) or LOOKS_SPECIAL


def _media(inspected: PromptReport) -> Iterator[tuple[int, int, str]]:
    """Yield for each image or video where its tokens start and end in the text, and the label to show instead of
    them."""
    prompt = inspected.prompt
    if prompt is None:
        return
    for fold in folds(prompt):
        ids = prompt.token_ids[fold.span.offset : fold.span.offset + fold.span.length]
        token = inspected.vocabulary[max(set(ids), key=ids.count)].text
        item = attachment_of(fold.span, inspected.attachments)
        name = item.name if item else f"{fold.span.modality} {fold.span.index + 1}"
        yield fold.start, fold.end, f"{token} × {fold.span.tokens:,} from {name}"


def _plain(text: str, pattern: re.Pattern[str]) -> Iterator[Run]:
    """Split text into special tokens and other text. The same special token four or more times in a row becomes one
    label."""
    for run, same in groupby(text_runs(text, pattern)):
        count = len(list(same))
        if run.style == "special" and count >= _REPEATED:
            yield Run(f"{run.text} × {count:,}", "media")
        else:
            yield from [run] * count


def _sections(inspected: PromptReport) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    info, request, recipe = inspected.info, inspected.request, inspected.recipe
    yield "Model", _model(inspected)
    yield "Prompt", _prompt(inspected)
    yield "Stops at", _stop_settings(inspected.sampling, inspected.used, info)
    if inspected.used is not None:
        yield "Sampling, as the engine used it", _sampling_used(inspected.used, inspected.sampling, request)
    else:
        yield "Sampling, as set (the engine's values are not recorded)", _sampling(inspected.sampling, request)
    if info is not None:
        yield "Engine", _engine(info)
    arguments = info.engine_args if info else recipe.engine_args if recipe else {}
    yield "Engine arguments", _pairs(arguments)


def _model(inspected: PromptReport) -> list[tuple[str, str]]:
    info, recipe = inspected.info, inspected.recipe
    if info is None:
        if recipe is None:
            return []
        return [
            ("model", recipe.model),
            ("revision", recipe.revision or "unknown"),
            ("family", recipe.family or ""),
            (recipe.engine or "engine", recipe.engine_version or ("unknown version" if recipe.engine else "")),
        ]
    loras = [f"{one.name} (id {one.id}, {one.path})" for one in info.spec.loras]
    return [
        ("model", info.spec.model),
        ("called", info.spec.name if info.spec.name != info.spec.model else ""),
        ("revision", info.revision or info.spec.revision or "unknown"),
        ("family", info.spec.family or ""),
        ("architecture", info.architecture),
        ("LoRA", ", ".join(loras) or "none"),
        (info.engine, info.engine_version or "unknown version"),
    ]


def _prompt(inspected: PromptReport) -> list[tuple[str, str]]:
    prompt, info, request = inspected.prompt, inspected.info, inspected.request
    bos = ""
    if info is not None and info.bos_token:
        bos = f"{info.bos_token}" + (" (added to a raw prompt by the tokenizer)" if info.adds_bos else "")
    rows = [("made by", _made_by(request) if request else inspected.recipe.mode if inspected.recipe else "")]
    if prompt is not None and prompt.token_ids:
        rows.append(("tokens", f"{len(prompt.token_ids):,}"))
        rows.append(("of media", usage_of(prompt).media_text))
    return [*rows, ("BOS token", bos), ("request", request.request_id if request else "")]


def _made_by(request: GenerateRequest) -> str:
    match request.prompt:
        case ChatPrompt(chat_template=template):
            return "the registry's chat template" if template else "the model's chat template"
        case RawPrompt():
            return "a raw prompt"
        case MessagesPrompt(by=by):
            return f"a raw prompt, written by the {by}'s template"


def _stop_settings(sampling: Sampling | None, used: Sampling | None, info: EngineInfo | None) -> list[tuple[str, str]]:
    own = " ".join(info.stop_tokens) if info else ""
    if sampling is None:
        return [("model's stop tokens", own)]
    return [
        ("model's stop tokens", own),
        ("sent stop tokens", " ".join(sampling.stop_tokens)),
        ("sent stop token ids", " ".join(map(str, sampling.stop_token_ids))),
        ("stop strings", " ".join(repr(text) for text in sampling.stop)),
        ("max tokens", _most_tokens(sampling, used)),
    ]


def _most_tokens(sampling: Sampling, used: Sampling | None) -> str:
    if sampling.max_tokens is not None:
        return f"{sampling.max_tokens:,}"
    room = "what the context holds"
    return room if used is None or used.max_tokens is None else f"{used.max_tokens:,} ({room})"


def _sampling_used(used: Sampling, sent: Sampling | None, request: GenerateRequest | None) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, parameter in PARAMETERS.items():
        value = used.numbers().get(name)
        if name == "max_tokens" or value is None:
            continue
        is_open = sent is not None and sent.numbers().get(name) is None
        opened = "" if not is_open else " (drawn)" if name == "seed" else " (model default)"
        rows.append((parameter.label, _value_of(parameter, used) + opened))
    if used.is_greedy:
        rows.append(("seed", "none: greedy"))
    return [*rows, *_pairs(used.extra), *_other_settings(used, request)]


def _sampling(sampling: Sampling | None, request: GenerateRequest | None) -> list[tuple[str, str]]:
    if sampling is None:
        return []
    return [
        *((each.label, _value_of(each, sampling)) for name, each in PARAMETERS.items() if name != "max_tokens"),
        *_pairs(sampling.extra),
        *_other_settings(sampling, request),
    ]


def _other_settings(sampling: Sampling, request: GenerateRequest | None) -> list[tuple[str, str]]:
    return [
        ("special tokens", "left out of the answer" if sampling.skip_special_tokens else "kept in the answer"),
        ("logprobs", str(request.logprobs) if request and request.logprobs is not None else ""),
    ]


def _engine(info: EngineInfo) -> list[tuple[str, str]]:
    limits = ", ".join(f"{count} {modality}{'s' if count != 1 else ''}" for modality, count in info.limits.items())
    return [
        ("device", info.device),
        ("dtype", info.dtype),
        ("context", f"{info.max_model_len:,} tokens" if info.max_model_len else "unknown"),
        ("takes at most", limits),
        ("frames a video", str(info.spec.num_frames) if "video" in info.limits else ""),
        ("loaded in", f"{info.load_s:.1f} s"),
    ]


def _pairs(values: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else msgspec.json.encode(value).decode())
            for name, value in sorted(values.items())]  # fmt: skip


def _value_of(parameter: Parameter, sampling: Sampling) -> str:
    value = sampling.numbers().get(parameter.name)
    if value is None:
        return parameter.unset
    greedy = " (greedy)" if parameter.name == "temperature" and value == 0 else ""
    return parameter.format(value) + greedy


class TokenRow(msgspec.Struct, frozen=True):
    """A row of the table of tokens: a token, or all tokens of an image. Its texts are hostile (see `vlmtui.text`)."""

    first: int
    """Index of the token in the prompt."""
    last: int
    """Index of the last token; differs from `first` only for an image."""
    id: int
    kind: Kind
    text: str
    label: str = ""
    is_head: bool = False
    """True for the row of an image, which can be unfolded into its tokens."""
    is_open: bool = False
    is_inner: bool = False
    """True for the row of one token of an image."""


class TokenRows(Sequence[TokenRow]):
    """The rows of the table, made when they are needed: a prompt may have a hundred thousand tokens."""

    def __init__(self, pieces: Sequence[Piece] = (), vocabulary: Vocabulary | None = None) -> None:
        self._pieces = pieces
        self._vocabulary = vocabulary or {}
        self._open: list[int] = []
        """Sorted indices of the pieces whose images are unfolded."""

    def __len__(self) -> int:
        return len(self._pieces) + sum(len(self._pieces[number].ids) for number in self._open)

    def __getitem__(self, row: int) -> TokenRow:  # type: ignore[override]
        if not 0 <= row < len(self):
            raise IndexError(row)
        number, inner = self._place(row)
        piece = self._pieces[number]
        if inner is not None:
            token = piece.ids[inner]
            known = self._vocabulary.get(token)
            at = piece.offset + inner
            return TokenRow(at, at, token, "media", known.text if known else piece.text, is_inner=True)
        is_head = piece.kind == "media"
        return TokenRow(
            piece.offset, piece.end - 1, piece.ids[0], piece.kind, piece.text, piece.label, is_head,
            is_open=number in self._open,
        )  # fmt: skip

    def toggle(self, row: int) -> int:
        """Unfold or fold the image to which a row belongs. Return the index of the image's own row; for a row of text,
        `row`."""
        number, inner = self._place(row)
        if self._pieces[number].kind != "media":
            return row
        if number in self._open:
            self._open.remove(number)
        else:
            insort(self._open, number)
        return row if inner is None else row - inner - 1

    def _place(self, row: int) -> tuple[int, int | None]:
        """Return the index of the piece to which a row belongs. For a row that is one token of an image, also return
        that token's index in the image."""
        extra = 0
        for number in self._open:
            head, count = number + extra, len(self._pieces[number].ids)
            if row <= head:
                break
            if row <= head + count:
                return number, row - head - 1
            extra += count
        return row - extra, None


class TokenTable(RowList[TokenRow]):
    """The table of a prompt's tokens. An image's tokens are one row, which can be unfolded."""

    BINDINGS = bindings("token_table")

    def draw(self, index: int, width: int) -> list[Content]:
        return [_content(self.rows[index])]

    @on(RowList.Opened)
    def action_unfold(self) -> None:
        if isinstance(self.rows, TokenRows) and len(self.rows):
            self.show(self.rows, highlight=self.rows.toggle(self.highlighted))


def _content(row: TokenRow) -> Content:
    index = f"{row.first:,}" if row.first == row.last else f"{row.first:,}–{row.last:,}"
    mark = (" ▾" if row.is_open else " ▸") if row.is_head else ""
    style = {"text": "", "special": SPECIAL_STYLE, "media": MEDIA_STYLE if row.is_head else "$muted"}[row.kind]
    text = row.label if row.is_head else token_label(row.text)
    label = () if row.is_head or not row.label else (f"  {one_line(row.label)}", "$muted")
    return Content.assemble(
        (f"{index + mark:>{_INDEX}} ", "$muted"),
        f"{row.id:>{_ID}}  ",
        (f"{'' if row.is_inner else _KINDS[row.kind]:<{_KIND}}", "$muted"),
        (one_line(text), style),
        *([label] if label else []),
    )


def token_label(text: str) -> str:
    """Return a token's text, which may be hostile (see `vlmtui.text`), on one line. Line breaks, tabs, and spaces at
    its ends are made visible."""
    edges = len(text) - len(text.lstrip(" ")), len(text.rstrip(" "))
    return "".join(
        "·" if char == " " and not edges[0] <= at < edges[1] else _BREAKS.get(char, char) if char != " " else char
        for at, char in enumerate(text)
    )
