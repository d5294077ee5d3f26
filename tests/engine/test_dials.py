"""Every parameter changes what the real engine gets: its own request, its answers, and the tokens of images."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import vlmtui.worker
from tests.support.pictures import Easel
from vlmtui.domain.conversation import user_turn
from vlmtui.domain.dials import DIALS, PROMPT_DIALS, THINKING_BUDGET
from vlmtui.domain.sampling import PARAMETERS, Sampling
from vlmtui.engine.local.client import WorkerClient
from vlmtui.registry.match import Model
from vlmtui.session.dials import described_extra, with_parameters
from vlmtui.session.generation import Answer, PromptMode, make_request, render, run_turn
from vlmtui.session.structured import check_structure

pytestmark = pytest.mark.engine
SCHEMA = {"enum": ["a red circle", "a blue square"]}
"""A schema without room for white space: the small model would fill it."""


async def ask(engine: WorkerClient, shapes: Model, *given: str, mode: PromptMode = "chat") -> Answer:
    sampling = with_parameters(Sampling(max_tokens=24), shapes.family, list(given))
    request = make_request(shapes.family, [user_turn("What is in this image?")], sampling, mode=mode)
    answer = Answer(request.request_id)
    async for _ in run_turn(engine, request, answer):
        pass
    assert answer.failure is None, answer.failure
    return answer


GIVEN = (
    "stop=zzz", "stop_token_ids=7", "bad_words=qqq", "logit_bias=5:-3", "min_tokens=3", "ignore_eos=true",
    "skip_special_tokens=false", "include_stop_str_in_output=true",
)  # fmt: skip


NUMBERS = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 7, "min_p": 0.05, "repetition_penalty": 1.1, "presence_penalty": 0.5,
    "frequency_penalty": -0.5, "max_tokens": 5, "seed": 11,
}  # fmt: skip
OWN: dict[str, tuple[str, object]] = {
    "thinking_budget": ("64", 64),
    "stop": ("zzz", ["zzz"]),
    "stop_token_ids": ("7,8", [7, 8]),
    "bad_words": ("qqq", ["qqq"]),
    "logit_bias": ("5:-3", {"5": -3.0}),
    "allowed_token_ids": ("65,66", [65, 66]),
    "min_tokens": ("3", 3),
    "ignore_eos": ("true", True),
    "skip_special_tokens": ("false", False),
    "include_stop_str_in_output": ("true", True),
    "json": (json.dumps(SCHEMA), SCHEMA),
    "regex": (r"\d+", r"\d+"),
    "choice": ("yes|no", ["yes", "no"]),
    "grammar": ('root ::= "a"', 'root ::= "a"'),
    "json_object": ("true", True),
}
"""Each dial's value as it is typed, and as vLLM's request has it."""


MAKE_REQUESTS = """
import json, sys, msgspec
from vlmtui.domain.sampling import Sampling
from vlmtui.worker.backends.vllm.requests import sampling_parameters

for one in msgspec.json.decode(sys.stdin.buffer.read(), type=list[Sampling]):
    made = sampling_parameters(one, None, defaults={}, tokenizer=None, logprobs_max=5)
    names = [name for name in dir(made) if not name.startswith("_")]
    fields = {name: getattr(made, name) for name in names if isinstance(getattr(made, name), (int, float, list, dict))}
    shaped = {} if made.structured_outputs is None else vars(made.structured_outputs)
    print(json.dumps({**fields, **{name: value for name, value in shaped.items() if not name.startswith("_")}}))
"""
"""Prints vLLM's own request of each `Sampling`, a line each."""


def requests_of(made: list[Sampling]) -> list[dict[str, object]]:
    """Return the fields of vLLM's requests; in a process that can import vLLM, as a worker's."""
    site = Path(vlmtui.worker.__file__).parent / "site"
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", MAKE_REQUESTS],
        input=msgspec.json.encode(made),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]


def test_every_parameter_is_a_field_of_vllms_own_request() -> None:
    assert NUMBERS.keys() == PARAMETERS.keys() and {*OWN, *PROMPT_DIALS} == DIALS.keys()
    typed = {**{name: (str(value), value) for name, value in NUMBERS.items()}, **OWN}
    made = [with_parameters(Sampling(temperature=0.7), None, [f"{name}={text}"]) for name, (text, _) in typed.items()]
    plain, *found = requests_of([Sampling(temperature=0.7), *made])
    assert len(found) == len(typed)
    for (name, (_, wanted)), request in zip(typed.items(), found, strict=True):
        field = THINKING_BUDGET if name == "thinking_budget" else name
        assert request[field] == wanted != plain.get(field), name


