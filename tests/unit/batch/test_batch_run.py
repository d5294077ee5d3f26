"""A batch's items are answered once each, whatever fails on the way."""

from __future__ import annotations

import asyncio
import base64
import errno
import io
import os
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from PIL import Image

from tests.support.batches import Bench, Gate
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.session.batch import media_desk, results
from vlmtui.session.batch.items import MediaSource, items_over_files
from vlmtui.session.batch.run import Tally


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_each_item_has_its_answer(bench: Bench) -> None:
    bench.questions(range(300))
    tally = await bench.run()
    assert bench.answers() == {f"{n}": f"said: question {n} 0" for n in range(300)}
    assert (tally.answered, tally.failed, tally.done) == (300, 0, 300)
    assert 1 < bench.engines[0].most <= 32


async def test_answered_items_are_skipped(bench: Bench) -> None:
    bench.questions(range(20))
    await bench.run()
    bench.questions(range(25))
    tally = await bench.run()
    assert (tally.answered_before, tally.answered) == (20, 5)
    assert sorted(bench.engines[1].asked) == sorted(f"question {n}" for n in range(20, 25))
    assert len(bench.answers()) == 25


async def test_changed_items_are_sent_again_and_counted(bench: Bench) -> None:
    for name in ("a", "b"):
        Image.new("RGB", (32, 32), "red").save(bench.folder / f"{name}.png")
    items: list[dict[str, object]] = [{"id": name, "images": [f"{name}.png"], "prompt": "what?"} for name in ("a", "b")]
    bench.write(*items, {"id": "c", "prompt": "why?"}, {"id": "d", "prompt": "when?"})
    await bench.run()
    Image.new("RGB", (32, 32), "blue").save(bench.folder / "b.png")
    bench.write(*items, {"id": "c", "prompt": "why not?"}, {"id": "d", "prompt": "when?", "sampling": {"seed": 1}})
    tally = await bench.run()
    assert tally.changed == 3
    assert sorted(bench.engines[1].asked) == ["what?", "when?", "why not?"]
    assert bench.answers()["c"] == "said: why not? 0"
    bench.sampling = msgspec.structs.replace(bench.sampling, temperature=0.5)
    assert (await bench.run()).changed == 4
    sampling = {"seed": 1, "chat_template_kwargs": {"enable_thinking": False}}
    bench.write(*items, {"id": "c", "prompt": "why not?"}, {"id": "d", "prompt": "when?", "sampling": sampling})
    assert (await bench.run()).changed == 1


async def test_an_answered_item_whose_file_is_gone_keeps_its_answer(bench: Bench) -> None:
    Image.new("RGB", (32, 32)).save(bench.folder / "a.png")
    bench.write({"id": "a", "images": ["a.png"], "prompt": "what?"})
    await bench.run()
    (bench.folder / "a.png").unlink()
    tally = await bench.run()
    assert (tally.answered_before, tally.failed) == (1, 0)
    assert bench.answers() == {"a": "said: what? 1"}


