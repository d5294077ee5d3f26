"""The picker."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual.widgets import Input

from tests.support.documents import written
from tests.support.scripted_engine import ScriptedEngine, ScriptedHost
from tests.support.waiting import until
from tests.ui.conftest import MACHINE, MakeApp, open_models
from vlmtui.domain.engine import EngineStatus
from vlmtui.domain.model_reading import ModelReading, ReadRequest, TemplateReading
from vlmtui.engine.machine import GIB, Fit, gib
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import bundled_model
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve, with_engine_args
from vlmtui.session.models import Choice, model_choices
from vlmtui.ui.document.view import DocumentView
from vlmtui.ui.models.screen import Folded, ModelList, ModelsScreen, context_text, model_details, row, size_text

pytestmark = pytest.mark.usefixtures("plain_chat")


def told(choice: Choice) -> str:
    """All that the details say of a model."""
    return "\n".join(line.plain for block in model_details(choice, MACHINE) for line in block.lay_out(200))


async def test_the_bundled_model_comes_first_and_enter_loads_it(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host)
    async with app.run_test() as pilot:
        await open_models(pilot)
        chosen = app.screen.query_one(ModelList).chosen
        assert chosen is not None
        assert chosen.model.spec.name == "shapes"
        await pilot.press("enter")
        await until(pilot, lambda: bool(host.opened))
    assert host.opened[0][0] == chosen.model.spec


async def test_the_other_models_follow_the_first_paint_and_a_key_typed_before_finds_them(
    make_app: MakeApp, tmp_path: Path
) -> None:
    app = make_app(registry=Registry.with_users(tmp_path))
    async with app.run_test() as pilot:
        await open_models(pilot)
        models = app.screen.query_one(ModelList)
        await pilot.press("down")
        assert models.chosen is not None and not models.chosen.bundled
        await until(pilot, lambda: len(models.choices) > 40)


async def test_errors_in_a_users_records_are_reported(make_app: MakeApp, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("family =")
    app = make_app(registry=Registry.with_users(tmp_path))
    async with app.run_test() as pilot:
        await until(pilot, lambda: any("mine.toml is not valid TOML" in one.message for one in app._notifications))


async def test_typing_filters_at_once_and_arrows_move_the_list(make_app: MakeApp, eighty_families: Registry) -> None:
    app = make_app(registry=eighty_families)
    async with app.run_test() as pilot:
        await open_models(pilot)
        models = app.screen.query_one(ModelList)
        assert len(models.choices) == 80
        await pilot.press(*"gemma")
        await until(pilot, lambda: 0 < len(models.choices) < 20)
        assert all("Gemma" in choice.title for choice in models.choices)
        await pilot.press("down", "down")
        assert models.chosen == models.choices[2]
        assert app.screen.focused is app.screen.query_one("#filter")
        await pilot.press("escape")
        await until(pilot, lambda: len(models.choices) > 40)
        await pilot.press("pagedown", "ctrl+end")
        assert models.current == models.rows[-1]


async def test_without_a_match_enter_loads_nothing(make_app: MakeApp) -> None:
    host = ScriptedHost()
    app = make_app(host)
    async with app.run_test() as pilot:
        await open_models(pilot)
        await pilot.press(*"nosuchmodel", "enter")
        await pilot.pause()
        assert "No model matches" in app.screen.query_one(ModelList).render_line(0).text
        assert isinstance(app.screen, ModelsScreen)
    assert not host.opened


async def test_markup_and_escapes_in_the_filter_are_just_text(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await open_models(pilot)
        app.screen.query_one(Input).value = "[/x] \x1b[31m [bold"
        await pilot.pause()
        assert "No model matches" in app.screen.query_one(ModelList).render_line(0).text


@pytest.mark.parametrize(("width", "wide"), [(80, False), (120, True)])
async def test_the_details_are_shown_on_wide_terminals(make_app: MakeApp, width: int, wide: bool) -> None:
    app = make_app()
    async with app.run_test(size=(width, 24)) as pilot:
        await open_models(pilot)
        await until(pilot, lambda: app.screen.query_one("#side").display is wide)
        assert ("Ships with vlmtui" in written(app.screen.query_one("#side", DocumentView))) is wide


class TemplateReader:
    """Reads every model's template as one that reads a variable."""

    def __init__(self) -> None:
        self.asked: list[ReadRequest] = []

    def read(self, request: ReadRequest) -> ModelReading:
        self.asked.append(request)
        return ModelReading(templates=(TemplateReading(name="t", source="", variables={"thinking": (True, False)}),))


