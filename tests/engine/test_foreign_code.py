"""A model's own code, in a real worker: what was allowed runs, and nothing else does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from tests.support.hosts import patient_host
from vlmtui.config.trust import TrustStore
from vlmtui.domain.engine import LoadFailed, LoadSpec
from vlmtui.engine.local.host import WorkerHost
from vlmtui.errors import ErrorKind
from vlmtui.paths import Paths
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.session.models import LoadChecks

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

_FIRST, _SECOND = "a" * 40, "b" * 40
_CONFIG = {
    "architectures": ["InternVLChatModel"],
    "model_type": "internvl_chat",
    "auto_map": {"AutoConfig": "code.Config"},
}
_CODE = """
from pathlib import Path
from transformers import PretrainedConfig
Path({mark!r}).write_text("")
class Config(PretrainedConfig):
    model_type = "internvl_chat"
"""


class Trial:
    """Loads a model in a worker of its own; its code leaves marks of having run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = Paths.below(root / "vlmtui")
        self.host: WorkerHost = patient_host(self.paths)
        self.checks = LoadChecks(TrustStore(self.paths))

    def write_model(self, folder: Path, mark: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(_CONFIG))
        (folder / "code.py").write_text(_CODE.format(mark=str(self.root / mark)))

    def write_commit(self, commit: str) -> None:
        """A commit of `OpenGVLab/InternVL3-2B` in the hub's cache, the newest from now on."""
        repository = self.root / "hub" / "models--OpenGVLab--InternVL3-2B"
        self.write_model(repository / "snapshots" / commit, f"ran {commit}")
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / "main").write_text(commit)

    def allow(self, name: str) -> LoadSpec:
        """Say yes to its code as it is now; what is loaded then."""
        model = resolve(Registry.bundled(), name)
        check = self.checks.first(model, None)
        assert check is not None
        allowed = next(option.model for option in check.options if option.trusts_code)
        assert allowed is not None
        self.checks.remember(allowed)
        return allowed.spec

    async def load(self, spec: LoadSpec) -> LoadFailed:
        """There are no weights, so no load succeeds."""
        engine = await self.host.open(spec, client="tests", keep_alive_s=0)
        events = [event async for event in engine.load()]
        await engine.close()
        assert isinstance(events[-1], LoadFailed)
        return events[-1]

    def marks(self) -> set[str]:
        return {path.name for path in self.root.glob("ran *")}


@pytest.fixture
async def trial(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Trial]:
    monkeypatch.setenv("HF_HOME", str(short_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(short_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = Trial(short_path)
    yield found
    for worker in await found.host.find_all():
        await found.host.stop(worker.endpoint)


async def test_changed_code_of_a_folder_needs_a_new_yes(trial: Trial) -> None:
    folder = trial.root / "model"
    trial.write_model(folder, "ran first")
    spec = trial.allow(str(folder))
    trial.write_model(folder, "ran second")
    failed = await trial.load(spec)
    assert failed.failure.kind is ErrorKind.REMOTE_CODE_REFUSED
    assert trial.marks() == set()
    trial.write_model(folder, "ran first")
    await trial.load(spec)
    assert trial.marks() == {"ran first"}, "what was allowed does run, or this shows nothing"


async def test_code_of_a_new_revision_needs_a_new_yes(trial: Trial) -> None:
    trial.write_commit(_FIRST)
    spec = trial.allow("internvl_chat")
    trial.write_commit(_SECOND)
    await trial.load(spec)
    assert trial.marks() == {f"ran {_FIRST}"}
    assert not trial.checks.allowed(resolve(Registry.bundled(), "internvl_chat")).spec.trust_remote_code
    await trial.load(msgspec.structs.replace(spec, trust_remote_code=False))
    assert trial.marks() == {f"ran {_FIRST}"}
