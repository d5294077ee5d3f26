"""Which code of a model's own may run: checked, and fixed to a commit, before anything of it is imported."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vlmtui.domain.engine import LoadSpec
from vlmtui.errors import ErrorKind, VlmtuiError
from vlmtui.registry.remote_code import imported_repositories, remote_code_of


def pinned(spec: LoadSpec) -> LoadSpec:
    """The spec, with a commit for all code that it lets run. What it does not name yet is the newest, from now on.

    Raises VlmtuiError where a folder's code is not the one that was allowed.
    """
    if not spec.trust_remote_code:
        return spec
    folder = Path(spec.model)
    if folder.is_dir():
        if spec.code_sha256 is None or remote_code_of(spec.model).digest != spec.code_sha256:
            raise VlmtuiError(
                ErrorKind.REMOTE_CODE_REFUSED,
                f"The Python code in {folder} is not the one that was allowed to run: it has changed.",
                hint="Look at what changed, and load the model again.",
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
    """The `config.json` of a repository in the hub's cache, below a folder that is named by its commit."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repository, "config.json", revision=revision))
