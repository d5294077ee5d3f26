"""The one table of sampling parameters, and those who take it from there."""

from __future__ import annotations

import math

import msgspec
import pytest

from vlmtui.cli.main import make_parser
from vlmtui.config.settings import SamplingSettings
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.sampling import PARAMETERS, Sampling, find_parameter
from vlmtui.errors import VlmtuiError
from vlmtui.registry.loader import Registry
from vlmtui.session.dials import with_setting
from vlmtui.session.fan_out import parse_plan, planned_specs


def test_settings_have_every_parameter() -> None:
    assert {field.name for field in msgspec.structs.fields(SamplingSettings)} == set(PARAMETERS)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_can_be_set_everywhere(name: str) -> None:
    parameter = PARAMETERS[name]
    low, high = ("1", "2") if parameter.kind is int else ("0.25", "0.5")
    assert getattr(with_setting(Sampling(), f"{name} {low}"), name) == parameter.kind(low)
    assert getattr(with_setting(Sampling(), f"{name} default"), name) is None
    plan = parse_plan(f"{name}={low},{high}")
    specs = planned_specs(plan, Registry.bundled()["shapes"], [user_turn("Hi")], Sampling())
    assert [getattr(spec.sampling, name) for spec in specs] == list(plan.axes[name])
    asked = make_parser().parse_args(["ask", parameter.option, high])
    assert getattr(asked, name) == parameter.kind(high)
    assert parameter.describe(None).endswith(parameter.unset)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"temperature": 2.1}, "temperature must be between 0 and 2, not 2.1"),
        ({"temperature": math.nan}, "temperature must be between 0 and 2, not nan"),
        ({"top_p": 0.0}, "top-p must be above 0 and at most 1, not 0"),
        ({"repetition_penalty": math.inf}, "repetition penalty must be above 0, not inf"),
        ({"max_tokens": 0}, "max tokens must be at least 1, not 0"),
        ({"seed": 2**63}, f"seed must fit in 64 bits, not {2**63}"),
        ({"top_k": -1}, "top-k must be at least 0, not -1"),
        ({"seed": -(2**63), "top_p": 1.0, "top_k": 0, "presence_penalty": -2.0}, None),
    ],
)
def test_a_value_out_of_bounds_is_reported_with_the_bounds(values: dict[str, float], problem: str | None) -> None:
    assert msgspec.structs.replace(Sampling(), **values).problem() == problem


def test_a_value_that_is_not_a_number_is_reported() -> None:
    assert find_parameter(" top-p ") is PARAMETERS["top_p"]
    assert find_parameter("topp") is None
    with pytest.raises(VlmtuiError, match=r"top-k must be a whole number, not '1\.5'"):
        PARAMETERS["top_k"].read(" 1.5 ")
