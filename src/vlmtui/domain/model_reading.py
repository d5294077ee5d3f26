"""Messages to and from the process that reads a model's files: templates to render, tokenizer facts, prompts. Also
converts vocabulary entries to bytes."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from vlmtui.domain.conversation import Attachment
from vlmtui.domain.generation import MediaSpan
from vlmtui.domain.template import Scalar

Form: TypeAlias = Literal["parts", "mixed", "text"]
"""The form in which a template gets messages. `parts`: every content is a list of parts; `mixed`: only those with
media; `text`: every content is a string with placeholders."""
FORMS: tuple[Form, ...] = ("parts", "mixed", "text")


class TemplateTrouble(StrEnum):
    """Why a template gave no text."""

    SYNTAX = "syntax"
    """The template does not parse."""
    SANDBOX = "sandbox"
    """The template does something that the sandbox of Transformers and vLLM forbids."""
    REFUSED = "refused"
    """The template called `raise_exception`."""
    FAILED = "failed"
    """The template raised any other error."""
    ENDLESS = "endless"
    """The template did not end in time."""
    TOO_BIG = "too_big"
    """The template's text or memory grew beyond the limit."""


LIMITS: dict[TemplateTrouble, str] = {
    TemplateTrouble.ENDLESS: "The template was stopped after 3 seconds of processor time.",
    TemplateTrouble.TOO_BIG: "The template writes more than 2 MB, or takes more memory than its limit.",
}
"""Error messages for a template that exceeded a limit."""


class ReadTrouble(StrEnum):
    """Why a model's tokenizer could not be read."""

    NONE = "none"
    """The folder has no tokenizer."""
    BROKEN = "broken"
    NEEDS_CODE = "needs_code"
    """The tokenizer needs the repository's own code, which was not allowed."""
    ENDLESS = "endless"
    TOO_BIG = "too_big"


class RenderCase(msgspec.Struct, frozen=True):
    """A conversation to render. `messages`: its messages in each form that a template may need."""

    name: str
    messages: dict[Form, tuple[dict[str, object], ...]]


class PromptCase(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt to build as an engine would: text, tokens and processed attachments."""

    name: str
    text: str = ""
    """The prompt's text with placeholders, if there are no messages."""
    messages: RenderCase | None = None
    """Messages to render with a chat template instead of `text`."""
    chat_template: str | None = None
    """Jinja source to use instead of the model's own template."""
    fallback_template: str | None = None
    """Jinja source to use if the model has no template."""
    attachments: tuple[Attachment, ...] = ()
    """The attachments, in the order of their placeholders."""
    adds_special: bool = False
    """True if the tokenizer may add BOS. vLLM allows that for raw prompts only."""
    processor_arguments: dict[str, object] = {}
    """The processor's arguments, by name (`min_pixels`)."""
    variables: dict[str, object] = {}
    """The chat template's variables, by name (`enable_thinking`)."""


class ReadRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to read a model's files, and to render templates and prompts."""

    folder: str = ""
    """The model's folder; empty: only `templates`."""
    tokenizer: bool = True
    """False: read only the templates in the folder, which needs no engine."""
    trust_remote_code: bool = False
    templates: dict[str, str] = {}
    """Templates besides the model's own, by name."""
    cases: tuple[RenderCase, ...] = ()
    varies: bool = False
    """Also render the cases with each value of each variable that the first template reads."""
    prompts: tuple[PromptCase, ...] = ()


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """The text of one conversation, or the reason why there is none."""

    text: str = ""
    lines: tuple[tuple[int, int], ...] = ()
    """(offset in `text`, line of the template that wrote the text from this offset on), ascending."""
    trouble: TemplateTrouble | None = None
    message: str = ""
    """The error's text. Hostile."""
    line: int | None = None
    """The line of the template where it failed."""

    def line_at(self, offset: int) -> int | None:
        """Return the line of the template that wrote the character at `offset` of the prompt."""
        found = None
        for start, line in self.lines:
            if start > offset:
                break
            found = line
        return found


class TemplateReading(msgspec.Struct, frozen=True, kw_only=True):
    """A template, and every conversation rendered with it."""

    name: str
    """The file it comes from (`tokenizer_config.json`), or the name it was given."""
    source: str
    variables: dict[str, tuple[Scalar, ...]] | None = None
    """The variables that it reads, each with the values that it compares it with. None: unknown."""
    reads_parts: bool = False
    """True if it loops over the parts of a message's content; otherwise vLLM gives it strings."""
    texts: tuple[str, ...] = ()
    """The texts of its source that it may write."""
    given: dict[str, Scalar] = {}
    """The variables that were set for the renderings."""
    trouble: TemplateTrouble | None = None
    """Why the template could not be compiled, or why rendering was given up."""
    message: str = ""
    line: int | None = None
    renderings: dict[str, Rendering] = {}
    """The renderings, by `rendering_key`."""


class TokenizerReading(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a tokenizer that prompts depend on."""

    name: str
    """The tokenizer's class."""
    bos: str | None = None
    eos: str | None = None
    adds_bos: bool = False
    """True if the tokenizer puts BOS before a plain text."""
    special: tuple[str, ...] = ()
    """Texts of the tokens that the tokenizer treats as special."""
    stops: tuple[str, ...] = ()
    """Texts of the tokens that end an answer: its EOS token, and those of generation_config.json and config.json."""
    known: dict[str, bool] = {}
    """Texts in renderings that look like special tokens; True if the text is a single token."""


class PromptReading(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt as the model's own tokenizer and processor make it."""

    text: str = ""
    """The prompt's text, placeholders not expanded."""
    token_ids: tuple[int, ...] = ()
    """The prompt's tokens, placeholders expanded."""
    media: tuple[MediaSpan, ...] = ()
    """Where each attachment's tokens are, in the order of the attachments."""
    problem: str = ""
    """Why the prompt, or the data about its attachments, is missing; empty: nothing is missing. Hostile."""


class ModelReading(msgspec.Struct, frozen=True, kw_only=True):
    """The result of reading a model's files."""

    templates: tuple[TemplateReading, ...] = ()
    """The chat templates, in the order in which vLLM looks for one."""
    tokenizer: TokenizerReading | None = None
    trouble: ReadTrouble | None = None
    """Why there is no tokenizer."""
    message: str = ""
    varied: tuple[TemplateReading, ...] = ()
    """The first template with each value of each of its variables, if `ReadRequest.varies` is set."""
    prompts: dict[str, PromptReading] = {}
    """The prompts, by the name of their case."""


def rendering_key(case: str, form: Form, *, generation_prompt: bool) -> str:
    """Return the key in `TemplateReading.renderings` for a conversation (`case`) in one form."""
    return f"{case}/{form}/{'prompt' if generation_prompt else 'history'}"


_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def bytes_of_entry(entry: str) -> bytes | None:
    """Return the bytes of a vocabulary entry of byte-level BPE (`âĤ`) or of a byte fallback (`<0xE2>`), else None."""
    if match := _BYTE.fullmatch(entry):
        return bytes([int(match[1], 16)])
    values = [_BYTE_OF.get(char) for char in entry]
    return bytes(value for value in values if value is not None) if values and None not in values else None


def is_text(data: bytes) -> bool:
    """Return True if the bytes are valid UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's mapping of bytes to characters: printable bytes map to themselves, the others to U+0100 and above."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + number): byte for number, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
