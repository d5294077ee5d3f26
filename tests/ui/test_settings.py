"""The settings panel."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.app import App
from textual.geometry import Region
from textual.widgets import Input, Static, TextArea

from tests.support.waiting import until
from vlmtui.domain.sampling import PARAMETERS, Sampling
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import EXAMPLE, Model, model_of, with_preset
from vlmtui.session import dials
from vlmtui.session.dials import with_parameters
from vlmtui.session.settings import ChatSettings
from vlmtui.ui.settings import SettingsScreen
from vlmtui.ui.terminal.themes import DARK, VARIABLES

CURRENT = ChatSettings("Be brief.", Sampling(temperature=0.5, max_tokens=100))


class Host(App[None]):
    result: ChatSettings | str | None = "open"

    def __init__(self, current: ChatSettings = CURRENT, model: Model | None = None) -> None:
        super().__init__()
        self.current, self.model = current, model

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(VARIABLES)

    def on_mount(self) -> None:
        self.register_theme(DARK)
        self.theme = DARK.name
        self.push_screen(SettingsScreen(self.current, self.model), self._done)

    def _done(self, result: ChatSettings | None) -> None:
        self.result = result


async def test_changed_settings_are_returned() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        app.screen.query_one("#temperature", Input).value = ""
        app.screen.query_one("#seed", Input).value = "7"
        app.screen.query_one("#system", TextArea).text = "Be\nlong."
        await pilot.press("ctrl+s")
        assert app.result == ChatSettings("Be\nlong.", Sampling(temperature=None, max_tokens=100, seed=7))


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("temperature", "-1", "temperature"),
        ("top_p", "2", "top-p"),
        ("max_tokens", "x", "'x'"),
        ("seed", "1.5", "'1.5'"),
    ],
)
async def test_wrong_settings_are_reported_and_not_applied(field: str, value: str, problem: str) -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        app.screen.query_one(f"#{field}", Input).value = value
        await pilot.pause()
        told = app.screen.query_one(f"#problem-{field}", Static)
        assert problem in str(told.render())
        entered = app.screen.query_one(f"#{field}", Input)
        assert told.region.y == entered.region.bottom, "it stands below its field"
        assert [note for note in app.screen.query(".problem") if note.display] == [told]
        await pilot.press("enter")
        await pilot.press("ctrl+s")
        assert app.result == "open"
        assert entered.has_focus
        entered.value = ""
        await pilot.pause()
        assert not told.display


async def test_escape_changes_nothing() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        app.screen.query_one("#seed", Input).value = "7"
        await pilot.press("escape")
        assert app.result is None


async def test_it_fits_a_small_terminal_with_everything_wrong() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        for entered in app.screen.query(Input):
            entered.value = "x"
        await pilot.pause()
        assert all(app.screen.query_one(f"#problem-{name}").display for name in (*PARAMETERS, "logit_bias", "json"))
        keys = app.screen.query_one("#keys").region
        room = Region(0, 0, 80, keys.y)
        assert app.screen.region.contains_region(keys)
        for entered in app.screen.query(Input):
            entered.focus()
            told = app.screen.query_one(f"#problem-{entered.id}")
            seen = [entered, *([told] if told.display else [])]
            await until(pilot, lambda seen=seen: all(room.contains_region(it.region) for it in seen))  # type: ignore[misc]


async def test_an_empty_field_shows_the_value_in_force() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)):
        hints = {name: app.screen.query_one(f"#{name}", Input).placeholder for name in ("seed", "top_p")}
        assert hints == {"seed": "random (same seed, same answer)", "top_p": "model default (0–1, probability mass)"}


QWEN = Registry.bundled()["qwen2_vl"]
SET = ["stop=a\tb", "min_tokens=3", "choice=yes|no", "max_pixels=50176", "processor.odd=x"]


async def edited(*changes: tuple[str, str]) -> Sampling | None:
    """Change fields of a form that shows `SET`, and apply; return the sampling, None if it is refused."""
    app = Host(ChatSettings(sampling=with_parameters(Sampling(), QWEN, SET)), model_of(QWEN, "m"))
    async with app.run_test(size=(80, 24)) as pilot:
        for field, value in changes:
            app.screen.query_one(f"#{field}", Input).value = value
        await pilot.press("ctrl+s")
        problems = app.screen.query(".problem")
        await until(pilot, lambda: app.result != "open" or any(note.display for note in problems))
        if isinstance(app.result, ChatSettings):
            return app.result.sampling
        assert app.result == "open"
        wrong = [note for note in app.screen.query(".problem") if note.display]
        assert [f"#problem-{app.focused.id}"] == [f"#{note.id}" for note in wrong]  # type: ignore[union-attr]
    return None


async def test_further_parameters_are_fields_and_unedited_ones_stay() -> None:
    assert await edited() == with_parameters(Sampling(), QWEN, SET)
    found = await edited(
        ("stop", "END"),
        ("min_tokens", ""),
        ("logit_bias", "5:-3"),
        ("max_pixels", ""),
        ("min_pixels", "784"),
        ("odd", "y"),
    )
    wanted = ["stop=END", "choice=yes|no", "logit_bias=5:-3", "min_pixels=784", "processor.odd=y"]
    assert found == with_parameters(Sampling(), QWEN, wanted)
    assert await edited(("choice", ""), ("regex", "a+")) == with_parameters(
        Sampling(), QWEN, [one if "choice" not in one else "regex=a+" for one in SET]
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("regex", "a+"), ("logit_bias", "x"), ("max_pixels", "many"), ("ignore_eos", "maybe"), ("json", "@/none.json")],
)
async def test_a_wrong_further_parameter_is_reported_and_not_applied(field: str, value: str) -> None:
    changes = [(field, value), *([("choice", "")] if field == "json" else [])]
    assert await edited(*changes) is None


async def test_an_argument_shows_its_default_or_its_source() -> None:
    registry = Registry.bundled()
    hints = {}
    for name in ("idefics3", "gemma3", "gemma4", "smolvlm", "qwen2_vl", "qwen3_vl"):
        model = model_of(registry[name], "m")
        app = Host(model=with_preset(model, EXAMPLE) if name == "qwen3_vl" else model)
        async with app.run_test(size=(80, 24)):
            for argument in registry[name].processor:
                hints[name, argument] = app.screen.query_one(f"#{argument}", Input).placeholder
    assert hints["idefics3", "size"] == '{"longest_edge": 1456} unless set'
    assert hints["gemma4", "max_soft_tokens"] == "280 unless set (70, 140, 280, 560 or 1120)"
    assert hints["gemma3", "pan_and_scan_max_num_crops"] == "4 unless set"
    assert hints["qwen2_vl", "max_pixels"] == "the model's own"
    assert hints["qwen3_vl", "max_pixels"] == "1003520 unless set"  # as loaded
    assert hints["smolvlm", "size"] == "the model's own"


async def test_a_schemas_file_is_read_once_off_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    read_by: list[str] = []

    def reads(path: Path, *, bytes_max: int) -> bytes:
        read_by.append(threading.current_thread().name)
        return path.read_bytes()

    with monkeypatch.context() as patched:
        patched.setattr(dials, "read_whole", reads)
        found = await edited(("choice", ""), ("json", f"@{schema}"))
    assert found is not None and found.extra["structured_outputs"]["json"] == {"type": "object"}  # type: ignore[index]
    assert len(read_by) == 1 and read_by[0] != threading.main_thread().name
    assert await edited(("choice", ""), ("json", f"@{tmp_path}/none.json")) is None
