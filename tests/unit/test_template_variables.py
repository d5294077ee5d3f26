"""The variables of a chat template: found in its source, set by dials, checked, and followed by raw prompts."""

from __future__ import annotations

import pytest

from vlmtui.domain.conversation import RawPrompt, user_turn
from vlmtui.domain.dials import no_dials
from vlmtui.domain.generation import PromptReady, Token
from vlmtui.domain.model_reading import ModelReading, ReadRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.domain.template import TEMPLATE, TemplateVariables, check_variables
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.registry.prompts import raw_prompt
from vlmtui.registry.schema import Family
from vlmtui.session.dials import (
    described_extra,
    parameter_help,
    typed_parameters,
    variables_of,
    with_default_parameters,
    with_parameter,
    with_setting,
)
from vlmtui.session.fan_out import parse_plan, planned_specs, rendering_change
from vlmtui.session.models import template_variables
from vlmtui.session.settings import ChatSettings
from vlmtui.ui.chat.suggestions import matching_parameters
from vlmtui.worker.hf.template_variables import read_variables


def family(name: str) -> Family:
    return Registry.bundled()[name]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("{{ messages[0].content }}{% if add_generation_prompt %}{{ bos_token }}{% endif %}", {}),
        (
            "{% if enable_thinking is defined and enable_thinking is false %}x{% endif %}",
            {"enable_thinking": {True, False}},
        ),
        ("{% if enable_thinking %}x{% endif %}", {"enable_thinking": {True, False}}),
        ("{% set think = think if think is defined else true %}{% if think %}x{% endif %}", {"think": {True, False}}),
        ("{% if effort == 'high' or effort in ['low', 'none'] %}x{% endif %}", {"effort": {"high", "low", "none"}}),
        ("{{ budget | default(512) }}", {"budget": {512}}),
        ("{% if not date %}{% set date = strftime_now('%d') %}{% endif %}{{ date }}", {"date": set()}),
        ("{% macro show(x) %}{{ x }}{{ style }}{% endmacro %}{{ show(1) }}", {"style": set()}),
        ("{% for one in messages %}{% set last = one %}{{ last }}{{ loop.index }}{% endfor %}{{ namespace() }}", {}),
        ("{% generation %}{{ keep }}{% endgeneration %}", {"keep": set()}),
        ("{% if messages %}{% set m = messages[0] %}{{ m }}{% endif %}{% for m in messages %}{{ m }}{% endfor %}", {}),
        (
            "{% for m in messages %}{% if m %}{% set c = m.role %}{% endif %}{% if m %}{{ c }}{% endif %}{% endfor %}",
            {},
        ),
        (
            "{% if think is undefined %}{% set think = true %}{% endif %}{% if think %}x{% endif %}",
            {"think": {True, False}},
        ),
    ],
)
def test_variables_are_found_with_the_values_they_are_compared_with(source: str, found: dict[str, set[object]]) -> None:
    read = read_variables(source)
    assert read is not None
    assert {name: set(values) for name, values in read.items()} == found


@pytest.mark.parametrize("source", ["{% if %}", "{{ " + "(" * 50_000, "{{ x }}" * 100_000])
def test_a_template_that_does_not_parse_or_is_too_long_is_unknown(source: str) -> None:
    assert read_variables(source) is None


def test_a_typo_names_the_nearest_variable_and_all_that_are_read() -> None:
    read: TemplateVariables = {"enable_thinking": (True, False), "reasoning_effort": ("low", "high")}
    with pytest.raises(VlmtuiError, match="does not read enable_thinkin") as failed:
        check_variables({"enable_thinkin": True}, read)
    assert failed.value.hint == "Did you mean enable_thinking? It reads enable_thinking, reasoning_effort."


@pytest.mark.parametrize(("name", "value"), [("enable_thinking", "yes"), ("enable_thinking", 1), ("effort", True)])
def test_a_value_of_another_type_names_the_values_of_the_template(name: str, value: object) -> None:
    with pytest.raises(VlmtuiError) as failed:
        check_variables({name: value}, {"enable_thinking": (True, False), "effort": ("low", "high")})
    assert "The template compares it with" in failed.value.hint


