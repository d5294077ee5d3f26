# ruff: noqa: E501  (a table)
"""Chat templates with one fault each, made from the templates of real families: each is found and named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.zoo.kit import write_tokenizer
from vlmtui.domain.model_reading import ModelReading, ReadRequest, ReadTrouble
from vlmtui.inspection.lint.check import check_reading, record_templates, tokenizer_fault
from vlmtui.inspection.lint.finding import ADVICE, LintFinding, LintKind
from vlmtui.inspection.lint.subject import canned_conversations, render_case
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family
from vlmtui.worker.model_reader import read_model

REGISTRY = Registry.bundled()
TOKEN = re.compile(r"<[^<>\s]+>|\[/?[A-Z_]+\]")
SECONDS = 0.5
ENDS = ("<|im_end|>", "<end_of_turn>", "<|end|>", "</s>", "<|user|>")
GENERATION = "{%- if add_generation_prompt -%}"


class Fault(NamedTuple):
    """A replacement in the template of a family, and the finding that it must give."""

    family: str
    what: str
    old: str
    new: str
    kind: LintKind
    line: int | None = None
    """The line of the template that has to be named."""


K = LintKind
QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
FAULTS = [
    Fault("gemma3", "BOS left out", '{{- "<bos>" -}}', "", K.BOS_MISSING),
    Fault("gemma3", "BOS twice", '"<bos>"', '"<bos><bos>"', K.BOS_DOUBLED, 2),
    Fault("gemma3", "BOS before each message", '"<start_of_turn>user', '"<bos><start_of_turn>user', K.BOS_INSIDE, 5),
    Fault("gemma3", "BOS before the answer", GENERATION, GENERATION + '{{- "<bos>" -}}', K.BOS_INSIDE, 11),
    Fault("mistral3", "BOS in each answer", '"</s>"', '"</s><s>"', K.BOS_INSIDE, 9),
    Fault("qwen2_vl", "no placeholder", f'{{{{- "{QWEN_IMAGE}" -}}}}', "", K.PLACEHOLDER_MISSING),
    Fault("qwen2_vl", "the placeholder twice", QWEN_IMAGE, QWEN_IMAGE * 2, K.PLACEHOLDER_SURPLUS, 8),
    Fault("qwen2_vl", "the placeholder without its beginning", "<|vision_start|><|image_pad|>", "<|image_pad|>",
          K.PLACEHOLDER_UNWRAPPED, 8),
    Fault("qwen2_vl", "the placeholder without its end", "<|image_pad|><|vision_end|>", "<|image_pad|>",
          K.PLACEHOLDER_UNWRAPPED, 8),
    Fault("qwen2_vl", "a video's placeholder for an image", QWEN_IMAGE, QWEN_IMAGE.replace("image", "video"),
          K.PLACEHOLDER_MISSING),
    Fault("qwen2_vl", "a placeholder in every message", '"<|im_start|>user\\n"', f'"<|im_start|>user\\n{QWEN_IMAGE}"',
          K.PLACEHOLDER_SURPLUS, 5),
    Fault("qwen2_vl", "images of the first message only", "part['type'] == 'image'",
          "part['type'] == 'image' and loop.length > 9", K.PLACEHOLDER_MISSING),
    Fault("qwen2_vl", "a misspelled type", "part['type'] == 'image'", "part['type'] == 'images'", K.PLACEHOLDER_MISSING),
    Fault("qwen2_vl", "a misspelled token", "<|image_pad|>", "<|imagepad|>", K.PLACEHOLDER_MISSING),
    Fault("phi3_v", "numbered from 0", "ns.image = ns.image + 1", "ns.image = ns.image", K.PLACEHOLDER_NUMBER, 7),
    Fault("phi3_v", "numbered anew in each message", "{%- set ns.before = '' -%}",
          "{%- set ns.before = '' -%}{%- set ns.image = 0 -%}", K.PLACEHOLDER_NUMBER),
    Fault("llava", "images before the text", "{%- for part in message['content'] -%}",
          "{%- for part in message['content'] | sort(attribute='type') -%}", K.PLACEHOLDER_MOVED),
    Fault("llava", "images after the text", "{%- for part in message['content'] -%}",
          "{%- for part in message['content'] | sort(attribute='type', reverse=true) -%}", K.PLACEHOLDER_MOVED),
    Fault("llava", "images in reverse", "{%- for part in message['content'] -%}",
          "{%- for part in message['content'] | reverse -%}", K.PLACEHOLDER_MOVED),
    Fault("qwen2_5_vl", "text left out", "{{- part['text'] -}}", "", K.TEXT_LOST),
    Fault("qwen2_5_vl", "only the first part", "in message['content'] -%}", "in message['content'][:1] -%}", K.TEXT_LOST),
    Fault("qwen2_5_vl", "only the last messages", "for message in messages", "for message in messages[-2:]", K.TEXT_LOST),
    Fault("qwen2_5_vl", "escaped", "part['text'] -}}", "part['text'] | e -}}", K.TEXT_CHANGED, 8),
    Fault("qwen2_5_vl", "in lower case", "part['text'] -}}", "part['text'] | lower -}}", K.TEXT_CHANGED),
    Fault("qwen2_5_vl", "twice", "{{- part['text'] -}}", "{{- part['text'] -}}{{- part['text'] -}}", K.TEXT_REPEATED, 8),
    Fault("qwen2_5_vl", "in reverse", "for message in messages", "for message in messages | reverse", K.TEXT_MOVED),
    Fault("qwen2_5_vl", "the system message dropped", "for message in messages",
          "for message in messages if message['role'] != 'system'", K.SYSTEM_LOST),
    Fault("qwen2_5_vl", "parts printed", "{{- part['text'] -}}", "{{- part -}}", K.PYTHON_PRINTED, 8),
    Fault("qwen2_5_vl", "None printed", '"<|im_start|>user\\n" -}}', '"<|im_start|>user\\n" -}}{{- none -}}', K.PYTHON_PRINTED, 5),
    Fault("qwen3_vl", "one role for all", '"<|im_start|>assistant\\n" -}}{%- elif', '"<|im_start|>user\\n" -}}{%- elif',
          K.ROLES_ALIKE),
    Fault("qwen3_vl", "no generation prompt", "if add_generation_prompt", "if false", K.GENERATION_PROMPT_MISSING),
    Fault("qwen3_vl", "always a generation prompt", "if add_generation_prompt", "if true", K.GENERATION_PROMPT_ALWAYS, 11),
    Fault("qwen3_vl", "two generation prompts", GENERATION, GENERATION + '{{- "<|im_start|>assistant\\n" -}}',
          K.GENERATION_PROMPT_DOUBLED),
    Fault("qwen3_vl", "another role asked to answer", GENERATION + '{{- "<|im_start|>assistant',
          GENERATION + '{{- "<|im_start|>system', K.GENERATION_PROMPT_DIFFERS, 11),
    Fault("qwen3_vl", "a word before an answer to continue", "'assistant' -%}{{- \"<|im_start|>assistant\\n\" -}}",
          "'assistant' -%}{{- \"<|im_start|>assistant\\n\" -}}{%- if loop.last and loop.index > 2 -%}{{- 'So: ' -}}{%- endif -%}",
          K.PREFILL_DIFFERS),
    Fault("qwen3_vl", "an answer that is not closed", "'assistant' -%}{{- \"<|im_end|>\\n\" -}}", "'assistant' -%}",
          K.TURN_NOT_CLOSED),
    Fault("qwen3_vl", "a question that is not closed", "'user' -%}{{- \"<|im_end|>\\n\" -}}", "'user' -%}",
          K.TURN_NOT_CLOSED),
    Fault("qwen3_vl", "an answer closed by another token", "'assistant' -%}{{- \"<|im_end|>\\n\" -}}",
          "'assistant' -%}{{- \"<|vision_end|>\\n\" -}}", K.TURN_NOT_CLOSED),
    Fault("qwen3_vl", "turns numbered by what follows", "{%- for message in messages -%}\n",
          "{{- messages | length -}}{%- for message in messages -%}\n", K.PREFIX_CHANGES, 3),
    Fault("mistral3", "the system prompt in the last turn", '"[INST]" -}}',
          '"[INST]" -}}{%- if loop.last -%}{{- "Be brief. " -}}{%- endif -%}', K.PREFIX_CHANGES),
    Fault("phi3_v", "a misspelled special token", "<|end|>", "<|ends|>", K.UNKNOWN_TOKEN, 8),
    Fault("hunyuan_vl", "bars of another width", "<｜hy_begin▁of▁sentence｜>", "<|hy_begin_of_sentence|>", K.BOS_MISSING),
    Fault("glm4_1v", "a line break left out", '"<|user|>\\n', '"<|user|>', K.WHITE_SPACE, 6),
    Fault("qwen2_5_vl", "a space before the text", '"<|im_start|>user\\n', '"<|im_start|>user\\n ', K.WHITE_SPACE, 5),
    Fault("qwen2_5_vl", "another default system prompt", "You are a helpful assistant.", "You are Qwen.", K.RECORD_DIFFERS),
    Fault("qwen2_5_vl", "not closed", "{%- endfor -%}\n{%- if add", "{%- if add", K.TEMPLATE_SYNTAX),
    Fault("qwen2_5_vl", "an unknown filter", "part['text'] -}}", "part['text'] | to_tokens -}}", K.TEMPLATE_FAILS),
    Fault("qwen2_5_vl", "a changed message", "{%- set ns.before = '' -%}",
          "{%- set ns.before = '' -%}{%- set _ = message.update({'seen': true}) -%}", K.TEMPLATE_SANDBOX, 6),
    Fault("qwen2_5_vl", "a private attribute", "{%- set ns.before = '' -%}",
          "{{- message.__class__.__mro__ -}}", K.TEMPLATE_SANDBOX),
    Fault("qwen2_5_vl", "a part that is not there", "part['text'] -}}", "part['text']['x'].upper() -}}",
          K.TEMPLATE_FAILS, 8),
    Fault("qwen2_5_vl", "an image that is refused", "part['type'] == 'image' -%}",
          "part['type'] == 'image' -%}{{- raise_exception('no images') -}}", K.TEMPLATE_FAILS, 8),
    Fault("qwen2_5_vl", "without end", GENERATION,
          "{%- for a in range(99999) -%}{%- for b in range(99999) -%}{%- endfor -%}{%- endfor -%}" + GENERATION,
          K.TEMPLATE_ENDLESS, 11),
    Fault("qwen2_5_vl", "too long", GENERATION, "{%- for a in range(99) -%}{{- 'a' * 99999 -}}{%- endfor -%}" + GENERATION,
          K.TEMPLATE_TOO_BIG, 11),
]  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with a tokenizer that has every special token of the family's template, by family."""
    made: dict[str, Path] = {}
    for name in {one.family for one in FAULTS}:
        folder = made[name] = tmp_path_factory.mktemp(name)
        _write_tokenizer(REGISTRY[name], folder)
    return made