async def test_a_wrong_line_costs_one_line_with_its_number(bench: Bench) -> None:
    (bench.folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nbut no more")
    bench.write(
        {"id": "a", "prompt": "fine"},
        "not json",
        {"id": "b", "promt": "x"},
        {"id": "a", "prompt": "again"},
        {"id": "c", "images": ["broken.png"], "prompt": "x"},
        {"id": "d", "images": ["missing.png"], "prompt": "x"},
        {"id": "e", "prompt": "x", "sampling": {"temperature": 9}},
        {"prompt": "no id"},
        {"id": "g", "prompt": "fine, too"},
    )
    tally = await bench.run()
    assert (tally.answered, tally.failed) == (2, 7)
    errors = {line["line"]: (line["id"], line["error"]) for line in bench.lines() if line["error"]}
    assert {number: name for number, (name, _) in errors.items()} == {
        2: None, 3: "b", 4: None, 5: "c", 6: "d", 7: "e", 8: None,
    }  # fmt: skip
    assert all(error["message"].startswith(f"Line {number}: ") for number, (_, error) in errors.items())  # type: ignore[index]
    assert "unknown field `promt`" in errors[3][1]["message"]  # type: ignore[index]
    assert "is also used in line 1" in errors[4][1]["message"]  # type: ignore[index]


async def test_whatever_an_item_names_costs_only_its_line(bench: Bench) -> None:
    (bench.folder / "dangling.png").symlink_to("nowhere")
    (bench.folder / "circle.png").symlink_to("circle.png")
    os.mkfifo(bench.folder / "fifo.png")
    (bench.folder / "empty.png").touch()
    names = [
        "a" * 5000, "a" * 5000 + "#page=2", "/".join(["ab"] * 3000), "/", ".", "..", "..#page=1", ".#page=1", "x\0.png",
        "\ud800.png", "dangling.png", "circle.png", "fifo.png", "fifo.png/below.png", "empty.png", "/proc/self/mem",
        "~nobody-at-all/a.png", "file://host/a.png", "data:image/png;base64,%%", "data:image/png;base64,AAAA",
        "data:image/png;base64,é", "data:,hello", "data:", "http://[::1", "#sound", "x#sound",
    ]  # fmt: skip
    lines = [{"id": f"{n}", "images": [name], "prompt": "x"} for n, name in enumerate(names)]
    sounds = [{"id": f"s{n}", "audios": [name], "prompt": "x"} for n, name in enumerate(names)]
    bench.write(*lines, *sounds, {"id": "good", "prompt": "fine"})
    tally = await bench.run()
    assert (tally.answered, tally.failed) == (1, 2 * len(names)), bench.answers()
    tally = await bench.run()
    assert (tally.answered_before, tally.failed + tally.failed_before) == (1, 2 * len(names)), "it goes on"


@pytest.mark.parametrize("failure", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOSPC, errno.EMFILE, None])
async def test_an_error_of_the_system_is_the_items_unless_the_machine_is_at_fault(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, failure: int | None
) -> None:
    def fails(desk: media_desk.MediaDesk, source: MediaSource) -> str:
        raise ValueError("odd") if failure is None else OSError(failure, os.strerror(failure))

    Image.new("RGB", (32, 32)).save(bench.folder / "a.png")
    bench.write({"id": "a", "images": ["a.png"], "prompt": "what?"}, {"id": "b", "prompt": "fine"})
    monkeypatch.setattr(media_desk.MediaDesk, "content", fails)
    if failure in (errno.ENOSPC, errno.EMFILE):
        with pytest.raises(OSError, match=os.strerror(failure)):
            await bench.run()
    else:
        assert ((await bench.run()).failed, bench.answers()) == (1, {"a": None, "b": "said: fine 0"})


async def test_a_file_that_vanishes_before_it_is_loaded_costs_its_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = media_desk.MediaDesk.content

    def vanishes(desk: media_desk.MediaDesk, source: MediaSource) -> str:
        found = content(desk, source)
        Path(source.place).unlink()
        return found

    Image.new("RGB", (32, 32)).save(bench.folder / "a.png")
    bench.write({"id": "a", "images": ["a.png"], "prompt": "what?"}, {"id": "b", "prompt": "fine"})
    monkeypatch.setattr(media_desk.MediaDesk, "content", vanishes)
    assert ((await bench.run()).failed, bench.answers()) == (1, {"a": None, "b": "said: fine 0"})


async def test_every_form_of_base64_is_read(bench: Bench) -> None:
    image = io.BytesIO()
    Image.effect_noise((32, 32), 90).save(image, "PNG")
    plain = base64.b64encode(image.getvalue()).decode()
    assert {"+", "/"} <= set(plain)
    forms = [plain, plain.rstrip("="), plain.replace("+", "-").replace("/", "_"), quote(plain, safe=""),
             "\n".join(plain[start : start + 76] for start in range(0, len(plain), 76))]  # fmt: skip
    bench.write(*({"id": f"{n}", "images": [f"data:image/png;base64,{form}"], "prompt": "x"}
                  for n, form in enumerate(forms)))  # fmt: skip
    assert (await bench.run()).answered == len(forms)


@pytest.mark.parametrize(("kind", "times"), [(ErrorKind.PROTOCOL, 2), (ErrorKind.NO_NETWORK, 4)])
async def test_an_unreadable_answer_of_a_server_costs_its_line_and_not_the_engine(
    bench: Bench, kind: ErrorKind, times: int
) -> None:
    bench.trouble = lambda question: kind if "odd" in question else None
    bench.write(*({"id": f"{n}", "prompt": f"odd {n}"} for n in range(9)), {"id": "b", "prompt": "fine"})
    assert ((await bench.run()).failed, len(bench.engines)) == (9, 1)
    assert bench.answers()["b"] == "said: fine 0" and bench.asked.count("odd 1") == times


async def test_an_answer_without_text_is_an_error_that_is_not_asked_twice(bench: Bench) -> None:
    bench.trouble = lambda question: ErrorKind.NO_ANSWER if question == "tool" else None
    bench.write({"id": "a", "prompt": "tool"}, {"id": "b", "prompt": "fine"})
    assert (await bench.run()).failed == 1
    assert bench.engines[0].asked.count("tool") == 1
    assert results.score_of(bench.output).errors == {"no_answer": 1}


