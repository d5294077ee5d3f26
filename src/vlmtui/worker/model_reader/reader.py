"""Reads a model: its templates rendered, and its tokenizer's facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vlmtui.domain.model_reading import ModelReading, PromptReading, ReadRequest, ReadTrouble, TemplateReading
from vlmtui.worker.model_reader.limits import OutOfTime, time_limit
from vlmtui.worker.model_reader.templates import RENDER_S, read_template, readable_templates
from vlmtui.worker.model_reader.tokenizer import CodeNotAllowed, has_tokenizer, load_tokenizer, read_tokenizer

LOAD_S = 90.0
"""Seconds for loading a tokenizer, with the import of transformers."""
_MESSAGE_MAX = 2_000
_CAUSES_MAX = 4


def read_model(request: ReadRequest, *, seconds: float = RENDER_S, load_s: float = LOAD_S) -> ModelReading:
    """Read what the request asks for. A tokenizer that cannot be loaded is told in the reading."""
    folder = Path(request.folder) if request.folder else None
    tokenizer: Any = None
    trouble: ReadTrouble | None = None
    message = ""
    if folder is not None:
        tokenizer, trouble, message = _loaded(folder, request.trust_remote_code, load_s)
    variables = dict(tokenizer.special_tokens_map) if tokenizer is not None else {}
    sources = [*request.templates.items(), *(readable_templates(folder) if folder else ())]
    templates = [read_template(name, source, request.cases, variables, seconds=seconds) for name, source in sources]
    facts = read_tokenizer(tokenizer, folder, _texts(templates)) if folder and tokenizer is not None else None
    return ModelReading(
        templates=tuple(templates),
        tokenizer=facts,
        trouble=trouble,
        message=message[:_MESSAGE_MAX],
        prompts=_prompts(folder, tokenizer, request, sources) if folder and tokenizer is not None else {},
    )


def _prompts(
    folder: Path, tokenizer: Any, request: ReadRequest, sources: list[tuple[str, str]]
) -> dict[str, PromptReading]:
    if not request.prompts:
        return {}
    from vlmtui.worker.model_reader.prompts import PromptMaker

    maker = PromptMaker(folder, tokenizer, next((source for _, source in sources), None), request.trust_remote_code)
    return {case.name: maker.make(case) for case in request.prompts}


def _texts(templates: list[TemplateReading]) -> set[str]:
    return {one.text for template in templates for one in template.renderings.values() if one.trouble is None}


def _loaded(folder: Path, trusted: bool, load_s: float) -> tuple[Any, ReadTrouble | None, str]:
    if not has_tokenizer(folder):
        return None, ReadTrouble.NONE, ""
    try:
        with time_limit(load_s):
            return load_tokenizer(folder, trust_remote_code=trusted), None, ""
    except CodeNotAllowed:
        return None, ReadTrouble.NEEDS_CODE, ""
    except OutOfTime:
        return None, ReadTrouble.ENDLESS, f"not loaded within {load_s:g} s"
    except MemoryError:
        return None, ReadTrouble.TOO_BIG, ""
    except Exception as error:
        return None, ReadTrouble.BROKEN, _with_causes(error)


def _with_causes(error: BaseException) -> str:
    """Return the error's text, and those of its causes: transformers wraps what a model's own code raises."""
    found: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(found) < _CAUSES_MAX:
        found.append(f"{type(cause).__name__}: {cause}".split("\n", 1)[0])
        cause = cause.__cause__ or cause.__context__
    return " ← ".join(found)
