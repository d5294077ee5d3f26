"""`python -m vlmtui.worker.model_reader`: reads a ReadRequest as JSON from stdin, writes a ModelReading to stdout.

The process reads a model's tokenizer and renders its chat templates as Transformers does, with limits and without
network. All other output, also that of the model's own code, goes to stderr.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
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
    ModelReading,
    PromptCase,
    PromptReading,
    ReadRequest,
    ReadTrouble,
    RenderCase,
    Rendering,
    TemplateReading,
    TemplateTrouble,
    TokenizerReading,
    rendering_key,
)
from vlmtui.errors import VlmtuiError, causes_of
from vlmtui.inspection.lint.subject import TOKEN
from vlmtui.inspection.raw_prompt_check import special_looking
from vlmtui.processes import limit_process
from vlmtui.reading import is_file, read_json, read_object, read_whole, stand_in
from vlmtui.worker.hf.media_items import load_item
from vlmtui.worker.hf.prompt_inputs import PromptBuilder, PromptInputs
from vlmtui.worker.hf.template_variables import read_variables, reads_parts, written_texts
from vlmtui.worker.template_process import Refusal, forbid_network, template_environment


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


_BYTES_MAX = 10_000_000
_FILES = ("tokenizer_config.json", "tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json", "vocab.txt")
_SPECIAL_MAX = 20_000


def read_tokenizer(tokenizer: Any, folder: Path, texts: Iterable[str]) -> TokenizerReading:
    """Return the facts about a tokenizer.

    `texts`: rendered prompts. Everything in them that looks like a special token is checked: `TokenizerReading.known`
    says whether it is a single token.
    """
    bos, eos = tokenizer.bos_token, tokenizer.eos_token
    plain = list(tokenizer("a").input_ids)
    looking = {found for text in texts for found in (*special_looking(text), *TOKEN.findall(text))}
    added = tokenizer.get_added_vocab()
    special = [str(token) for token in dict.fromkeys([*tokenizer.all_special_tokens, *added])]
    stops = dict.fromkeys([*([eos] if eos else []), *_stop_texts(tokenizer, folder)])
    return TokenizerReading(
        name=type(tokenizer).__name__,
        bos=bos,
        eos=eos,
        adds_bos=bos is not None and plain[:1] == [tokenizer.bos_token_id],
        special=tuple(special[:_SPECIAL_MAX]),
        stops=tuple(stops),
        known={text: len(tokenizer(text, add_special_tokens=False).input_ids) == 1 for text in sorted(looking)},
    )


def _stop_texts(tokenizer: Any, folder: Path) -> Iterator[str]:
    """Yield the texts of the EOS tokens in generation_config.json, config.json and its `text_config`."""
    config = _json(folder / "config.json")
    text_config = config.get("text_config")
    for found in (_json(folder / "generation_config.json"), config, text_config):
        ids = found.get("eos_token_id") if isinstance(found, dict) else None
        for number in ids if isinstance(ids, list) else [ids]:
            if isinstance(number, int) and (text := tokenizer.convert_ids_to_tokens(number)) is not None:
                yield str(text)


def _json(path: Path) -> dict[str, object]:
    return read_object(path, bytes_max=_BYTES_MAX)


LOAD_S = 90.0
"""The time limit in seconds for importing Transformers and loading a tokenizer."""
_MESSAGE_MAX = 2_000
_VARIED_MAX = 24
"""The most values of variables for which a template is rendered. Published templates have up to 12 such values."""
_CAUSES_MAX = 4


def read_model(request: ReadRequest, *, seconds: float = RENDER_S) -> ModelReading:
    """Read the model's files. An error of the tokenizer is in the result's `trouble` and `message`."""
    folder = Path(request.folder) if request.folder else None
    tokenizer: Any = None
    trouble: ReadTrouble | None = None
    message = ""
    if folder is not None and request.tokenizer:
        tokenizer, trouble, message = _loaded(folder, request.trust_remote_code)
    variables = dict(tokenizer.special_tokens_map) if tokenizer is not None else _named_tokens(folder)
    sources = [*request.templates.items(), *(templates_in(folder) if folder else ())]
    templates = [read_template(name, source, request.cases, variables, seconds=seconds) for name, source in sources]
    varied = tuple(_varied(templates[0], request, variables, seconds)) if request.varies and templates else ()
    if folder is None or tokenizer is None:
        return ModelReading(templates=tuple(templates), varied=varied, trouble=trouble, message=message[:_MESSAGE_MAX])
    maker = PromptMaker(folder, tokenizer, sources[0][1] if sources else None, request.trust_remote_code)
    return ModelReading(
        templates=tuple(templates),
        varied=varied,
        tokenizer=read_tokenizer(tokenizer, folder, _texts([*templates, *varied])),
        prompts={case.name: maker.make(case) for case in request.prompts},
    )


def _named_tokens(folder: Path | None) -> dict[str, object]:
    """Return the special tokens that tokenizer_config.json names, by the names of the template's variables."""
    named = _json(folder / "tokenizer_config.json") if folder is not None else {}
    texts = {name: one.get("content") if isinstance(one, dict) else one for name, one in named.items()}
    return {name: text for name, text in texts.items() if name.endswith("_token") and isinstance(text, str)}


