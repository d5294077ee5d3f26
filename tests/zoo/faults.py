"""Faults made on copies of a tiny model, each to be named by `vlmtui check` at its stage:
`python -m tests.zoo.faults [FAULT…] [--keep FOLDER]`.

Transformers answers with the sound checkpoint, vLLM with the copy, or with other engine arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.zoo.__main__ import ENVIRONMENT
from tests.zoo.parity import compared, conversations, in_a_process
from vlmtui.inspection.pixel_values import PixelStep
from vlmtui.inspection.stages import CheckedSide, Stage
from vlmtui.session.check.run import CheckResult

FAMILY = "qwen2_vl"
FEWER_PIXELS = {"mm_processor_kwargs": {"min_pixels": 784, "max_pixels": 50176}}
"""The family's record sets these limits, whatever the checkpoint says."""


@dataclass(frozen=True)
class Fault:
    """A fault in a copy of a model, and the stage at which `check` must find it."""

    name: str
    make: Callable[[Path], None]
    stage: Stage
    step: PixelStep | None = None
    engine_args: Mapping[str, Any] = field(default_factory=dict)


def _edit(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the image processor's settings, whichever file has them."""
    done = False
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = folder / name
        if not path.exists():
            continue
        settings = json.loads(path.read_text())
        own = settings.get("image_processor", settings)
        if "image_mean" in own:
            change(own)
            path.write_text(json.dumps(settings))
            done = True
    assert done, "no file has the image processor's settings"


def _swap_mean_and_std(folder: Path) -> None:
    def swap(own: dict[str, Any]) -> None:
        own["image_mean"], own["image_std"] = own["image_std"], own["image_mean"]

    _edit(folder, swap)


def _unstated_mean_and_std(folder: Path) -> None:
    """The processor's class has its own, and vLLM takes that for "no normalisation" (vllm-unstated-normalisation)."""

    def leave_out(own: dict[str, Any]) -> None:
        for name in ("do_normalize", "do_rescale", "image_mean", "image_std"):
            own.pop(name, None)

    _edit(folder, leave_out)


def _resample_bilinear(folder: Path) -> None:
    def change(own: dict[str, Any]) -> None:
        assert own.get("resample", 3) == 3, "the sound model resizes otherwise than bicubic"
        own["resample"] = 2

    _edit(folder, change)


def _as_it_is(folder: Path) -> None:
    """Leave the copy: the fault is in the engine's arguments."""


def _one_token_more(folder: Path) -> None:
    """Have the tokenizer write a token before every text."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    first = tokenizer["added_tokens"][0]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": first["content"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            first["content"]: {"id": first["content"], "ids": [first["id"]], "tokens": [first["content"]]}
        },
    }
    path.write_text(json.dumps(tokenizer))


def _missing_newline(folder: Path) -> None:
    path = folder / "chat_template.jinja"
    template = path.read_text()
    changed = template.replace('"user": "<|im_end|>\\n"', '"user": "<|im_end|>"')
    assert changed != template, "the template has no such newline"
    path.write_text(changed)


def _scale_one_layer(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(one for one in sorted(tensors) if one.endswith("layers.1.mlp.down_proj.weight"))
    tensors[name] = tensors[name] * 1.5
    save_file(tensors, path, {"format": "pt"})


FAULTS = (
    Fault("mean and std swapped", _swap_mean_and_std, Stage.PIXELS, PixelStep.NORMALISATION),
    Fault("mean and std not stated", _unstated_mean_and_std, Stage.PIXELS, PixelStep.LEVELS),
    Fault("bilinear instead of bicubic", _resample_bilinear, Stage.PIXELS, PixelStep.RESAMPLING),
    Fault("images of fewer pixels", _as_it_is, Stage.PLACES, engine_args=FEWER_PIXELS),
    Fault("one token more", _one_token_more, Stage.TOKENS),
    Fault("template without a newline", _missing_newline, Stage.TEXT),
    Fault("weights of one layer scaled", _scale_one_layer, Stage.LOGPROBS),
)


def found_in(cases: list[CheckResult]) -> tuple[Stage | None, PixelStep | None, str]:
    """Return the first stage that differs in any conversation, the step of the processor, and the message."""
    found = [one.first for one in cases if one.first is not None]
    if not found:
        return None, None, "; ".join(one.error for one in cases)
    first = min(found, key=lambda one: list(Stage).index(one.stage))
    return first.stage, first.step, first.message


def _sound(base: Path) -> list[CheckedSide] | str:
    """Make the sound checkpoint and have Transformers answer; or what went wrong."""
    made = in_a_process("make", FAMILY, base / "sound", base / "make")
    if isinstance(made, str):
        return made
    return in_a_process("transformers", FAMILY, base / "sound", base / "transformers")


def _try(fault: Fault, reference: list[CheckedSide] | str, base: Path) -> tuple[bool, str]:
    """Break a copy and compare. Return whether the fault is found, and the message."""
    if isinstance(reference, str):
        return False, reference
    folder = base / fault.name.replace(" ", "-")
    shutil.copytree(base / "sound", folder / "model", dirs_exist_ok=True)
    fault.make(folder / "model")
    ours = in_a_process("vllm", FAMILY, folder / "model", folder / "vllm", fault.engine_args)
    if isinstance(ours, str):
        return False, ours
    stage, step, said = found_in(compared(ours, reference, conversations(FAMILY, base / "media")))
    is_named = stage is fault.stage and (stage is not Stage.PIXELS or step is fault.step)
    return is_named, f"{stage.value if stage is not None else 'nothing'}: {said}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("faults", nargs="*", help="words of their names")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    base = (options.keep or Path(tempfile.mkdtemp())).resolve()
    wanted = [one for one in FAULTS if not options.faults or any(word in one.name for word in options.faults)]
    reference = _sound(base)
    named = 0
    for fault in wanted:
        is_named, said = _try(fault, reference, base)
        named += is_named
        print(f"{fault.name:30} {'named' if is_named else 'MISSED'} {said}", flush=True)
    print(f"{named} of {len(wanted)} faults named at their stage")
    return 0 if named == len(wanted) else 1


if __name__ == "__main__":
    raise SystemExit(main())
