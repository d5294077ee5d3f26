"""The architectures that the installed engine has, and those of the vLLM that the records were checked against."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import util
from pathlib import Path

import msgspec

from vlmtui.registry.routes import installed_engine, vllm_version

_CLASSES = "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES"
"""Transformers' table of the classes for images and text."""


class Architectures(msgspec.Struct, frozen=True):
    """The architectures with images, videos or audio that one version of vLLM and its Transformers support."""

    vllm: str
    multimodal: tuple[str, ...]
    removed: dict[str, str]
    """Architectures that vLLM removed, and the last version that had each."""
    plugin: dict[str, str]
    """Architectures that need a plugin, and where to find it."""
    transformers: tuple[str, ...] = ()
    """Classes that Transformers loads with AutoModelForImageTextToText."""


@cache
def known_architectures() -> Architectures:
    """Return the architectures of the vLLM version that the records were checked against."""
    return msgspec.json.decode(Path(__file__).with_name("architectures.json").read_bytes(), type=Architectures)


@cache
def engine_architectures() -> Architectures:
    """Return the architectures of the installed engine; the known ones if none is installed or its source can't be
    read."""
    folders, version = _folders(), vllm_version()
    if version is None or "vllm" not in folders:
        return known_architectures()
    try:
        return read_architectures(version, folders["vllm"], folders.get("transformers"))
    except (OSError, ValueError, SyntaxError):
        return known_architectures()


def is_multimodal(architecture: str) -> bool:
    """Return True if the engine's vLLM has a class of that name for images, videos or audio."""
    return architecture in engine_architectures().multimodal


def is_of_transformers(architecture: str) -> bool:
    """Return True if the engine's Transformers has a class of that name for images and text."""
    return architecture in engine_architectures().transformers


def read_architectures(version: str, vllm: Path, transformers: Path | None) -> Architectures:
    """Read the architectures from the folders of two packages, as source text: nothing is imported. Raises OSError,
    ValueError or SyntaxError if vLLM's registry is missing or has another form."""
    tables = dict(_tables(_parse(vllm / "model_executor" / "models" / "registry.py")))
    if "_MULTIMODAL_MODELS" not in tables:
        raise ValueError("vLLM's registry has no table of multimodal models")
    backend = tables.get("_TRANSFORMERS_SUPPORTED_MODELS", {})
    through_transformers = {name for name, served in backend.items() if "MultiModal" in ast.unparse(served)}
    return Architectures(
        vllm=version,
        multimodal=tuple(sorted({*tables["_MULTIMODAL_MODELS"], *through_transformers})),
        removed=_texts(tables.get("_PREVIOUSLY_SUPPORTED_MODELS", {})),
        plugin=_texts(tables.get("_OOT_SUPPORTED_MODELS", {})),
        transformers=_transformers_classes(transformers) if transformers is not None else (),
    )


def _folders() -> dict[str, Path]:
    """Return the folders of vLLM and Transformers in the installed engine's environment, by package."""
    if util.find_spec("vllm") is None:
        record = installed_engine()
        if record is None:
            return {}
        from vlmtui.engines.installed import package_folders

        return package_folders(record, ("vllm", "transformers"))
    specs = {name: util.find_spec(name) for name in ("vllm", "transformers")}
    return {name: Path(spec.origin).parent for name, spec in specs.items() if spec is not None and spec.origin}


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _tables(module: ast.Module) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """Yield the module's dictionaries whose keys are literal texts, by name."""
    for node in module.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        value = getattr(node, "value", None)
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Dict):
            continue
        names = [key.value for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        if len(names) == len(value.keys):
            yield target.id, dict(zip(names, value.values, strict=True))


def _texts(table: dict[str, ast.expr]) -> dict[str, str]:
    """Return the entries of a table whose values are literal texts."""
    return {
        name: value.value
        for name, value in table.items()
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def _transformers_classes(folder: Path) -> tuple[str, ...]:
    """Return the classes for images and text in a Transformers package; empty if its table can't be read."""
    try:
        module = _parse(folder / "models" / "auto" / "modeling_auto.py")
        for node in module.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[table, *_])) if name == _CLASSES:
                    return tuple(sorted({value for _, value in ast.literal_eval(table)}))
    except (OSError, ValueError, TypeError, SyntaxError):
        pass
    return ()
