"""The estimated cost of an attachment, against the processors themselves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources
from importlib.util import find_spec

import pytest

from vlmtui.domain.conversation import Attachment, Modality, VideoSampling
from vlmtui.errors import VlmtuiError
from vlmtui.paths import bundled
from vlmtui.registry.estimate import estimated_tokens, frames_of, settings_of
from vlmtui.registry.loader import Registry, parse_family
from vlmtui.registry.match import EXAMPLE, engine_args_of
from vlmtui.registry.schema import PatchTokens, SplitTokens, TileTokens

SIZES = [(1, 1), (28, 28), (112, 112), (167, 168), (640, 480), (480, 640), (4032, 3024), (10000, 60), (333, 1000)]
LONG = (10_000, 1)
LONGEST = (364, 728, 1092, 1456)
_COUNT = """
import json, sys
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
sizes = json.loads(sys.argv[1])
config = json.load(open(sys.argv[2]))
shapes = Qwen2VLImageProcessorPil(size=config["size"], patch_size=config["patch_size"], merge_size=config["merge_size"])
found = {"shapes": [shapes.get_number_of_image_patches(height, width, {}) for width, height in sizes]}
for longest in (364, 728, 1092, 1456):
    one = Idefics3ImageProcessorPil(size={"longest_edge": longest})
    found[longest] = [max(1, one.get_number_of_image_patches(height, width, {})[0]) for width, height in sizes]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.bundled()


def item(width: int, height: int, modality: Modality = "image", sampling: VideoSampling | None = None) -> Attachment:
    facts = {"name": "x", "path": "/x", "sha256": "0" * 64, "size_bytes": 1, "format": "PNG"}
    return Attachment(modality=modality, width=width, height=height, sampling=sampling, duration_s=10.0, **facts)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def counted() -> dict[str, list[int]]:
    """The patches of `SIZES` as the processors count them, in a process of their own: they import torch."""
    if find_spec("transformers") is None:
        pytest.skip("the processors come with the engine")
    arguments = [json.dumps(SIZES), str(bundled("shapes") / "preprocessor_config.json")]
    told = subprocess.run(
        [sys.executable, "-c", _COUNT, *arguments],
        check=False,
        env={**os.environ, "PYTHONPATH": str(resources.files("vlmtui") / "worker" / "site")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert told.returncode == 0, told.stderr
    found: dict[str, list[int]] = json.loads(told.stdout.splitlines()[-1])
    return found


@pytest.mark.process
def test_the_bundled_models_record_counts_as_its_processor(registry: Registry, counted: dict[str, list[int]]) -> None:
    estimates = [estimated_tokens(registry["shapes"], item(*size)) for size in SIZES]
    assert estimates == [patches / 4 for patches in counted["shapes"]]


@pytest.mark.process
@pytest.mark.parametrize("longest", LONGEST)
def test_a_split_image_is_counted_as_by_its_processor(counted: dict[str, list[int]], longest: int) -> None:
    rule, settings = SplitTokens(tokens=1, side=364, longest=1456), {"size": {"longest_edge": longest}}
    assert [rule.of_image(*size, settings) for size in SIZES] == counted[str(longest)]


@pytest.mark.parametrize(
    ("size", "tiles"),
    [((448, 448), 1), ((448, 896), 3), ((896, 896), 5), ((1344, 448), 4), ((100, 100), 1), ((4032, 3024), 13)],
)
def test_a_tiled_image_has_a_thumbnail_beside_its_tiles(size: tuple[int, int], tiles: int) -> None:
    assert TileTokens(tokens=256, side=448, max_tiles=12).of_image(*size, {}) == 256 * tiles


def test_the_processors_settings_limit_the_pixels() -> None:
    rule = PatchTokens(min_pixels=3136, max_pixels=12845056)
    assert rule.of_image(2800, 2800, {}) == 100 * 100
    assert rule.of_image(2800, 2800, {"max_pixels": 28 * 28 * 16}) == 16
    assert rule.of_image(2800, 2800, {"size": {"longest_edge": 28 * 28 * 16}}) == 16
    assert rule.of_image(28, 28, {"min_pixels": 28 * 28 * 16}) == 16
    assert rule.of_image(*LONG, {}) is None


def test_a_video_is_counted_by_its_frames(registry: Registry) -> None:
    shapes = registry["shapes"]
    image = estimated_tokens(shapes, item(64, 64))
    assert image is not None
    assert estimated_tokens(shapes, item(64, 64, "video", VideoSampling(num_frames=7))) == 4 * image
    at_rate = item(64, 64, "video", VideoSampling(fps=2.0, start_s=1.0, end_s=4.0))
    assert frames_of(at_rate) == 7
    assert estimated_tokens(registry["internvl_chat"], at_rate) == 7 * 256


def test_an_unknown_estimate_is_not_shown(registry: Registry) -> None:
    assert estimated_tokens(registry["molmo"], item(64, 64)) is None
    assert estimated_tokens(registry["llava"], item(64, 64, "video")) is None
    assert estimated_tokens(registry["gemma3"], item(64, 64), settings={"do_pan_and_scan": True}) is None
    assert estimated_tokens(registry["gemma3"], item(64, 64)) == 256


def test_an_image_is_counted_at_the_vendors_resolution(registry: Registry) -> None:
    photo = item(4000, 3000)
    # floor(4000 * s / side) * floor(3000 * s / side), where s brings the image below the processor's own max_pixels.
    wanted = {"qwen2_vl": 143 * 107, "qwen2_5_vl": 143 * 107, "qwen2_5_omni": 143 * 107}
    wanted |= dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), 125 * 94)
    wanted |= {"idefics3": 169 * (4 * 3 + 1)}
    assert {name: estimated_tokens(registry[name], photo) for name in wanted} == wanted


def test_the_settings_of_the_load_count(registry: Registry) -> None:
    for name, tokens in (("qwen2_vl", 41 * 30), ("qwen3_vl", 36 * 27), ("idefics3", 169 * (3 * 3 + 1))):
        family, one = registry[name], {"image": 1, "video": 0}
        settings = settings_of(family, engine_args=engine_args_of(family, one, preset=EXAMPLE))  # type: ignore[arg-type]
        assert estimated_tokens(family, item(4000, 3000), settings=settings) == tokens, name


def test_a_rule_that_is_not_one_is_named() -> None:
    record = (
        b'family = "x"\ntitle = "X"\nmodels = ["a/b"]\narchitectures = []\n[raw]\n[takes.image]\nplaceholder = "<i>"\n'
        b'[takes.image.tokens]\nby = "fixed"\n'
    )
    with pytest.raises(VlmtuiError, match="missing required field `tokens`"):
        parse_family(record, "x.toml")
    with pytest.raises(VlmtuiError, match="unknown field `tokns`"):
        parse_family(record + b"tokns = 3\n", "x.toml")