@pytest.mark.parametrize("name", ["messages", "tools", "chat_template", "bos_token", "raw_messages"])
def test_the_renderers_own_names_are_refused_for_an_unknown_template_too(name: str) -> None:
    with pytest.raises(VlmtuiError, match="is set by the renderer"):
        check_variables({name: "x"}, None)


def test_any_other_variable_passes_for_an_unknown_template() -> None:
    check_variables({"enable_thinking": "whatever"}, None)


def test_thinking_sets_the_familys_own_variable() -> None:
    shapes = family("shapes")
    on = with_setting(Sampling(), "thinking on", shapes)
    assert variables_of(on) == {"thinking": True}
    assert described_extra(on) == {"template.thinking": True}
    assert typed_parameters(on, shapes)["thinking"] == "on"
    assert variables_of(with_setting(on, "thinking off", shapes)) == {"thinking": False}
    assert with_setting(on, "thinking default", shapes) == Sampling()


def test_thinking_and_effort_have_the_usual_names_where_no_record_says_others() -> None:
    sampling = with_parameter(with_parameter(Sampling(), None, "thinking", "off"), None, "effort", "none")
    assert variables_of(sampling) == {"enable_thinking": False, "reasoning_effort": "none"}


def test_a_family_without_levels_of_effort_says_so() -> None:
    with pytest.raises(VlmtuiError, match="no levels of effort"):
        with_parameter(Sampling(), family("shapes"), "effort", "low")


def test_any_variable_is_typed_as_json_or_as_text() -> None:
    typed = {"true": True, "3": 3, '"3"': "3", "low": "low", '["a"]': ["a"]}
    for text, value in typed.items():
        sampling = with_setting(Sampling(), f"template.thing={text}")
        assert variables_of(sampling) == {"thing": value}
        assert (
            with_setting(Sampling(), f"template.thing={typed_parameters(sampling, None)['template.thing']}") == sampling
        )


def test_a_thinking_budget_goes_to_the_engine() -> None:
    assert with_setting(Sampling(), "thinking_budget 64").extra == {"thinking_token_budget": 64}
    assert described_extra(with_setting(Sampling(), "thinking_budget 64")) == {"thinking_budget": 64}


def test_defaults_of_reasoning_apply_only_to_families_that_reason() -> None:
    defaults: dict[str, object] = {"thinking": True}
    assert variables_of(with_default_parameters(Sampling(), family("shapes"), defaults)) == {"thinking": True}
    assert variables_of(with_default_parameters(Sampling(), family("llava"), defaults)) == {}


def test_each_family_keeps_its_own_variables() -> None:
    shapes, llava = family("shapes"), family("llava")
    settings = ChatSettings(sampling=with_setting(Sampling(), "thinking on", shapes), family="shapes")
    other = settings.for_family(llava, {})
    assert variables_of(other.sampling) == {}
    assert variables_of(other.for_family(shapes, {}).sampling) == {"thinking": True}


def test_the_status_line_and_a_change_name_the_variable() -> None:
    plain = ChatSettings()
    thinking = ChatSettings(sampling=with_setting(Sampling(), "thinking on", family("shapes")))
    assert thinking.summary == "T 0 · thinking true"
    assert plain.changed_to(thinking) == "thinking default → true"


def test_a_raw_prompt_follows_the_switch() -> None:
    prompts = [
        raw_prompt(family("shapes"), [user_turn("What?")], variables) for variables in (None, {"thinking": True})
    ]
    assert all(isinstance(prompt, RawPrompt) for prompt in prompts)
    assert ["Think first." in prompt.text for prompt in prompts if isinstance(prompt, RawPrompt)] == [False, True]