def _write_tokenizer(family: Family, folder: Path) -> None:
    source = record_templates(family)["record"]
    text = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), source)
    tokens = dict.fromkeys(TOKEN.findall(text.replace('"', " ")))
    eos = next((token for token in ENDS if token in tokens), list(tokens)[-1])
    bos = next((token for token in TOKEN.findall(family.raw.bos)), None)
    write_tokenizer(folder, dict.fromkeys([*tokens, eos, *([bos] if bos else [])]), eos=eos, bos=bos)


def read(family: Family, folder: Path, *sources: tuple[str, str]) -> ModelReading:
    cases = tuple(render_case(family, one) for one in canned_conversations(family))
    return read_model(ReadRequest(folder=str(folder), templates=dict(sources), cases=cases), seconds=SECONDS)


def findings(family: Family, folder: Path, source: str) -> Sequence[LintFinding]:
    return check_reading(family, read(family, folder, ("template", source)), canned_conversations(family))


@pytest.mark.parametrize("name", sorted({one.family for one in FAULTS}))
def test_a_sound_template_has_no_findings(name: str, folders: dict[str, Path]) -> None:
    assert findings(REGISTRY[name], folders[name], record_templates(REGISTRY[name])["record"]) == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.family}: {fault.what}")
def test_each_fault_is_found_and_named(fault: Fault, folders: dict[str, Path]) -> None:
    family = REGISTRY[fault.family]
    source = record_templates(family)["record"]
    broken = source.replace(fault.old, fault.new)
    assert broken != source
    found = findings(family, folders[fault.family], broken)
    named = [one for one in found if one.kind is fault.kind]
    assert named, [(one.kind.value, one.message) for one in found]
    if fault.line is not None:
        assert named[0].line == fault.line
    assert named[0].why and named[0].mend


