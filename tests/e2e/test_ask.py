"""`vlmtui ask` with the real worker, real vLLM and the bundled model: what it says must be right."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import patient_host
from tests.support.machine import Machine, new_machine
from vlmtui.domain.conversation import ChatPrompt, user_turn
from vlmtui.domain.generation import Delta, Failed, GenerateRequest
from vlmtui.domain.sampling import Sampling
from vlmtui.errors import ErrorKind
from vlmtui.paths import bundled

pytestmark = [pytest.mark.engine, pytest.mark.e2e]

CIRCLE = str(bundled("samples") / "circle.png")
SHAPES = str(bundled("samples") / "two-shapes.png")
CLIP = str(bundled("samples") / "moving-circle.mp4")
QUESTION = "What is in this image?"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    with new_machine() as machine:
        yield machine


def said(answer: dict[str, object]) -> str:
    text = answer["answer"]
    assert isinstance(text, str)
    return text.lower()


def test_an_interrupted_load_leaves_nothing_behind(machine: Machine) -> None:
    asking = machine.start("ask", QUESTION)
    assert asking.stderr is not None
    while "config" not in (line := asking.stderr.readline()):
        assert line, "it ended before it loaded anything"
    assert machine.processes()
    asking.send_signal(signal.SIGINT)
    out, _ = asking.communicate()
    assert (asking.returncode, out) == (130, "")
    assert machine.processes() == []
    assert not machine.endpoint.socket.exists()


def test_json_has_the_answer_and_its_cost(machine: Machine) -> None:
    answer = machine.ask("--image", SHAPES, "--keep-alive", "10m", QUESTION)
    assert "yellow star at the top left" in said(answer)
    assert "blue square at the right" in said(answer)
    assert (answer["model"], answer["finish_reason"], answer["stop"]) == ("shapes", "stop", "<|im_end|>")
    usage, timings, prompt = answer["usage"], answer["timings"], answer["prompt"]
    assert isinstance(usage, dict)
    assert isinstance(timings, dict)
    assert isinstance(prompt, str)
    assert usage["prompt_tokens"] > usage["image_tokens"] > 0
    assert usage["completion_tokens"] > 5
    assert 0 < timings["ttft_s"] <= timings["total_s"]
    assert QUESTION in prompt
    assert prompt.count("<|image_pad|>") == usage["image_tokens"]
    assert prompt.endswith("<|im_start|>assistant\n")


def test_a_running_worker_is_used_again(machine: Machine) -> None:
    machine.ask("--image", CIRCLE, QUESTION)
    before = sorted(process.pid for process in machine.processes())
    answer = machine.ask("--image", CIRCLE, QUESTION)
    timings = answer["timings"]
    assert isinstance(timings, dict)
    assert timings["load_s"] < 5, "attaching takes milliseconds, a load many seconds"
    assert "red circle" in said(answer)
    assert sorted(process.pid for process in machine.processes()) == before


def test_two_pictures_keep_their_order(machine: Machine) -> None:
    text = said(machine.ask("--image", SHAPES, "--image", CIRCLE, "What is in these images?"))
    assert text.index("yellow star") < text.index("blue square") < text.index("red circle")


def test_a_video_is_watched(machine: Machine) -> None:
    assert "blue circle moves right" in said(machine.ask("--video", CLIP, "What moves?"))


def test_max_tokens_limits_the_answer(machine: Machine) -> None:
    answer = machine.ask("--image", SHAPES, "--max-tokens", "2", QUESTION)
    assert (answer["finish_reason"], answer["stop"]) == ("length", None)


def tokens(side: Any, name: str) -> list[int]:
    found = side[name]
    assert isinstance(found, list)
    return found


def divergence(found: Any, name: str) -> int | None:
    """Index of the first token that is not the same on both sides."""
    one, other = tokens(found["chat"], name), tokens(found["raw"], name)
    shared = min(len(one), len(other))
    first = next((number for number in range(shared) if one[number] != other[number]), shared)
    return None if one == other else first


def raw_text(machine: Machine) -> str:
    """The raw prompt of the question about one image, as the record makes it."""
    code, out, error = machine.run("prompt", "shapes", "--images", "1", "--json", QUESTION)
    assert code == 0, error
    text = json.loads(out)["prompt"]
    assert isinstance(text, str)
    return text


def test_chat_template_and_raw_template_give_the_same_tokens_and_answer(machine: Machine) -> None:
    found: Any = machine.ask("--mode", "both", "--image", SHAPES, "--logprobs", "2", QUESTION)
    assert found["diff"] == {
        "prompts_identical": True,
        "answers_identical": True,
        "first_divergence": None,
        "prompt_first_divergence": None,
    }
    for name in ("prompt_token_ids", "answer_token_ids"):
        assert tokens(found["chat"], name) == tokens(found["raw"], name)
        assert len(tokens(found["chat"], name)) > 10
    for side in (found["chat"], found["raw"]):
        assert len(tokens(side, "prompt_token_ids")) == side["usage"]["prompt_tokens"]
        assert len(tokens(side, "answer_token_ids")) == side["usage"]["completion_tokens"]
        assert [one["token_id"] for one in side["logprobs"]] == tokens(side, "answer_token_ids")
        assert all(one["top"][0]["logprob"] >= one["logprob"] for one in side["logprobs"])
        assert "yellow star at the top left" in said(side)


def test_a_missing_end_of_turn_is_in_the_difference(machine: Machine) -> None:
    whole = raw_text(machine)
    broken = "".join(whole.rsplit("<|im_end|>", 1))
    assert broken != whole
    code, out, error = machine.run(
        "ask", "--json", "--mode", "both", "--image", SHAPES, "--raw-prompt", broken, QUESTION
    )
    assert code == 0
    assert "raw prompt, line" in error
    found = json.loads(out)
    assert found["diff"]["prompts_identical"] is False
    assert found["diff"]["prompt_first_divergence"] == divergence(found, "prompt_token_ids") is not None
    assert found["diff"]["first_divergence"] == divergence(found, "answer_token_ids")


def test_the_first_differing_token_of_answers_is_right(machine: Machine) -> None:
    other = raw_text(machine).replace(QUESTION, "What colour is the star?")
    found: Any = machine.ask("--mode", "both", "--image", SHAPES, "--raw-prompt", other, QUESTION)
    assert found["diff"]["answers_identical"] is False
    assert found["diff"]["first_divergence"] == divergence(found, "answer_token_ids") is not None


def test_too_few_placeholders_are_refused_and_too_many_are_harmless(machine: Machine) -> None:
    whole = raw_text(machine)
    placeholder = "<|vision_start|><|image_pad|><|vision_end|>"
    code, out, error = machine.run("ask", "--image", SHAPES, "--raw-prompt", whole.replace(placeholder, ""), "--force")
    assert (code, out) == (2, "")
    assert "0 image placeholders for 1 image" in error
    doubled = whole.replace(placeholder, placeholder * 2)
    code, out, error = machine.run("ask", "--image", SHAPES, "--raw-prompt", doubled, "--force")
    assert (code, out) == (1, "")
    assert "2 image placeholders" in error
    assert "red circle" in said(machine.ask("--image", CIRCLE, QUESTION))


def test_replay_gives_the_same_answers(machine: Machine, tmp_path: Path) -> None:
    document = tmp_path / "both.json"
    machine.ask("--mode", "both", "--image", SHAPES, "--export", str(document), QUESTION)
    code, _, error = machine.run("check", str(document))
    assert code == 0, error
    assert "2 compared: 2 the same" in error
    told = json.loads(document.read_text())
    told["sides"][0]["answer"] = told["sides"][0]["answer"].replace("yellow", "green")
    document.write_text(json.dumps(told))
    assert machine.run("check", str(document))[0] == 1


def test_several_seeds_at_the_same_time(machine: Machine, tmp_path: Path) -> None:
    document = tmp_path / "seeds.json"
    many = ("--fan-out", "seed=1,2,3", "--temperature", "1.5", "--image", SHAPES)
    found: Any = machine.ask(*many, "--export", str(document), QUESTION)
    assert [answer["seed"] for answer in found["answers"]] == [1, 2, 3]
    assert all(answer["answer_token_ids"] for answer in found["answers"])
    again: Any = machine.ask(*many, QUESTION)
    assert [answer["answer_token_ids"] for answer in again["answers"]] == [
        answer["answer_token_ids"] for answer in found["answers"]
    ]
    assert machine.run("check", str(document))[0] == 0


def test_an_attachment_is_sent_at_its_place(machine: Machine) -> None:
    found: Any = machine.ask("--mode", "both", "--image", CIRCLE, "What is in [Image #1]?")
    assert found["diff"]["prompts_identical"] is True
    assert "What is in <|vision_start|>" in found["chat"]["prompt"]


def test_ps_lists_the_model_and_doctor_passes(machine: Machine) -> None:
    machine.run("stop", "--all")  # an engine that runs keeps its own time
    machine.ask("--keep-alive", "10m", QUESTION)
    [listed] = json.loads(machine.run("ps", "--json")[1])
    assert (listed["model"], listed["state"], listed["keep_alive_s"]) == ("shapes", "idle", 600)
    assert listed["rss_bytes"] > 2**28
    code, out, _ = machine.run("doctor", "--json")
    assert (code, json.loads(out)["ok"]) == (0, True), out


async def test_kill_9_during_an_answer_keeps_the_partial_answer(machine: Machine) -> None:
    host = patient_host(machine.paths)
    engine = await host.open(machine.spec, client="test", keep_alive_s=600)
    async for _ in engine.load():
        pass
    request = GenerateRequest(
        request_id="long",
        prompt=ChatPrompt(turns=(user_turn("hello"),)),
        sampling=Sampling(max_tokens=3000, extra={"ignore_eos": True}),
    )
    pieces: list[str] = []
    async for event in engine.generate(request):
        if isinstance(event, Delta):
            if not pieces:
                os.kill(engine.pid, signal.SIGKILL)
            pieces.append(event.text)
    assert isinstance(event, Failed)
    assert event.failure.kind is ErrorKind.ENGINE_DIED
    assert pieces
    machine.wait_until_nothing_runs(within_s=20)
    assert "red circle" in said(machine.ask("--image", CIRCLE, QUESTION))


def test_stop_leaves_no_process(machine: Machine) -> None:
    machine.ask(QUESTION)
    assert len(machine.processes()) >= 3
    code, out, error = machine.run("stop", "shapes")
    assert (code, out) == (0, "")
    assert "was stopped" in error
    assert machine.processes() == []
    assert json.loads(machine.run("ps", "--json")[1]) == []