def test_a_fan_out_over_thinking_has_a_lane_each() -> None:
    plan = parse_plan("thinking=on,off")
    found = planned_specs(plan, family("shapes"), [user_turn("Hi")], Sampling(temperature=1))
    assert plan.changes_prompt
    assert [one.label for one in found] == ["thinking on", "thinking off"]
    assert [variables_of(one.sampling) for one in found] == [{"thinking": True}, {"thinking": False}]
    assert len({one.sampling.seed for one in found}) == 1


def prompt_of(*tokens: str) -> PromptReady:
    known = {text: number for number, text in enumerate(["<s>", "Think", " first.", "Hi", "/no", "<a>"])}
    return PromptReady(
        request_id="r",
        prompt="".join(tokens),
        token_ids=tuple(known[one] for one in tokens),
        media=(),
        vocabulary={known[one]: Token(text=one) for one in tokens},
    )


def test_another_rendering_is_told_by_the_texts_that_differ() -> None:
    plain, thinking = prompt_of("<s>", "Hi", "<a>"), prompt_of("<s>", "Think", " first.", "Hi", "<a>")
    assert rendering_change(plain, thinking) == "this prompt adds “Think first.” after “<s>”"
    assert rendering_change(thinking, plain) == "this prompt lacks “Think first.” after “<s>”"
    several = prompt_of("<s>", "Hi", "/no", "<a>", "Hi", "/no", "<a>")
    assert rendering_change(prompt_of("<s>", "Hi", "<a>", "Hi", "<a>"), several) == (
        "this prompt adds “/no” after “<s>Hi” · this prompt adds “/no” after “<a>Hi”"
    )


def test_a_variable_that_an_engine_ignores_is_told() -> None:
    assert (
        rendering_change(prompt_of("<s>", "Hi"), prompt_of("<s>", "Hi")) == "same prompt: the variable changes nothing"
    )


class BrokenReader:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def read(self, request: ReadRequest) -> ModelReading:
        raise self.error


@pytest.mark.parametrize("error", [bad_input("no"), OSError(28, "No space left on device")])
def test_a_template_that_cannot_be_read_is_unknown(error: Exception) -> None:
    model = resolve(Registry.bundled(), "shapes")
    assert template_variables(BrokenReader(error), model) is None


def test_a_variable_of_somebody_elses_document_is_kept_only_as_a_plain_value() -> None:
    assert no_dials({TEMPLATE: {"enable_thinking": False}}) == []
    assert no_dials({TEMPLATE: {"style": "/etc/passwd"}}) == [TEMPLATE]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("/set think", ["/set thinking=", "/set thinking_budget=", "/set template.thinking="]),
        ("/set template.", ["/set template.thinking="]),
        ("/set thinking=", ["/set thinking=on", "/set thinking=off"]),
        ("/set thinking=on", []),
        ("/set thinking on", []),
        ("/set effort", []),
        ("/set template.thinking=t", ["/set template.thinking=true"]),
        ("/fan thinking=on,", ["/fan thinking=on,off"]),
        ("/fan thinking=on,off", ["/fan thinking=on,off"]),
        ("/compare seed=", ["/compare seed=1..4", "/compare seed=1..8"]),
        ("/fan temperature=1 thinking=o", ["/fan temperature=1 thinking=on", "/fan temperature=1 thinking=off"]),
        ("/set temperature=0.5", []),
        ("/settings", []),
        ("think", []),
    ],
)
def test_parameters_and_values_complete_a_command(typed: str, offered: list[str]) -> None:
    found = matching_parameters(typed, lambda: parameter_help(family("shapes"), {"thinking": (True, False)}))
    assert [one.text for one in found] == offered


def test_a_complete_fan_out_is_counted() -> None:
    found = matching_parameters("/fan seed=1..8 temperature=0.7,1.2", dict)
    assert [(one.shown, one.help) for one in found] == [("16 requests", "Enter sends them at once.")]
    first, *others = matching_parameters("/fan seed=1..8 ", dict)
    assert first.shown == "8 requests" and "temperature" in [one.shown for one in others]
    assert "seed" not in [one.shown for one in others]