def test_there_are_forty_faults_of_most_kinds() -> None:
    assert len(FAULTS) >= 40
    others = {
        K.FILE_DAMAGED,
        K.NO_TEMPLATE,
        K.TEMPLATES_DISAGREE,
        K.NO_TOKENIZER,
        K.TOKENIZER_BROKEN,
        K.CODE_NEEDED,
        K.STOP_MISSING,
    }
    assert set(LintKind) - {fault.kind for fault in FAULTS} == others
    assert ADVICE.keys() == set(LintKind)


@pytest.mark.parametrize("family", REGISTRY.values(), ids=lambda family: family.family)
def test_every_record_is_sound(family: Family) -> None:
    """The templates that the records generate; the others' are those of their tiny models (tests/zoo)."""
    sources = record_templates(family)
    if not sources:
        assert family.raw.by != "text"
        return
    canned = canned_conversations(family)
    cases = tuple(render_case(family, one) for one in canned)
    reading = read_model(ReadRequest(templates=sources, cases=cases))
    assert check_reading(family, reading, canned, of_record=True) == []


def test_disagreeing_templates_are_reported(folders: dict[str, Path], tmp_path: Path) -> None:
    family = REGISTRY["qwen2_vl"]
    source = record_templates(family)["record"]
    reading = read(family, folders["qwen2_vl"], ("chat_template.json", source), ("tokenizer_config.json",
                   source.replace("helpful", "harmless")))  # fmt: skip
    found = check_reading(family, reading, canned_conversations(family))
    told = next(one for one in found if one.kind is K.TEMPLATES_DISAGREE)
    assert "chat_template.json and tokenizer_config.json disagree: “ are a helpful" in told.message


