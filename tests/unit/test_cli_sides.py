"""`vlmtui ask` with raw prompts, both modes, fan-outs and exports, with a worker that answers with its prompt."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.support.command_line import CommandLine, opened
from tests.support.scripted_tokens import token_id
from vlmtui.inspection.replay import from_json
from vlmtui.paths import bundled

CIRCLE = str(bundled("samples") / "circle.png")
PAD = "<|vision_start|><|image_pad|><|vision_end|>"
TAIL = "<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with (
        tempfile.TemporaryDirectory(prefix="vlmtui-") as folder,
        opened(Path(folder), monkeypatch, capsys) as cli,
    ):
        yield cli


def raw(text: str) -> str:
    return f"<|im_start|>user\n{text}{TAIL}"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "QUESTION is missing"),
        (("--mode", "both", "--raw-prompt", "x"), "QUESTION is missing"),
        (("q", "--mode", "chat", "--raw-prompt", "x"), "no place in --mode chat"),
        (("q", "--mode", "both", "--fan-out", "seed=1,2"), "one mode"),
        (("-", "--mode", "both", "--raw-prompt", "@-"), "both be read from stdin"),
        (("q", "--logprobs", "21"), "between 0 and 20"),
        (("--raw-prompt", " "), "raw prompt is empty"),
        (("--raw-prompt", "@/no/such/prompt"), "cannot be read"),
        (("q", "--export", "answer.pdf"), "must end in"),
        (("q", "--fan-out", "topk=1,2"), "Parameters: temperature, top_p, top_k"),
        (("q", "--fan-out", "seed=1,,2"), "is not a list of values"),
        (("q", "--fan-out", "seed=1.5,2"), "must be a whole number"),
        (("q", "--fan-out", "seed"), "not a list of values"),
        (("q", "--fan-out", "seed=1"), "2 to 64 requests"),
        (("q", "--fan-out", "temperature=0,99"), "between 0 and 2"),
        (("q", "--fan-out", "seed=1..65"), "not a range of 2 to 64"),
    ],
)
def test_incompatible_options_are_reported_before_a_load(
    cli: CommandLine, arguments: tuple[str, ...], words: str
) -> None:
    ran = cli("ask", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert words in ran.err
    assert cli.workers == []


def test_both_prompts_and_where_they_differ(cli: CommandLine) -> None:
    found = cli.json("ask", "one two", "--mode", "both", "--raw-prompt", "user: one two")
    assert set(found) == {"chat", "raw", "diff"}
    assert found["chat"]["prompt_token_ids"] == found["raw"]["prompt_token_ids"] == ids("user:", " one", " two")
    assert found["diff"] == {
        "prompts_identical": True,
        "answers_identical": True,
        "first_divergence": None,
        "prompt_first_divergence": None,
    }
    other = cli.json("ask", "one two", "--mode", "both", "--raw-prompt", "user: one three")
    assert other["raw"]["answer"] == "user: one three "
    assert other["diff"] == {
        "prompts_identical": False,
        "answers_identical": False,
        "first_divergence": first_difference(other["chat"], other["raw"], "answer_token_ids"),
        "prompt_first_divergence": first_difference(other["chat"], other["raw"], "prompt_token_ids"),
    }
    assert other["diff"]["prompt_first_divergence"] == 2


def ids(*texts: str) -> list[int]:
    return [token_id(text) for text in texts]


def first_difference(one: dict[str, Any], other: dict[str, Any], name: str) -> int:
    pairs = zip(one[name], other[name], strict=False)
    return next(number for number, (left, right) in enumerate(pairs) if left != right)


def test_both_answers_and_their_difference_are_printed(cli: CommandLine) -> None:
    ran = cli("ask", "one two", "--mode", "both", "--raw-prompt", raw("one two"))
    assert ran.code == 0
    chat, between, raw_answer = ran.out.partition("\n== raw ==\n")
    assert between
    assert chat == "== chat ==\nuser: one two \n"
    assert raw_answer.startswith("<|im_start|>user one two")
    assert "The prompts differ." in ran.err
    assert "The answers differ." in ran.err


def test_a_raw_prompt_is_sent_as_it_is(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(raw(f"{PAD}what?"))
    for given, stdin in ((f"@{file}", ""), ("@-", file.read_text())):
        ran = cli("ask", "--raw-prompt", given, "--image", CIRCLE, "--json", stdin=stdin)
        assert ran.code == 0, ran.err
        answer = json.loads(ran.out)
        assert answer["prompt"] == raw("<|vision_start|>" + "<|image_pad|>" * 16 + "<|vision_end|>what?")
        assert answer["mode"] == "raw"
        assert len(answer["prompt_token_ids"]) == answer["usage"]["prompt_tokens"]
    ran = cli("ask", "what?", "--raw-prompt", raw("other"))
    assert ran.out.startswith("<|im_start|>user other")
    assert "without QUESTION" in ran.err


def test_the_guard_reports_findings_and_refuses_harmful_prompts(cli: CommandLine) -> None:
    ran = cli("ask", "--raw-prompt", raw("what?"), "--image", CIRCLE)
    assert (ran.code, ran.out) == (2, "")
    assert "line 2, column 1: The prompt has 0 image placeholders" in ran.err
    assert "fix: insert" in ran.err
    assert cli.workers == []
    assert cli("ask", "--raw-prompt", raw("what?"), "--image", CIRCLE, "--force").code == 2
    too_many = raw(f"{PAD}{PAD}what?")
    ran = cli("ask", "--raw-prompt", too_many, "--image", CIRCLE)
    assert ran.code == 2
    assert "--force" in ran.err
    assert cli.workers == []
    ran = cli("ask", "--raw-prompt", too_many, "--image", CIRCLE, "--force")
    assert ran.code == 0
    assert "2 image placeholders for 1 image" in ran.err


def test_odd_prompts_are_reported_and_sent(cli: CommandLine) -> None:
    ran = cli("ask", "--raw-prompt", "<|im_start|>user\nwhat?<|im_start|>assistant\n<|nothing|>")
    assert ran.code == 0
    assert "is not closed" in ran.err or "end" in ran.err
    assert "<|nothing|>" in ran.err
    assert "Traceback" not in ran.err
    assert cli("ask", "--mode", "raw", "one").err.count("raw prompt, line") == 0


def test_log_probabilities(cli: CommandLine) -> None:
    answer = cli.json("ask", "one", "--logprobs", "2")
    assert len(answer["logprobs"]) == len(answer["answer_token_ids"]) == answer["usage"]["completion_tokens"]
    first = answer["logprobs"][0]
    assert first["token_id"] == answer["answer_token_ids"][0]
    assert first["logprob"] < 0
    assert [set(one) for one in first["top"]] == [{"token_id", "token", "logprob"}] * 2
    plain = cli.json("ask", "one")
    assert {"logprobs", "prompt_token_ids", "mode"}.isdisjoint(plain)


def test_several_values_at_the_same_time(cli: CommandLine) -> None:
    found = cli.json("ask", "one", "--fan-out", "temperature=0,0.7,1")
    assert found["parameters"] == ["temperature"]
    assert [answer["temperature"] for answer in found["answers"]] == [0.0, 0.7, 1.0]
    assert [answer["answer"] for answer in found["answers"]] == ["user: one "] * 3
    ran = cli("ask", "one", "--fan-out", "seed=1,2")
    assert ran.out == "== seed 1 ==\nuser: one \n\n== seed 2 ==\nuser: one \n"
    assert "At temperature 0" in ran.err
    assert "identical" in ran.err
    assert "At temperature 0" not in cli("ask", "one", "--temperature", "1", "--fan-out", "seed=1,2").err


def test_the_command_line_fans_out_over_everything_that_the_app_does(cli: CommandLine, tmp_path: Path) -> None:
    document = tmp_path / "a.json"
    found = cli.json("ask", "one", "--fan-out", "max_tokens = 5, 7 temperature=0.7 seed=3", "--export", str(document))
    assert [answer["max_tokens"] for answer in found["answers"]] == [5, 7]
    written = from_json(document.read_bytes())
    assert (written.sampling.seed, written.sampling.temperature) == (3, 0.7)
    assert [side.sampling for side in written.sides] == [{"max_tokens": 5}, {"max_tokens": 7}]
    assert [side.label for side in written.sides] == ["max tokens 5", "max tokens 7"]
    assert cli("check", str(document)).code == 0


def test_a_failed_lane_keeps_the_other_answers(cli: CommandLine) -> None:
    ran = cli("ask", "one", "--mode", "both", "--raw-prompt", raw("half fail "), "--json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert found["chat"]["finish_reason"] == "stop"
    assert found["raw"]["finish_reason"] == "failed"
    assert found["raw"]["answer"].endswith("half ")
    assert found["diff"]["answers_identical"] is None
    assert "too long" in ran.err


def test_documents(cli: CommandLine, tmp_path: Path) -> None:
    for name in ("a.md", "a.html", "a.json"):
        ran = cli("ask", "one <b>", "--image", CIRCLE, "--mode", "both", "--export", str(tmp_path / "new" / name))
        assert ran.code == 0, ran.err
        assert "Written" in ran.err
    page = (tmp_path / "new" / "a.html").read_text()
    assert "data:image/png;base64," in page
    assert "one <b>" not in page
    assert "## Raw" in (tmp_path / "new" / "a.md").read_text()
    document = (tmp_path / "new" / "a.json").read_bytes()
    assert str(cli.paths.data).encode() not in document
    comparison = from_json(document)
    assert [side.mode for side in comparison.sides] == ["chat", "raw"]
    assert comparison.attachments[0].content == Path(CIRCLE).read_bytes()


def test_an_exported_page_shows_images_of_every_format(cli: CommandLine, tmp_path: Path) -> None:
    Image.new("RGB", (8, 6), "red").save(tmp_path / "scan.tiff")
    page = tmp_path / "a.html"
    assert cli("ask", "one", "--image", str(tmp_path / "scan.tiff"), "--export", str(page)).code == 0
    assert "data:image/png;base64," in page.read_text()


def test_a_document_is_run_again(cli: CommandLine, tmp_path: Path) -> None:
    document = tmp_path / "a.json"
    assert cli("ask", "one", "--image", CIRCLE, "--mode", "both", "--export", str(document)).code == 0
    for file in cli.paths.media.rglob("*.png"):
        file.unlink()
    ran = cli("check", str(document))
    assert ran.code == 0, ran.out + ran.err
    assert "2 compared: 2 the same, 0 differ, 0 failed." in ran.err
    told = json.loads(document.read_text())
    side = told["sides"][1]
    side["answer_token_ids"][1] += 1
    side["answer"] = "something else"
    document.write_text(json.dumps(told))
    ran = cli("check", str(document))
    assert ran.code == 1
    assert "raw · here: answer: from token 1 on: " in ran.out
    assert "2 compared: 1 the same, 1 differ, 0 failed." in ran.err


def test_a_fan_out_is_run_again_with_the_same_values(cli: CommandLine, tmp_path: Path) -> None:
    document = tmp_path / "a.json"
    assert cli("ask", "one", "--fan-out", "seed=3,4", "--logprobs", "1", "--export", str(document)).code == 0
    ran = cli("check", str(document), "--json")
    assert [one["case"] for one in json.loads(ran.out)["results"]] == ["seed 3 chat", "seed 4 chat"]
    assert ran.code == 0


def test_an_unusable_document_is_refused_before_anything_is_loaded(cli: CommandLine, tmp_path: Path) -> None:
    document = tmp_path / "a.json"
    assert cli("ask", "one", "--image", CIRCLE, "--export", str(document)).code == 0
    cli("stop", "--all")
    whole = json.loads(document.read_text())
    without_request = json.loads(document.read_text())
    del without_request["sides"][0]["request"]
    without_bytes = json.loads(document.read_text())
    del without_bytes["attachments"][0]["data"]
    unlisted = json.loads(document.read_text())
    unlisted["attachments"] = []
    for file in cli.paths.media.rglob("*.png"):
        file.unlink()
    for content, words in (
        (document.read_text()[:-40], "Not a vlmtui comparison"),
        (json.dumps({**whole, "more": 1}), "Not a vlmtui comparison"),
        (json.dumps(without_request), "has no request"),
        (json.dumps(without_bytes), "neither in the document"),
        (json.dumps(unlisted), "does not list"),
        (json.dumps({**whole, "model": "no-such-model"}), "no-such-model"),
    ):
        document.write_text(content)
        ran = cli("check", str(document))
        assert ran.code == 2 and words in ran.out, ran.out + ran.err
    assert json.loads(cli("ps", "--json").out) == []


def test_labels_get_their_probability(cli: CommandLine, tmp_path: Path) -> None:
    found = cli.json("ask", "one two", "--labels", "yes,no")
    assert set(found["labels"]) == {"yes", "no"} and found["logprobs"]
    output = tmp_path / "out.jsonl"
    asked = tmp_path / "asked.jsonl"
    asked.write_text('{"id": "a", "prompt": "one two"}\n')
    assert cli("batch", str(asked), "-o", str(output), "--labels", "yes,no").code == 0
    assert set(json.loads(output.read_text())["labels"]) == {"yes", "no"}
    ran = cli("ask", "one", "--labels", "yes,yes")
    assert ran.code == 2 and "two or more different labels" in ran.err
