"""Padding policies: factories of MPS, custom policies, and the properties that they set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mpsref import mps, padding
from mpsref.mps import graph

M = mps.MPSNNPaddingMethod
X = np.arange(2 * 7 * 8 * 3, dtype=np.float32).reshape(2, 7, 8, 3)
METHODS = [a | r | s for a in (0, 1, 2) for r in (0, 4, 8, 12) for s in (0, 0x10, 0x20)]


@pytest.mark.parametrize(("size", "stride"), [(1, 3), (2, 1), (3, 2), (4, 3), (5, 1)])
def test_every_method_places_the_windows_as_the_functional_form_says(size: int, stride: int) -> None:
    for method in METHODS:
        place = padding.mps(X.shape[1:3], (size, 2), (stride, 1), policy=method)
        pool = mps.MPSCNNPoolingAverage(2, size, 1, stride, padding=mps.MPSNNDefaultPadding.padding_with_method(method))
        assert pool.encode(X).shape == (2, *place.output_size, 3), method
        assert (pool.offset.y, pool.offset.x) == place.offset, method
        assert pool.edge_mode is mps.MPSImageEdgeMode.Zero


def test_policies_use_the_dilated_extent() -> None:
    pool = mps.MPSCNNDilatedPoolingMax(3, 2, 2, 3, padding=mps.MPSNNDefaultPadding(M.SizeValidOnly))
    assert pool.encode(X).shape == (2, 7 - 4 + 1, 8 - 5 + 1, 3)
    assert pool.offset == (2, 2, 0)


def test_a_policy_keeps_the_image_offset() -> None:
    pool = mps.MPSCNNPoolingAverage(3, 3, offset=(9, 9, 1), padding=mps.MPSNNDefaultPadding(M.SizeValidOnly))
    assert pool.encode(X).shape == (1, 5, 6, 3)
    assert pool.offset == (1, 1, 1)


def test_the_policies_of_tensorflow() -> None:
    same = mps.MPSNNDefaultPadding.padding_for_tensorflow_average_pooling()
    valid = mps.MPSNNDefaultPadding.padding_for_tensorflow_average_pooling_valid_only()
    for policy, name in ((same, "SAME"), (valid, "VALID")):
        pool = mps.MPSCNNPoolingAverage(4, 3, 3, 2, padding=policy)
        place = padding.tensorflow((7, 8), (3, 4), (2, 3), padding=name)
        assert pool.encode(X).shape[1:3] == place.output_size
        assert (pool.offset.y, pool.offset.x) == place.offset
        assert pool.edge_mode is mps.MPSImageEdgeMode.Clamp
    assert same.padding_method == M.SizeSame | M.AddRemainderToBottomRight
    assert same.inverse().edge_mode is mps.MPSImageEdgeMode.Clamp


def test_inverse() -> None:
    for method in METHODS:
        policy = mps.MPSNNDefaultPadding.padding_with_method(method)
        assert policy.inverse().padding_method == padding.method_inverse(method)
    assert mps.MPSNNPadding().inverse() is None


@pytest.mark.parametrize("bad", [3, 0x30, 0x40, -1, M.Custom, M.Custom | M.SizeSame, 0x7F0])
def test_reserved_bits_and_custom_raise(bad: int) -> None:
    with pytest.raises(ValueError, match="method is"):
        mps.MPSNNDefaultPadding.padding_with_method(bad)
    with pytest.raises(ValueError, match=r"^padding_method is"):
        mps.MPSNNDefaultPadding(M(bad) if bad >= 0 else bad)  # type: ignore[arg-type]


def test_a_method_in_words_names_the_parameter_and_the_member() -> None:
    text = (
        r"^padding_method is 'sizeSame' of type str; it must be an integer >= 0, such as MPSNNPaddingMethod.SizeSame$"
    )
    with pytest.raises(TypeError, match=text):
        mps.MPSNNDefaultPadding("sizeSame")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=text.replace("padding_method", "method")):
        mps.MPSNNDefaultPadding.padding_with_method("sizeSame")  # type: ignore[arg-type]


def test_the_edge_mode_of_a_policy() -> None:
    for mode in ("clamp", 1, mps.MPSImageEdgeMode.Clamp):
        assert mps.MPSNNDefaultPadding(M.SizeSame, mode).edge_mode is mps.MPSImageEdgeMode.Clamp  # type: ignore[arg-type]


def test_no_window_fits() -> None:
    pool = mps.MPSCNNPoolingAverage(9, 9, padding=mps.MPSNNDefaultPadding(M.SizeValidOnly))
    was = pool.copy()
    with pytest.raises(ValueError, match="no window fits"):
        pool.encode(X)
    assert pool == was


class Recording(mps.MPSNNPadding):
    """Records its arguments, and shifts the offset by one."""

    padding_method = M.Custom | M.SizeFull

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def destination_image_descriptor_for_source_images(
        self,
        source_images: Sequence[Any],
        source_states: Sequence[Any],
        kernel: Any,
        descriptor: mps.MPSImageDescriptor,
    ) -> mps.MPSImageDescriptor:
        self.asked = [source_images, source_states, kernel.offset, descriptor.shape, descriptor.dtype]
        kernel.offset = kernel.offset._replace(x=kernel.offset.x + 1)
        kernel.edge_mode = "clamp"
        return mps.MPSImageDescriptor("float16", width=3, height=4, feature_channels=8, number_of_images=3)


def test_a_custom_policy_is_asked_last_and_has_its_way() -> None:
    policy = Recording()
    pool = mps.MPSCNNPoolingAverage(3, 3, padding=policy, clip_rect=((0, 0, 0), (99, 99, 2)))
    y = pool.encode(X)
    images, states, offset, shape, dtype = policy.asked
    assert [type(image) for image in images] == [mps.MPSImage]
    assert (images[0].width, images[0].height) == (8, 7)
    assert len(states) == 0
    assert (offset, shape, dtype) == ((-1, -1, 0), (2, 9, 10, 3), np.float32)
    assert (y.shape, y.dtype) == ((3, 4, 3, 8), np.float16)
    assert (pool.offset, pool.edge_mode) == ((0, -1, 0), mps.MPSImageEdgeMode.Clamp)
    expected = mps.MPSCNNPoolingAverage(3, 3, offset=(0, -1, 0), edge_mode=1).encode(X, destination_size=(4, 3))
    np.testing.assert_array_equal(y[:2, ..., :3], expected.astype(np.float16))
    assert not y[2].any()
    assert not y[..., 3:].any()


def test_a_custom_policy_sees_images_of_zeros_where_there_are_no_pixels() -> None:
    """When shapes are inferred, of a kernel and of a graph; what a policy writes there, no other sees."""
    policy = Recording()
    pool = mps.MPSCNNPoolingAverage(3, 3, padding=policy)
    node = graph.MPSCNNPoolingAverageNode(graph.MPSNNImageNode("x"), 3, 3, 1, 1, padding_policy=policy)
    infer = pool.infer_padding, lambda shape: graph.MPSNNGraph(node.result_image).infer_shapes({"x": shape})
    for inferred in infer:
        policy.asked = []
        inferred((3, 7, 8, 3))
        (image,) = policy.asked[0]
        np.testing.assert_array_equal(image.array, np.zeros((3, 7, 8, 3), np.float32), strict=True)
        image.array[...] = 1


def test_a_custom_policy_that_leaves_too_little_room_raises_and_changes_nothing() -> None:
    pool = mps.MPSCNNPoolingAverage(3, 3, padding=Recording())
    was = pool.copy()
    with pytest.raises(ValueError, match="source_image has only 2"):
        pool.encode(X)
    assert pool == was


def test_the_default_custom_suggestion_is_valid_only() -> None:
    class Seen(mps.MPSNNPadding):
        def destination_image_descriptor_for_source_images(
            self, source_images: Any, source_states: Any, kernel: Any, descriptor: mps.MPSImageDescriptor
        ) -> mps.MPSImageDescriptor:
            return descriptor

    pool = mps.MPSCNNPoolingAverage(3, 3, padding=Seen())
    assert pool.encode(X).shape == (2, 5, 6, 3)
    assert pool.offset == (1, 1, 0)
    gradient = mps.MPSCNNPoolingAverageGradient(3, 3, padding=Seen(), secondary_offset=(1, 1, 0))
    assert gradient.encode(X, X).shape == (2, 5, 6, 3)
    with pytest.raises(TypeError, match="cannot be saved"):
        pool.to_json()


def test_bad_custom_policies() -> None:
    class Plain(mps.MPSNNPadding):
        padding_method = M.SizeSame

    class Reserved(mps.MPSNNPadding):
        padding_method = M.Custom | M(3)

    class Nothing(mps.MPSNNPadding):
        def destination_image_descriptor_for_source_images(self, *arguments: Any) -> Any:
            return None

    with pytest.raises(ValueError, match="must have the bit"):
        mps.MPSCNNPoolingAverage(3, 3, padding=Plain())
    with pytest.raises(ValueError, match="align field"):
        mps.MPSCNNPoolingAverage(3, 3, padding=Reserved())
    with pytest.raises(NotImplementedError, match="must define destination_image_descriptor"):
        mps.MPSCNNPoolingAverage(3, 3, padding=mps.MPSNNPadding()).encode(X)
    with pytest.raises(TypeError, match="returned None; it must return an MPSImageDescriptor"):
        mps.MPSCNNPoolingAverage(3, 3, padding=Nothing()).encode(X)
