"""Further sampling parameters: reading, setting, unsetting, fan-outs, errors, and checks of structured answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.store.made import COMPLETE, opened
from vlmtui.config.settings import config_file, load_settings
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.dials import ARGUMENTS, DIALS, dial_name, read_dial
from vlmtui.domain.generation import Delta, Finished, Timings, Usage
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.session import resume, structured
from vlmtui.session.answer_line import answer_marks
from vlmtui.session.dials import (
    described_extra,
    processor_arguments,
    typed_parameters,
    with_default_parameters,
    with_parameter,
    with_parameters,
    with_setting,
)
from vlmtui.session.fan_out import parse_plan, planned_specs
from vlmtui.session.generation import Answer, check_end
from vlmtui.session.resume import load_conversation
from vlmtui.session.settings import ChatSettings
from vlmtui.session.structured import StructureCheck, check_answer, check_structure
from vlmtui.store.records import GenerationRecord

REGISTRY = Registry.bundled()
QWEN = REGISTRY["qwen2_vl"]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
GOOD: list[tuple[str, str, object]] = [
    ("stop", "END", ["END"]),
    ("stop", '["a", "b"]', ["a", "b"]),
    ("stop_token_ids", "1,2", [1, 2]),
    ("bad_words", "red", ["red"]),
    ("logit_bias", "5:-3.5,6:2", {"5": -3.5, "6": 2.0}),
    ("logit_bias", '{"5": -100}', {"5": -100.0}),
    ("allowed_token_ids", "[1, 2]", [1, 2]),
    ("min_tokens", "4", 4),
    ("ignore_eos", "yes", True),
    ("skip_special_tokens", "off", False),
    ("json", json.dumps(SCHEMA), SCHEMA),
    ("regex", r"\d+ =x", r"\d+ =x"),
    ("choice", "yes| no", ["yes", "no"]),
    ("json_object", "true", True),
    ("processor.size", '{"longest_edge": 9}', {"longest_edge": 9}),
    ("processor.mode", "fast", "fast"),
    ("processor.mode", '"5"', "5"),
    ("bad_words", '["[x"]', ["[x"]),
]
BAD = [
    ("stop", ""),
    ("stop", "[1]"),
    ("stop_token_ids", "a"),
    ("stop_token_ids", "-1"),
    ("logit_bias", "5:-101"),
    ("logit_bias", "5"),
    ("min_tokens", "-1"),
    ("min_tokens", "1.5"),
    ("ignore_eos", "maybe"),
    ("json", "[]"),
    ("json", "{"),
    ("json", "[" * 100_000),
    ("choice", "a||b"),
    ("json", '{"maximum": NaN}'),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_values_are_read_set_shown_and_unset(name: str, text: str, value: object) -> None:
    assert read_dial(name, text, {}) == value
    sampling = with_parameter(Sampling(), None, name, text)
    plain = name.removeprefix("processor.")
    told = described_extra(sampling)
    assert told == {plain: tuple(value) if name in ("stop", "stop_token_ids") and isinstance(value, list) else value}
    assert plain.replace("_", " ") in ChatSettings().changed_to(ChatSettings(sampling=sampling))
    assert with_parameter(sampling, None, name, "default") == Sampling()
    typed = typed_parameters(sampling, None)[plain]
    assert with_parameter(Sampling(), None, name, typed) == sampling  # as the settings form shows and reads it


@pytest.mark.parametrize(("name", "text"), BAD)
def test_invalid_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(VlmtuiError):
        with_parameter(Sampling(), None, name, text)


@given(st.sampled_from(sorted(DIALS)), st.text(max_size=20))
def test_any_text_is_accepted_or_refused(name: str, text: str) -> None:
    try:
        value = read_dial(name, text, {})
    except VlmtuiError:
        return
    assert json.loads(json.dumps(value)) == value


def test_a_family_has_its_processors_arguments_and_no_others() -> None:
    assert {name for family in REGISTRY.values() for name in family.processor} <= ARGUMENTS
    for family in REGISTRY.values():
        for name, argument in family.processor.items():
            assert bool(argument.source) == (argument.default is not None), (family.family, name)
            if argument.default is not None:
                kinds = {name: argument.kind}
                assert read_dial(f"processor.{name}", json.dumps(argument.default), kinds) == argument.default
    set_ = with_setting(Sampling(), "max_pixels 100000", QWEN)
    assert set_.extra == {"mm_processor_kwargs": {"max_pixels": 100000}}
    both = with_setting(set_, "min-pixels=784", QWEN)
    assert both.extra == {"mm_processor_kwargs": {"max_pixels": 100000, "min_pixels": 784}}
    assert with_setting(both, "max_pixels default", QWEN).extra == {"mm_processor_kwargs": {"min_pixels": 784}}
    with pytest.raises(VlmtuiError, match="max_pixels must be a whole number, not 'many'"):
        with_setting(Sampling(), "max_pixels many", QWEN)
    with pytest.raises(VlmtuiError, match=r"Phi-3.5 Vision has no parameter max_pixels|has no parameter max_pixels"):
        with_setting(Sampling(), "max_pixels 100000", REGISTRY["phi3_v"])
    tokens = with_setting(Sampling(), "max_soft_tokens 560", REGISTRY["gemma4_e"])
    assert tokens.extra == {"mm_processor_kwargs": {"max_soft_tokens": 560}}
    with pytest.raises(VlmtuiError, match="max_soft_tokens must be 70, 140, 280, 560 or 1120, not 300"):
        with_setting(tokens, "max_soft_tokens 300", REGISTRY["gemma4"])
    assert dial_name("processor.max_pixels", {}) == "processor.max_pixels"
    assert dial_name("processor.a b", {}) is None and dial_name("nonsense", {}) is None


def test_structured_outputs_replace_each_other() -> None:
    sampling = with_parameters(Sampling(), None, ["regex=a+", "choice=a|b"])
    assert sampling.extra == {"structured_outputs": {"choice": ["a", "b"]}}


def test_a_schema_is_read_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    sampling = with_parameters(Sampling(), None, [f"json=@{tmp_path / 's.json'}"])
    assert sampling.extra == {"structured_outputs": {"json": SCHEMA}}
    with pytest.raises(VlmtuiError, match="does not exist"):
        with_parameters(Sampling(), None, [f"json=@{tmp_path / 'none.json'}"])
    with pytest.raises(VlmtuiError, match="is not NAME=VALUE"):
        with_parameters(Sampling(), None, ["json"])


def test_every_dial_can_be_fanned_out() -> None:
    turns = [user_turn("What?")]
    plan = parse_plan("max_pixels=12544,100352 temperature=0.5")
    assert plan.title == "2 max_pixels values · temperature 0.5"
    made = planned_specs(plan, REGISTRY["qwen2_vl"], turns, Sampling())
    assert [one.label for one in made] == ["max pixels 12544", "max pixels 100352"]
    assert [one.sampling.extra for one in made] == [
        {"mm_processor_kwargs": {"max_pixels": value}} for value in (12544, 100352)
    ]
    stops = planned_specs(parse_plan('stop="a, b",END'), REGISTRY["qwen2_vl"], turns, Sampling())
    assert [one.sampling.stop for one in stops] == [("a, b",), ("END",)]
    with pytest.raises(VlmtuiError, match="min_tokens can't be"):
        parse_plan("min_tokens=a,b")


@pytest.mark.parametrize(
    ("given_", "answer", "fits", "words"),
    [
        ("choice=yes|no", "yes", True, "one of the choices"),
        ("choice=yes|no", "Yes", False, "no choice"),
        ("json_object=true", "{}", True, "fits its schema"),
        ("json_object=true", "[]", False, "not of type 'object'"),
        (f"json={json.dumps(SCHEMA)}", '{"n": 1}', True, "fits its schema"),
        (f"json={json.dumps(SCHEMA)}", '{"n": "1"}', False, "at ['n']: '1' is not of type 'integer'"),
        (f"json={json.dumps(SCHEMA)}", '{"n": 1', False, "not valid JSON"),
        ("json={}", "NaN", False, "NaN is no JSON value"),
        ("json={}", "[" * 100_000, False, "not valid JSON"),
        ('json={"pattern": "^a+$"}', '"b"', False, "does not match"),
        ('json={"pattern": "("}', '"b"', None, "can't be used"),
        ('json={"$ref": "http://192.0.2.1/schema"}', "1", None, "can't be used"),
        ('json={"$ref": "#"}', "1", None, "can't be used"),
        ('json={"multipleOf": 0.1}', "1e999", None, "can't be used"),
        ('json={"type": "string"}', str(list(range(9000))), False, "…"),
        ('json={"type": "nonsense"}', "1", None, "can't be used"),
        ("regex=a+", "aaa", None, "not checked"),
    ],
)
def test_a_structured_answer_is_checked(given_: str, answer: str, fits: bool | None, words: str) -> None:
    checked = check_structure(with_parameters(Sampling(), None, [given_]), answer)
    assert checked is not None and checked.fits is fits and words in checked.message, checked
    assert len(checked.message) <= 200 and checked.message.isprintable()
    assert check_structure(Sampling(), answer) is None


def test_a_check_that_takes_too_long_is_given_up() -> None:
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    schema = {"$defs": {**doubling, "d60": {"type": "integer"}}, "$ref": "#/$defs/d0"}
    checked = check_structure(with_parameters(Sampling(), None, [f"json={json.dumps(schema)}"]), "1")
    assert checked == StructureCheck(None, "The check took more than 1 s of processor time.")
    checked = check_structure(with_parameters(Sampling(), None, ['json={"const": 1}']), "1")
    assert checked is not None and checked.fits, "the next check runs"


def test_a_check_whose_process_dies_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-Sc", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        process.wait()
        return process

    with monkeypatch.context() as patched:
        patched.setattr(structured, "_CHECKS", structured._Checks())
        patched.setattr(structured, "_start", dying)
        assert check_answer("regex", "a", "a") == StructureCheck(None, "The check failed.")


async def test_an_answers_structure_is_checked_at_its_end() -> None:
    sampling = with_parameters(Sampling(), None, [f"json={json.dumps(SCHEMA)}"])
    answer = Answer("1", ['<think>so {"n": 2}</think>', '{"n": 1}'])
    await check_end(answer, Delta(request_id="1", text="x", tokens=1), sampling)
    assert not answer_marks(answer)
    end = Finished(request_id="1", finish_reason="stop", usage=Usage(), timings=Timings())
    await check_end(answer, end, sampling)
    answer.take(end)
    assert answer_marks(answer) == "The answer fits its schema."


def test_parameters_of_new_conversations_are_the_settings() -> None:
    given_ = {"stop": "END", "bad_words": ["a"], "max_pixels": 100000, "processor": {"size": {"longest_edge": 9}}}
    found = with_default_parameters(Sampling(), QWEN, given_)
    assert found.stop == ("END",) and found.extra == {
        "bad_words": ["a"],
        "mm_processor_kwargs": {"max_pixels": 100000, "size": {"longest_edge": 9}},
    }
    assert "max_pixels" not in described_extra(with_default_parameters(Sampling(), REGISTRY["phi3_v"], given_))
    kept = with_parameters(Sampling(), QWEN, ["max_pixels=50176"])
    assert described_extra(with_default_parameters(kept, QWEN, {"max_pixels": 100000})) == {"max_pixels": 50176}
    assert processor_arguments(kept, {"mm_processor_kwargs": {"max_pixels": 1, "min_pixels": 2}}) == {
        "max_pixels": 50176,
        "min_pixels": 2,
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("stop = 1979-05-27", "parameters.stop: stop can't be 1979-05-27"),
        ("logit_bias = {5 = nan}", "parameters.logit_bias"),
        ("max_picels = 5", "parameters.max_picels: There is no parameter max_picels"),
        ("min_tokens = -1", "parameters.min_tokens: min_tokens can't be '-1'"),
        ("processor.size.longest_edge = nan", "processor.size"),
        ("json = '@none.json'", ""),
    ],
)
def test_wrong_parameters_in_the_file_are_named(tmp_path: Path, line: str, words: str) -> None:
    paths = Paths.below(tmp_path)
    paths.config.mkdir()
    config_file(paths).write_text(f"[parameters]\n{line}\n")
    if not words:
        assert load_settings(paths, {}).parameters == {"json": "@none.json"}
        return
    with pytest.raises(VlmtuiError) as caught:
        load_settings(paths, {})
    assert words in caught.value.message and "config.toml" in caught.value.message


def test_an_opened_conversation_checks_its_answers_schema_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = with_parameters(Sampling(), None, [f"json={json.dumps(SCHEMA)}"])
    store = opened(tmp_path)
    asked = store.add_turn(conversation := store.new_conversation(title="t"), None, user_turn("?"))
    answer = store.begin_answer(asked, GenerationRecord(model="m", sampling=sampling))
    store.write_answer(answer, '{"n": "x"}', COMPLETE)
    (exchange,) = load_conversation(store, conversation=conversation).branch.all
    monkeypatch.setattr(resume, "_CHECKED_WITHIN_S", 0)  # all answers together
    (unchecked,) = load_conversation(store, conversation=conversation).branch.all
    assert unchecked.answer.structure is None
    store.close()
    assert exchange.answer.structure is not None and exchange.answer.structure.fits is False
