"""Permission to run a model's code: asked once for each repository and revision, and remembered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vlmtui.config.trust import TrustStore
from vlmtui.domain.engine import BackendChoice, LoadSpec
from vlmtui.engine.machine import GIB, Gpu, Machine
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.paths import Paths
from vlmtui.registry import routes
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import Model, resolve, with_engine_args, with_trust
from vlmtui.registry.remote_code import RemoteCode, remote_code_of
from vlmtui.session.models import LoadChecks
from vlmtui.worker.backends.vllm.engine_args import engine_arguments
from vlmtui.worker.hf import remote_code as worker_remote_code
from vlmtui.worker.hf.remote_code import pin_remote_code

MACHINE = Machine((Gpu("H", 79 * GIB, 80 * GIB),), 64 * GIB)


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(Paths.below(tmp_path))


def code(model: str, revision: str | None) -> RemoteCode:
    return RemoteCode(model=model, revision=revision)


def test_a_yes_holds_for_one_revision(store: TrustStore) -> None:
    store.trust(code("owner/model", "aaa"))
    assert store.is_trusted(code("owner/model", "aaa"))
    assert not store.is_trusted(code("owner/model", "bbb"))
    assert not store.is_trusted(code("owner/other", "aaa"))
    assert not store.is_trusted(code("owner/model", None))


def test_a_yes_before_the_download_holds_for_the_first_revision(store: TrustStore) -> None:
    store.trust(code("owner/model", None))
    assert store.is_trusted(code("owner/model", None))
    assert store.is_trusted(code("owner/model", "aaa"))
    assert not store.is_trusted(code("owner/model", "bbb"))
    assert store.is_trusted(code("owner/model", "aaa"))


def test_a_spoilt_file_means_no(store: TrustStore, tmp_path: Path) -> None:
    file = Paths.below(tmp_path).config / "trusted.json"
    file.parent.mkdir(parents=True)
    for text in ("{", '{"a": 1}', "", "[" * 100_000, '[{"folder": 1}, ["x"], null]'):
        file.write_text(text)
        assert not store.is_trusted(code("owner/model", "aaa"))
    store.trust(code("owner/model", "aaa"))
    assert store.is_trusted(code("owner/model", "aaa"))
    assert file.stat().st_mode & 0o077 == 0


def test_an_unwritable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file, not a folder")
    with pytest.raises(VlmtuiError):
        TrustStore(Paths.below(tmp_path)).trust(code("owner/model", "aaa"))


def downloaded(cache: Path, name: str, commit: str, config: str = "{}") -> Path:
    """A repository in the hub's cache, whose `main` is that commit."""
    root = cache / f"models--{name.replace('/', '--')}"
    folder = root / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(config)
    (root / "refs").mkdir(exist_ok=True)
    (root / "refs" / "main").write_text(commit)
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_the_revision_that_was_allowed_is_the_one_that_is_loaded(store: TrustStore, cache: Path) -> None:
    downloaded(cache, "OpenGVLab/InternVL3-2B", "aaaa1111")
    checks, model = LoadChecks(store), resolve(Registry.bundled(), "internvl_chat")
    check = checks.first(model, MACHINE)
    assert check is not None and "revision aaaa1111" in check.text
    allowed = check.options[1].model
    assert allowed is not None
    checks.remember(allowed)
    for spec in (allowed.spec, checks.allowed(model).spec):
        assert (spec.trust_remote_code, spec.revision, spec.code_revision) == (True, "aaaa1111", "aaaa1111")
        given = engine_arguments(spec, known={*spec.engine_args}, on_cpu=False)
        assert (given["revision"], given["code_revision"]) == ("aaaa1111", "aaaa1111")
    tampered = with_engine_args(allowed, ["revision=bbbb", "code_revision=bbbb"]).spec
    given = engine_arguments(tampered, known={*tampered.engine_args}, on_cpu=False)
    assert (given["revision"], given["code_revision"]) == ("aaaa1111", "aaaa1111")

    downloaded(cache, "OpenGVLab/InternVL3-2B", "bbbb2222")
    assert not checks.allowed(model).spec.trust_remote_code, "the next revision is another question"
    with pytest.raises(VlmtuiError, match="has just changed"):
        checks.remember(allowed)