async def test_the_details_show_what_the_models_chat_template_reads(make_app: MakeApp) -> None:
    app, reader = make_app(), TemplateReader()
    app.services = msgspec.structs.replace(app.services, reader=reader)
    async with app.run_test(size=(120, 30)) as pilot:
        await open_models(pilot)
        side = app.screen.query_one("#side", DocumentView)
        await until(pilot, lambda: "Template   thinking: true, false" in written(side))
        assert [(one.folder, one.tokenizer) for one in reader.asked] == [(str(bundled_model()), False)]
        await pilot.press("down")
        await until(pilot, lambda: "thinking: true" not in written(side))
        await pilot.press("up")
        await until(pilot, lambda: "thinking: true" in written(side))
        assert len(reader.asked) == 1, "what was read is kept, and a model that is not here is not read"


async def test_a_running_engine_is_marked(make_app: MakeApp) -> None:
    host = ScriptedHost()
    app = make_app(host)
    spec = resolve(app.services.registry, "shapes").spec
    await host.open(spec, client="ask", keep_alive_s=None)
    async with app.run_test() as pilot:
        await open_models(pilot)
        models = app.screen.query_one(ModelList)
        await until(pilot, lambda: models.choices[0].state == "running")


async def test_a_failed_search_for_engines_is_reported(make_app: MakeApp) -> None:
    host = ScriptedHost()
    app = make_app(host)

    async def refused() -> list[EngineStatus]:
        raise VlmtuiError(ErrorKind.BAD_INPUT, "/run/x is not your own folder [/x].")

    host.running = refused  # type: ignore[method-assign]
    async with app.run_test() as pilot:
        await open_models(pilot)
        await until(pilot, lambda: any("not your own folder" in toast.message for toast in app._notifications))
        assert isinstance(app.screen, ModelsScreen)


async def test_a_model_folder_that_was_typed_can_be_loaded(make_app: MakeApp) -> None:
    host = ScriptedHost()
    app = make_app(host)
    async with app.run_test() as pilot:
        await open_models(pilot)
        app.screen.query_one(Input).value = str(bundled_model())
        models = app.screen.query_one(ModelList)
        await until(pilot, lambda: bool(models.choices) and models.choices[0].model.spec.name == str(bundled_model()))
        await pilot.press("enter")
        await until(pilot, lambda: bool(host.opened))


def test_engines_of_one_model_are_rows_that_say_how_they_differ() -> None:
    registry = Registry.bundled()
    plain = resolve(registry, "shapes")
    with_lora = with_engine_args(plain, ["enable_lora=true", "max_lora_rank=64", "max_loras=4"]).spec
    other = with_engine_args(plain, ["dtype=float64"]).spec
    running = [ScriptedEngine(spec).describe() for spec in (with_lora, other)]
    rows = [row for row in model_choices(registry, running=running, current=with_lora) if row.running or row.current]
    assert [(row.title, row.state, size_text(row.parameters_b)) for row in rows] == [
        ("Shapes (bundled)", "loaded", "3M"),
        ("Shapes (bundled) (dtype=float64)", "running", "3M"),
    ]


def test_matching_names_come_before_matching_architectures() -> None:
    """`shapes` has Qwen2-VL's architecture, and is bundled: Enter must not load it for `qwen`."""
    titles = [choice.title for choice in model_choices(Registry.bundled(), query="qwen")]
    assert "qwen" in titles[0].casefold() and "Shapes (bundled)" in titles
    assert model_choices(Registry.bundled(), query="shapes")[0].bundled
    assert model_choices(Registry.bundled())[0].bundled


