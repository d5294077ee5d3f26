"""Read a model's files: render its chat templates, and return the facts about its tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from vlmtui.domain.model_reading import (
    ModelReading,
    ReadRequest,
    ReadTrouble,
    TemplateReading,
    TokenizerReading,
)
from vlmtui.errors import causes_of
from vlmtui.inspection.lint.subject import TOKEN
from vlmtui.inspection.raw_prompt_check import special_looking
from vlmtui.reading import is_file, read_object
from vlmtui.worker.model_reader.templates import (
    RENDER_S,
    OutOfTime,
    PromptMaker,
    read_template,
    templates_in,
    time_limit,
)

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
