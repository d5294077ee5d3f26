"""The inspector: the prompt as the model got it, and the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from tests.support.pictures import Easel
from tests.support.scripted_engine import DEFAULT_SPEC, Hold, Say, ScriptedEngine, Step, scripted_info
from tests.support.waiting import until
from tests.ui.conftest import StartChat
from tests.ui.test_frames import make_film
from vlmtui.domain.conversation import Attachment, Turn, user_turn
from vlmtui.domain.generation import GenerateRequest, PromptReady
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.interface import Engine
from vlmtui.registry.loader import Registry
from vlmtui.registry.schema import Family
from vlmtui.session.engines import engine_died
from vlmtui.session.generation import Answer, make_request, run_turn
from vlmtui.session.prompt_report import PARTS, AnswerToken, Part, PromptReport, made_here
from vlmtui.session.seeing import RoomImage
from vlmtui.store.records import GenerationRecord
from vlmtui.ui.chat.screen import ChatScreen
from vlmtui.ui.document.lines import as_written
from vlmtui.ui.inspector.answer_tokens import LogprobText, TokenBlock
from vlmtui.ui.inspector.prompt_lines import TokenTable
from vlmtui.ui.inspector.screen import InspectorScreen
from vlmtui.ui.seeing.room import ImageRoom
from vlmtui.ui.terminal.graphics import Graphics
from vlmtui.ui.terminal.themes import DARK, VARIABLES
from vlmtui.ui.widgets.attachment_view import AttachmentView
from vlmtui.ui.widgets.search_bar import SearchBar

SIZES = pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=["80x24", "120x40"])
SHAPES = Registry.bundled()["shapes"]
TEMPLATE = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
INFO = msgspec.structs.replace(
    scripted_info(),
    chat_template=TEMPLATE,
    special_tokens=("<|im_start|>", "<|im_end|>", "<image>"),
    stop_tokens=("<|im_end|>", "<|endoftext|>"),
    revision="0123abc",
)
DOUBTFUL: list[Step] = [
    Say("A ", top={"A ": -0.01, "The ": -4.7}),
    Say("red ", top={"red ": -0.4, "blue ": -1.1}),
    Say("circle\n", top={"square\n": -0.5, "circle\n": -1.6}),
    Say("[/x]\x1b[31m", top={"[/x]\x1b[31m": -3.5}),
]


class Host(App[None]):
    def __init__(
        self,
        inspected: PromptReport,
        engine: ScriptedEngine | None,
        cache: Path,
        *,
        again: Callable[[], GenerateRequest] | None = None,
    ) -> None:
        super().__init__()
        self.graphics = Graphics("halfcell")
        self.engine = engine
        self.engines = self
        self.services = SimpleNamespace(paths=SimpleNamespace(thumbnails=cache))
        self.animation_level = "none"
        self._made = (inspected, again)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        inspected, again = self._made
        self.push_screen(InspectorScreen(inspected, again=again))

    def open_images(self, images: list[RoomImage], at: int) -> None:
        folder, engine = self.services.paths.thumbnails, self.require_engine
        self.push_screen(ImageRoom(images, at, engine=engine, family=lambda _: None, store=folder, folder=folder))

    def require_engine(self) -> Engine:
        if self.engine is None:
            raise engine_died()
        return self.engine

    @property
    def inspector(self) -> InspectorScreen:
        assert isinstance(self.screen, InspectorScreen)
        return self.screen

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.screen._compositor.render_strips())

    @property
    def notes(self) -> str:
        return "\n".join(note.message for note in self._notifications)


async def opened(pilot: Pilot[None]) -> Host:
    app = pilot.app
    assert isinstance(app, Host)
    await until(pilot, lambda: isinstance(app.screen, InspectorScreen) and app.inspector.taken is not None)
    await pilot.pause()
    return app


async def engine_of(*answers: list[Step]) -> ScriptedEngine:
    engine = ScriptedEngine(DEFAULT_SPEC, answers=answers, info=INFO)
    async for _ in engine.load():
        pass
    return engine


async def asked(engine: ScriptedEngine, *turns: Turn, family: Family = SHAPES) -> PromptReport:
    request = make_request(family, turns, Sampling(seed=7))
    answer = Answer(request.request_id)
    async for event, _ in run_turn(engine, request):
        answer.take(event)
    return PromptReport.of_answer("exchange 1", answer, request=request, info=engine.info)


@pytest.fixture
def circle(tmp_path: Path) -> Attachment:
    return Easel(tmp_path).picture(("red", "circle", "top left")).attachment


@SIZES
async def test_every_part_is_shown(circle: Attachment, tmp_path: Path, size: tuple[int, int]) -> None:
    engine = await engine_of(list(DOUBTFUL))
    inspected = await asked(engine, user_turn("What is this?", [circle]))
    async with Host(inspected, engine, tmp_path / "cache").run_test(size=size) as pilot:
        app = await opened(pilot)
        assert "<image> × 16 from " in app.text()
        assert "What is this?" in app.text()
        await pilot.press("2")
        table = app.inspector.query_one(TokenTable)
        head = next(row for row in range(len(table.rows)) if table.rows[row].is_head)
        await until(pilot, lambda: table.draw(head, 100)[0].plain in app.text().replace("…", ""))
        assert "2–17 ▸" in table.draw(head, 100)[0].plain
        count = len(table.rows)
        await pilot.press(*["down"] * head, "enter")
        await until(pilot, lambda: len(table.rows) == count + 16)
        await pilot.press("down", "space")
        await until(pilot, lambda: len(table.rows) == count and table.highlighted == head)
        await pilot.press("3")
        await until(pilot, lambda: "112 × 112 pixels" in app.text())
        assert "1 × 8 × 8 = 64" in app.text()
        assert "pixel_values" in app.text()
        await pilot.press("4")
        await until(pilot, lambda: "{% for message in messages %}" in app.text())
        await pilot.press("5")
        await until(pilot, lambda: "0123abc" in app.text())
        for word in ("Qwen2VLForConditionalGeneration", "the model's chat template", "<|endoftext|>", "0.32.0"):
            assert word in app.text(), word
        await pilot.press("6")
        await until(pilot, lambda: "token 0 (first) of 4" in app.text())
        assert "␛[31m" in app.text()
        assert "[/x]" in app.text()
        assert [pane.id for pane in app.inspector.query("ContentSwitcher > *") if pane.display] == ["answer-part"]
        await pilot.press("tab")
        await until(pilot, lambda: app.inspector.part == "prompt")
        await pilot.press("shift+tab")
        await until(pilot, lambda: app.inspector.part == "answer")


async def test_probabilities_are_asked_for_and_the_alternatives_are_seen(tmp_path: Path) -> None:
    held = asyncio.Event()
    engine = await engine_of(list(DOUBTFUL), [*DOUBTFUL[:1], Hold(held), *DOUBTFUL[1:]])
    inspected = await asked(engine, user_turn("What is this?"))
    async with Host(inspected, engine, tmp_path).run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        await pilot.press("percent_sign")
        await until(pilot, lambda: "the first time may take some seconds" in app.text())
        await pilot.press("percent_sign")
        held.set()
        text = app.inspector.query_one(LogprobText)
        await until(pilot, lambda: bool(text.tokens) and text.tokens[0].probability is not None)
        await until(pilot, lambda: "−0.0100   99.0 %" in app.text())
        assert len(engine.requests) == 2, "a second press asks nothing while one is under way"
        assert engine.requests[1].logprobs == 5
        await pilot.press("n")
        await until(pilot, lambda: text.pointed == 2 and "square" in app.text())
        assert "−1.6   20.2 %" in app.text()
        assert "−0.50   60.7 % ███████████████" in app.text()
        await pilot.press("down")
        await until(pilot, lambda: text.pointed == 3 and "token 3 of 4" in app.text())
        await pilot.press("up", "home")
        await until(pilot, lambda: text.pointed == 0)
        assert not [line for line in app.text().splitlines() if "another one" in line]


def test_the_tokens_of_an_answer_are_copied_as_they_were_written() -> None:
    texts = ["It is ", "a ", "red ", "", "circle\n", "\n", "漢字 ", "x" * 12]
    block = TokenBlock([AnswerToken(id=number, text=text) for number, text in enumerate(texts)])
    lines = block.lay_out(8)
    assert [line.plain for line in lines] == ["It is a ", "red ", "circle↵", "↵", "漢字 ", "xxxxxxxx", "xxxx"]
    assert as_written((line, 0, None) for line in lines) == "".join(texts)
    block.lines, block.width, block.pointed = lines, 8, 2
    again = block.lay_out(8)
    assert [new is old for new, old in zip(again, lines, strict=True)] == [False, False, *[True] * 5]
    assert (block.clicked(0, 7), block.clicked(2, 3), block.beside(1)) == (1, 4, 4)


async def test_a_different_second_answer_is_reported(tmp_path: Path) -> None:
    engine = await engine_of(["One."], ["Two."])
    async with Host(await asked(engine, user_turn("Hi")), engine, tmp_path).run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        await pilot.press("6", "percent_sign")
        await until(pilot, lambda: "differs this time" in app.text() and "Two." in app.text())


async def test_it_works_when_the_engine_is_gone(circle: Attachment, tmp_path: Path) -> None:
    engine = await engine_of(["Red."])
    inspected = await asked(engine, user_turn("Hi", [circle]))
    async with Host(inspected, None, tmp_path / "cache").run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        for number, part in enumerate(PARTS, 1):
            await pilot.press(str(number))
            await until(pilot, lambda part=part: app.inspector.part == part)  # type: ignore[misc]
            assert app.inspector.query_one("#parts").display, part
        await pilot.press("percent_sign")
        await pilot.pause()
        assert "Probabilities" not in app.text()


async def test_an_engine_that_dies_in_the_inspector_is_reported(tmp_path: Path) -> None:
    engine = await engine_of(["Red."])
    inspected = await asked(engine, user_turn("Hi"))
    async with Host(inspected, engine, tmp_path).run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        engine.die("The engine was killed.")
        await pilot.press("percent_sign")
        await until(pilot, lambda: "killed" in app.notes)
        assert app.inspector.inspected.answer == "Red."


async def test_parts_are_copied_and_saved_and_no_file_is_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = await engine_of(["Red."])
    inspected = await asked(engine, user_turn("Hi\nthere"))
    async with Host(inspected, engine, tmp_path).run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        await pilot.press("y")
        await until(pilot, lambda: app.clipboard == inspected.text)
        assert "\n" in app.clipboard
        for number in (1, 2):
            await pilot.press("s")
            await until(pilot, lambda number=number: app.notes.count("Saved") == number)  # type: ignore[misc]
        assert (tmp_path / "vlmtui-exchange-1-prompt.txt").read_text() == inspected.text
        assert (tmp_path / "vlmtui-exchange-1-prompt-2.txt").exists()
        await pilot.press("3", "s")
        await until(pilot, lambda: "nothing here to save" in app.notes)


async def test_a_stored_prompt_is_shown_and_rendered_again(tmp_path: Path) -> None:
    engine = await engine_of(["Red."])
    first = await asked(engine, user_turn("Hi"))
    request = first.request
    assert request is not None
    recipe = GenerationRecord(
        model=DEFAULT_SPEC.model, prompt=first.text, sampling=Sampling(), engine="vLLM", engine_version="0.31.0"
    )
    stored = PromptReport.of_answer("exchange 1", Answer("", ["Red."]), recipe=recipe)
    async with Host(stored, engine, tmp_path, again=lambda: request).run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        assert "user: Hi" in app.text()
        await pilot.press("5")
        await until(pilot, lambda: "0.31.0" in app.text())
        await pilot.press("6")
        await until(pilot, lambda: "Red." in app.text())
        await pilot.press("2")
        await until(pilot, lambda: "r renders it again" in app.text())
        await pilot.press("r")
        await until(pilot, lambda: "the text is the same" in app.text())
        await until(pilot, lambda: app.inspector.taken is not None and len(app.inspector.taken.tokens) == 2)
        assert len(engine.requests) == 1


async def test_another_model_cannot_render_it_again(tmp_path: Path) -> None:
    engine = await engine_of(["Red."])
    first = await asked(engine, user_turn("Hi"))
    request = first.request
    assert request is not None
    stored = PromptReport.of_answer("exchange 1", Answer(""), recipe=GenerationRecord(model="org/other", prompt="x"))
    async with Host(stored, engine, tmp_path, again=lambda: request).run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        await pilot.press("r")
        await until(pilot, lambda: "org/other generated this answer" in app.notes)
        assert app.inspector.inspected is stored


async def test_the_image_opens_in_the_room_with_its_prompt(circle: Attachment, tmp_path: Path) -> None:
    engine = await engine_of(["Red."])
    inspected = await asked(engine, user_turn("Hi", [circle]))
    async with Host(inspected, engine, tmp_path / "cache").run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        await pilot.press("3")
        await until(pilot, lambda: bool(app.inspector.query(AttachmentView)))
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ImageRoom) and app.screen.shown is not None)
        assert isinstance(app.screen, ImageRoom)
        room = app.screen
        await until(pilot, lambda: room.report is inspected)
        assert room.attachment == circle
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(app.screen, InspectorScreen))


async def test_a_video_has_its_facts_and_a_picture(tmp_path: Path) -> None:
    engine = await engine_of(["A film."])
    inspected = await asked(engine, user_turn("What?", [make_film(tmp_path, 16)]))
    async with Host(inspected, engine, tmp_path / "cache").run_test(size=(120, 40)) as pilot:
        app = await opened(pilot)
        await pilot.press("3")
        await until(pilot, lambda: "frames          " in app.text() and "▀" in app.text())


async def test_a_missing_file_is_reported(circle: Attachment, tmp_path: Path) -> None:
    engine = await engine_of(["Red."])
    inspected = await asked(engine, user_turn("Hi", [circle]))
    Path(circle.path).unlink()
    async with Host(inspected, engine, tmp_path / "cache").run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        await pilot.press("3")
        await until(pilot, lambda: "missing or damaged" in app.text())
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ImageRoom))
        await until(pilot, lambda: "missing or damaged" in str(app.screen.query_one("#reason", Static).render()))


async def test_from_the_chat(chatting: StartChat, circle: Attachment) -> None:
    async with chatting(["First."], ["Second."]) as chat:
        chat.app.run_action_id("inspect")
        await chat.until(lambda: "no prompt to inspect" in chat.notes)
        await chat.say("One?")
        await chat.say("Two?")
        await chat.pilot.press("f12")
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen) and chat.app.screen.taken is not None)
        screen = chat.app.screen
        assert isinstance(screen, InspectorScreen)
        assert screen.inspected.title == "exchange 2"
        assert "One?" in screen.inspected.text
        await chat.pilot.press("percent_sign")
        await chat.until(lambda: bool(screen.inspected.logprobs))
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        assert [one.answer.text for one in chat.controller.exchanges] == ["First.", "Second."]
        assert not chat.last.answer.logprobs
        await chat.send("/inspect 1")
        await chat.until(lambda: isinstance(chat.app.screen, InspectorScreen))
        assert isinstance(chat.app.screen, InspectorScreen)
        assert chat.app.screen.inspected.answer == "First."
        await chat.pilot.press("escape")
        await chat.until(lambda: isinstance(chat.app.screen, ChatScreen))
        chat.app.run_action_id("inspect", "7")
        await chat.until(lambda: "no message 7" in chat.notes)


@pytest.mark.parametrize("part", ["prompt", "tokens", "request", "answer"])
@SIZES
def test_how_it_looks(
    snap_compare: Callable[..., bool], circle: Attachment, tmp_path: Path, size: tuple[int, int], part: Part
) -> None:
    engine = asyncio.run(engine_of(list(DOUBTFUL), list(DOUBTFUL)))
    turns = (user_turn("What is this?\nTell me.", [circle]),)
    inspected = asyncio.run(asked(engine, *turns))
    request = inspected.request
    assert request is not None
    inspected = msgspec.structs.replace(inspected, request=msgspec.structs.replace(request, request_id="0" * 32))

    async def before(pilot: Pilot[None]) -> None:
        app = await opened(pilot)
        await pilot.press(str(PARTS.index(part) + 1))
        if part == "answer":
            await pilot.press("percent_sign")
            await until(pilot, lambda: "99.0 %" in app.text())
            await pilot.press("n")
            await until(pilot, lambda: "square" in app.text())
        await pilot.pause()

    assert snap_compare(Host(inspected, engine, tmp_path / "cache"), run_before=before, terminal_size=size)


async def test_an_unreported_prompt_is_rendered_here_and_marked(tmp_path: Path) -> None:
    request = make_request(SHAPES, [user_turn("Look [/x] at it.")], Sampling())
    told = PromptReady(request_id=request.request_id, prompt="", token_ids=(), media=())
    known = PromptReport(title="exchange 1", prompt=told, answer="A dot.", request=request, info=INFO)
    made = made_here(known, SHAPES)
    assert made.made_here == "<|im_start|>user\nLook [/x] at it.<|im_end|>\n<|im_start|>assistant\n"
    assert (made.text, made_here(known, None).made_here) == ("", "")
    given = msgspec.structs.replace(known, prompt=msgspec.structs.replace(told, prompt="told"))
    assert made_here(given, SHAPES).made_here == "", "what the engine told is shown"
    app = Host(made, None, tmp_path)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, InspectorScreen))
        await until(pilot, lambda: "a reconstruction" in app.text())
        assert "prompt 0" not in app.text()
        assert "Look [/x] at it.<|im_end|>↵" in app.text()
        await pilot.press("2")
        await until(pilot, lambda: "a reconstruction" not in app.text())


async def test_a_text_is_searched_for_in_every_part_that_is_text(tmp_path: Path) -> None:
    engine = await engine_of(list(DOUBTFUL))
    inspected = await asked(engine, user_turn("\n".join(f"line {number}" for number in range(60))))
    async with Host(inspected, engine, tmp_path).run_test(size=(80, 24)) as pilot:
        app = await opened(pilot)
        await pilot.press("slash", *"LINE 4")
        await until(pilot, lambda: "1 of 11" in app.text() and "line 4↵" in app.text())
        await pilot.press("down", "down")
        await until(pilot, lambda: "3 of 11" in app.text() and "line 41↵" in app.text())
        await pilot.press("up", "up", "up")
        await until(pilot, lambda: "11 of 11" in app.text() and "line 49↵" in app.text())
        await pilot.press("y", "escape")
        await until(pilot, lambda: "not found" not in app.text())
        assert isinstance(app.screen, InspectorScreen), "Escape closes the search alone"
        await pilot.press("2", "slash")
        await pilot.pause()
        assert not app.inspector.query_one(SearchBar).display, "a table of tokens is no text"
        await pilot.press("6", "slash", *"circle")
        await until(pilot, lambda: "1 of 1" in app.text())
        await pilot.press("tab")
        await until(pilot, lambda: app.inspector.part == "prompt")
        assert not app.inspector.query_one(SearchBar).display
