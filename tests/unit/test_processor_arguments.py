"""The processor arguments that a request may set."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.worker.hf.processor_arguments import check_arguments, known_arguments, merged_arguments


class ImageArguments(TypedDict, total=False):
    longest_edge: int
    patch_size: int


class Scopes(TypedDict, total=False):
    images_kwargs: ImageArguments


class ImagePart:
    valid_kwargs = ImageArguments

    def __init__(self) -> None:
        self.own_setting = 3

    def __call__(self, images: Any, **kwargs: Any) -> None: ...


class Typed:
    """A processor like those of Transformers, which declares its `**kwargs`."""

    valid_processor_kwargs = Scopes

    def __init__(self) -> None:
        self.image_processor = ImagePart()

    def __call__(self, images: Any = None, text: Any = None, **kwargs: Any) -> None: ...


class Closed:
    def __call__(self, text: Any, images: Any, max_crops: int = 4) -> None: ...


class Open:
    """A processor like those of some repositories."""

    def __call__(self, text: Any, **kwargs: Any) -> None: ...


def test_arguments_of_signature_and_record_are_accepted() -> None:
    given = {"longest_edge": 4, "own_setting": 2, "images_kwargs": {}, "max_pixels": 5}
    check_arguments(Typed(), given)
    check_arguments(Closed(), {"max_crops": 2, "num_crops": 4})
    check_arguments(Open(), {"anything": 1})
    assert known_arguments(Open()) is None


@pytest.mark.parametrize(
    ("processor", "name", "words"),
    [
        (Typed(), "longest_egde", "Similar names: longest_edge."),
        (Typed(), "\x1b[31m", "Names: "),
        (Typed(), "patch_size", "can't be set for a request"),
        (Open(), "return_tensors", "can't be set for a request"),
        (Closed(), "images", "Closed has no argument images."),
    ],
)
def test_others_are_refused_by_name(processor: Any, name: str, words: str) -> None:
    with pytest.raises(VlmtuiError, match=words) as caught:
        check_arguments(processor, {name: 1})
    assert "\x1b" not in str(caught.value)


class Sized:
    """A processor whose parts limit the pixels by the edges of `size`, as those of Qwen2-VL."""

    class Part:
        def __init__(self, shortest: int | None, longest: int) -> None:
            self.size = {"longest_edge": longest} | ({} if shortest is None else {"shortest_edge": shortest})

    def __init__(self, shortest: int | None = 4) -> None:
        self.image_processor = self.Part(shortest, 100)
        self.video_processor = self.Part(8, 900)


def test_pixel_limits_are_edges_of_the_size_of_images_and_of_videos() -> None:
    given = merged_arguments(Sized(), {"fps": 1}, {"max_pixels": 50})
    images, videos = {"shortest_edge": 4, "longest_edge": 50}, {"shortest_edge": 8, "longest_edge": 50}
    assert given == {"fps": 1, "images_kwargs": {"size": images}, "videos_kwargs": {"size": videos}}
    both = merged_arguments(Sized(), {}, {"min_pixels": 5, "max_pixels": 50, "images_kwargs": {"do_resize": False}})
    assert both["images_kwargs"] == {"size": {"shortest_edge": 5, "longest_edge": 50}, "do_resize": False}


@pytest.mark.parametrize("asked", [{"size": {"longest_edge": 60}}, {"max_pixels": 60}])
def test_pixel_limits_of_a_request_override_those_of_the_load(asked: dict[str, object]) -> None:
    for loaded in ({"max_pixels": 50, "min_pixels": 2}, {"min_pixels": 2, "size": {"longest_edge": 50}}):
        given = merged_arguments(Sized(), loaded, asked)
        assert given["images_kwargs"] == {"size": {"shortest_edge": 2, "longest_edge": 60}}


def test_other_processors_get_pixel_limits_as_they_are() -> None:
    for processor in (Sized(None), Typed(), Open()):
        assert merged_arguments(processor, {"a": 1, "max_pixels": 5}, {"max_pixels": 6}) == {"a": 1, "max_pixels": 6}
    assert merged_arguments(Sized(), {"size": {"longest_edge": 6}}, {}) == {"size": {"longest_edge": 6}}
