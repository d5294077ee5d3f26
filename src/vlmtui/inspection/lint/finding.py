"""The findings of lint: their kinds, why each matters, and what to do about it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec


class LintKind(StrEnum):
    FILE_DAMAGED = "file_damaged"
    NO_TEMPLATE = "no_template"
    TEMPLATE_SYNTAX = "template_syntax"
    TEMPLATE_SANDBOX = "template_sandbox"
    TEMPLATE_FAILS = "template_fails"
    TEMPLATE_ENDLESS = "template_endless"
    TEMPLATE_TOO_BIG = "template_too_big"
    TEMPLATES_DISAGREE = "templates_disagree"
    NO_TOKENIZER = "no_tokenizer"
    TOKENIZER_BROKEN = "tokenizer_broken"
    CODE_NEEDED = "code_needed"
    BOS_MISSING = "bos_missing"
    BOS_DOUBLED = "bos_doubled"
    BOS_INSIDE = "bos_inside"
    PLACEHOLDER_MISSING = "placeholder_missing"
    PLACEHOLDER_SURPLUS = "placeholder_surplus"
    PLACEHOLDER_MOVED = "placeholder_moved"
    PLACEHOLDER_NUMBER = "placeholder_number"
    PLACEHOLDER_UNWRAPPED = "placeholder_unwrapped"
    TEXT_LOST = "text_lost"
    TEXT_CHANGED = "text_changed"
    TEXT_REPEATED = "text_repeated"
    TEXT_MOVED = "text_moved"
    SYSTEM_LOST = "system_lost"
    PYTHON_PRINTED = "python_printed"
    ROLES_ALIKE = "roles_alike"
    GENERATION_PROMPT_MISSING = "generation_prompt_missing"
    GENERATION_PROMPT_DOUBLED = "generation_prompt_doubled"
    GENERATION_PROMPT_ALWAYS = "generation_prompt_always"
    GENERATION_PROMPT_DIFFERS = "generation_prompt_differs"
    PREFILL_DIFFERS = "prefill_differs"
    TURN_NOT_CLOSED = "turn_not_closed"
    STOP_MISSING = "stop_missing"
    PREFIX_CHANGES = "prefix_changes"
    UNKNOWN_TOKEN = "unknown_token"
    WHITE_SPACE = "white_space"
    RECORD_DIFFERS = "record_differs"


class Advice(NamedTuple):
    why: str
    mend: str


_RECORD = "Correct the template's line, or the record (`vlmtui models new`)."
ADVICE: dict[LintKind, Advice] = {
    LintKind.FILE_DAMAGED: Advice(
        "No engine can read it.", "Run `git lfs pull` if it is a Git LFS pointer; otherwise download it again."
    ),
    LintKind.NO_TEMPLATE: Advice(
        "Chat mode and chat servers have nothing to write a prompt with.",
        "Download or write chat_template.jinja, or give a template: a record with `chat_template`, or vLLM's "
        "--chat-template.",
    ),
    LintKind.TEMPLATE_SYNTAX: Advice("No prompt can be written.", "Correct the line: Jinja can't parse it."),
    LintKind.TEMPLATE_SANDBOX: Advice(
        "Transformers and vLLM run templates in a sandbox that forbids this.",
        "Build a new value instead of changing one (`ns.list = ns.list + [x]`), and use no private attributes.",
    ),
    LintKind.TEMPLATE_FAILS: Advice("Such conversations can't be sent.", "Handle this form of message on that line."),
    LintKind.TEMPLATE_ENDLESS: Advice("A server would hang on one request.", "Bound the loop on that line."),
    LintKind.TEMPLATE_TOO_BIG: Advice("A server would run out of memory.", "Bound what that line writes or keeps."),
    LintKind.TEMPLATES_DISAGREE: Advice(
        "vLLM takes the processor's template, other tools the tokenizer's: they get different prompts.",
        "Keep one template, and delete or copy the other.",
    ),
    LintKind.NO_TOKENIZER: Advice(
        "No engine loads the model without one; its tokens were not checked.", "Download the tokenizer's files."
    ),
    LintKind.TOKENIZER_BROKEN: Advice("No engine can load the model.", "Download the tokenizer's files again."),
    LintKind.CODE_NEEDED: Advice(
        "The tokenizer is Python code of the repository; its tokens were not checked.",
        "Read the code, then allow it with --trust-remote-code.",
    ),
    LintKind.BOS_MISSING: Advice(
        "vLLM adds no BOS to a chat prompt; the model was trained with one.", "Write {{ bos_token }} first."
    ),
    LintKind.BOS_DOUBLED: Advice("A second BOS makes answers worse.", "Write {{ bos_token }} once."),
    LintKind.BOS_INSIDE: Advice(
        "A BOS in the middle starts a new text for the model.", "Write it before the first message only."
    ),
    LintKind.PLACEHOLDER_MISSING: Advice(
        "The engine rejects the prompt, or the model never sees the image.", "Write the placeholder for this part."
    ),
    LintKind.PLACEHOLDER_SURPLUS: Advice(
        "vLLM accepts it silently, and the model sees an empty image.", "Write one placeholder for each part."
    ),
    LintKind.PLACEHOLDER_MOVED: Advice(
        "The image is bound to another place of the conversation than it was given at.",
        "Write each part where it stands in the message.",
    ),
    LintKind.PLACEHOLDER_NUMBER: Advice(
        "A number without its image refers to nothing.", "Count the images over the whole conversation, from 1."
    ),
    LintKind.PLACEHOLDER_UNWRAPPED: Advice(
        "The model was trained with these tokens around an image.", "Write the tokens around the placeholder."
    ),
    LintKind.TEXT_LOST: Advice("The model never reads it.", "Write the text of every part and message."),
    LintKind.TEXT_CHANGED: Advice(
        "The model reads something else than was written.", "Write the text unchanged, without a filter."
    ),
    LintKind.TEXT_REPEATED: Advice("The model reads it twice.", "Write each text once."),
    LintKind.TEXT_MOVED: Advice("The model reads the conversation in another order.", "Write messages in order."),
    LintKind.SYSTEM_LOST: Advice(
        "The instruction has no effect, and nothing says so.", "Write the system message, or raise_exception."
    ),
    LintKind.PYTHON_PRINTED: Advice(
        "The model reads Python's notation of a value.", "Loop over the parts and write their text."
    ),
    LintKind.ROLES_ALIKE: Advice("The model can't tell question from answer.", "Write the role before each message."),
    LintKind.GENERATION_PROMPT_MISSING: Advice(
        "The model may continue the question instead of answering it.",
        "Write the beginning of an answer if add_generation_prompt is set.",
    ),
    LintKind.GENERATION_PROMPT_DOUBLED: Advice("The model sees an empty answer first.", "Write it once."),
    LintKind.GENERATION_PROMPT_ALWAYS: Advice(
        "A finished conversation ends with an empty answer, in training and when an answer is continued.",
        "Write it only if add_generation_prompt is set.",
    ),
    LintKind.GENERATION_PROMPT_DIFFERS: Advice(
        "New answers begin otherwise than those in the conversation, so caches miss and answers drift.",
        "Write the same text before an answer and as the generation prompt.",
    ),
    LintKind.PREFILL_DIFFERS: Advice(
        "A continued answer (continue_final_message) begins otherwise than the model's own answers.",
        "Write the last answer as the generation prompt, its text, and what closes a turn.",
    ),
    LintKind.TURN_NOT_CLOSED: Advice(
        "The model can't tell where an answer ended, and may never end its own.", "Write the end-of-turn token."
    ),
    LintKind.STOP_MISSING: Advice(
        "The engine doesn't stop there: the model goes on and writes the next turn itself.",
        "Add its id to eos_token_id in generation_config.json, or to stop_tokens of the record.",
    ),
    LintKind.PREFIX_CHANGES: Advice(
        "Earlier turns are written otherwise once more follow: the prefix cache misses, and answers may change.",
        "Write a message the same way whether or not others follow.",
    ),
    LintKind.UNKNOWN_TOKEN: Advice(
        "It is cut into pieces of ordinary text, which mean nothing to the model.",
        "Correct its spelling, or add the token to the tokenizer.",
    ),
    LintKind.WHITE_SPACE: Advice(
        "White space is tokens: models are trained with exactly one form.", "Correct the line; trim_blocks is on."
    ),
    LintKind.RECORD_DIFFERS: Advice("Chat mode and raw mode give the model different prompts.", _RECORD),
}


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of a model's template or tokenizer. Its texts may quote the template and are hostile: make them visible
    before showing them."""

    kind: LintKind
    message: str
    source: str = ""
    line: int | None = None
    """The line of the template, from 1."""
    conversation: str = ""
    """The title of a conversation that shows the fault."""
    token: str = ""
    """The faulty token or text."""
    excerpt: str = ""
    """The prompt's text around the fault."""

    @property
    def why(self) -> str:
        return ADVICE[self.kind].why

    @property
    def mend(self) -> str:
        return ADVICE[self.kind].mend

    @property
    def place(self) -> str:
        """The place of the fault: `tokenizer_config.json, line 3`."""
        return f"{self.source}, line {self.line}" if self.line is not None else self.source
