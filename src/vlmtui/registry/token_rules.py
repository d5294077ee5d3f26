"""Rules that estimate the tokens of an image or video from its size, before a model is loaded.

A rule counts what the engine counts (`MediaSpan.tokens`): the embeddings of the picture, without the tokens around
them. Once the model is loaded, its own processor counts instead.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import msgspec

Settings = Mapping[str, object]
"""The engine argument `mm_processor_kwargs`."""
_MOST = 1_000_000_000
Tokens = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
Few = Annotated[int, msgspec.Meta(ge=1, le=200)]
_TILES_MAX = 1000
_LONGEST_TO_SHORTEST = 200
"""Maximum aspect ratio; Qwen's processors refuse longer images."""


class _Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="by"):
    knows: ClassVar[frozenset[str]] = frozenset()
    """The processor settings that the rule supports."""

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        """Return the tokens of an image of this size in pixels, or None if unknown."""
        raise NotImplementedError

    def of_video(self, width: int, height: int, frames: int, settings: Settings) -> int | None:
        """Return the tokens of a video's frames; by default as for the same number of images."""
        one = self.of_image(width, height, settings)
        return None if one is None else one * frames


class FixedTokens(_Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="fixed"):
    """A fixed number of tokens for every image or frame."""

    tokens: Tokens

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        return self.tokens


class PatchTokens(_Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="patches"):
    """One token per square of `patch * merge` pixels a side, after scaling the image to whole squares and between
    `min_pixels` and `max_pixels`: `smart_resize` of the Qwen2-VL image processor (transformers 5.19)."""

    knows = frozenset({"min_pixels", "max_pixels", "size"})

    min_pixels: Pixels
    max_pixels: Pixels
    patch: Few = 14
    merge: Few = 2
    frames_together: Few = 2
    """Frames of a video that share one layer of tokens (the temporal patch size)."""

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        grid = self._grid(width, height, settings)
        return None if grid is None else grid[0] * grid[1]

    def resized(self, width: int, height: int, settings: Settings) -> tuple[int, int] | None:
        """Return width and height of the resized picture in pixels; None if the processor would refuse it."""
        grid = self._grid(width, height, settings)
        side = self.patch * self.merge
        return None if grid is None else (grid[1] * side, grid[0] * side)

    def _grid(self, width: int, height: int, settings: Settings) -> tuple[int, int] | None:
        """Return rows and columns of tokens."""
        if max(width, height) > _LONGEST_TO_SHORTEST * min(width, height):
            return None
        low = _setting(settings, "min_pixels", "shortest_edge", self.min_pixels)
        high = _setting(settings, "max_pixels", "longest_edge", self.max_pixels)
        side = self.patch * self.merge
        rows, columns = round(height / side), round(width / side)
        if rows * columns * side * side > high:
            scale = math.sqrt(height * width / high)
            rows, columns = (max(1, math.floor(pixels / scale / side)) for pixels in (height, width))
        elif rows * columns * side * side < low:
            scale = math.sqrt(low / (height * width))
            rows, columns = (math.ceil(pixels * scale / side) for pixels in (height, width))
        return rows, columns

    def of_video(self, width: int, height: int, frames: int, settings: Settings) -> int | None:
        one = self.of_image(width, height, settings)
        return None if one is None else one * math.ceil(frames / self.frames_together)


class TileTokens(_Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="tiles"):
    """The image fills the grid of 1 to `max_tiles` square tiles whose aspect ratio is closest to its own; a thumbnail
    is added if there is more than one tile. `dynamic_preprocess` of InternVL's model card; the same in vLLM 0.32."""

    knows = frozenset({"min_dynamic_patch", "max_dynamic_patch", "dynamic_image_size"})

    tokens: Tokens
    """Per tile."""
    side: Pixels
    """Side of a tile in pixels."""
    max_tiles: Few

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        least, most = self._limits(settings)
        sides = range(1, most + 1)
        grids = sorted(
            ((columns, rows) for columns in sides for rows in sides if least <= columns * rows <= most),
            key=lambda grid: grid[0] * grid[1],
        )
        shape, nearest, difference = width / height, (1, 1), math.inf
        for columns, rows in grids:
            off = abs(shape - columns / rows)
            # Of equally close grids, take the larger if the image has enough pixels for more than half of it.
            is_filled = width * height > 0.5 * self.side**2 * columns * rows
            if off < difference or (off == difference and is_filled):
                difference, nearest = off, (columns, rows)
        tiles = nearest[0] * nearest[1]
        return self.tokens * (tiles + 1 if tiles > 1 else 1)

    def _limits(self, settings: Settings) -> tuple[int, int]:
        """Return the fewest and the most tiles."""
        if settings.get("dynamic_image_size") is False:
            return 1, 1
        given = settings.get("min_dynamic_patch"), settings.get("max_dynamic_patch")
        least, most = (value if isinstance(value, int) else None for value in given)
        most = min(most, _TILES_MAX) if most else self.max_tiles
        return min(max(least or 1, 1), most), most


class SplitTokens(_Rule, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="split"):
    """The image is scaled to `longest` pixels on its longer side and cut into squares of `side` pixels, plus the whole
    image: Idefics3's image processor (transformers 5.19)."""

    knows = frozenset({"size", "max_image_size"})

    tokens: Tokens
    """Per square."""
    side: Pixels
    longest: Pixels

    def of_image(self, width: int, height: int, settings: Settings) -> int | None:
        longest = _edge(settings, "size", "longest_edge", self.longest)
        side = _edge(settings, "max_image_size", "longest_edge", self.side)
        shape = width / height
        shorter = int(longest / shape if shape >= 1 else longest * shape)
        shorter = max(1, shorter + shorter % 2)  # an even number of pixels
        squares = math.ceil(longest / side) * math.ceil(shorter / side)
        return self.tokens * (squares + 1 if squares > 1 else 1)


TokenRule = FixedTokens | PatchTokens | TileTokens | SplitTokens


def _setting(settings: Settings, name: str, edge: str, otherwise: int) -> int:
    """Return a pixel limit by its own name, else from an edge of `size`, which Qwen's processors treat the same."""
    value = settings.get(name)
    return value if isinstance(value, int) and 0 < value <= _MOST else _edge(settings, "size", edge, otherwise)


def _edge(settings: Settings, name: str, edge: str, otherwise: int) -> int:
    table = settings.get(name)
    value = table.get(edge) if isinstance(table, Mapping) else None
    return value if isinstance(value, int) and 0 < value <= _MOST else otherwise
