"""Links that somebody laid into the data folder: nothing is written through them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.media.content_store import remove_copies, require_intact, store_bytes
from vlmtui.store.opening import FILE
from vlmtui.store.store import Store

SECRET = b"another's file"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A file outside of the data folder."""
    file = tmp_path / "other" / "file"
    file.parent.mkdir()
    file.write_bytes(SECRET)
    return file


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data"


@pytest.mark.parametrize("name", [f"{FILE}.new", f"{FILE}-wal", f"{FILE}.new-journal"])
def test_a_new_database_is_made_beside_a_link(name: str, data: Path, other: Path) -> None:
    (data / name).symlink_to(other)
    store = Store.open(data)
    store.new_conversation(title="mine")
    store.close()
    assert other.read_bytes() == SECRET


@pytest.mark.parametrize("name", [f"{FILE}.lock", "sessions"])
def test_a_lock_that_is_a_link_is_refused(name: str, data: Path, tmp_path: Path) -> None:
    (data / name).symlink_to(tmp_path / "made")
    with pytest.raises(VlmtuiError):
        Store.open(data)
    assert not (tmp_path / "made").exists()


def test_a_copy_that_is_a_link_is_replaced_and_never_followed(data: Path, other: Path) -> None:
    digest = hashlib.sha256(b"picture").hexdigest()
    copy = data / "media" / digest[:2] / f"{digest}.png"
    copy.parent.mkdir(parents=True, mode=0o700)
    copy.symlink_to(other)
    with pytest.raises(VlmtuiError, match="was changed"):
        require_intact(copy)
    assert store_bytes(b"picture", data / "media", ".png", name="a.png").path == copy
    assert not copy.is_symlink() and copy.read_bytes() == b"picture" and other.read_bytes() == SECRET
    copy.unlink()
    copy.symlink_to(other)
    remove_copies(data / "media", digest)
    assert not copy.is_symlink() and other.read_bytes() == SECRET


def test_a_folder_of_the_store_that_is_a_link_is_refused(data: Path, other: Path) -> None:
    (data / "media").mkdir(mode=0o700)
    (data / "media" / hashlib.sha256(b"picture").hexdigest()[:2]).symlink_to(other.parent)
    with pytest.raises(VlmtuiError, match="not your own folder"):
        store_bytes(b"picture", data / "media", ".png", name="a.png")
    assert list(other.parent.iterdir()) == [other]
