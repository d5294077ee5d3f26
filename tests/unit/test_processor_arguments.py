"""The processor arguments that a request may set."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

from vlmtui.errors import VlmtuiError
from vlmtui.worker.hf.processor_arguments import check_arguments, known_arguments


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