def test_templates_with_equal_prompts_agree(folders: dict[str, Path]) -> None:
    family = REGISTRY["qwen2_vl"]
    source = record_templates(family)["record"]
    reading = read(family, folders["qwen2_vl"], ("one", source), ("two", source + "{# a comment #}"))
    assert check_reading(family, reading, canned_conversations(family)) == []


def test_an_end_of_turn_that_is_no_stop_token_is_found(tmp_path: Path) -> None:
    family = REGISTRY["qwen2_vl"]
    source = record_templates(family)["record"]
    tokens = dict.fromkeys(TOKEN.findall(source.replace('"', " ")))
    write_tokenizer(tmp_path, [*tokens, "<|endoftext|>"], eos="<|endoftext|>")
    found = findings(family, tmp_path, source)
    assert [(one.kind, one.token) for one in found] == [(K.STOP_MISSING, "<|im_end|>")]


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (ReadTrouble.NONE, K.NO_TOKENIZER),
        (ReadTrouble.BROKEN, K.TOKENIZER_BROKEN),
        (ReadTrouble.NEEDS_CODE, K.CODE_NEEDED),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_a_finding(trouble: ReadTrouble, kind: LintKind, tmp_path: Path) -> None:
    match trouble:
        case ReadTrouble.BROKEN:
            (tmp_path / "tokenizer.json").write_text("{")
            (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        case ReadTrouble.NEEDS_CODE:
            (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["a.B", null]}}')
        case _:
            pass
    family = REGISTRY["qwen2_vl"]
    reading = read(family, tmp_path)
    assert reading.trouble is trouble
    assert {one.kind for one in check_reading(family, reading, [])} == {kind, K.NO_TEMPLATE}


def test_an_error_of_several_lines_is_told_whole() -> None:
    found = tokenizer_fault(
        ReadTrouble.BROKEN, "ValueError: one of these is missing:\n(1) tokenizer.json\n(2) a package"
    )
    assert found.message.endswith("one of these is missing: (1) tokenizer.json (2) a package")
