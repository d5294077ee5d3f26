"""An engine's packages in one file, to install it on a machine without a network."""

from __future__ import annotations

import os
import re
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlmtui.engines.builds import UV_LOCK, EngineBuild
from vlmtui.engines.uv import PYTORCH_INDEX, run_step
from vlmtui.errors import VlmtuiError, bad_input
from vlmtui.files import new_file
from vlmtui.processes import isolated_command, safe_environment

_WHEEL = re.compile(r"[\w.+!-]{1,200}\.whl")


def write_bundle(build: EngineBuild, target: Path, base: Path) -> int:
    """Download the packages of a build with the pip of the interpreter `base`, for its version of Python and this kind
    of machine, and write them to the tar file `target`. Return their number. Blocks for minutes. Raises VlmtuiError."""
    if build.lock is None:
        raise bad_input(f"{build.title} can't be bundled: its packages are not locked.", hint="Name a locked version.")
    with tempfile.TemporaryDirectory(prefix=".vlmtui-bundle-", dir=target.absolute().parent) as folder:
        download = ["-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", folder]
        environment = safe_environment(os.environ)
        for lock in (build.lock, UV_LOCK):
            run_step(isolated_command(base, *download, "--require-hashes", "-r", str(lock)), environment)
        if build.torch:
            _download_torch(build, isolated_command(base, *download), environment)
        wheels = sorted(Path(folder).glob("*.whl"))
        with new_file(target.absolute().parent, target.name) as new:
            with tarfile.open(fileobj=new.file, mode="w") as archive:
                for wheel in wheels:
                    archive.add(wheel, arcname=wheel.name)
            new.replace(target)
    return len(wheels)


def _download_torch(build: EngineBuild, download: list[str], environment: dict[str, str]) -> None:
    """Download a CPU build of PyTorch from the configured indexes or PyTorch's own, otherwise the locked build."""
    requirement = f"torch=={build.torch}+cpu"
    for index in ([], ["--extra-index-url", PYTORCH_INDEX]):
        try:
            run_step([*download, *index, requirement], environment, is_quiet=True)
        except VlmtuiError:
            continue
        return
    run_step([*download, "--require-hashes", "-r", str(build.torch_lock)], environment)


@contextmanager
def unpacked(bundle: Path) -> Iterator[None]:
    """Let pip and uv take packages only from a bundle within the `with` block. The lock's hashes tell whether these are
    the right ones. Raises VlmtuiError."""
    with tempfile.TemporaryDirectory(prefix="vlmtui-bundle-") as folder:
        try:
            with tarfile.open(bundle, "r:") as archive:
                for member in archive:
                    if not (member.isreg() and _WHEEL.fullmatch(member.name)):
                        raise bad_input(f"{bundle} is not a bundle: it contains more than wheels.")
                    archive.extract(member, folder, filter="data")
        except (OSError, tarfile.TarError) as error:
            hint = "Write one with `vlmtui engines bundle`."
            raise bad_input(f"Can't read the bundle {bundle}.", detail=str(error), hint=hint) from error
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
        for name in kept:
            del os.environ[name]
        os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=folder, PIP_CONFIG_FILE=os.devnull)
        try:
            yield
        finally:
            for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
                del os.environ[name]
            os.environ.update(kept)
