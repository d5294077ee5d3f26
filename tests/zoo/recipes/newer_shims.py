"""Modules that stand in for the remote code of real checkpoints: what `auto_map` in their `config.json` names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from tests.zoo.kit import write_config, write_json, write_text

CONFIGURATION = Template('''"""Stands in for the configuration module of the real checkpoint."""

from transformers import CONFIG_MAPPING, PreTrainedConfig
$imports


class $name($base):
    model_type = "$model_type"

    def __init__(self, **facts):
        for key, value in facts.items():
            if key.endswith(("_config", "coder")) and key != "processor_config" and isinstance(value, dict):
                kind = value.get("model_type")
                facts[key] = CONFIG_MAPPING[kind](**value) if kind in CONFIG_MAPPING else PreTrainedConfig(**value)
        super().__init__(**facts)
''')


def write_remote_config(
    folder: Path,
    name: str,
    facts: Mapping[str, Any],
    architecture: str,
    *,
    base: str = "PreTrainedConfig",
    **auto_map: str,
) -> None:
    """Save a config whose class transformers does not know, with a module that defines it.

    `base` is a config class of transformers where the decoder's facts stand at the top level. Nested configs become
    objects. `auto_map` names further classes that stand in modules of the checkpoint.
    """
    model_type = facts["model_type"]
    imports = "" if base == "PreTrainedConfig" else f"from transformers import {base}\n"
    module = CONFIGURATION.substitute(name=name, base=base, model_type=model_type, imports=imports)
    write_text(folder, "configuration_shim.py", module)
    write_config(folder, facts, architecture, auto_map={"AutoConfig": f"configuration_shim.{name}", **auto_map})


PROCESSING = Template('''"""Stands in for the processing module of the real checkpoint."""

$body
''')


def write_remote_processor(folder: Path, name: str, body: str) -> dict[str, str]:
    """Save a module that defines the processor class `name`; the result belongs into the config's `auto_map`."""
    write_text(folder, "processing_shim.py", PROCESSING.substitute(body=body.strip()))
    auto_map = {"AutoProcessor": f"processing_shim.{name}"}
    write_json(folder, "processor_config.json", {"processor_class": name, "auto_map": auto_map})
    return auto_map