async def test_retry_errors_replaces_their_lines(bench: Bench) -> None:
    refused = {"question 1"}
    bench.trouble = lambda question: ErrorKind.BAD_INPUT if question in refused else None
    bench.write({"id": "0", "prompt": "question 0"}, {"id": "1", "prompt": "question 1"}, "not json")
    await bench.run()
    tally = await bench.run()
    assert (tally.answered_before, tally.failed_before, tally.failed) == (1, 1, 1)
    assert bench.engines[1].asked == []
    refused.clear()
    bench.questions(range(3))
    tally = await bench.run(retry_errors=True)
    assert (tally.answered_before, tally.answered, tally.failed) == (1, 2, 0)
    assert set(bench.answers()) == {"0", "1", "2"}


async def test_a_repaired_line_loses_its_error(bench: Bench) -> None:
    bench.write({"id": "0", "prompt": "question 0"}, "not json")
    await bench.run()
    bench.questions(range(2))
    assert (await bench.run()).answered == 1
    assert set(bench.answers()) == {"0", "1"}


async def test_items_of_a_dead_engine_are_sent_again(bench: Bench) -> None:
    deaths = iter(["question 7", "question 30", "question 31"])
    next_death = next(deaths)

    def trouble(question: str) -> ErrorKind | None:
        nonlocal next_death
        if question != next_death:
            return None
        next_death = next(deaths, "")
        return ErrorKind.ENGINE_DIED

    bench.trouble = trouble
    bench.questions(range(60))
    tally = await bench.run()
    assert (tally.answered, tally.failed) == (60, 0)
    assert bench.answers() == {f"{n}": f"said: question {n} 0" for n in range(60)}
    assert len(bench.engines) >= 3


async def test_a_batch_ends_when_its_engine_comes_back_with_other_files(bench: Bench) -> None:
    bench.trouble = lambda question: ErrorKind.ENGINE_DIED if question == "question 1" else None
    bench.files = iter(["one", "two"])
    bench.questions(range(3))
    with pytest.raises(VlmtuiError, match="changed during the batch") as told:
        await bench.run()
    assert told.value.kind is ErrorKind.MODEL_CHANGED
    assert bench.engines[1].asked == [] and not bench.engines[1].alive


async def test_the_keys_are_of_the_files_that_the_engine_has(bench: Bench) -> None:
    bench.files = iter(["one", "one", "two"])
    bench.questions(range(1))
    assert (await bench.run()).answered == 1
    assert (await bench.run()).answered_before == 1
    assert (await bench.run()).changed == 1


@pytest.mark.parametrize(
    ("kind", "answered"), [(ErrorKind.INTERNAL, 10), (ErrorKind.ENGINE_BUSY, 10), (ErrorKind.BAD_INPUT, 9)]
)
async def test_a_failure_that_may_pass_is_asked_once_more(bench: Bench, kind: ErrorKind, answered: int) -> None:
    once = {"question 5"}

    def trouble(question: str) -> ErrorKind | None:
        if question not in once:
            return None
        once.remove(question)
        return kind

    bench.trouble = trouble
    bench.questions(range(10))
    assert (await bench.run()).answered == answered


async def test_the_item_that_kills_the_engine_is_found_and_the_others_are_answered(bench: Bench) -> None:
    bench.trouble = lambda question: ErrorKind.ENGINE_DIED if question == "question 3" else None
    bench.questions(range(40))
    tally = await bench.run()
    assert (tally.answered, tally.failed) == (39, 1)
    assert bench.answers()["3"] is None


async def test_cancelled_items_are_sent_again(bench: Bench) -> None:
    once = {"question 5"}

    def trouble(question: str) -> ErrorKind | None:
        if question not in once:
            return None
        once.remove(question)
        bench.engines[-1].die()
        return ErrorKind.NOT_KEPT  # stands for a cancelled answer

    bench.trouble = trouble
    bench.questions(range(10))
    assert (await bench.run()).answered == 10


async def test_as_many_requests_as_allowed_are_with_the_engine_at_once(bench: Bench) -> None:
    bench.questions(range(200))
    bench.gate = Gate(4)
    tally = await bench.run(most=4)
    assert tally.answered == 200
    assert bench.engines[0].most == 4
    assert sorted(bench.asked) == sorted(f"question {n}" for n in range(200))


async def test_cancelling_keeps_the_answers(bench: Bench) -> None:
    bench.questions(range(500))
    task: asyncio.Task[Tally]

    def stop(question: str) -> None:
        if len(bench.asked) > 200:
            task.cancel()

    bench.trouble = stop
    task = asyncio.create_task(bench.run())
    with pytest.raises(asyncio.CancelledError):
        await task
    first = bench.answers()
    assert 50 < len(first) < 500
    bench.trouble = lambda question: None
    again = await bench.run()
    assert again.answered_before == len(first)
    assert again.answered == 500 - len(first)
    assert len(bench.answers()) == 500
    assert not list((bench.folder / "cache" / "batches").iterdir())


