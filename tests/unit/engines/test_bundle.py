"""An engine's packages travel in one file, and are installed without a network."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from pathlib import Path

import pytest

from tests.unit.engines.light import environment, has_uv, light_variant, make_wheels
from vlmtui.engines import bundle
from vlmtui.engines.builds import VARIANTS
from vlmtui.engines.bundle import unpacked, write_bundle
from vlmtui.engines.installed import Engines, install_engine
from vlmtui.errors import VlmtuiError
from vlmtui.paths import Paths

pytestmark = pytest.mark.process


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if not has_uv(tmp_path):
        pytest.skip("uv is not installed here")
    make_wheels(tmp_path)
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "uv.txt").write_text("")
    monkeypatch.setattr(bundle, "UV_LOCK", tmp_path / "uv.txt")
    return tmp_path


def test_a_bundle_is_all_that_an_installation_needs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = root / "engine.tar"
    assert write_bundle(light_variant(root), file, Path(sys.executable)) == 2
    assert [path.name for path in root.glob(".vlmtui-bundle-*")] == []
    (root / "wheels").rename(root / "gone")
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with unpacked(file):
        record = install_engine(Engines(Paths.below(root / "app")), light_variant(root), print)
    assert record.packages["lightpkg"] == "2.5"
    assert os.environ["PIP_INDEX_URL"] == "http://127.0.0.1:9/simple"
    assert os.environ["PIP_FIND_LINKS"] == str(root / "wheels") and "PIP_NO_INDEX" not in os.environ


def test_a_changed_package_in_a_bundle_is_refused(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_bundle(light_variant(root), root / "engine.tar", Path(sys.executable))
    lock = root / "light.txt"
    lock.write_text(lock.read_text().replace("sha256:", "sha256:0").replace("sha256:0", "sha256:", 1))
    with unpacked(root / "engine.tar"), pytest.raises(VlmtuiError, match="failed with exit code"):
        install_engine(Engines(Paths.below(root / "app")), light_variant(root), print)
    assert "ash" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "kind"),
    [("../evil.whl", tarfile.REGTYPE), ("sub/one.whl", tarfile.REGTYPE), ("link.whl", tarfile.SYMTYPE)],
)
def test_a_bundle_holds_nothing_but_wheels(tmp_path: Path, name: str, kind: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        archive.addfile(member, io.BytesIO())
    with pytest.raises(VlmtuiError, match="more than wheels"), unpacked(tmp_path / "bad.tar"):
        pass


def test_a_file_that_is_no_bundle_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.tar").write_text("hello")
    for file in (tmp_path / "text.tar", tmp_path / "missing.tar"):
        with pytest.raises(VlmtuiError, match="Can't read the bundle") as told, unpacked(file):
            pass
        assert "engines bundle" in told.value.hint


def test_a_build_without_a_lock_has_no_bundle(tmp_path: Path) -> None:
    with pytest.raises(VlmtuiError, match=r"CUDA 12\.9 can't be bundled"):
        write_bundle(VARIANTS["cuda12"], tmp_path / "engine.tar", Path(sys.executable))
