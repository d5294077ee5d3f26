"""Families that run in the installed vLLM, against its registry and its engine arguments, read as source text."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from functools import cache
from pathlib import Path

import pytest

import family_table
import vllm_architectures
from tests.support.cases import in_one_test
from vlmtui.domain.engine import BackendChoice
from vlmtui.registry import routes
from vlmtui.registry.architectures import known_architectures
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import engine_args_of
from vlmtui.registry.routes import choice_of, open_route, status_of, why_closed
from vlmtui.registry.schema import Family

REGISTRY = Registry.bundled()
OF_EVERY_FAMILY = in_one_test({family.family: (family,) for family in REGISTRY.values()})
OVERRIDDEN = {"architectures", "auto_map"}


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "vllm_version", lambda: None)


def test_the_list_of_architectures_is_that_of_the_installed_vllm() -> None:
    """After an upgrade: `python tools/vllm_architectures.py`, and look at what moved."""
    assert vllm_architectures.installed() == known_architectures()


def test_a_route_made_unnecessary_by_an_upgrade_is_reported() -> None:
    qwen = REGISTRY["qwen_vl"]
    assert list(vllm_architectures.unneeded_routes([qwen], {"LlavaForConditionalGeneration"})) == []
    [told] = vllm_architectures.unneeded_routes([qwen], {"QwenVLForConditionalGeneration"})
    assert told == "qwen_vl: vLLM has QwenVLForConditionalGeneration; try it without its route 0.23.0."
    now = known_architectures().multimodal
    assert list(vllm_architectures.unneeded_routes(REGISTRY.values(), now)) == []


@OF_EVERY_FAMILY
def test_an_open_route_leads_to_an_architecture_that_is_there(family: Family) -> None:
    route, known = open_route(family), known_architectures()
    backends = {"TransformersMultiModalForCausalLM", "TransformersMultiModalMoEForCausalLM"}
    if route is not None and route.engine == "vllm" and not route.model_class:
        assert route.architecture in {*known.multimodal, *backends}
    for other in family.routes:
        if other.engine == "plugin":
            assert other.architecture in known.plugin
        elif other.until and other.model_class:  # a later vLLM's own class needs no mending
            assert any(one.architecture == other.architecture and not one.until for one in family.routes)
        elif other.until and other.engine == "vllm":
            assert known.removed[other.architecture] == other.until


@pytest.mark.parametrize(("version", "is_own"), [("0.32.0", True), ("0.33.0", False)])
def test_a_class_of_vlmtui_ends_with_the_vllm_that_needs_it(
    monkeypatch: pytest.MonkeyPatch, version: str, is_own: bool
) -> None:
    monkeypatch.setattr(routes, "vllm_version", lambda: version)
    route = open_route(Registry.bundled()["interns1_pro"])
    assert route is not None and bool(route.model_class) is is_own
    assert route.architecture == "InternS1ProForConditionalGeneration"


@OF_EVERY_FAMILY
def test_a_family_without_a_route_names_the_last_one(family: Family) -> None:
    error = why_closed(family)
    assert (open_route(family) is None) <= (error is not None)
    if error is not None:
        assert error.hint
        assert status_of(family) != "runs"
    else:
        assert status_of(family) == "runs" or status_of(family).startswith("needs vLLM ")


def test_how_many_families_run() -> None:
    runnable = [family.family for family in REGISTRY.values() if open_route(family) is not None]
    assert len(runnable) >= 70
    assert {"chameleon", "fuyu", "florence2", "mllama", "phi4_multimodal"} <= set(runnable)


@pytest.mark.parametrize("name", ["qwen_vl", "qwen_vl_chat", "hyperclovax_seed_vision", "minimax_vl_01"])
def test_families_of_a_pinned_version_run_in_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = REGISTRY[name]
    route = open_route(family)
    assert route is not None and choice_of(route) == BackendChoice("pinned", "0.23.0")
    assert why_closed(family) is None  # the version is installed when it is first needed
    monkeypatch.setattr(routes, "has_version", lambda version: False)
    assert status_of(family) == "needs vLLM 0.23.0 (6 GB or more on disk)"


@pytest.mark.usefixtures("without_vllm")
def test_without_vllm_every_family_may_be_looked_at() -> None:
    assert all(why_closed(family) is None for family in REGISTRY.values() if not family.routes[0].needs)


@OF_EVERY_FAMILY
def test_every_engine_argument_is_one_of_the_installed_vllm(family: Family) -> None:
    names = engine_argument_names()
    for limits in ({"image": 1}, {"image": 2}, {"video": 1}):
        known = {modality: count for modality, count in limits.items() if modality in family.takes}
        assert set(engine_args_of(family, known, BackendChoice())) <= names


@cache
def engine_argument_names() -> set[str]:
    """The fields of `EngineArgs` and `AsyncEngineArgs`, without importing vLLM."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None
    assert spec.origin is not None
    source = (Path(spec.origin).parent / "engine" / "arg_utils.py").read_text(encoding="utf-8")
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {
        field.target.id
        for node in classes
        if node.name in ("EngineArgs", "AsyncEngineArgs")
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }


def test_the_table_of_families_is_that_of_the_records() -> None:
    """`make families` writes it."""
    text = family_table.PAGE.read_text(encoding="utf-8")
    assert family_table.written(text) == text


EXCEPTIONS = {"glm4_5v_fp8", "minimax_vl_01"}
"""Names of the examples that no tiny model of its own has answered for; docs/families.md says why."""


def test_every_family_of_vllms_examples_answered_on_a_real_engine() -> None:
    names = json.loads((Path(__file__).parent / "seeds.json").read_text(encoding="utf-8"))["families"]
    seen = family_table.results()
    without = {name for name in names if name not in seen or not family_table.answered(seen[name])}
    assert without == EXCEPTIONS
    text = family_table.PAGE.read_text(encoding="utf-8")
    assert all(f"- **{name}**" in text for name in EXCEPTIONS)


def test_a_record_lists_the_cases_of_the_zoo() -> None:
    """After `python -m tests.zoo --record FAMILY`, the record's note says the same cases."""
    seen = family_table.results()
    for family in REGISTRY.values():
        if family.checked != "engine":
            continue
        found = family_table.answered(seen[family.family])
        said = re.search(r"(?:one image|video)(?:, (?:two|video|sound))*", family.checked_note)
        assert said is not None and said[0] == found, family.family
