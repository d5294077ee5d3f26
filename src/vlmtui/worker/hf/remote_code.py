"""Checks the Python code that comes with a model, and pins it to a commit, before it is imported."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.remote_code import imported_repositories, remote_code_of


def pin_remote_code(spec: LoadSpec) -> LoadSpec:
    """Return the spec with a commit for all code that may run. A missing revision becomes the newest commit.

    Raises VlmtuiError if the code in a local folder has changed since the user trusted it.
    """
    if not spec.trust_remote_code:
        return spec
    folder = Path(spec.model)
    if folder.is_dir():
        if spec.code_sha256 is None or remote_code_of(spec.model).digest != spec.code_sha256:
            raise VlmtuiError(
                ErrorKind.REMOTE_CODE_REFUSED,
                f"The Python code in {folder} has changed since you allowed it to run.",
                hint="Review the changes, then load the model again.",
            )
        return msgspec.structs.replace(spec, code_revision=_code_revision(spec, folder, None))
    config = _fetched(spec.model, spec.revision)
    commit = config.parent.name
    return msgspec.structs.replace(spec, revision=commit, code_revision=_code_revision(spec, config.parent, commit))


def _code_revision(spec: LoadSpec, folder: Path, own: str | None) -> str | None:
    others = imported_repositories(folder)
    if len(others) > 1:
        raise VlmtuiError(
            ErrorKind.REMOTE_CODE_REFUSED,
            f"The code of {spec.name} comes from several repositories: {', '.join(sorted(others))}.",
        )
    if not others:
        return own
    return _fetched(others.pop(), spec.code_revision).parent.name


def _fetched(repository: str, revision: str | None) -> Path:
    """Download a repository's `config.json`. Return its path in the hub's cache, in a folder named after the commit."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repository, "config.json", revision=revision))
