"""The choice of a backend: its syntax, a record's routes, and its effects."""

from __future__ import annotations

import msgspec
import pytest

from vlmtui.domain.engine import BackendChoice, read_backend
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry import routes
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import model_of, resolve, with_backend
from vlmtui.registry.routes import choices_of, model_closed, open_route, route_name, status_of, why_closed
from vlmtui.registry.schema import Family, Route

TRANSFORMERS = BackendChoice("transformers")
PINNED = BackendChoice("pinned", "0.23.0")


@pytest.fixture(autouse=True)
def with_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "vllm_version", lambda: "0.32.0")


@pytest.fixture
def shapes() -> Family:
    return Registry.bundled()["shapes"]


def routed(family: Family, *given: Route) -> Family:
    return msgspec.structs.replace(family, routes=given)


@pytest.mark.parametrize(
    ("text", "choice", "title"),
    [
        ("vllm", BackendChoice(), "vLLM"),
        ("transformers", TRANSFORMERS, "Transformers"),
        ("vllm==0.23.0", PINNED, "vLLM 0.23.0"),
        ("echo", BackendChoice("echo"), "echo"),
    ],
)
def test_a_backend_is_read_as_it_is_written(text: str, choice: BackendChoice, title: str) -> None:
    assert read_backend(text) == choice
    assert (choice.text, choice.title) == (text, title)


@pytest.mark.parametrize("text", ["", "vllm==", "vllm==../x", "vllm>=0.2", "pinned", "remote", "sglang==1.0", "a b"])
def test_an_unknown_backend_is_refused(text: str) -> None:
    with pytest.raises(VlmtuiError) as caught:
        read_backend(text)
    assert caught.value.kind is ErrorKind.BAD_USAGE
    assert caught.value.hint


def test_a_choice_decides_the_spec_and_its_engine_arguments(shapes: Family) -> None:
    here = model_of(shapes)
    assert (here.spec.backend, here.spec.pinned) == ("vllm", None)
    other = with_backend(here, TRANSFORMERS)
    assert other == model_of(shapes, choice=TRANSFORMERS) == resolve(Registry.bundled(), "shapes", TRANSFORMERS)
    assert other.spec.backend == "transformers"
    assert set(other.spec.engine_args) <= {"max_model_len", "limit_mm_per_prompt", "mm_processor_kwargs", "dtype"}
    old = with_backend(here, PINNED).spec
    assert (old.backend, old.pinned, old.engine_args) == ("pinned", "0.23.0", here.spec.engine_args)
    assert with_backend(other, BackendChoice()) == here


def test_the_first_route_that_can_be_taken_is_the_default(shapes: Family) -> None:
    gone, hf = Route(until="0.28.0"), Route(engine="transformers")
    pinned = Route(engine="pinned", vllm="0.23.0")
    family = routed(shapes, gone, hf, pinned)
    assert open_route(family) == hf
    assert choices_of(family) == (TRANSFORMERS, PINNED)
    assert (route_name(family), status_of(family)) == ("transformers", "runs")
    assert model_of(family).spec.backend == "transformers"
    assert route_name(family, PINNED) == "vllm==0.23.0"
    assert why_closed(family) is None
    closed = model_closed(family, model_of(family, choice=BackendChoice()).spec)
    assert closed is not None and closed.kind is ErrorKind.ARCHITECTURE_UNSUPPORTED


def test_a_class_of_vlmtui_is_named_to_the_engine(shapes: Family) -> None:
    family = routed(shapes, Route(architecture="SomeModel", model_class="some_file:SomeModel"))
    assert model_of(family).spec.engine_args["model_class_overrides"] == {
        "SomeModel": "vlmtui.worker.backends.vllm.models.some_file:SomeModel"
    }


def test_a_family_without_a_route_can_be_tried_on_other_engines(shapes: Family) -> None:
    family = routed(shapes, Route(architecture="Gone", until="0.28.0", engine_args={"max_num_seqs": 3}))
    assert open_route(family) is None
    assert choices_of(family) == (TRANSFORMERS,)
    tried = open_route(family, PINNED)
    assert tried is not None
    assert (tried.vllm, tried.architecture, tried.engine_args) == ("0.23.0", "Gone", {"max_num_seqs": 3})


@pytest.mark.parametrize(
    "wrong",
    [
        {"engine": "pinned"},
        {"engine": "vllm", "vllm": "0.23.0"},
        {"engine": "transformers", "model_class": "a:B"},
        {"engine": "vllm", "model_class": "os.path:join"},
        {"engine": "sglang"},
    ],
)
def test_a_route_that_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, Route)
