"""Whether a checkpoint's processor files say how pixels are normalised."""

from __future__ import annotations

import pytest

from vlmtui.worker.backends.vllm.pixel_scale import ARGUMENT, pixel_arguments, states_normalisation


@pytest.mark.parametrize(
    ("files", "states"),
    [
        (({"processor_class": "P", "size": {}}, {"processor_class": "P", "size": {}}), False),
        (({"processor_class": "P"}, {"size": {}, "patch_size": 14}), False),
        (({"processor_class": "P"}, {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}), True),
        (({"processor_class": "P", "image_processor": {"do_rescale": True}}, {}), True),
        (({"media_proc_cfg": {"image_mean": [0.5] * 3}}, {}), True),
        (({}, {}), True),
    ],
)
def test_files_that_leave_it_to_the_class_are_told(files: tuple[dict[str, object], ...], states: bool) -> None:
    assert states_normalisation(*files) is states


def test_a_vllm_without_the_argument_and_a_user_who_set_it_are_left_alone() -> None:
    assert pixel_arguments({"model": "a"}, {"model"}) == {}
    assert pixel_arguments({"model": "a", ARGUMENT: True}, {"model", ARGUMENT}) == {}
