"""The engine checks of `vlmtui doctor` before a load: which engine is used, and whether a better one exists."""

from __future__ import annotations

import sys
from importlib.metadata import packages_distributions, version

from vlmtui.cli.checks import Check
from vlmtui.engines.hardware import Hardware, find_hardware
from vlmtui.engines.records import EngineRecord, Engines, choose_engine
from vlmtui.engines.variants import VARIANTS
from vlmtui.paths import Paths
from vlmtui.worker.backends import has_transformers

_TO_CUDA = "Install the CUDA build: `vlmtui engines install cuda`."


def engine_checks(paths: Paths) -> list[Check]:
    """Check vLLM and PyTorch as a load would find them."""
    chosen, hardware = choose_engine(Engines(paths)), find_hardware()
    if chosen is None:
        install = f"`vlmtui engines install` installs {VARIANTS[hardware.variant].title}."
        if has_transformers():
            return [_check_without_vllm(install), _check_torch(_version_of("torch"), hardware, is_ours=False)]
        hint = f"Found: {hardware.describe()}. {install}"
        return [Check("vllm", "fail", "No engine is installed, so no model can run.", hint)]
    if chosen.record is not None:
        return [_check_installed(chosen.record), _check_torch(chosen.record.torch, hardware, is_ours=True)]
    return [_check_beside(), _check_torch(_version_of("torch"), hardware, is_ours=False)]


def only_transformers(paths: Paths) -> bool:
    """Return whether models run here, but not in vLLM."""
    return choose_engine(Engines(paths)) is None and has_transformers()


def _check_without_vllm(install: str) -> Check:
    text = (
        f"not installed. Models run in Transformers {_version_of('transformers')} where `--backend transformers` is "
        "given: more slowly, as it answers different prompts in turn"
    )
    return Check("vllm", "warn", text, f"{install} It is then used where nothing else is asked for.")


def _check_installed(record: EngineRecord) -> Check:
    text = f"{record.version} ({record.variant}), engine {record.name}, Python {record.python}, {record.interpreter}"
    if record.variant in VARIANTS and record.version != VARIANTS[record.variant].version:
        newer = VARIANTS[record.variant]
        hint = f"This vlmtui was tried with {newer.title}: `vlmtui engines install {newer.variant}`."
        return Check("vllm", "warn", text, hint)
    return Check("vllm", "ok", text)


def _check_beside() -> Check:
    """Check the vLLM in the app's environment. The CUDA and CPU builds have different distribution names."""
    names = sorted(set(packages_distributions().get("vllm", [])))
    found = ", ".join(f"{version(name)} ({name})" for name in names) or "of unknown version"
    if len(names) > 1:
        hint = "Both fill the same folder: uninstall both, and let `vlmtui engines install` install one elsewhere."
        return Check("vllm", "fail", f"two builds at once: {found}", hint)
    return Check("vllm", "ok", f"{found}, beside vlmtui in {sys.prefix}")


def _check_torch(found: str, hardware: Hardware, *, is_ours: bool) -> Check:
    if not found:
        return Check("torch", "fail", "torch is not installed", "It comes with vLLM: `vlmtui engines install`.")
    is_for_cpu = "cpu" in found.partition("+")[2]
    if not is_for_cpu or not hardware.gpus:
        return Check("torch", "ok", found)
    text = f"{found}: a CPU build, though there is {hardware.describe()}"
    if not hardware.driver_is_new_enough:
        return Check("torch", "ok", text)
    hint = _TO_CUDA if is_ours else f"{_TO_CUDA} It is used once vLLM is not installed beside vlmtui any more."
    return Check("torch", "warn", text, hint)


def _version_of(package: str) -> str:
    try:
        return version(package)
    except ModuleNotFoundError:
        return ""
