"""Kernels of one's own in graphs: functions and Metal kernels between nodes of MPS, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import anymetal
from anymetal import clang
from mpsref import NoGradientError, ShapeError, mps
from mpsref.mps import graph

X = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float16)

needs_clang = pytest.mark.skipif(clang.unavailable() is not None, reason=str(clang.unavailable()))

SOURCE = """
#include <metal_stdlib>
using namespace metal;
typedef texture2d_array<half> source;
typedef texture2d_array<half, access::write> target;
kernel void squares(source x [[texture(0)]], target y [[texture(1)]], uint3 at [[thread_position_in_grid]]) {
    half4 v = x.read(at.xy, at.z);
    y.write(v * v, at.xy, at.z);
}
kernel void squares_gradient(source g [[texture(0)]], source x [[texture(1)]], target dx [[texture(2)]],
                             uint3 at [[thread_position_in_grid]]) {
    dx.write(2 * x.read(at.xy, at.z) * g.read(at.xy, at.z), at.xy, at.z);
}
kernel void products(source a [[texture(0)]], source b [[texture(1)]], target y [[texture(2)]],
                     uint3 at [[thread_position_in_grid]]) {
    y.write(a.read(at.xy, at.z) * b.read(at.xy, at.z), at.xy, at.z);
}
kernel void totals(source x [[texture(0)]], target y [[texture(1)]], uint3 at [[thread_position_in_grid]]) {
    half4 v = x.read(at.xy, at.z);
    y.write(v.x + v.y + v.z + v.w, at.xy, at.z);  // of the padding, too
}
kernel void scaled(source x [[texture(0)]], target y [[texture(1)]], constant float &factor [[buffer(0)]],
                   uint3 at [[thread_position_in_grid]]) {
    y.write(x.read(at.xy, at.z) * half(factor), at.xy, at.z);
}
kernel void row_above(source x [[texture(0)]], texture2d_array<half, access::read_write> y [[texture(1)]],
                      uint3 at [[thread_position_in_grid]]) {
    y.write(x.read(at.xy, at.z), at.xy, at.z);
    y.write(y.read(at.xy - uint2(0, 1), at.z), at.xy, at.z);
}
"""


@pytest.fixture(scope="module")
def library() -> anymetal.Library:
    return anymetal.compile(SOURCE)


def results(images: Any, *given: Any, backend: str = "reference", format: str = "float16") -> list[Any]:
    return [*graph.MPSNNGraph(images, backend=backend, format=format).run(list(given)).images]


@needs_clang
@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_metal_kernel_between_nodes_and_its_gradient(library: anymetal.Library, backend: str) -> None:
    x = graph.MPSNNImageNode("x")
    before = graph.MPSCNNNeuronAbsoluteNode(x)
    own = graph.CustomKernelNode(before.result_image, library["squares"], library["squares_gradient"], label="squares")
    after = graph.MPSCNNNeuronLinearNode(own.result_image, 3, 1)
    training = graph.training_graph(graph.MPSNNInitialGradientNode(after.result_image))
    y, dx = results([after.result_image, training.gradient_image(x)], X, backend=backend)
    wide = X.astype(np.float64)
    np.testing.assert_allclose(y, 3 * wide**2 + 1, rtol=3e-3)
    np.testing.assert_allclose(dx, 6 * wide, rtol=3e-3)
    assert "CustomKernelNode" in graph.MPSNNGraph(after.result_image).debug_description


@needs_clang
def test_several_sources_each_with_a_gradient_or_without(library: anymetal.Library) -> None:
    a, b = graph.MPSNNImageNode("a"), graph.MPSNNImageNode("b")

    def left(g: mps.MPSImage, a: mps.MPSImage, b: mps.MPSImage, da: mps.MPSImage) -> None:
        library["products"]((5, 3, 4), (5, 3, 1), textures=[g, b, da])

    def right(g: mps.MPSImage, a: mps.MPSImage, b: mps.MPSImage, db: mps.MPSImage) -> None:
        db.array[...] = g.array * a.array

    own = graph.CustomKernelNode([a, b], library["products"], [left, right])
    training = graph.training_graph(graph.MPSNNInitialGradientNode(own.result_image))
    da, db = results([training.gradient_image(a), training.gradient_image(b)], X, 2 * X)
    np.testing.assert_array_equal(da, 2 * X)
    np.testing.assert_array_equal(db, X)
    first = graph.CustomKernelNode([a, b], library["products"], [left, None])
    training = graph.training_graph(graph.MPSNNInitialGradientNode(first.result_image))
    assert len(training.nodes) == 1
    with pytest.raises(NoGradientError, match="image 'b' has no gradient"):
        training.gradient_image(b)


@needs_clang
def test_the_padding_of_the_last_slice_reaches_a_result_as_nan(library: anymetal.Library) -> None:
    own = graph.CustomKernelNode(graph.MPSNNImageNode("x"), library["totals"])
    (y,) = results(own.result_image, X)
    assert np.isfinite(y[..., :4]).all()
    assert np.isnan(y[..., 4:]).all()


@needs_clang
def test_what_the_checks_find_names_the_node(library: anymetal.Library) -> None:
    own = graph.CustomKernelNode(graph.MPSNNImageNode("x"), library["row_above"], label="above")
    with pytest.raises(anymetal.LaunchError) as caught:
        results(own.result_image, X)
    assert caught.value.__notes__ == ["in the kernel of CustomKernelNode 'above'"]


def test_another_size_and_a_pixel_that_is_not_written() -> None:
    def first_rows(x: mps.MPSImage, y: mps.MPSImage) -> None:
        y.array[:, :1] = x.array[:, :1]
        x.array[...] = 7  # of a copy

    x = graph.MPSNNImageNode("x")
    own = graph.CustomKernelNode(x, first_rows, shape=lambda shape: (shape[0], 2, *shape[2:]))
    given = X.copy()
    y, same = results([own.result_image, graph.MPSCNNNeuronLinearNode(x, 1, 0).result_image], given)
    assert y.shape == (2, 2, 5, 6)
    np.testing.assert_array_equal(y[:, :1], X[:, :1])
    assert np.isnan(y[:, 1:]).all()
    np.testing.assert_array_equal(given, X)
    np.testing.assert_array_equal(same, X)


@needs_clang
@pytest.mark.parametrize(
    ("kernel", "gradient", "message"),
    [
        ("squares", "squares", "gradient has the textures `source x`, `target y`; it must have 2 that it"),
        ("products", None, "kernel has the textures .*; it must have 1 that it reads and, last, one that it writes"),
        ("scaled", None, "kernel has the textures .* and other arguments; .* pass a function of images that"),
    ],
)  # fmt: skip
def test_a_metal_kernel_with_other_arguments_is_refused(
    library: anymetal.Library, kernel: str, gradient: str | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        graph.CustomKernelNode(graph.MPSNNImageNode(), library[kernel], None if gradient is None else library[gradient])


def test_illegal_arguments_and_training_without_a_gradient() -> None:
    x = graph.MPSNNImageNode("x")

    def nothing(*images: mps.MPSImage) -> None:
        """Writes nothing."""

    with pytest.raises(TypeError, match=r"kernel is of type str; it must be a function of images, kernel\(\*sources"):
        graph.CustomKernelNode(x, "mish")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="gradient has 2 kernels; it must have one for each of 1 sources"):
        graph.CustomKernelNode(x, nothing, [nothing, nothing])
    with pytest.raises(ValueError, match="sources is empty"):
        graph.CustomKernelNode([], nothing)
    with pytest.raises(TypeError, match=r"shape is \(1, 2\); it must be a function"):
        graph.CustomKernelNode(x, nothing, shape=(1, 2))  # type: ignore[arg-type]
    one = graph.CustomKernelNode(x, nothing, shape=lambda shape: (7, *shape[1:]), label="own")
    with pytest.raises(ShapeError, match=r"'own' on x .*shape returned \(7, 3, 5, 6\); the number of images must be 2"):
        results(one.result_image, X)
    with pytest.raises(NoGradientError, match=r"'own' has no gradient \(no gradient was given: make it with gradient="):
        graph.training_graph(graph.MPSNNInitialGradientNode(one.result_image))
