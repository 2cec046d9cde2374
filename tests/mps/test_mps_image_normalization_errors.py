"""Instance and group normalization classes: bad input, which leaves everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mpsref.errors import OrderError, ShapeError, UnsupportedError
from mpsref.mps import (
    GroupNormalizationDataSource,
    InstanceNormalizationDataSource,
    MPSCNNGroupNormalization,
)
from tests.mps.image_normalization_layers import (
    BETA,
    GAMMA,
    PAIRS,
    Grouped,
    Plain,
    by_class,
    noise,
    plain,
    source,
)


@by_class
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"gamma": lambda: [1, 2]}, ValueError, r"data_source.gamma\(\) has shape \(2,\)"),
        ({"beta": lambda: [[1, 2, 3, 4]]}, ValueError, r"data_source.beta\(\) has shape \(1, 4\)"),
        ({"gamma": lambda: "four"}, TypeError, r"data_source.gamma\(\) has dtype"),
        ({"epsilon": lambda: -1.0}, ValueError, r"data_source.epsilon\(\) is -1.0"),
        ({"epsilon": lambda: float("nan")}, ValueError, r"data_source.epsilon\(\) is nan"),
        ({"number_of_feature_channels": 0}, ValueError, r"data_source.number_of_feature_channels is 0"),
        ({"number_of_feature_channels": 4.0}, TypeError, r"data_source.number_of_feature_channels is 4.0"),
        ({"load": lambda: False}, OrderError, r"data_source.load\(\) returned False"),
        ({"gamma": None}, TypeError, r"which lacks gamma"),
        ({"label": 3}, TypeError, r"which lacks label"),
    ],
)
def test_bad_data_sources(pair: Any, change: dict[str, Any], error: type[Exception], message: str) -> None:
    ds, calls = plain(pair, GAMMA, BETA), []
    norm = pair[0](ds)
    ds.purge = lambda: calls.append("purge")
    for name, value in change.items():
        setattr(ds, name, value)
    for attempt in (lambda: pair[0](ds), norm.reload_gamma_and_beta_from_data_source):
        with pytest.raises(error, match=message):
            attempt()
    np.testing.assert_array_equal(norm.gamma, np.float32(GAMMA))
    assert calls == ([] if "lacks" in message else ["purge"] * 2)


@pytest.mark.parametrize(
    ("groups", "error", "message"),
    [
        (3, ValueError, r"data_source.number_of_groups is 3; it must divide number_of_feature_channels, 4"),
        (0, ValueError, r"data_source.number_of_groups is 0; it must be an integer >= 1"),
        (2.0, TypeError, r"data_source.number_of_groups is 2.0"),
    ],
)
def test_bad_groups(groups: Any, error: type[Exception], message: str) -> None:
    ds = Grouped()
    ds.number_of_groups = groups
    with pytest.raises(error, match=message):
        MPSCNNGroupNormalization(ds)
    with pytest.raises(TypeError, match=r"which lacks number_of_groups"):
        MPSCNNGroupNormalization(Plain())


def test_bad_arguments_of_ready_data_sources() -> None:
    for make, error, message in (
        (lambda: InstanceNormalizationDataSource(0), ValueError, r"number_of_feature_channels is 0"),
        (lambda: InstanceNormalizationDataSource(2, gamma=[1]), ValueError, r"gamma has shape \(1,\)"),
        (lambda: InstanceNormalizationDataSource(2, epsilon=-1), ValueError, r"epsilon is -1"),
        (lambda: InstanceNormalizationDataSource(2, optimizer=3), TypeError, r"optimizer is of type int"),
        (lambda: GroupNormalizationDataSource(4, 3), ValueError, r"number_of_groups is 3"),
    ):
        with pytest.raises(error, match=message):
            make()


@by_class
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offset", (1, 0)),
        ("offset", (0, 0, 1)),
        ("clip_rect", ((0, 0, 0), (2, 2, 1))),
        ("source_feature_channel_offset", 4),
        ("source_feature_channel_max_count", 2),
        ("destination_feature_channel_offset", 4),
    ],
)
def test_parts_of_images_are_refused(pair: Any, name: str, value: Any) -> None:
    x = noise(2, 3, 3, 4)
    norm = pair[0](source(pair), **{name: value})
    destination = np.zeros_like(x)
    with pytest.raises(UnsupportedError, match=f"^{name} is"):
        norm.encode(x, destination)
    assert not destination.any()
    assert pair[0](source(pair), edge_mode="clamp").encode(x).any()  # which nothing here looks at


@by_class
@pytest.mark.parametrize("name", ["primary_offset", "secondary_offset", "kernel_offset_x", "clip_rect"])
def test_parts_of_gradients_are_refused(pair: Any, name: str) -> None:
    x = noise(1, 3, 3, 4)
    _, state = pair[0](source(pair)).encode(x, return_state=True)
    value = {"clip_rect": ((0, 0, 0), (2, 2, 1)), "kernel_offset_x": 1}.get(name, (1, 0))
    gradient, destination = pair[1](**{name: value}), np.zeros_like(x)
    with pytest.raises(UnsupportedError, match=f"^{name} is"):
        gradient.encode(x.copy(), x, state, destination)
    assert not destination.any()
    assert state.gradient_for_gamma is None


@by_class
def test_images_and_states_that_do_not_fit(pair: Any) -> None:
    x = noise(2, 3, 3, 4)
    norm, gradient = pair[0](source(pair)), pair[1]()
    _, state = norm.encode(x, return_state=True)
    other = next(one for one in PAIRS if one is not pair)
    _, strange = other[0](source(other)).encode(x, return_state=True)
    _, twin = pair[0](source(pair)).encode(x, return_state=True)
    attempts: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: norm.encode(noise(1, 3, 3, 5)), ShapeError, r"source_image has 5 channels"),
        (lambda: norm.encode(x, destination_size=(2, 3)), ShapeError, r"has room for"),
        (lambda: norm.encode(x, np.zeros((2, 3, 4, 4), np.float32)), ShapeError, r"has room for"),
        (lambda: norm.encode(x, destination_state=twin), ValueError, r"made by another kernel"),
        (lambda: norm.encode(x, destination_state=state[0]), ValueError, r"that of one image"),
        (lambda: norm.encode(x, destination_state=strange), TypeError, r"destination_state is of type"),
        (lambda: gradient.encode(x.copy(), x), ValueError, r"gradient_state is None"),
        (lambda: gradient.encode(x.copy(), x, state[0]), ValueError, r"that of one image"),
        (lambda: gradient.encode(x.copy(), x, strange), TypeError, r"gradient_state is of type"),
        (lambda: gradient.encode(x[:, :2], x, state), ShapeError, r"source_gradient has shape"),
        (lambda: gradient.encode(x[:1], x[:1].copy(), state), ShapeError, r"has shape"),
        (lambda: gradient.encode(x.copy(), x, state, np.zeros((2, 3, 3, 8), np.float32)), ShapeError, r"must be equal"),
    ]
    for attempt, error, message in attempts:
        with pytest.raises(error, match=message):
            attempt()
    assert state.gradient_for_gamma is None
    assert len(state) == 2
