"""Offers to install an engine before the first load, and shows the installation."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

import msgspec
from textual import on, work
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from vlmtui.domain.engine import LoadSpec
from vlmtui.engines.hardware import Hardware, find_hardware
from vlmtui.engines.pinned import pinned_build
from vlmtui.engines.records import Engines
from vlmtui.engines.variants import VARIANTS, EngineBuild
from vlmtui.paths import Paths
from vlmtui.processes import python_command, safe_environment
from vlmtui.text import one_line
from vlmtui.ui.actions import bindings
from vlmtui.ui.keys import with_keys
from vlmtui.ui.widgets.dialog_panel import DialogPanel

_BAR = 40


class InstallProgress(msgspec.Struct):
    """A line printed by `vlmtui engines install --json`."""

    stage: str = ""
    detail: str = ""
    fraction: float | None = None
    installed: str = ""
    """The engine's name, in the last line."""


def install_command(build: EngineBuild) -> list[str]:
    """Return the command that installs. It can be stopped at any time, and resumed."""
    name = f"{build.version}-{build.name}"
    return python_command(sys.executable, "-m", "vlmtui", "engines", "install", name, "--json")


class EngineOfferScreen(ModalScreen[bool]):
    """Shows the hardware and the engines to install, then the progress. Returns True once an engine is installed."""

    DEFAULT_CSS = """
    EngineOfferScreen {
        align: center middle;
        & #progress { margin-top: 1; color: $text-muted; }
    }
    """
    SCOPE = "engine_offer"
    BINDINGS = bindings(SCOPE)

    def __init__(self, paths: Paths, spec: LoadSpec | None = None) -> None:
        """`spec`: what is to be loaded, perhaps by a version of vLLM of its own."""
        super().__init__()
        self._spec = spec
        self.folder = Engines(paths).folder
        self.variants: list[EngineBuild] = []
        self._process: asyncio.subprocess.Process | None = None

    def compose(self) -> ComposeResult:
        with DialogPanel():
            yield Static(self._title(), id="title", markup=False)
            yield Static("Looking for a GPU…", id="text", markup=False)
            yield Static(id="progress", markup=False)
            yield OptionList(id="options", markup=False)

    def _title(self) -> str:
        version = self._spec.pinned if self._spec is not None else None
        return f"vLLM {version} is not installed" if version else "No engine installed"

    def _builds(self, hardware: Hardware) -> list[EngineBuild]:
        """Return what can be installed here, what fits best first."""
        version = self._spec.pinned if self._spec is not None else None
        names = [hardware.variant, *(name for name in VARIANTS if name != hardware.variant)]
        builds = [VARIANTS[name] if version is None else pinned_build(version, name) for name in names]
        return [build for build in builds if build.name == hardware.variant or self._runs(build, hardware)]

    def on_mount(self) -> None:
        self.query_one("#options").focus()
        self._look()

    @work(exit_on_error=False)
    async def _look(self) -> None:
        hardware = await asyncio.to_thread(find_hardware)
        self._offer(hardware, "")

    def _offer(self, hardware: Hardware, failure: str) -> None:
        """Show the choices; `failure`: the error of the last attempt."""
        python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
        where = f"Found: {hardware.describe()}; {python}.\nTarget: {self.folder}"
        self.query_one("#text", Static).update("\n\n".join(filter(None, [self._reason(), where, failure])))
        self.query_one("#progress", Static).update("")
        self.variants = self._builds(hardware)
        options = self.query_one("#options", OptionList)
        options.clear_options()
        options.add_options([Option(f"Install {one.title}: {one.size_text}") for one in self.variants])
        options.add_option(Option("Back"))
        options.display = True
        options.highlighted = 0
        options.focus()

    def _reason(self) -> str:
        """Why another version is needed, and what an environment of its own means."""
        if self._spec is None or self._spec.pinned is None:
            return ""
        name = one_line(self._spec.name)
        return f"{name} runs in vLLM {self._spec.pinned}, which gets an environment of its own. Nothing else changes."

    @staticmethod
    def _runs(variant: EngineBuild, hardware: Hardware) -> bool:
        return not variant.driver or (bool(hardware.gpus) and hardware.driver_is_new_enough)

    @on(OptionList.OptionSelected)
    def _taken(self, event: OptionList.OptionSelected) -> None:
        if event.option_index >= len(self.variants):
            self.dismiss(False)
            return
        self.query_one("#options").display = False
        self.query_one("#text", Static).update(
            with_keys(self.app, "{engine_offer.back} stops it; downloads stay, and installing again resumes.")
        )
        self._install(self.variants[event.option_index])

    @work(exit_on_error=False, group="install", exclusive=True)
    async def _install(self, variant: EngineBuild) -> None:
        process = await asyncio.create_subprocess_exec(
            *install_command(variant),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=safe_environment(os.environ),
        )
        self._process = process
        assert process.stdout is not None and process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        last = InstallProgress()
        try:
            async for line in process.stdout:
                with suppress(msgspec.DecodeError):
                    last = msgspec.json.decode(line, type=InstallProgress)
                    self._show(last)
            failure = (await errors).decode("utf-8", "replace")
            await process.wait()
        finally:
            if process.returncode is None:
                process.terminate()
        self._process = None
        if last.installed:
            self.dismiss(True)
        else:
            lines = [one_line(line) for line in failure.splitlines() if line.strip()]
            hardware = await asyncio.to_thread(find_hardware)
            self._offer(hardware, "\n".join(lines[-8:]))

    def _show(self, progress: InstallProgress) -> None:
        parts = [progress.stage]
        if progress.fraction is not None:
            filled = round(progress.fraction * _BAR)
            parts.append(f"{'━' * filled}{'─' * (_BAR - filled)} {progress.fraction:.0%}")
        parts.append(progress.detail)
        self.query_one("#progress", Static).update("\n".join(one_line(part) for part in parts if part))

    def action_back(self) -> None:
        if self._process is None:
            self.dismiss(False)
        elif self._process.returncode is None:
            self._process.terminate()
