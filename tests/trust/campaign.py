"""Feeds hostile inputs to everything that takes other people's data, and looks after the canaries.

Each kind goes the way that it goes in the program, up to the start of a worker, which is recorded instead.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

import vlmtui.engine.local.launcher as launcher
from tests.trust.canaries import SECRET, WORD, Canaries, heard
from tests.trust.inputs import ARGUMENTS, Inputs
from vlmtui.cli import main
from vlmtui.config.settings import EngineSettings
from vlmtui.config.trust import TrustStore
from vlmtui.domain.conversation import RawPrompt, user_turn
from vlmtui.domain.engine import SERVED_BACKENDS, BackendChoice, LoadSpec
from vlmtui.domain.sampling import Sampling
from vlmtui.engine.local.model_reader import LocalModelReader
from vlmtui.engine.remote_models import look_at_server
from vlmtui.engines.serve import private_server_flags
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.inspection.replay import Comparison, Side, to_json
from vlmtui.paths import Paths
from vlmtui.protocol.endpoint import Endpoint
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, model_of, resolve
from vlmtui.session.adapters import require_allowed
from vlmtui.session.check.cases import name_by_document, read_comparison
from vlmtui.session.lanes import recorded_specs
from vlmtui.session.models import LoadChecks
from vlmtui.session.resume import load_conversation, resume_point, resumed_model
from vlmtui.store.backup import restore_archive
from vlmtui.store.document import add_document, read_document
from vlmtui.store.records import ConversationId, GenerationRecord
from vlmtui.store.store import Store

SERVERS = {"lab": EngineSettings(url="http://lab:8000", api_key_env="LAB_KEY")}
"""The tables of `config.toml`."""
REGISTRY = Registry.bundled()
SHARES = {
    "document": 40, "row": 20, "record": 20, "comparison": 8, "folder": 5, "server": 2, "golden": 2, "batch": 2,
    "backup": 1,
}  # fmt: skip
"""Each kind's share of a campaign, in percent."""


class TrustResult(msgspec.Struct):
    """The results of one kind of input."""

    kind: str
    inputs: int = 0
    refused: int = 0
    """Inputs that ended with an error of ours."""
    launched: int = 0
    """Workers that would have been started."""
    seconds: float = 0.0
    findings: list[str] = []