def _varied(
    template: TemplateReading, request: ReadRequest, variables: Mapping[str, object], seconds: float
) -> Iterator[TemplateReading]:
    """Yield the template's renderings for each value of each of its variables. Only one variable is set at a time."""
    settings = ({name: value} for name, values in (template.variables or {}).items() for value in values)
    for given in islice(settings, _VARIED_MAX):
        all_set = {**variables, **given}
        reading = read_template(template.name, template.source, request.cases, all_set, seconds=seconds)
        yield msgspec.structs.replace(reading, given=given)


def _texts(templates: list[TemplateReading]) -> set[str]:
    return {one.text for template in templates for one in template.renderings.values() if one.trouble is None}


def _loaded(folder: Path, trusted: bool) -> tuple[Any, ReadTrouble | None, str]:
    """Load the tokenizer as vLLM does. Return it, or the reason why it cannot be loaded and the error's text."""
    if not any(is_file(folder / name) for name in _FILES):
        return None, ReadTrouble.NONE, ""
    own_code = _json(folder / "tokenizer_config.json").get("auto_map")
    if not trusted and isinstance(own_code, dict) and "AutoTokenizer" in own_code:
        return None, ReadTrouble.NEEDS_CODE, ""
    try:
        with time_limit(LOAD_S):
            from transformers import AutoTokenizer

            given = {"trust_remote_code": trusted, "local_files_only": True}
            return AutoTokenizer.from_pretrained(str(folder), **given), None, ""
    except OutOfTime:
        return None, ReadTrouble.ENDLESS, f"not loaded within {LOAD_S:g} s"
    except MemoryError:
        return None, ReadTrouble.TOO_BIG, ""
    except Exception as error:
        return None, ReadTrouble.BROKEN, _with_causes(error)


def _with_causes(error: BaseException) -> str:
    """Return the texts of an error and its causes. Transformers wraps the exceptions of a model's own code."""
    found = islice(causes_of(error), _CAUSES_MAX)
    return " ← ".join(f"{type(one).__name__}: {' '.join(str(one).split())}" for one in found)


DATA_BYTES = 6 * 2**30
"""The most memory that the process may allocate."""
CPU_S = 300
"""The most seconds of processor time for the process."""
FILE_BYTES = 64_000_000
"""The largest file that the process may write."""


def main() -> int:
    limit_process(memory_bytes=DATA_BYTES, cpu_s=CPU_S, file_bytes=FILE_BYTES)
    forbid_network()
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ReadRequest)
    with answer:
        answer.write(msgspec.json.encode(read_model(request)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
