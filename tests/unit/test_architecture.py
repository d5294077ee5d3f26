"""Rules for the code, checked by `tools/architecture.py`.

The lists here name the exceptions, each with its reason. Those under "still to go" are to be removed; add none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import architecture
from architecture import House, Place

ROOT = Path(__file__).resolve().parents[2]

SLEEPS = {
    "store/database.py: sleep in alone": "another process holds the lock",
    "worker/backends/remote/engine.py: sleep in RemoteEngine._events": "nothing tells when to send a request again",
    "worker/backends/remote/probe.py: sleep in wait_for": "nothing tells that a server begins to listen",
    "worker/backends/vllm/engine.py: sleep in VllmEngine.died": "vLLM does not tell that its core has died",
    "worker/server.py: sleep in WorkerServer._follow_log": "a file that other programs write",
    "worker/server.py: sleep in WorkerServer._watch_engine": "what is idle or lost is found by its age",
    "worker/server.py: sleep in WorkerServer._sample_metrics": "an engine does not tell when its metrics change",
    "engine/local/host.py: sleep in locked": "another process holds the lock",
    "engine/local/host.py: sleep in WorkerHost._attach": "nothing tells that a socket's file is there again",
    "cli/output.py: sleep in LoadLine._tick": "a clock on the screen",
    "ui/chat/transcript.py: set_interval in Transcript._follow": "a clock on the screen",
    "ui/chat/frame.py: set_interval in StatusBar.on_mount": "an engine does not tell what memory it uses",
    "ui/compare/answers.py: set_interval in AnswerPane.begin": "a clock on the screen",
    "ui/compare/fan_out.py: set_interval in FanOutScreen.on_mount": "a clock on the screen",
    "ui/chat/frame.py: set_interval in LoadCard.on_mount": "a clock on the screen",
    "ui/terminal/key_queue.py: sleep in KeyQueue.pause": "nothing tells that a user has stopped typing",
}
"""Places that sleep or poll, each with its reason."""
OTHERS_PATHS = ("cli/", "media/", "plain/", "session/", "ui/")
"""Rooms whose paths are named by users, files and models."""
OWN_PATHS = {
    "cli/conversations.py: is_file in newest_conversations": "the database",
    "cli/doctor.py: exists in check_disk": "a fault of vlmtui's own folders is what doctor looks for",
    "cli/doctor.py: is_file in crashes_in": "the package",
    "cli/doctor.py: is_file in make_report": "the hub's folder",
    "cli/help.py: is_dir in docs_folder": "the package",
    "media/content_store.py: is_file in place": "the store",
}
BROAD_EXCEPTS = {
    "cli/main.py: except Exception in main": "the edge of the command line",
    "worker/engine_thread.py: except Exception in EngineThread.start.live": "the edge of a load",
    "worker/engine_thread.py: except Exception in EngineThread._pump": "the edge of a request",
    "worker/server.py: except Exception in WorkerServer._serve": "the edge of the worker's loop",
    "worker/backends/vllm/engine.py: except Exception in VllmEngine.warm_up": "a failed warm-up is none",
    "worker/model_reader.py: except Exception in _loaded": "the code of a tokenizer may raise",
    "worker/model_reader.py: except Exception in PromptMaker.make": "the code of a processor may raise",
    "worker/site/sitecustomize.py: except Exception in run_hooks": "a hook never harms its process",
}
STARTS = {
    "engines/installed.py: subprocess.run in _run": "Python before 3.11 has no -P; it runs in /",
    "engines/uv.py: subprocess.run in _answer": "uv, or pip by python_command; in /",
    "engines/uv.py: subprocess.run in run_step": "by bound_command: uv, or pip by isolated_command; in /",
    "media/clipboard.py: subprocess.Popen in _run": "wl-paste and xclip are no Python programs; they run in /",
    "processes.py: subprocess.run in ask_program": "nvidia-smi, tmux and systemd's are no Python programs; in /",
}
"""Where a process is started whose command `vlmtui.processes` does not make, and why nothing of the current folder
can run in it."""
OPEN_COMMANDS = {
    "engines/installed.py: [str(python), '-c', program, *arguments]",  # as above
}
SLICES = {
    "cli.batch_ray": "imports Ray, so only when it is asked for",
    "cli.completion": "imported only where a shell completes",
    "engine.local.client": "one connection; its importer is the host that finds and starts workers",
    "engine.local.hub": "imports urllib, so only where a model may be downloaded",
    "inspection.pixel_values": "imports NumPy",
    "media.download": "imports the HTTP client, so only where something is fetched",
    "media.pdf_renderer": "a process of its own",
    "plain.terminal": "the lines of plain mode; what is said in them is the other module",
    "registry.architectures": "what the engine has; its importer is what finds a model's family",
    "session.answer_checks": "a process of its own",
    "ui.batch": "a screen, which the app opens",
    "ui.seeing.modes": "the modes of the image room, each a way to look at an image",
    "ui.chat.comparisons": "a part of the chat: comparing and fanning out",
    "ui.chat.conversation_actions": "parts of the chat: branches and settings",
    "ui.chat.frame": "the bars around the chat",
    "ui.chat.inspections": "a part of the chat: what is shown of an answer on other screens",
    "ui.chat.prompt_cost": "a part of the chat: the tokens that the draft would take",
    "ui.chat.turn_sender": "a part of the chat: sending, and the queue",
    "ui.conversations": "a screen, which the app opens",
    "ui.departure": "a part of the app: stopping and quitting",
    "ui.document.tables": "tables that are no Markdown, and how any table is drawn",
    "ui.help": "a screen, which the app opens",
    "ui.inspector.answer_tokens": "a part of the inspector: an answer's tokens and their probabilities",
    "ui.model_loading": "a part of the app: loading and changing models",
    "ui.settings": "a screen, which the app opens",
    "ui.stored_conversations": "a part of the app: opening what is stored",
    "ui.terminal.frames": "the one output seam",
    "worker.backends.remote.refused": "which attachment a refusal is about",
    "worker.backends.transformers.loading": "loads a model; the engine answers with it",
    "worker.backends.transformers.sampling": "vLLM's sampling parameters as Transformers has them",
    "worker.backends.vllm.requests": "a prompt and its parameters as vLLM takes them",
    "worker.backends.vllm.worker_extension": "runs in vLLM's own worker processes",
    "worker.requests": "the requests that run; the server has the connections",
}
"""Modules that only a sibling imports, each with the reason why it is a module."""
PRIVATES_MAX = 15
PRIVATES = {
    "_compositor": "the two kinds of update that are written as frames: the one output seam",
    "_display": "Textual has no other place between its compositor and its driver",
    "_driver": "the app's driver writes the frames; nothing public leads to it",
    "_handle_exception": "what fails goes to the log with its traceback, and to the user as one sentence",
    "_sixel": "textual-image's renderables ask the terminal for the size of its cells, which is known here",
    "_xterm_parser": "keys are read without blocking, and without the terminal's late reports",
}
"""Private names of Textual, Rich and textual-image that the screens use, each with its reason."""


@pytest.fixture(scope="module")
def house() -> House:
    return House.read(ROOT / "src")


def short(path: str) -> str:
    return path.removeprefix("vlmtui/")


def without_lines(places: Iterable[Place]) -> set[str]:
    """Return findings without line numbers, which change often."""
    return {f"{short(place.path)}: {place.what}" for place in places}


def test_keys_stand_in_the_action_table(house: House) -> None:
    assert architecture.bindings_outside(house) == []


def test_a_path_that_others_name_is_asked_with_care(house: House) -> None:
    found = without_lines(architecture.unguarded_questions(house))
    assert {place for place in found if place.startswith(OTHERS_PATHS)} == set(OWN_PATHS)


def test_nothing_polls_without_a_reason(house: House) -> None:
    waits = {place for place in architecture.sleeps(house) if not place.what.startswith("yield")}
    assert without_lines(waits) == set(SLEEPS)


def test_no_process_takes_code_from_the_current_folder(house: House) -> None:
    """`tests/unit/test_current_folder.py` also runs the processes in a folder with hostile modules."""
    assert without_lines(architecture.process_starts(house)) == set(STARTS)
    assert without_lines(architecture.open_commands(house)) == OPEN_COMMANDS


def test_all_errors_are_caught_at_the_edges_only(house: House) -> None:
    assert without_lines(architecture.broad_excepts(house)) == set(BROAD_EXCEPTS)


def test_the_screens_use_few_private_names_of_others_each_for_a_reason(house: House) -> None:
    """A private name is a lasting burden: look for a public way first, or accept what the library does."""
    places = [place for place in architecture.foreign_privates(house) if place.path.startswith("vlmtui/ui/")]
    assert {architecture.private_name(place) for place in places} == set(PRIVATES)
    assert len(PRIVATES) <= PRIVATES_MAX and all(PRIVATES.values())


def test_attribute_docstrings_stand_below_their_attribute(house: House) -> None:
    assert architecture.misplaced_docstrings(house) == []


def test_nothing_is_written_twice(house: House) -> None:
    assert architecture.copies(house) == []


def test_modules_that_one_sibling_imports_have_a_reason(house: House) -> None:
    assert {name.removeprefix("vlmtui.") for name in architecture.slices(house)} == set(SLICES)


def test_every_module_is_in_an_import_contract(house: House) -> None:
    assert architecture.uncovered(house, ROOT / "pyproject.toml") == []


def made(folder: Path, **files: str) -> House:
    """Write a package with these modules, and read it."""
    (folder / "vlmtui").mkdir()
    for name, text in files.items():
        (folder / "vlmtui" / f"{name}.py").write_text(text)
    return House.read(folder)


def test_contracts_are_read_with_the_packages_that_they_are_about(tmp_path: Path) -> None:
    house = made(tmp_path, one="", two="", three="", four="")
    (tmp_path / "vlmtui" / "ui").mkdir()
    for name in ("one", "five"):
        (tmp_path / "vlmtui" / "ui" / f"{name}.py").touch()
    house = House.read(tmp_path)
    contracts = tmp_path / "pyproject.toml"
    contracts.write_text("""