class Ways:
    """The ways of a hostile input through the program, in a folder of their own."""

    def __init__(self, folder: Path, canaries: Canaries, inputs: Inputs) -> None:
        self.folder = folder
        self.canaries = canaries
        self.inputs = inputs
        self.paths = Paths.below(folder / "home")
        self.store = Store.open(self.paths.data)
        self.checks = LoadChecks(TrustStore(self.paths))
        self.launcher = launcher.Launcher(lambda spec: launcher.WorkerProgram())
        self.honest = _honest()

    def close(self) -> None:
        self.store.close()

    def of(self, kind: str) -> Callable[[int], None]:
        """Return the way of a kind; it takes the number of the input. Raises VlmtuiError for a refused one."""
        found: Callable[[int], None] = getattr(self, kind)
        return found

    # -- conversations

    def document(self, number: int) -> None:
        document = read_document(self.inputs.document(number))
        found = add_document(self.store, document, self.canaries.folder).conversation
        self._resume(self.store, found)

    def row(self, number: int) -> None:
        self._resume(self.store, self._with_row(self.store, number))

    def backup(self, number: int) -> None:
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            theirs, ours = Paths.below(Path(name) / "theirs"), Paths.below(Path(name) / "ours")
            with closing(Store.open(theirs.data)) as store:
                found = self._with_row(store, number)
            (database,) = theirs.data.glob("*.db")
            with closing(sqlite3.connect(database)) as connection, connection:
                if number % 3 == 0:
                    connection.execute("CREATE VIEW canary AS SELECT 1")
                elif number % 3 == 1:
                    connection.execute("CREATE TRIGGER canary AFTER INSERT ON turns BEGIN DELETE FROM turns; END")
            restore_archive(database, ours.data, ours.media)
            if number % 3 < 2:
                self.canaries.touched.append("a database with foreign parts was restored")
            with closing(Store.open(ours.data)) as store:
                self._resume(store, found)

    def _with_row(self, store: Store, number: int) -> ConversationId:
        """Return a conversation whose answer's row was written by somebody else."""
        conversation = store.new_conversation(title="t", model=self.inputs.name())
        asked = store.add_turn(conversation, None, user_turn("go"))
        recipe = json.dumps(self.inputs.recipe(number))
        answer = store.begin_answer(asked, GenerationRecord(model="m"))
        with store.database.writing():
            store.database.rows("UPDATE turns SET recipe = ?, state = 'complete' WHERE id = ?", (recipe, answer))
        return conversation

    def _resume(self, store: Store, conversation: ConversationId) -> None:
        """List, open and continue a conversation, as `--resume` does."""
        store.conversations()
        point = resume_point(store, conversation)
        loaded = load_conversation(store, conversation=conversation)
        if loaded.settings is not None and point.is_imported:
            request = loaded.settings.request(REGISTRY["shapes"], [user_turn("more")])
            self._require_clean(request, "a request of an imported conversation")
        self.launch(resumed_model(REGISTRY, SERVERS, point))

    # -- other files

    def record(self, number: int) -> None:
        folder = self.folder / "families"
        folder.mkdir(exist_ok=True)
        (folder / "mine.toml").write_bytes(self.inputs.record(number))
        registry = Registry.with_users(folder)
        if registry.warnings:
            raise registry.warnings[0]
        choices = (None, *map(BackendChoice, ("vllm", "transformers", "served")), BackendChoice("pinned", "0.23.0"))
        for choice in choices:
            self.launch(model_of(registry["mine"], choice=choice))

    def comparison(self, number: int) -> None:
        path = self.folder / "comparison.json"
        path.write_bytes(self.inputs.comparison(number, self.honest))
        comparison = read_comparison(path)
        for side in comparison.sides:
            if side.adapter:
                require_allowed(side.adapter, None)
        model = resolve(REGISTRY, name_by_document(comparison.model))
        for lane in recorded_specs(comparison, {}):
            self._require_clean(lane.request, "a request of a comparison")
        self.launch(model)

    def folder_of_a_model(self, number: int) -> None:
        folder = self.folder / "model"
        folder.mkdir(exist_ok=True)
        for name, data in self.inputs.folder(number).items():
            (folder / name).write_bytes(data)
        self.launch(resolve(REGISTRY, str(folder)))

    def server(self, number: int) -> None:
        with _serving(self.inputs.served(number)) as url:
            found = look_at_server(REGISTRY, "near", EngineSettings(url=url))
        if found.error is not None:
            raise found.error
        for model in found.models:
            spec = model.spec
            arguments = {**spec.engine_args, "url": "", "model": "", "placeholders": {}}
            self.canaries.judge(msgspec.structs.replace(spec, engine_args=arguments), [], {})

    def golden(self, number: int) -> None:
        folder = self.folder / "golden"
        folder.mkdir(exist_ok=True)
        (folder / "one.json").write_bytes(self.inputs.golden(number))
        options = ["--on", "here"] if number % 2 else []
        self._command("check", str(folder), *options)
        self._command("check", str(folder / "one.json"))

    def batch(self, number: int) -> None:
        given, written = self.folder / "batch.jsonl", self.folder / "answers.jsonl"
        given.write_bytes(self.inputs.batch(number))
        written.unlink(missing_ok=True)
        self._command("batch", str(given), "-o", str(written), "--model", "shapes")

    def _command(self, *words: str) -> None:
        """Call the command line in this process."""
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            try:
                code = main(words)
            except SystemExit as end:
                code = int(end.code or 0)
        if SECRET in said.getvalue():
            self.canaries.touched.append("the secret was printed")
        if code:
            raise VlmtuiError(ErrorKind.BAD_INPUT, said.getvalue()[-200:])

    # -- the start of a worker

    def launch(self, model: Model) -> None:
        """Load a model as the app does: the checks that ask, then the start of its worker, which is recorded."""
        if self.checks.first(model, None, size_accepted=True) is not None:
            raise VlmtuiError(ErrorKind.REMOTE_CODE_REFUSED, "A question is asked.")
        endpoint = Endpoint.of(self.paths, model.spec)
        with contextlib.suppress(Recorded):
            self.launcher.start(launcher.WorkerProgram(), endpoint, model.spec, None)

    def record_start(self, program: launcher.WorkerProgram, words: list[str], endpoint: Endpoint) -> None:
        """Stand in for `_spawn`."""
        spec = msgspec.json.decode(endpoint.spec_file.read_bytes(), type=LoadSpec)
        flags: list[str] = []
        if spec.backend in SERVED_BACKENDS:
            served = msgspec.structs.replace(spec, model="m", name="m", revision=None)
            flags = [word for flag in private_server_flags(served, for_cpu=True) for word in flag.words]
        self.canaries.judge(spec, [*program.words, *flags], program.environment)
        raise Recorded("The start was recorded.")

    def _require_clean(self, request: object, what: str) -> None:
        told = msgspec.json.encode(request).decode()
        if any(word in told for word in (WORD, SECRET, f":{self.canaries.port}")):
            self.canaries.touched.append(f"{what} has a canary: {told[:500]}")


