"""Render prompts as Transformers does: chat templates, with the line of the template for each piece of text, and the
model's processor."""

from __future__ import annotations

import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import jinja2
import msgspec
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from msgspec.structs import replace

from vlmtui.domain.model_reading import (
    FORMS,
    LIMITS,
    Form,
    PromptCase,
    PromptReading,
    RenderCase,
    Rendering,
    TemplateReading,
    TemplateTrouble,
    rendering_key,
)
from vlmtui.errors import VlmtuiError
from vlmtui.reading import is_file, read_json, read_whole, stand_in
from vlmtui.worker.hf.media_items import load_item
from vlmtui.worker.hf.prompt_inputs import PromptBuilder, PromptInputs
from vlmtui.worker.hf.template_variables import read_variables, reads_parts, written_texts
from vlmtui.worker.template_process import Refusal, template_environment


class OutOfTime(BaseException):
    """Raised when a time limit is over. `except Exception` in a model's code cannot catch it."""


@contextmanager
def time_limit(seconds: float, *, of_processor: bool = False) -> Iterator[None]:
    """Raise OutOfTime in the `with` block after `seconds`. Only in the main thread; not nested.

    `of_processor`: count CPU time instead of real time, so that other processes do not use up the limit. Only for code
    that never waits. A second later, the kernel ends the process: an operation on long numbers can't be interrupted.
    """

    def end(signum: int, frame: FrameType | None) -> None:
        raise OutOfTime

    sent, timer = (signal.SIGPROF, signal.ITIMER_PROF) if of_processor else (signal.SIGALRM, signal.ITIMER_REAL)
    before = signal.signal(sent, end)
    signal.setitimer(timer, seconds)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds + 1 if of_processor else 0)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(sent, before)


RENDER_S = 3.0
"""Seconds of processor time for one rendering, which normally takes milliseconds."""
_TEXT_MAX = 2_000_000
_SOURCE_MAX = 5_000_000
_JSON_FILES = ("chat_template.json", "processor_config.json", "tokenizer_config.json")
"""The files that may have a field `chat_template`. Those of the processor are first, as in vLLM."""
_HOPELESS = (TemplateTrouble.ENDLESS, TemplateTrouble.TOO_BIG)


class _LineKeeper(CodeGenerator):
    """Jinja's code generator, but it also records the line numbers of constant texts, not only those of expressions."""

    def visit_Output(self, node: Any, frame: Any) -> None:
        self.newline(node)
        super().visit_Output(node, frame)


def templates_in(folder: Path) -> list[tuple[str, str]]:
    """Return (file name, source) of the folder's default templates, in vLLM's order of preference. Leaves out damaged
    files."""
    found = []
    for name in ("chat_template.jinja", *_JSON_FILES):
        with suppress(VlmtuiError):
            if is_file(folder / name) and (source := _template_in(folder / name)):
                found.append((name, source))
    return found


def _template_in(path: Path) -> str | None:
    """Return the default template in a file. Raises VlmtuiError."""
    if path.suffix != ".json":
        data = read_whole(path, bytes_max=_SOURCE_MAX)
        return None if stand_in(data) else data.decode("utf-8", "replace")
    found = read_json(path, bytes_max=_SOURCE_MAX)
    value = found.get("chat_template") if isinstance(found, dict) else None
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default")
    return value if isinstance(value, str) else None


def read_template(
    name: str, source: str, cases: Sequence[RenderCase], variables: Mapping[str, object], *, seconds: float = RENDER_S
) -> TemplateReading:
    """Render every conversation in each form, with and without a generation prompt, in a child process. Stop at the
    first rendering that exceeds its limits.

    `variables`: the template's variables for special tokens, such as `bos_token`.
    """
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)

    def read() -> None:
        sender.send_bytes(msgspec.json.encode(_read_template(name, source, cases, variables, seconds)))

    child = fork.Process(target=read, daemon=True)
    child.start()
    sender.close()
    with receiver:
        try:
            return msgspec.json.decode(receiver.recv_bytes(), type=TemplateReading)
        except EOFError:
            child.join()
            trouble = TemplateTrouble.ENDLESS if child.exitcode == -signal.SIGVTALRM else TemplateTrouble.TOO_BIG
            return TemplateReading(name=name, source=source, trouble=trouble)


def _read_template(
    name: str, source: str, cases: Sequence[RenderCase], variables: Mapping[str, object], seconds: float
) -> TemplateReading:
    try:
        with time_limit(seconds, of_processor=True):
            environment = template_environment()
            environment.code_generator_class = _LineKeeper
            template = environment.from_string(source)
            read = TemplateReading(
                name=name,
                source=source,
                variables=read_variables(source),
                reads_parts=reads_parts(source),
                texts=written_texts(source),
            )
    except jinja2.TemplateSyntaxError as error:
        return TemplateReading(
            name=name,
            source=source,
            trouble=TemplateTrouble.SYNTAX,
            message=error.message or "",
            line=error.lineno,
        )
    except (OutOfTime, MemoryError, RecursionError) as error:
        trouble = _trouble(error)
        return TemplateReading(name=name, source=source, trouble=trouble, message=str(error))
    done: dict[str, Rendering] = {}
    for case in cases:
        for form in FORMS:
            for asks in (True, False):
                given = {**variables, "messages": case.messages[form], "add_generation_prompt": asks}
                rendering = _rendered(template, given, seconds)
                done[rendering_key(case.name, form, generation_prompt=asks)] = rendering
                if rendering.trouble in _HOPELESS:
                    trouble, line = rendering.trouble, rendering.line
                    return replace(read, trouble=trouble, line=line, message=case.name, renderings=done)
    return replace(read, renderings=done)