[[tool.importlinter.contracts]]
type = "layers"
layers = ["(vlmtui.one) : vlmtui.two", "vlmtui.four.inner"]
[[tool.importlinter.contracts]]
type = "layers"
containers = ["vlmtui.ui"]
layers = ["five | three"]
[[tool.importlinter.contracts]]
type = "forbidden"
source_modules = ["vlmtui.three"]
""")
    assert architecture.uncovered(house, contracts) == ["vlmtui.three", "vlmtui.ui.one"]


def test_waits_copies_and_broad_excepts_are_seen(tmp_path: Path) -> None:
    body = "    found = []\n    for a, b in things.items():\n        found += [a + b, a - b, a * b, f(a, b)]\n" * 2
    house = made(
        tmp_path,
        one="import asyncio\nasync def wait():\n    await asyncio.sleep(1)\n    await asyncio.sleep(0)\n",
        three=f"def copy(things):\n{body}    return found\n",
        four=f'def another(stuff):\n    """Say more."""\n{body.replace("things", "stuff")}    return found\n',
        five="def f():\n    try:\n        pass\n    except (ValueError, Exception):\n        pass\n",
    )
    assert [place.what for place in architecture.sleeps(house)] == ["sleep in wait", "yield in wait"]
    assert [[place.what for place in group] for group in architecture.copies(house)] == [["another", "copy"]]
    assert [place.what for place in architecture.broad_excepts(house)] == ["except ValueError, Exception in f"]


def test_misplaced_docstrings_are_seen(tmp_path: Path) -> None:
    house = made(
        tmp_path,
        one='''"""A module."""
FIRST = 1
"""Right."""
"""Stacked."""
SECOND, THIRD = 2, 3
"""Of several."""
class One:
    """A class."""
    field: int
    """Right."""

    """Alone."""
    def __init__(self):
        """A method."""
        self.a = 1
        """Right."""
        print()
        """Below a call."""
''',
    )
    assert [place.what for place in architecture.misplaced_docstrings(house)] == [
        "'Stacked.'",
        "'Of several.'",
        "'Alone.'",
        "'Below a call.'",
    ]


def test_private_names_of_other_packages_are_seen(tmp_path: Path) -> None:
    house = made(
        tmp_path,
        one="""
