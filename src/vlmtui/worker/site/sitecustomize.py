"""Start-up hooks for every process of the engine.

Python imports a module of this name by itself when it starts. The worker puts this folder at the front of the
`PYTHONPATH` that it hands to its children, so the hooks below run in vLLM's engine core and GPU workers too. A hook may
neither slow the start down nor stop it: nothing is imported before it is needed, and what a hook raises is printed and
otherwise passed over.

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
"""Operators that torchvision describes to torch while it is imported, declared as in its own `csrc/ops/nms.cpp`."""


class TorchvisionSchemaFinder:
    """Declares torchvision's operators just before torchvision is imported, where its own library cannot.

    A torchvision built for CUDA cannot load its operators beside a CPU build of torch, and then fails on import with
    "operator torchvision::nms does not exist". Its image transforms, all that transformers needs, do not use them.
    """

    def __init__(self) -> None:
        self.asked = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find no module, ever: the first import of torchvision is only the moment to declare the operators."""
        if fullname == "torchvision" and not self.asked:
            self.asked = True
            if torchvision_lacks_operators():
                declare_torchvision_operators()
        return None


def torchvision_lacks_operators() -> bool:
    """Whether the installed torch is a CPU build and torchvision is not, by their versions' local tags (`+cpu`)."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return is_cpu_build(version("torch")) and not is_cpu_build(version("torchvision"))
    except PackageNotFoundError:
        return False


def is_cpu_build(version: str) -> bool:
    """Whether a version's local tag says that it was built for the CPU, as in `2.13.0+cpu`."""
    return "cpu" in version.partition("+")[2].split(".")


def declare_torchvision_operators() -> None:
    """Give torch the schemas of torchvision's operators; one that exists already is left as it is."""
    import torch

    for name, schema in TORCHVISION_SCHEMAS.items():
        namespace, _, operator = name.partition("::")
        if not hasattr(getattr(torch.ops, namespace), operator):
            torch.library.define(name, schema)


def watch_for_torchvision() -> None:
    """Have torchvision's operators declared when, and only when, it is imported."""
    sys.meta_path.insert(0, TorchvisionSchemaFinder())


def run_next_sitecustomize() -> None:
    """Run the `sitecustomize` that this one hides, where the path holds another (a debugger's, a system's)."""
    from importlib.machinery import PathFinder
    from os.path import dirname, realpath

    here = realpath(dirname(__file__))  # noqa: PTH120 - pathlib would be imported in every process
    spec = PathFinder.find_spec("sitecustomize", [folder for folder in sys.path if realpath(folder) != here])
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    spec.loader.exec_module(module_from_spec(spec))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, where it is one of multiprocessing's children.

    vLLM's engine core and GPU workers outlive a killed parent otherwise. Others are left alone: the signal comes when
    the *thread* that started the process ends, which compilers and the like are started from.
    """
    from os import _exit, environ, getppid, getsid

    if environ.get("VLMTUI_PARENT_DEATH") and any("multiprocessing.spawn" in part for part in sys.orig_argv):
        import ctypes
        from signal import SIGKILL

        set_parent_death_signal = 1
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(set_parent_death_signal, SIGKILL, 0, 0, 0)
            if getsid(getppid()) != getsid(0):  # it ended before: another session's process has taken its place
                _exit(1)


HOOKS: tuple[Callable[[], None], ...] = (die_with_parent, watch_for_torchvision, run_next_sitecustomize)
"""What runs when a process of the engine starts, in this order."""


def run_hooks() -> None:
    """Run every hook; one that fails is reported on stderr and does not keep the others from running."""
    for hook in HOOKS:
        try:
            hook()
        except Exception:
            import traceback

            traceback.print_exc()


if __name__ == "sitecustomize":
    run_hooks()