async def test_the_engine_samples_with_every_number(engine: WorkerClient, shapes: Model) -> None:
    used = (await ask(engine, shapes, *(f"{name}={value}" for name, value in NUMBERS.items()))).used
    assert used is not None and used.numbers() == NUMBERS


async def test_grammars_and_objects_shape_the_answer(engine: WorkerClient, shapes: Model) -> None:
    assert (await ask(engine, shapes, 'grammar=root ::= "b" "c"')).text == "bc"
    assert (await ask(engine, shapes, "json_object=true")).text.lstrip().startswith("{")


async def test_the_engine_samples_with_every_parameter(engine: WorkerClient, shapes: Model) -> None:
    used = (await ask(engine, shapes, *GIVEN)).used
    assert used is not None
    told = described_extra(used)
    assert told["stop"] == ("zzz",) and 7 in used.stop_token_ids
    assert told["bad_words"] == ["qqq"] and told["logit_bias"] == {"5": -3.0}
    assert (told["min_tokens"], told["ignore_eos"], told["skip_special_tokens"]) == (3, True, False)
    assert told["include_stop_str_in_output"] is True


async def test_parameters_change_the_answer(engine: WorkerClient, shapes: Model) -> None:
    plain = await ask(engine, shapes)
    word = plain.text.split()[0]
    assert not (await ask(engine, shapes, f"stop={word}")).text.strip()
    assert (await ask(engine, shapes, f"stop={word}", "include_stop_str_in_output=on")).text.strip() == word
    assert not (await ask(engine, shapes, f"bad_words={word}")).text.startswith(plain.text.split(" ")[0] + " ")
    biased = await ask(engine, shapes, f"logit_bias={plain.token_ids[0]}:-100")
    assert biased.token_ids[0] != plain.token_ids[0]
    only = await ask(engine, shapes, "allowed_token_ids=65,66")
    assert only.token_ids and set(only.token_ids) <= {65, 66}


async def test_structured_answers_fit(engine: WorkerClient, shapes: Model) -> None:
    choice = await ask(engine, shapes, "choice=a blue car|no car")
    assert choice.text in ("a blue car", "no car")
    found = await ask(engine, shapes, f"json={json.dumps(SCHEMA)}")
    sampling = with_parameters(Sampling(), None, [f"json={json.dumps(SCHEMA)}"])
    checked = check_structure(sampling, found.text)
    assert checked is not None and checked.fits, found.text
    assert found.structure == checked and choice.structure is not None and choice.structure.fits
    assert (await ask(engine, shapes, r"regex=\d{3}")).text.isdecimal()
    assert found.used is not None and described_extra(found.used)["json"] == SCHEMA


@pytest.mark.parametrize("mode", ["chat", "raw"])
async def test_arguments_of_the_processor_change_the_image_tokens(
    engine: WorkerClient, shapes: Model, easel: Easel, mode: PromptMode
) -> None:
    picture = easel.picture(("red", "circle", "center")).attachment
    counts = {}
    for most in (12544, 28224, 100352):
        least = f"min_pixels={min(most, 12544)}"
        sampling = with_parameters(Sampling(max_tokens=2), shapes.family, [least, f"max_pixels={most}"])
        request = make_request(shapes.family, [user_turn("What?", [picture])], sampling, mode=mode)
        answer = Answer(request.request_id)
        async for _ in run_turn(engine, request, answer):
            pass
        assert answer.prompt is not None, answer.failure
        rendered = await render(engine, request.prompt, sampling)
        counts[most] = [span.tokens for span in answer.prompt.media]
        assert [span.tokens for span in rendered.media] == counts[most]  # the meter's own request
    assert counts[12544][0] < counts[28224][0]
    again = await render(engine, request.prompt)
    assert [span.tokens for span in again.media] != counts[12544]


@pytest.fixture
def easel(tmp_path_factory: pytest.TempPathFactory) -> Easel:
    return Easel(tmp_path_factory.mktemp("easel"))
