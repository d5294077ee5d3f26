"""The clipboard, through fake `wl-paste` and `xclip` on the PATH."""

from __future__ import annotations

import shlex
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.media.made import corners
from vlmtui.errors import VlmtuiError
from vlmtui.media import clipboard
from vlmtui.media.clipboard import clipboard_pictures


class Desktop:
    """Fake programs in a folder that comes first on the PATH, and what their clipboard holds by type."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin, self.held, self.kept = root / "bin", root / "held", root / "kept"
        self.bin.mkdir()
        self.held.mkdir()
        self.monkeypatch = monkeypatch
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
            monkeypatch.delenv(name, raising=False)

    def wayland(self, script: str = "") -> None:
        self.monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
        self._program("wl-paste", script, 'if [ "$1" = --list-types ]; then list; else give "$3"; fi')

    def x11(self, script: str = "") -> None:
        self.monkeypatch.setenv("DISPLAY", ":0")
        self._program("xclip", script, 'if [ "$5" = TARGETS ]; then list; else give "$5"; fi')

    def hold(self, **kinds: bytes) -> None:
        for kind, data in kinds.items():
            (self.held / kind).write_bytes(data)

    def _program(self, name: str, script: str, usual: str) -> None:
        held = shlex.quote(str(self.held))
        path = self.bin / name
        path.write_text(
            "#!/bin/sh\n"
            f"list() {{ ls {held} | sed 's/_/\\//;s/_/-/'; }}\n"
            f'give() {{ exec cat {held}/"$(printf %s "$1" | tr /- __)"; }}\n' + (script or usual) + "\n"
        )
        path.chmod(0o755)

    def read(self, wait_s: float = 10.0) -> tuple[Path, ...]:
        return clipboard_pictures(self.kept, wait_s=wait_s)

    def refusal(self, wait_s: float = 10.0) -> VlmtuiError:
        with pytest.raises(VlmtuiError) as caught:
            self.read(wait_s)
        assert not self.kept.exists() or list(self.kept.iterdir()) == []
        return caught.value


@pytest.fixture
def desktop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desktop:
    return Desktop(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("made")
    for kind in ("png", "bmp", "webp"):
        corners().save(folder / f"x.{kind}")
    return {kind: (folder / f"x.{kind}").read_bytes() for kind in ("png", "bmp", "webp")}


@pytest.mark.parametrize("system", ["wayland", "x11"])
def test_png_is_preferred(desktop: Desktop, made: dict[str, bytes], system: str) -> None:
    getattr(desktop, system)()
    desktop.hold(image_bmp=made["bmp"], image_png=made["png"], text_html=b"<img>", image_webp=made["webp"])
    (path,) = desktop.read()
    assert path.read_bytes() == made["png"] and path.suffix == ".png" and path.parent == desktop.kept
    assert path.stat().st_mode & 0o777 == 0o600
    assert desktop.read() == (path,)


def test_other_pictures(desktop: Desktop, made: dict[str, bytes]) -> None:
    desktop.wayland()
    desktop.hold(image_bmp=made["bmp"], image_odd=b"nothing that is known")
    (path,) = desktop.read()
    assert path.read_bytes() == made["bmp"]


def test_a_type_that_lies_is_passed_over(desktop: Desktop, made: dict[str, bytes]) -> None:
    desktop.x11()
    desktop.hold(image_png=b"no picture", image_webp=made["webp"])
    (path,) = desktop.read()
    assert path.read_bytes() == made["webp"]


def test_copied_files(desktop: Desktop, made: dict[str, bytes], tmp_path: Path) -> None:
    files = [tmp_path / "my cat.png", tmp_path / "b.webp"]
    files[0].write_bytes(made["png"])
    files[1].write_bytes(made["webp"])
    (tmp_path / "notes.txt").write_text("x")
    listed = [*files, tmp_path / "notes.txt", tmp_path / "gone.png"]
    desktop.x11()
    desktop.hold(
        text_uri_list="\r\n".join(["# copied", *(path.as_uri() for path in listed), "https://x/y.png"]).encode()
    )
    assert desktop.read() == tuple(files)


def test_no_display(desktop: Desktop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "without a display" in desktop.refusal().message
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 50000 10.0.0.1 22")
    with pytest.raises(VlmtuiError, match="over SSH") as caught:
        clipboard_pictures(tmp_path / "kept", inbox=tmp_path)
    assert "scp FILE" in caught.value.hint and "10.0.0.1" in caught.value.hint


def test_no_tool(desktop: Desktop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(desktop.bin))
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    error = desktop.refusal()
    assert "wl-paste is not installed" in error.message and "wl-clipboard" in error.hint
    monkeypatch.delenv("WAYLAND_DISPLAY")
    monkeypatch.setenv("DISPLAY", ":0")
    assert "xclip is not installed" in desktop.refusal().message


def test_no_picture(desktop: Desktop) -> None:
    desktop.x11()
    desktop.hold(text_plain=b"hello", UTF8_STRING=b"hello")
    error = desktop.refusal()
    assert "no image in the clipboard" in error.message and "text/plain" in error.detail


def test_an_empty_clipboard(desktop: Desktop) -> None:
    desktop.wayland("echo 'Nothing is copied' >&2; exit 1")
    error = desktop.refusal()
    assert "no image in the clipboard" in error.message and error.detail == "Nothing is copied"


def test_the_second_tool_is_asked(desktop: Desktop, made: dict[str, bytes]) -> None:
    desktop.wayland("echo 'Failed to connect to a Wayland server' >&2; exit 1")
    desktop.x11()
    desktop.hold(image_png=made["png"])
    assert desktop.read()[0].read_bytes() == made["png"]


def test_a_tool_that_hangs_is_ended_with_its_children(desktop: Desktop, tmp_path: Path) -> None:
    desktop.x11(f"sleep 300 & echo $! > {shlex.quote(str(tmp_path / 'pid'))}; wait")
    start = time.monotonic()
    assert "did not answer in time" in desktop.refusal(wait_s=1.0).message
    assert time.monotonic() - start < 10
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    with suppress(OSError):  # reaped while one looks
        while stat.read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() - start < 20
            time.sleep(0.01)


def test_a_clipboard_without_end(desktop: Desktop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clipboard, "BYTES_MAX", 100_000)
    desktop.x11('if [ "$5" = TARGETS ]; then echo image/png; else cat /dev/zero; fi')
    assert "too large" in desktop.refusal().message


def test_a_broken_tool(desktop: Desktop) -> None:
    desktop.x11()
    (desktop.bin / "xclip").write_bytes(b"\x7fELF nonsense")
    assert "does not run" in desktop.refusal().message
