"""`vlmtui check` of comparisons, and `ask --on`, with a worker that answers with its prompt."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.command_line import CommandLine, opened
from tests.unit.store.made import exchange
from vlmtui.inspection.replay import from_json, to_json
from vlmtui.store.store import Store


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with (
        tempfile.TemporaryDirectory(prefix="vlmtui-") as folder,
        opened(Path(folder), monkeypatch, capsys) as cli,
    ):
        yield cli


def test_two_engines_answer_below_their_names(cli: CommandLine, tmp_path: Path) -> None:
    kept = tmp_path / "both.json"
    ran = cli("ask", "one two", "--on", "here", "--on", "here dtype=bfloat16", "--export", str(kept))
    assert ran.code == 0, ran.err
    assert ran.out.index("== here ==") < ran.out.index("== here dtype=bfloat16 ==")
    assert "shapes is loaded as well. Needs about" in ran.err
    document = from_json(kept.read_bytes())
    assert [side.label for side in document.sides] == ["here", "here dtype=bfloat16"]
    assert document.sides[0].engine is None and document.sides[1].engine is not None


def test_json_has_the_fingerprint_of_each_engine(cli: CommandLine) -> None:
    found = cli.json("ask", "one two", "--fan-out", 'engine=here,"here max_model_len=512"', "--one-by-one")
    assert [one["engine"] for one in found["answers"]] == ["here", "here max_model_len=512"]
    assert all(one["fingerprint"]["engine"] for one in found["answers"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("q", "--on", "here"), "2 to 64 requests"),
        (("q", "--on", "here", "--on", "here"), "all be different"),
        (("q", "--on", "here", "--on", "nowhere"), "Unknown engine or model"),
        (("q", "--on", "here", "--on", "vllm", "--fan-out", "seed=1,2"), "does not go with --fan-out"),
        (("q", "--one-by-one"), "--one-by-one goes with --on"),
    ],
)
def test_unknown_engines_are_reported_before_a_load(cli: CommandLine, arguments: tuple[str, ...], words: str) -> None:
    ran = cli("ask", *arguments)
    assert (ran.code, ran.out) == (2, ran.out) and words in ran.err
    assert cli.workers == []


def test_a_document_is_checked_on_two_engines(cli: CommandLine, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "one.json"
    kept.parent.mkdir()
    assert cli("ask", "one two", "--export", str(kept), "--keep-alive", "0").code == 0
    ran = cli("check", str(kept.parent), "--on", "here", "--on", "here dtype=bfloat16")
    assert ran.code == 0, ran.err + ran.out
    head, *rows = ran.out.splitlines()
    assert head.split("  ")[0] == "file" and [row.split()[0] for row in rows[:2]] == ["kept/one.json"] * 2
    assert all("✓" in row and "✗" not in row for row in rows[:2])
    assert "2 compared: 2 the same, 0 differ, 0 failed." in ran.err


def test_an_engine_that_is_not_there_fails_alone(cli: CommandLine, tmp_path: Path) -> None:
    kept = tmp_path / "one.json"
    assert cli("ask", "one two", "--export", str(kept), "--keep-alive", "0").code == 0
    engines = ("--on", "http://127.0.0.1:1", str(tmp_path / "none.json"), "--on", "here")
    ran = cli("check", "--on", "nowhere", str(kept), *engines)
    assert ran.code == 2 and "4 compared: 1 the same, 0 differ, 3 failed." in ran.err, ran.err + ran.out
    assert "nowhere: failed: Unknown engine or model" in ran.out
    assert "http://127.0.0.1:1: failed: Nothing listens" in ran.out
    assert "none.json: failed: none.json does not exist" in ran.out
    built_in = cli("check", "--on", "here", "--on", "nowhere", "--model", "shapes", "--case", "text")
    assert built_in.code == 2 and "1 compared: 0 the same, 0 differ, 1 failed." in built_in.err
    assert cli("check", "--on", "nowhere").out == "" and cli.workers == []


def test_kept_results_are_taken_by_the_next_run(cli: CommandLine, tmp_path: Path) -> None:
    kept, folder = tmp_path / "one.json", tmp_path / "results"
    assert cli("ask", "one two", "--export", str(kept), "--keep-alive", "0").code == 0
    command = ("check", str(kept), "--keep", str(folder), "--on", "here")
    first = cli(*command)
    assert first.code == 0 and "already" not in first.err, first.out + first.err
    (file,) = folder.glob("*.json")
    side = json.loads(file.read_bytes())
    file.write_text(json.dumps({**side, "answer": "something else", "answer_ids": [1]}))
    again = cli(*command)
    assert again.code == 1 and f"here: 1 of 1 results are in {folder} already." in again.err, again.out + again.err
    assert cli(*command[:-1], "here dtype=bfloat16").code == 0 and len(list(folder.glob("*.json"))) == 2


def test_a_document_remembers_the_adapter_of_its_answer(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    adapter, kept = tmp_path / "loras" / "my-ocr", tmp_path / "one.json"
    adapter.mkdir(parents=True)
    (adapter / "adapter_config.json").write_text('{"r": 8, "peft_type": "LORA"}')
    ran = cli("ask", "one two", "--adapter", str(adapter), "--export", str(kept), "--keep-alive", "0")
    assert ran.code == 0, ran.err
    document = from_json(kept.read_bytes())
    assert [side.adapter for side in document.sides] == ["~/loras/my-ocr"]
    ran = cli("check", str(kept))
    assert ran.code == 2 and "add --adapter '~/loras/my-ocr'" in ran.out and cli.workers == []
    own = ("--adapter", str(adapter.parent))
    ran = cli("check", str(kept), *own)
    assert ran.code == 0, ran.err + ran.out
    (adapter / "adapter_config.json").unlink()
    ran = cli("check", str(kept), *own)
    assert ran.code == 2 and "one.json: failed: " in ran.out and "my-ocr is no adapter" in ran.out
    assert cli.workers == []


@pytest.mark.parametrize("name", ["/models/mine", "./mine", "~/mine", "mine"])
def test_a_document_has_no_folder_loaded(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    kept = tmp_path / "one.json"
    assert cli("ask", "one two", "--export", str(kept), "--keep-alive", "0").code == 0
    kept.write_bytes(to_json(msgspec.structs.replace(from_json(kept.read_bytes()), model=name)))
    ran = cli("check", str(kept))
    assert ran.code == 2 and "a document must not choose local files" in ran.out and "add --model" in ran.out


def test_a_document_has_nothing_downloaded(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    kept = tmp_path / "one.json"
    assert cli("ask", "one two", "--export", str(kept), "--keep-alive", "0").code == 0
    kept.write_bytes(to_json(msgspec.structs.replace(from_json(kept.read_bytes()), model="qwen2_vl")))
    ran = cli("check", str(kept))
    assert ran.code == 2 and "If you want it, add --model qwen2_vl." in ran.out and cli.workers == []


def test_a_difference_from_the_record_exits_with_1(cli: CommandLine, tmp_path: Path) -> None:
    kept = tmp_path / "one.json"
    assert cli("ask", "one two", "--export", str(kept), "--keep-alive", "0").code == 0
    found = json.loads(kept.read_bytes())
    side = found["sides"][0]
    assert len(side["answer_token_ids"]) > 1
    side["answer_token_ids"][1] += 1
    side["answer"] += "!"
    kept.write_bytes(to_json(from_json(json.dumps(found).encode())))
    ran = cli("check", str(kept), "--json")
    assert ran.code == 1, ran.err
    (result,) = json.loads(ran.out)["results"]
    assert (result["first_difference"], result["same"]) == ("answer", False)
    assert result["stages"][-1]["message"].startswith("from token 1 on: ")


@pytest.mark.parametrize(
    ("content", "words"), [("{}", "recorded"), ('{"format": "vlmtui-comparison-1"}', "Not a vlmtui comparison")]
)
def test_other_files_are_named(cli: CommandLine, tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    ran = cli("check", str(file))
    assert ran.code == 2 and words in ran.out
    assert cli("check", str(tmp_path / "empty-folder")).code == 2


FOREIGN = {
    "a-foreign.json": '{"name": "x", "version": "1.0"}',
    "b-broken.json": '{"format": ',
    "c-newer.json": '{"format": "vlmtui-golden-99"}',
    "d-list.json": "[1, 2]",
    "e-binary.json": "\x00\x1b[31m",
    "z-newer.json": '{"format": "vlmtui-comparison-99"}',
}


def test_foreign_files_in_a_folder_are_named_and_the_others_are_checked(cli: CommandLine, tmp_path: Path) -> None:
    kept = tmp_path / "kept" / "one.json"
    kept.parent.mkdir()
    assert cli("ask", "one two", "--export", str(kept), "--keep-alive", "0").code == 0
    for name, content in FOREIGN.items():
        (kept.parent / name).write_text(content)
    (kept.parent / "f-folder.json").mkdir()
    ran = cli("check", str(kept.parent))
    assert ran.code == 2 and "Traceback" not in ran.err, ran.err
    rows = {row.split()[0]: row for row in ran.out.splitlines()[1:] if row.split()}
    assert all("failed" in rows[f"kept/{name}"] and "\x1b" not in ran.out for name in FOREIGN), ran.out
    assert all(f"{name}: failed: " in ran.out for name in FOREIGN), ran.out
    assert "✓" in rows["kept/one.json"] and "failed" not in rows["kept/one.json"]
    found = json.loads(cli("check", str(kept.parent), "--json").out)
    assert not found["same"] and {Path(one["file"]).name for one in found["results"] if one["error"]} == set(FOREIGN)
    assert [one["same"] for one in found["results"] if not one["error"]] == [True]


def test_changes_of_the_engine_are_reported(cli: CommandLine, tmp_path: Path) -> None:
    kept = tmp_path / "one.json"
    assert cli("ask", "one two", "--export", str(kept), "--keep-alive", "0").code == 0
    found = json.loads(kept.read_bytes())
    assert found["engine_version"]
    found["engine_version"] = "0.1.old"
    kept.write_text(json.dumps(found))
    ran = cli("check", str(kept))
    assert ran.code == 0, ran.err
    assert "engine_version: 0.1.old → " in ran.out


def batch_output(path: Path, right: str) -> str:
    lines = [
        {"id": name, "line": at, "key": "k", "question": "?", "answer": "x", "error": None, "correct": letter == "1"}
        for at, (name, letter) in enumerate(zip("abcdefghij", right, strict=True), 1)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_two_batches_are_compared_item_by_item(cli: CommandLine, tmp_path: Path) -> None:
    before, after = batch_output(tmp_path / "a.jsonl", "1100000011"), batch_output(tmp_path / "b.jsonl", "0111111111")
    ran = cli("check", before, after)
    assert ran.code == 0 and ran.out.splitlines() == [
        "a.jsonl: 4 of 10: 40.0 % (16.8 to 68.7)",
        "b.jsonl: 9 of 10: 90.0 % (59.6 to 98.2)",
        "won: 6 c, d, e, f, g, h",
        "lost: 1 a",
        "McNemar's exact test: p = 0.125",
    ]
    better = batch_output(tmp_path / "c.jsonl", "1111111111")
    assert cli("check", before, better, "--json").code == 1
    ran = cli("check", before, str(tmp_path / "none.jsonl"))
    assert ran.code == 2 and "none.jsonl" in ran.err


def test_batch_items_and_conversations_are_cases(cli: CommandLine, tmp_path: Path) -> None:
    asked, two = tmp_path / "asked.jsonl", ("--model", "shapes", "--on", "here", "--on", "here dtype=bfloat16")
    items = [{"id": "a", "prompt": "one two"}, {"id": "b", "raw": "<|im_start|>user\nhi"}]
    asked.write_text("".join(json.dumps(item) + "\n" for item in items))
    ran = cli("check", str(asked), *two)
    assert ran.code == 0, ran.out + ran.err
    assert [row.split()[1:3] for row in ran.out.splitlines()[1:3]] == [["a", "chat"], ["b", "raw"]]
    ran = cli("check", str(asked), "--on", "here")
    assert ran.code == 2 and "The file names no model" in ran.out and "--model" in ran.out
    asked.write_text('{"id": "a"}\n')
    ran = cli("check", str(asked), *two)
    assert ran.code == 2 and "line 1: An item has one of prompt, messages and raw." in ran.out

    store = Store.open(cli.paths.data, cli.paths.media)
    conversation = store.new_conversation(title="A talk", model="shapes")
    exchange(store, conversation, 1)
    store.close()
    exported = tmp_path / "talk.json"
    assert cli("export", conversation, "-o", str(exported)).code == 0
    ran = cli("check", str(exported), *two)
    assert ran.code == 0, ran.out + ran.err
    assert ran.out.splitlines()[1].split()[1:4] == ["answer", "1", "chat"]