async def test_a_full_disk_stops_the_batch_and_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.questions(range(100))
    room = 5_000

    def pwrite(descriptor: int, data: memoryview, place: int) -> int:
        if place + len(data) > room:
            os.pwrite(descriptor, data[: max(0, room - place)], place)
            raise OSError(28, "No space left on device")
        return os.pwrite(descriptor, data, place)

    monkeypatch.setattr(results, "os", _Patched(os, pwrite))
    with pytest.raises(VlmtuiError) as failed:
        await bench.run()
    assert failed.value.kind is ErrorKind.DISK_FULL
    monkeypatch.undo()
    written = len(bench.lines())
    tally = await bench.run()
    assert (tally.answered_before, tally.answered) == (written, 100 - written)
    assert len(bench.answers()) == 100


class _Patched:
    """The module `os` with another `pwrite`."""

    def __init__(self, module: object, pwrite: object) -> None:
        self._module = module
        self.pwrite = pwrite

    def __getattr__(self, name: str) -> object:
        return getattr(self._module, name)


async def test_a_line_may_have_more_fields(bench: Bench) -> None:
    Image.new("RGB", (32, 32), "red").save(bench.folder / "a.tif", tiffinfo={254: 1})
    bench.write({"id": "a", "images": ["a.tif"], "prompt": "what?", "expect": {"regex": "^said"}})
    tally = await bench.run(includes_prompt=True)
    (line,) = bench.lines()
    assert line["prompt"] == "what?"
    assert line["warnings"] == ["a.tif: not as in a viewer: a reduced copy of another image."]
    assert isinstance(line["media"], list) and len(line["media"]) == 1
    assert line["correct"] is True
    assert tally.answered == 1


async def test_an_expectation_that_cannot_be_checked_fails_its_item_alone(bench: Bench) -> None:
    bench.write(
        {"id": "endless", "prompt": "a" * 60, "expect": {"regex": "(a|aa)+b"}},
        {"id": "itself", "prompt": "itself", "expect": {"json_schema": {"$ref": "#"}}},
        {"id": "good", "prompt": "good", "expect": {"regex": "good"}},
    )
    tally = await bench.run()
    assert (tally.answered, tally.failed, "itself" in bench.asked) == (1, 2, False)
    found = {str(line["id"]): (line["correct"], line["error"]) for line in bench.lines() if line["id"] != "itself"}
    assert found["good"] == (True, None)
    assert "Line 1: expect has a regular expression that can't be checked." in str(found["endless"])
    assert len(bench.lines()) == 3 and "said: aaa" in str(bench.answers()["endless"])
    again = await bench.run()
    assert (again.answered, again.answered_before, again.failed_before) == (0, 1, 1), "nothing is asked again"


async def test_an_unexpected_exception_ends_the_batch(bench: Bench) -> None:
    def trouble(question: str) -> ErrorKind | None:
        raise ZeroDivisionError(question)

    bench.trouble = trouble
    bench.questions(range(5))
    with pytest.raises(ZeroDivisionError):
        await bench.run()


async def test_a_full_cache_folder_stops_the_batch_and_fails_no_item(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        raise VlmtuiError(ErrorKind.DISK_FULL, "The disk is full.")

    Image.new("RGB", (32, 32)).save(bench.folder / "a.png")
    bench.write({"id": "a", "images": ["a.png"], "prompt": "what?"})
    with monkeypatch.context() as patched:
        patched.setattr(media_desk, "stage_as", full)
        with pytest.raises(VlmtuiError, match="disk is full"):
            await bench.run()
    assert bench.lines() == []
    assert (await bench.run()).answered == 1


def test_a_file_name_that_is_not_text_becomes_an_id(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/\xff.png"
    with open(name, "wb") as file:  # noqa: PTH123  (bytes)
        file.write(b"\x89PNG\r\n\x1a\n")
    (item,) = items_over_files([("image", str(tmp_path))], "what?")
    assert item.id.endswith("\\xff.png")
    assert os.fsencode(item.sources[0].place) == name


def test_a_pattern_without_files_is_refused_before_the_first_question(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for pattern, said in (("*.gif", "There is no image in"), ("a" * 300 + ".png", "too long for a path"),
                          ("a.png/b", "does not exist"), ("\0", "Can.t read")):  # fmt: skip
        with pytest.raises(VlmtuiError, match=said):
            items_over_files([("image", str(tmp_path)), ("image", str(tmp_path / pattern))], "what?")


def test_the_files_of_a_folder_come_by_name(tmp_path: Path) -> None:
    for name in ("c.png", "a.png", "d.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    found = items_over_files([("image", str(tmp_path)), ("image", str(tmp_path / "[cd].png"))], "what?")
    assert [Path(item.sources[0].place).name for item in found] == [
        "a.png",
        "b.png",
        "c.png",
        "d.png",
        "c.png",
        "d.png",
    ]