import os
from textual._context import active_app
from textual.app import App
from vlmtui._two import ours
class One(App[None]):
    def __init__(self):
        self._own = 1
        self._used()
    def _used(self):
        return self._own, self._driver, ours._helped
    def _on_key(self, event):
        super()._on_key(event)
    @on(Something)
    def _handled(self):
        pass
def first(screen, row):
    row._replace(a=1)
    return screen._compositor, screen.__dict__, os._exit
""",
        _two="def _helped(): ...\nclass Alone:\n    def _unused(self): ...\n",
    )
    found = architecture.foreign_privates(house)
    assert [place.what for place in found] == [
        "import textual._context.active_app",
        "access self._driver",
        "override One._on_key",
        "access os._exit",
        "access screen._compositor",
    ]
    names = [architecture.private_name(place) for place in found]
    assert names == ["_context", "_driver", "_on_key", "_exit", "_compositor"]


def test_process_starts_and_their_commands_are_seen(tmp_path: Path) -> None:
    house = made(
        tmp_path,
        one="""
import subprocess as sub, os
from asyncio import create_subprocess_exec as start
from vlmtui.processes import python_command
def safe(interpreter):
    sub.run(python_command(interpreter, "-m", "json"))
def first(interpreter):
    sub.run([interpreter, "-m", "json"])
async def second(command):
    await start(*command)
def third(command):
    os.posix_spawn(command[0], command, {})
def fourth(interpreter):
    return [interpreter, "-P", "-c", "0"], (interpreter, "-c", "0"), ("-m", "json"), ["batch", "-m"]
""",
    )
    assert [place.what for place in architecture.process_starts(house)] == [
        "sub.run in first",
        "start in second",
        "os.posix_spawn in third",
    ]
    assert [place.what for place in architecture.open_commands(house)] == [
        "[interpreter, '-m', 'json']",
        "(interpreter, '-c', '0')",
    ]


def test_a_module_that_only_a_sibling_imports_is_seen(tmp_path: Path) -> None:
    house = made(
        tmp_path,
        one="from vlmtui import two\ndef f():\n    from vlmtui.three import name\n",
        two="from vlmtui.three import name\n",
        three="name = 1\n",
        four="import vlmtui.one\n",
    )
    assert architecture.slices(house) == ["vlmtui.one", "vlmtui.two"]