def render_once(source: str, messages: Sequence[Mapping[str, object]], variables: Mapping[str, object]) -> Rendering:
    """Render one conversation with a generation prompt."""
    case = RenderCase("", {form: tuple(dict(one) for one in messages) for form in FORMS})
    reading = read_template("", source, [case], variables)
    failed = Rendering(trouble=reading.trouble, message=reading.message, line=reading.line)
    return reading.renderings.get(rendering_key("", FORMS[0], generation_prompt=True), failed)


def _rendered(template: jinja2.Template, given: Mapping[str, object], seconds: float) -> Rendering:
    """Render a template, and record the template's line for each piece of the text. Each piece is a `yield` of the
    compiled template, whose line number is known."""
    pieces: list[str] = []
    lines: list[tuple[int, int]] = []
    length = 0
    copied = json.loads(json.dumps(given))
    try:
        with time_limit(seconds, of_processor=True):
            running: Any = template.root_render_func(template.new_context({**copied, "tools": None, "documents": None}))
            for piece in running:
                lines.append((length, template.get_corresponding_lineno(running.gi_frame.f_lineno)))
                pieces.append(piece)
                length += len(piece)
                if length > _TEXT_MAX:
                    raise MemoryError
    except (jinja2.TemplateError, ArithmeticError, TypeError, ValueError, LookupError, AttributeError,
            OutOfTime, MemoryError, RecursionError) as error:  # fmt: skip
        line = _line_of(error.__traceback__, template.get_corresponding_lineno) or (lines[-1][1] if lines else None)
        return Rendering(trouble=_trouble(error), message=str(error), line=line)
    return Rendering(text="".join(pieces), lines=_merged(lines))


def _merged(lines: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merge consecutive pieces of the same line."""
    return tuple(one for at, one in enumerate(lines) if at == 0 or lines[at - 1][1] != one[1])


def _trouble(error: BaseException) -> TemplateTrouble:
    match error:
        case OutOfTime():
            return TemplateTrouble.ENDLESS
        case MemoryError() | RecursionError() | OverflowError():
            return TemplateTrouble.TOO_BIG
        case SecurityError():
            return TemplateTrouble.SANDBOX
        case Refusal():
            return TemplateTrouble.REFUSED
        case _:
            return TemplateTrouble.FAILED


def _line_of(traceback: TracebackType | None, translate: Callable[[int], int]) -> int | None:
    """Return the template's line of the innermost template frame in a traceback."""
    found = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            found = translate(traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


_PROBLEM_MAX = 500


class PromptMaker:
    """Makes prompts as Transformers does. `template`: the model's own chat template."""

    def __init__(self, folder: Path, tokenizer: Any, template: str | None, trusted: bool) -> None:
        self._folder = folder
        self._tokenizer = tokenizer
        self._template = template
        self._trusted = trusted
        self._builder: PromptBuilder | None = None

    def make(self, case: PromptCase) -> PromptReading:
        """Make a prompt. An error is in the result's `problem`."""
        text, problem = self._text(case)
        if problem:
            return PromptReading(problem=problem)
        ids = tuple(self._tokenizer(text, add_special_tokens=case.adds_special).input_ids)
        if not case.attachments:
            return PromptReading(text=text, token_ids=ids)
        try:
            made = self._made(text, case)
        except Exception as error:
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"[:_PROBLEM_MAX]
            return PromptReading(text=text, token_ids=ids, problem=f"The processor fails: {problem}")
        return PromptReading(text=text, token_ids=made.ids, media=made.media)

    def _text(self, case: PromptCase) -> tuple[str, str]:
        """Return the prompt's text, and the reason if there is none."""
        if case.messages is None:
            return case.text, ""
        template = case.chat_template or self._template or case.fallback_template
        if template is None:
            return "", "The model has no chat template."
        form: Form = "parts" if reads_parts(template) else "text"
        variables = {**case.variables, **self._tokenizer.special_tokens_map}
        rendering = render_once(template, case.messages.messages[form], variables)
        if rendering.trouble is not None:
            said = rendering.message or rendering.trouble.value
            return "", LIMITS.get(rendering.trouble) or f"The chat template fails: {said}"
        return rendering.text, ""

    def _made(self, text: str, case: PromptCase) -> PromptInputs:
        """Return the output of the model's processor. Raises any exception of the processor."""
        if self._builder is None:
            from transformers import AutoConfig, AutoProcessor

            given = {"trust_remote_code": self._trusted, "local_files_only": True}
            processor = AutoProcessor.from_pretrained(str(self._folder), **given)
            config = AutoConfig.from_pretrained(str(self._folder), **given)
            self._builder = PromptBuilder(processor, self._tokenizer, config)
        items = [load_item(one) for one in case.attachments]
        return self._builder.build(text, items, special_tokens=case.adds_special, arguments=case.processor_arguments)
