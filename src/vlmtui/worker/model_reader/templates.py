"""Finds a model's chat templates and renders conversations with them, as Transformers does, line by line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import jinja2
import jinja2.ext
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from vlmtui.domain.model_reading import FORMS, RenderCase, Rendering, TemplateReading, TemplateTrouble, rendering_key
from vlmtui.errors import VlmtuiError
from vlmtui.reading import is_file, read_json, read_whole
from vlmtui.worker.model_reader.limits import OutOfTime, time_limit

RENDER_S = 3.0
"""Seconds of processor time for one rendering; a normal one takes milliseconds."""
_TEXT_MAX = 2_000_000
_SOURCE_MAX = 5_000_000
_JSON_FILES = ("chat_template.json", "processor_config.json", "tokenizer_config.json")
"""Files with a field `chat_template`, the processor's first: vLLM prefers those."""
_HOPELESS = (TemplateTrouble.ENDLESS, TemplateTrouble.TOO_BIG)


class _Refusal(jinja2.TemplateError):
    """Raised by a template that calls `raise_exception`."""


class _Generation(jinja2.ext.Extension):
    """Reads `{% generation %}` blocks, with which templates mark answers for training."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


class _LineKeeper(CodeGenerator):
    """Notes the line of constant texts, too: Jinja notes only those of expressions."""

    def visit_Output(self, node: Any, frame: Any) -> None:
        self.newline(node)
        super().visit_Output(node, frame)


def templates_in(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, source) of the folder's default templates, in the order in which vLLM looks. Raises VlmtuiError for
    a damaged file."""
    own = folder / "chat_template.jinja"
    if is_file(own):
        yield own.name, read_whole(own, bytes_max=_SOURCE_MAX, may_be_empty=True).decode("utf-8", "replace")
    for name in _JSON_FILES:
        if not is_file(folder / name):
            continue
        found = read_json(folder / name, bytes_max=_SOURCE_MAX)
        value = found.get("chat_template") if isinstance(found, dict) else None
        if isinstance(value, list):
            named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
            value = named.get("default")
        if isinstance(value, str) and value:
            yield name, value


def read_template(
    name: str, source: str, cases: Sequence[RenderCase], variables: Mapping[str, object], *, seconds: float = RENDER_S
) -> TemplateReading:
    """Render every conversation in each form, with and without a generation prompt.

    Stops at the first rendering that exceeds its limits.
    """
    try:
        with time_limit(seconds, of_processor=True):
            template = _environment().from_string(source)
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
                    return TemplateReading(
                        name=name,
                        source=source,
                        trouble=rendering.trouble,
                        line=rendering.line,
                        message=case.name,
                        renderings=done,
                    )
    return TemplateReading(name=name, source=source, renderings=done)


def render_once(
    source: str, messages: Sequence[Mapping[str, object]], variables: Mapping[str, object], *, seconds: float = RENDER_S
) -> Rendering:
    """Render one conversation with a generation prompt."""
    case = RenderCase("", {form: tuple(dict(one) for one in messages) for form in FORMS})
    reading = read_template("", source, [case], variables, seconds=seconds)
    failed = Rendering(trouble=reading.trouble, message=reading.message, line=reading.line)
    return reading.renderings.get(rendering_key("", FORMS[0], generation_prompt=True), failed)


def _environment() -> ImmutableSandboxedEnvironment:
    """Return an environment like that of `transformers.utils.chat_template_utils` (5.19)."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    made.code_generator_class = _LineKeeper
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made


def _to_json(value: object, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _refuse(message: str) -> None:
    raise _Refusal(message)


def _rendered(template: jinja2.Template, given: Mapping[str, object], seconds: float) -> Rendering:
    """Render, and note which line of the template wrote what: each piece comes from a `yield` of the compiled code."""
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
    """Leave out pieces of the same line as the one before."""
    return tuple(one for at, one in enumerate(lines) if at == 0 or lines[at - 1][1] != one[1])


def _trouble(error: BaseException) -> TemplateTrouble:
    match error:
        case OutOfTime():
            return TemplateTrouble.ENDLESS
        case MemoryError() | RecursionError() | OverflowError():
            return TemplateTrouble.TOO_BIG
        case SecurityError():
            return TemplateTrouble.SANDBOX
        case _Refusal():
            return TemplateTrouble.REFUSED
        case _:
            return TemplateTrouble.FAILED


def _line_of(traceback: TracebackType | None, translate: Callable[[int], int]) -> int | None:
    """Return the innermost line of the template in a traceback."""
    found = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            found = translate(traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def readable_templates(folder: Path) -> list[tuple[str, str]]:
    """Return the folder's templates; those in damaged files are left out, as the tokenizer tells of them."""
    try:
        return list(templates_in(folder))
    except VlmtuiError:
        return []