class Recorded(VlmtuiError):
    """A worker would have been started."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorKind.NO_ENGINE, message)


def run_kind(kind: str, count: int, seed: int) -> TrustResult:
    """Feed `count` inputs of a kind, each argument of an engine among them where there are so many."""
    result = TrustResult(kind)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vlmtui-trust-") as name, _campaign(Path(name), seed) as ways:
        way = ways.of("folder_of_a_model" if kind == "folder" else kind)
        for number in range(count):
            result.inputs += 1
            try:
                way(number)
            except VlmtuiError:
                result.refused += 1
            if finding := ways.canaries.finding():
                result.findings.append(
                    f"{kind} {number} ({ARGUMENTS[number % len(ARGUMENTS)]}), seed {seed}: {finding}"
                )
        result.launched = len(ways.canaries.launched)
    result.seconds = time.monotonic() - began
    return result


@contextmanager
def _campaign(folder: Path, seed: int) -> Iterator[Ways]:
    """Make the ways and the canaries, in a process whose current folder has canaries, too."""
    canaries = Canaries(folder / "canary")
    canaries.folder.mkdir()
    canaries.prepare()
    before, environment = Path.cwd(), dict(os.environ)
    os.environ.update(
        VLMTUI_DATA_DIR=str(folder / "home"), HOME=str(canaries.folder), HF_HUB_CACHE=str(folder / "hub"),
        HF_HUB_OFFLINE="1",
    )  # fmt: skip
    os.chdir(canaries.folder)
    ways = Ways(folder, canaries, Inputs(canaries, seed))
    started = mock.patch.object(launcher, "_spawn", ways.record_start)
    reading = mock.patch.object(LocalModelReader, "read", side_effect=VlmtuiError(ErrorKind.NO_ENGINE, "None here."))
    try:
        with started, reading, heard(canaries):
            yield ways
    finally:
        ways.close()
        canaries.close()
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)


def _honest() -> dict[str, Any]:
    """Return a kept comparison in which nothing is wrong, as JSON."""
    side = Side(mode="raw", prompt="a", prompt_token_ids=(1,), request=RawPrompt(text="a"))
    found = Comparison(model="shapes", engine="vLLM", engine_version="0.32.0", sampling=Sampling(), sides=(side,))
    read: dict[str, Any] = json.loads(to_json(found))
    return read


@contextmanager
def _serving(models: list[dict[str, Any]]) -> Iterator[str]:
    """Serve a list of models on loopback, and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            data = json.dumps({"object": "list", "data": models}).encode()
            self.send_response(200 if self.path.endswith("/models") else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
