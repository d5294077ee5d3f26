"""Whose code may run: asked once a repository and revision, and remembered."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlmtui.config.trust import TrustStore, revision_of
from vlmtui.engine.machine import GIB, Gpu, Machine
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths
from vlmtui.registry import routes
from vlmtui.registry.loader import Registry
from vlmtui.registry.match import resolve
from vlmtui.ui.controllers.obstacles import Obstacles

MACHINE = Machine((Gpu("H", 79 * GIB, 80 * GIB),), 64 * GIB)


@pytest.fixture
def store(tmp_path: Path) -> TrustStore:
    return TrustStore(Paths.below(tmp_path))


def test_a_yes_holds_for_one_revision(store: TrustStore) -> None:
    store.trust("owner/model", "aaa")
    assert store.is_trusted("owner/model", "aaa")
    assert not store.is_trusted("owner/model", "bbb")
    assert not store.is_trusted("owner/other", "aaa")
    assert not store.is_trusted("owner/model", None)


def test_a_yes_before_the_download_is_bound_to_what_comes_first(store: TrustStore) -> None:
    store.trust("owner/model", None)
    assert store.is_trusted("owner/model", None)
    assert store.is_trusted("owner/model", "aaa")
    assert not store.is_trusted("owner/model", "bbb")
    assert store.is_trusted("owner/model", "aaa")


def test_a_spoilt_file_means_no(store: TrustStore, tmp_path: Path) -> None:
    file = Paths.below(tmp_path).config / "trusted.json"
    file.parent.mkdir(parents=True)
    for text in ("{", '{"a": 1}', ""):
        file.write_text(text)
        assert not store.is_trusted("owner/model", "aaa")


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file, not a folder")
    with pytest.raises(VlmtuiError, match=r"trusted\.json cannot be written"):
        TrustStore(Paths.below(tmp_path)).trust("owner/model", "aaa")


def test_revisions() -> None:
    assert revision_of(Path("/hub/models--o--m/snapshots/abc")) == "abc"
    assert revision_of(Path("/home/me/model")) == "local"
    assert revision_of(None) is None


def test_foreign_code_is_asked_for_once(store: TrustStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    obstacles, model = Obstacles(store), resolve(Registry.bundled(), "internvl_chat")
    obstacle = obstacles.first(model, MACHINE)
    assert obstacle is not None
    assert "own code" in obstacle.title
    careful, yes = obstacle.ways
    assert careful.model is None
    assert yes.model is not None
    assert yes.trusts
    assert yes.model.spec.trust_remote_code
    assert obstacles.first(yes.model, MACHINE) is None
    assert not obstacles.allowed(model).spec.trust_remote_code
    obstacles.remember(yes.model)
    assert obstacles.allowed(model).spec.trust_remote_code


def test_a_family_that_cannot_run_is_explained_first(store: TrustStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "vllm_version", lambda: "0.32.0")
    obstacle = Obstacles(store).first(resolve(Registry.bundled(), "mllama"), MACHINE)
    assert obstacle is not None
    assert "0.32.0" in obstacle.text
    assert "It ran in vLLM up to 0.10.2." in obstacle.text
    assert "cross-attention" in obstacle.text
    assert all(way.model is None for way in obstacle.ways)


def test_a_model_that_is_too_big_may_be_loaded_nevertheless(store: TrustStore) -> None:
    small = Machine((Gpu("L4", 12 * GIB, 12 * GIB),), 64 * GIB)
    obstacle = Obstacles(store).first(resolve(Registry.bundled(), "qwen2_vl"), small)
    assert obstacle is not None
    assert "not to fit" in obstacle.title
    assert obstacle.ways[-1].model is not None
    assert Obstacles(store).first(obstacle.ways[-1].model, small, size_accepted=True) is None
