"""Start-up hooks for every process of the engine.

Python imports a module of this name when it starts. The worker puts this folder first on the `PYTHONPATH` of its
children, so the hooks below also run in vLLM's engine core and GPU workers. A hook must neither slow the start down nor
prevent it: nothing is imported before it is needed, and an exception in a hook is printed and otherwise ignored.

To add a hook, write a function without arguments and name it in `HOOKS`.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
"""Stands in for `typing.TYPE_CHECKING`: `typing` is not imported when Python starts."""

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

TORCHVISION_SCHEMAS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
"""Operators that torchvision registers with torch on import, declared as in its own `csrc/ops/nms.cpp`."""


class TorchvisionSchemaFinder:
    """Declares torchvision's operators just before torchvision is imported, if its own library cannot.

    A torchvision built for CUDA cannot load its operators with a CPU build of torch, and then fails on import with
    "operator torchvision::nms does not exist". Its image transforms, all that transformers needs, do not use them.
    Report to send: docs/upstream/torchvision-cpu-torch.md; look at torchvision 0.29.
    """

    def __init__(self) -> None:
        self.done = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Declare the operators on the first import of torchvision. Never finds a module itself."""
        if fullname == "torchvision" and not self.done:
            self.done = True
            if torchvision_lacks_operators():
                declare_torchvision_operators()
        return None


def torchvision_lacks_operators() -> bool:
    """Whether torch is a CPU build and torchvision is not, by the local tags of their versions (`+cpu`)."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return is_cpu_build(version("torch")) and not is_cpu_build(version("torchvision"))
    except PackageNotFoundError:
        return False


def is_cpu_build(version: str) -> bool:
    """Whether a version's local tag marks a CPU build, as in `2.13.0+cpu`."""
    return "cpu" in version.partition("+")[2].split(".")


def declare_torchvision_operators() -> None:
    """Register the schemas of torchvision's operators with torch, except those that exist already."""
    import torch

    for name, schema in TORCHVISION_SCHEMAS.items():
        namespace, _, operator = name.partition("::")
        if not hasattr(getattr(torch.ops, namespace), operator):
            torch.library.define(name, schema)


def watch_for_torchvision() -> None:
    """Have torchvision's operators declared if and when torchvision is imported."""
    sys.meta_path.insert(0, TorchvisionSchemaFinder())


def run_next_sitecustomize() -> None:
    """Run the `sitecustomize` that this one shadows (a debugger's, the system's), if there is one."""
    from importlib.machinery import PathFinder
    from os.path import dirname, realpath

    here = realpath(dirname(__file__))  # noqa: PTH120 - pathlib would be imported in every process
    spec = PathFinder.find_spec("sitecustomize", [folder for folder in sys.path if realpath(folder) != here])
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    spec.loader.exec_module(module_from_spec(spec))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, if it is one of multiprocessing's children.

    Otherwise vLLM's engine core and GPU workers outlive a killed parent. Other processes, such as compilers, are left
    alone: the signal is sent when the *thread* that started the process ends, and theirs may be short-lived.
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