def test_code_of_another_repository_is_pinned_as_well(store: TrustStore, cache: Path) -> None:
    config = '{"auto_map": {"AutoModel": "evil/code--m.Model", "AutoConfig": ["evil/code--c.Config", null]}}'
    downloaded(cache, "owner/model", "aaaa", config)
    downloaded(cache, "evil/code", "cccc")
    found = remote_code_of("owner/model")
    assert (found.revision, found.repository, found.repository_revision) == ("aaaa", "evil/code", "cccc")
    store.trust(found)
    assert store.is_trusted(found)
    downloaded(cache, "evil/code", "dddd")
    assert not store.is_trusted(remote_code_of("owner/model"))
    model = Model(Registry.bundled()["internvl_chat"], LoadSpec(model="owner/model", name="m"))
    spec = with_trust(model, found).spec
    assert (spec.revision, spec.code_revision) == ("aaaa", "cccc")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    (made / "inner").mkdir(parents=True)
    (made / "config.json").write_text('{"architectures": ["InternVLChatModel"], "auto_map": {"AutoModel": "m.Model"}}')
    (made / "m.py").write_text("one = 1\n")
    (made / "inner" / "n.py").write_text("")
    (made / "notes.txt").write_text("no code")
    return made


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "another content": (lambda folder: (folder / "m.py").write_text("two = 2\n"), "m.py"),
    "a new file": (lambda folder: (folder / "new.py").write_text(""), "new.py"),
    "a file less": (lambda folder: (folder / "inner" / "n.py").unlink(), "inner/n.py"),
    "another import": (
        lambda folder: (folder / "config.json").write_text(
            '{"architectures": ["InternVLChatModel"], "auto_map": {"AutoModel": "inner.n.Model"}}'
        ),
        "auto_map",
    ),
}


@pytest.mark.parametrize(("change", "name"), CHANGES.values(), ids=CHANGES)
def test_a_folder_with_changed_code_asks_again_with_the_changes(
    store: TrustStore, folder: Path, change: Callable[[Path], object], name: str
) -> None:
    checks, model = LoadChecks(store), resolve(Registry.bundled(), str(folder))
    check = checks.first(model, None)
    assert check is not None and "2 Python files" in check.text and "changed:" not in check.text
    allowed = check.options[1].model
    assert allowed is not None
    checks.remember(allowed)
    (folder / "notes.txt").write_text("changed, and no code")
    assert checks.allowed(model) == allowed
    assert pin_remote_code(allowed.spec).code_sha256 == allowed.spec.code_sha256

    change(folder)
    assert not checks.allowed(model).spec.trust_remote_code
    asked = checks.first(model, None)
    assert asked is not None and f"these have changed: {name}." in asked.text
    with pytest.raises(VlmtuiError, match="has changed") as raised:
        pin_remote_code(allowed.spec)
    assert raised.value.kind is ErrorKind.REMOTE_CODE_REFUSED


def test_the_worker_runs_no_code_of_a_folder_that_nobody_named(folder: Path) -> None:
    with pytest.raises(VlmtuiError):
        pin_remote_code(LoadSpec(model=str(folder), name="m", trust_remote_code=True))
    assert pin_remote_code(LoadSpec(model=str(folder), name="m")).code_revision is None


def test_the_worker_pins_a_download_to_a_commit(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = downloaded(cache, "owner/model", "aaaa")
    asked: list[tuple[str, str | None]] = []

    def fetched(repository: str, revision: str | None) -> Path:
        asked.append((repository, revision))
        return snapshot / "config.json"

    monkeypatch.setattr(worker_remote_code, "_fetched", fetched)
    spec = pin_remote_code(LoadSpec(model="owner/model", name="m", trust_remote_code=True))
    assert (spec.revision, spec.code_revision) == ("aaaa", "aaaa")
    assert asked == [("owner/model", None)]


def test_code_of_several_repositories_or_of_thousands_of_files_is_refused(store: TrustStore, folder: Path) -> None:
    model = resolve(Registry.bundled(), str(folder))
    (folder / "config.json").write_text('{"auto_map": {"A": "a/b--m.M", "B": "c/d--m.M"}}')
    check = LoadChecks(store).first(model, None)
    assert check is not None and "several repositories" in check.text
    assert all(option.model is None for option in check.options)


def test_foreign_code_is_asked_for_once(store: TrustStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    load_checks, model = LoadChecks(store), resolve(Registry.bundled(), "internvl_chat")
    check = load_checks.first(model, MACHINE)
    assert check is not None
    assert "own code" in check.title
    careful, yes = check.options
    assert careful.model is None
    assert yes.model is not None
    assert yes.trusts_code
    assert yes.model.spec.trust_remote_code
    assert load_checks.first(yes.model, MACHINE) is None
    assert not load_checks.allowed(model).spec.trust_remote_code
    load_checks.remember(yes.model)
    assert load_checks.allowed(model).spec.trust_remote_code


def test_a_family_that_cannot_run_is_explained_first(store: TrustStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "vllm_version", lambda: "0.32.0")
    check = LoadChecks(store).first(resolve(Registry.bundled(), "mllama", BackendChoice()), MACHINE)
    assert check is not None
    assert "0.32.0" in check.text
    assert "It ran in vLLM up to 0.10.2." in check.text
    assert "cross-attention" in check.text
    assert all(option.model is None for option in check.options)


def test_a_model_that_is_too_big_may_be_loaded_nevertheless(store: TrustStore) -> None:
    small = Machine((Gpu("L4", 12 * GIB, 12 * GIB),), 64 * GIB)
    check = LoadChecks(store).first(resolve(Registry.bundled(), "qwen2_vl"), small)
    assert check is not None
    assert "does not fit" in check.title
    assert check.options[-1].model is not None
    assert LoadChecks(store).first(check.options[-1].model, small, size_accepted=True) is None
