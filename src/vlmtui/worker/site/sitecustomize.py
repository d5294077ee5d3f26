"""Start-up hooks for every process of the engine.

Python imports a module of this name when it starts. This folder is first in the worker's `PYTHONPATH`, so the hooks
also run in vLLM's engine core and GPU workers. A hook must not delay or prevent the start: it imports modules only when
it needs them, and an exception in a hook is printed and otherwise ignored.

To add a hook, write a function without arguments and name it in `HOOKS`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
"""Replaces `typing.TYPE_CHECKING`, because importing `typing` takes time."""

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

TORCHVISION_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
"""Operators that torchvision registers with torch on import. Source: torchvision's `csrc/ops/nms.cpp`."""


class TorchvisionSchemaFinder:
    """Declares torchvision's operators just before torchvision is imported, if its own compiled library can't declare
    them.

    A torchvision built for CUDA cannot load its operators with a CPU build of torch, and then fails on import with
    "operator torchvision::nms does not exist". transformers needs only its image transforms, which do not use these
    operators. The fault's report, not sent yet: docs/upstream/torchvision-cpu-torch.md. Check with torchvision 0.29
    whether this class is still needed.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Declare the operators on the first import of torchvision. Never finds a module itself."""
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            from importlib.metadata import PackageNotFoundError, version

            try:
                builds = [version(name).partition("+")[2].split(".") for name in ("torch", "torchvision")]
            except PackageNotFoundError:
                return None
            if "cpu" in builds[0] and "cpu" not in builds[1]:
                import torch

                for name, schema in TORCHVISION_SCHEMAS.items():
                    if not hasattr(torch.ops.torchvision, name):
                        torch.library.define(f"torchvision::{name}", schema)
        return None


def watch_for_torchvision() -> None:
    sys.meta_path.insert(0, TorchvisionSchemaFinder())


def run_next_sitecustomize() -> None:
    """Run the next `sitecustomize` on the path, such as a debugger's or the system's, if there is one."""
    from importlib.machinery import PathFinder
    from os.path import dirname, realpath

    here = realpath(dirname(__file__))  # noqa: PTH120 - pathlib would be imported in every process
    spec = PathFinder.find_spec("sitecustomize", [folder for folder in sys.path if realpath(folder) != here])
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    spec.loader.exec_module(module_from_spec(spec))


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, if multiprocessing has started it.

    Otherwise vLLM's engine core and GPU workers outlive a killed parent. Not for other processes, such as compilers:
    the kernel sends the signal when the *thread* that started the process ends, which may be early.
    """
    from os import _exit, environ, getppid, getsid

    if environ.get("VLMTUI_PARENT_DEATH") and any("multiprocessing.spawn" in part for part in sys.orig_argv):
        import ctypes
        from signal import SIGKILL

        set_parent_death_signal = 1
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(set_parent_death_signal, SIGKILL, 0, 0, 0)
            if getsid(getppid()) != getsid(0):  # another session's process has adopted this one
                _exit(1)


HOOKS: tuple[Callable[[], None], ...] = (
    die_with_parent,
    watch_for_torchvision,
    run_next_sitecustomize,
)
"""Run in this order when a process of the engine starts."""


def run_hooks() -> None:
    """Run every hook. A failing hook is reported on stderr and does not stop the others."""
    for hook in HOOKS:
        try:
            hook()
        except Exception:
            import traceback

            traceback.print_exc()


if __name__ == "sitecustomize":
    run_hooks()