async def test_typing_moves_the_highlight_to_the_best_match(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test() as pilot:
        await open_models(pilot)
        models = app.screen.query_one(ModelList)
        await until(pilot, lambda: len(models.rows) > 1)
        await pilot.press(*"qwen2")
        chosen = models.chosen
        assert chosen is not None and chosen == models.choices[0] and "qwen2" in chosen.title.casefold()
        assert "Shapes (bundled)" in [one.title for one in models.choices]


async def test_what_is_too_big_is_folded_and_what_is_not_here_says_what_it_downloads(
    make_app: MakeApp, eighty_families: Registry
) -> None:
    app = make_app(registry=eighty_families)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_models(pilot)
        screen = app.screen
        assert isinstance(screen, ModelsScreen)
        models = screen.query_one(ModelList)
        await until(pilot, lambda: isinstance(models.rows[-1], Folded))
        big = [one for one in screen.sizes.values() if one.fit.fit is Fit.NO]
        assert models.rows[-1] == Folded(len(big)) and len(models.choices) == 80 - len(big)
        assert next(one.state for one in models.choices if one.parameters_b == 7.6) == "↓15 GB"
        await pilot.press("ctrl+end")
        await pilot.pause()
        line = models.render_line(models.scrollable_content_region.height - 1).text.strip()
        assert line == f"▌▸ {len(big)} models too big for this machine: Enter shows them"
        await pilot.press("enter")
        await until(pilot, lambda: len(models.choices) == 80)
        assert models.chosen is not None and models.chosen.is_too_big
        assert isinstance(app.screen, ModelsScreen)


async def test_a_folder_without_a_model_says_so(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await open_models(pilot)
        app.screen.query_one(Input).value = str(tmp_path)
        models = app.screen.query_one(ModelList)
        await until(pilot, lambda: "No model matches" not in models._empty and bool(models._empty))
        assert "is not a model folder" in models._empty


def test_a_family_is_called_by_the_title_that_the_list_shows() -> None:
    assert resolve(Registry.bundled(), "Qwen2.5-VL").family.family == "qwen2_5_vl"


def test_the_licence_is_shown_for_the_records_model() -> None:
    (first, *_) = model_choices(Registry.bundled(), query="Qwen/Qwen2.5-VL-3B-Instruct")
    (other, *_) = model_choices(Registry.bundled(), query="Qwen/Qwen2.5-VL-7B-Instruct")
    assert f"Licence    {first.family.licence}" in told(first)
    assert "Licence    ? (Qwen/Qwen2.5-VL-3B-Instruct: " in told(other)


def test_a_further_model_of_a_family_is_listed_when_its_name_is_typed(eighty_families: Registry) -> None:
    rows = model_choices(eighty_families, query="molmo-1-72b")
    assert [choice.title for choice in rows] == ["org/Molmo-1-72B-Instruct"]
    assert rows[0].parameters_b == 72, "by its name: the record's size is that of the default model"


def test_a_path_that_is_no_model_offers_nothing(tmp_path: Path) -> None:
    assert model_choices(Registry.bundled(), query=str(tmp_path)) == []


@pytest.mark.parametrize("width", [67, 75, 77, 160])
def test_a_row_is_never_wider_than_the_list(eighty_families: Registry, width: int) -> None:
    for choice in model_choices(eighty_families):
        assert row(choice, width).cell_length <= width


def test_numbers_are_short() -> None:
    assert [size_text(value) for value in (0.003, 0.5, 7.6, 72.7, None)] == ["3M", "0.5B", "7.6B", "72.7B", "?"]
    assert size_text(1000) == "1T"
    assert [context_text(value) for value in (512, 4096, 131072, 10485760, None)] == ["512", "4k", "128k", "10M", "?"]
    assert [gib(value) for value in (7 * 2**20, 3 * GIB // 2, 80 * GIB)] == ["7 MiB", "1.5 GiB", "80 GiB"]


async def test_a_key_chooses_what_runs_the_model(make_app: MakeApp) -> None:
    host = ScriptedHost(load=[])
    app = make_app(host)
    async with app.run_test(size=(120, 40)) as pilot:
        await open_models(pilot)
        models = app.screen.query_one(ModelList)

        def backend() -> str:
            assert models.chosen is not None
            return models.chosen.backend.text

        assert backend() == "vllm"
        await pilot.press("ctrl+g")
        await until(pilot, lambda: backend() == "transformers")
        assert "HF" in row(models.choices[0], 100).plain
        assert "transformers: can be tried" in told(models.choices[0])
        await pilot.press("ctrl+g")
        await until(pilot, lambda: backend() == "vllm")
        await pilot.press("ctrl+g", "enter")
        await until(pilot, lambda: bool(host.opened))
    spec = host.opened[0][0]
    assert (spec.name, spec.backend) == ("shapes", "transformers")
