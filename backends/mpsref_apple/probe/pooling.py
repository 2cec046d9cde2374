"""Choices about pooling."""

from __future__ import annotations

import numpy as np

from mpsref import PoolingAverage, PoolingL2Norm, PoolingMax
from mpsref_apple.probe.declare import Choice, ProbeProblem, image, operation, row

L2 = 1 / np.sqrt(np.array([34.0, 41.0]))
N = 1 / np.sqrt(np.array([34.0, 29.0, 24.0]))
"""Reciprocals of the norms of the windows of the row 3, 4, 2."""
CLAMPED = PoolingL2Norm((1, 3), edge_mode="clamp")
HALF = np.array([1.099609375, 2.25])
"""Float16 numbers, whose norm has other roundings to float16 and to bfloat16; the sum of their squares is rounded, too."""
SEPARATE = PoolingMax((1, 3), (1, 3), offset=(0, 1))
NAN, INF = np.nan, np.inf
WITH_NAN = row(-2, NAN, -1, NAN, 3, 4, 5, 6, NAN, NAN, NAN, NAN, NAN, -INF, NAN)
OUTSIDE = PoolingMax((1, 2), (1, 3), offset=(0, -1), edge_mode="clamp")
FIRST_INSIDE = PoolingAverage((1, 3), (1, 4), offset=(0, 2))
KERNEL_OFFSETS = (
    (0, [0.5, 5, 5, 0], [0, 0.5, 5, 5]),
    (2, [5, 0, 0, 0], [5, 5, 0, 0]),
    (-1, [0, 0.5, 5, 5], [0, 0, 0.5, 5]),
)

CHOICES = (
    Choice(
        "max-tie",
        "Of several equal maxima the first one in raster order receives the gradient.",
        "It is the rule of NumPy, PyTorch, TensorFlow and JAX on a CPU. Apple documents that one of them is selected.",
        {
            "pooling_max": (
                "of equal maxima the first in raster order",
                "The **selected** tap is the first in raster order",
            )
        },
        {
            "first": "the first maximum in raster order",
            "last": "the last maximum in raster order",
            "shared": "all maxima share it equally",
            "all": "each maximum receives all of it",
        },
        operation(
            "MPSCNNPoolingMaxGradient",
            PoolingMax((2, 2), (2, 2), offset=(1, 1)),
            "gradient",
            {"g": image([4, 8]), "x": image([1, 1, 0, 3], [1, 0, 3, 3])},
            {
                "first": [4, 0, 0, 8, 0, 0, 0, 0],
                "last": [0, 0, 0, 0, 4, 0, 0, 8],
                "shared": [4 / 3, 4 / 3, 0, 8 / 3, 4 / 3, 0, 8 / 3, 8 / 3],
                "all": [4, 4, 0, 8, 4, 0, 8, 8],
            },
        ),
    ),
    Choice(
        "max-nan",
        "A maximum skips NaN; of NaN alone it is -inf, and no pixel receives the gradient.",
        "Metal's max skips NaN, and so do the reductions of MPSGraph, as measured ([reduction-nan](#reduction-nan)). Nothing "
        "is known of pooling in MPS.",
        {"pooling_max": "a maximum skips NaN"},
        {
            "number": "NaN is skipped; of NaN alone -inf, without a gradient",
            "started": "the same by a search from -inf on, so that -inf alone has no gradient either",
            "kept": "NaN is skipped; of NaN alone NaN, and the first pixel receives the gradient",
            "nan": "NaN, and the first one receives the gradient",
            "first": "NaN counts at the first tap alone",
        },
        [
            operation(
                "MPSCNNPoolingMax",
                SEPARATE,
                "forward",
                {"x": WITH_NAN},
                {
                    "number": [-1, 4, 6, -INF, -INF],
                    "started": [-1, 4, 6, -INF, -INF],
                    "kept": [-1, 4, 6, NAN, -INF],
                    "nan": [NAN] * 5,
                    "first": [-1, NAN, 6, NAN, NAN],
                },
            ),
            operation(
                "MPSCNNPoolingMaxGradient",
                SEPARATE,
                "gradient",
                {"g": row(1, 2, 3, 4, 5), "x": WITH_NAN},
                {
                    "number": [0, 0, 1, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 5, 0],
                    "started": [0, 0, 1, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0],
                    "kept": [0, 0, 1, 0, 0, 2, 0, 3, 0, 4, 0, 0, 0, 5, 0],
                    "nan": [0, 1, 0, 2, 0, 0, 0, 0, 3, 4, 0, 0, 5, 0, 0],
                    "first": [0, 0, 1, 2, 0, 0, 0, 3, 0, 4, 0, 0, 5, 0, 0],
                },
            ),
        ],
    ),
    Choice(
        "max-clamp-dilated",
        "With edge mode Clamp a tap of a dilated window outside the image reads the nearest pixel.",
        "The edge mode is taken literally.",
        {"pooling_max": ('`"clamp"` in a dilated window', "the edge mode is taken literally")},
        {"nearest": "the nearest pixel is read", "ignored": "taps outside are left out"},
        operation(
            "MPSCNNDilatedPoolingMax",
            PoolingMax((1, 2), dilations=(1, 3), edge_mode="clamp"),
            "forward",
            {"x": row(4, -3, -2, -1, -1.5)},  # taps at i - 2 and i + 1
            {"nearest": [4, 4, 4, -1.5, -1.5], "ignored": [-3, -2, 4, -1.5, -2]},
        ),
    ),
    Choice(
        "max-clamp-outside",
        "With edge mode Clamp a window entirely outside the image takes the nearest pixel, which receives its gradient.",
        "The edge mode is taken literally, and the gradient is its adjoint.",
        {"pooling_max": 'window entirely outside, `"clamp"`'},
        {"nearest": "the nearest pixel", "zero": "the window is 0 and has no gradient"},
        [
            operation(
                "MPSCNNPoolingMax",
                OUTSIDE,
                "forward",
                {"x": row(2, 4)},
                {"nearest": [2, 4, 4], "zero": [0, 4, 0]},
                output_size=(1, 3),
            ),
            operation(
                "MPSCNNPoolingMaxGradient",
                OUTSIDE,
                "gradient",
                {"g": row(1, 10, 100), "x": row(2, 4)},
                {"nearest": [1, 110], "zero": [0, 10]},
            ),
        ],
    ),
    Choice(
        "l2-clamp",
        "With edge mode Clamp the border pixel counts once for each tap that is clamped to it.",
        "The edge mode is taken literally. Only for the average does Apple document that windows shrink.",
        {
            "pooling_l2norm": (
                '`"clamp"` reads the border pixel once for each tap',
                'outside | `"clamp"` | the nearest pixel of the image',
            )
        },
        {"each": "once for each tap", "shrinks": "taps outside are left out"},
        operation("MPSCNNPoolingL2Norm", CLAMPED, "forward", {"x": row(3, 4)}, {"each": 1 / L2, "shrinks": [5, 5]}),
    ),
    Choice(
        "l2-clamp-gradient",
        "The gradient counts clamped taps too.",
        "It is the exact derivative. Apple's formula has only the tap at the pixel itself.",
        {"pooling_l2norm": "the gradient includes these taps, as the exact derivative does"},
        {"derivative": "all taps that read the pixel", "printed": "only the tap at the pixel"},
        operation(
            "MPSCNNPoolingL2NormGradient",
            CLAMPED,
            "gradient",
            {"g": row(1, 2, 1), "x": row(3, 4, 2)},
            {
                "derivative": [6 * N[0] + 6 * N[1], 4 * N[0] + 8 * N[1] + 4 * N[2], 4 * N[1] + 4 * N[2]],
                "printed": [3 * N[0] + 6 * N[1], 4 * N[0] + 8 * N[1] + 4 * N[2], 4 * N[1] + 2 * N[2]],
            },
        ),
    ),
    Choice(
        "l2-zero",
        "The gradient of a window of norm 0 is 0.",
        "0 is a subgradient. Apple's formula is 0/0.",
        {
            "pooling_l2norm": (
                "the gradient of a window of norm 0 is 0",
                "all zeros in a window | 0, with gradient 0",
            )
        },
        {"zero": "0", "nan": "NaN"},
        operation(
            "MPSCNNPoolingL2NormGradient",
            PoolingL2Norm((1, 2), (1, 2), offset=(0, 1)),
            "gradient",
            {"g": row(1, 1), "x": row(3, 4, 0, 0)},
            {"zero": [0.6, 0.8, 0, 0], "nan": [0.6, 0.8, np.nan, np.nan]},
        ),
    ),
    Choice(
        "l2-clamp-outside",
        "With edge mode Clamp a window entirely outside has the norm of the replicated border pixels.",
        "The edge mode is taken literally.",
        {"pooling_l2norm": "the norm of the replicated border pixels"},
        {"replicated": "the norm of the replicated pixels", "zero": "0"},
        operation(
            "MPSCNNPoolingL2Norm",
            PoolingL2Norm((1, 2), (1, 3), offset=(0, -1), edge_mode="clamp"),
            "forward",
            {"x": row(2, 4)},
            {"replicated": np.sqrt([8, 32, 32]), "zero": [0, np.sqrt(32), 0]},
            output_size=(1, 3),
        ),
    ),
    Choice(
        "l2-overflow",
        "Squares are summed without rescaling, so they may overflow in float32.",
        "Rescaling costs a pass over the window. The reference, in float64, does not overflow.",
        {"pooling_l2norm": "no rescaling before the squares are summed"},
        {"overflow": "infinity", "wide": "the norm, from wider numbers or rescaled ones"},
        operation(
            "MPSCNNPoolingL2Norm",
            PoolingL2Norm((1, 2), (1, 2), offset=(0, 1)),
            "forward",
            {"x": row(3e20, 4e20)},
            {"overflow": [np.inf], "wide": [5e20]},
        ),
    ),
    Choice(
        "l2-gradient-norm",
        "The gradient computes the norm from the source image, in float32 or better.",
        "Apple's gradient has no forward result among its arguments.",
        {"pooling_l2norm": "recomputes the norms in float32 or better"},
        {"exact": "the norm is that of the source image", "rounded": "the norm is rounded to float16"},
        ProbeProblem(
            "MPSCNNPoolingL2NormGradient",
            "gradient",
            {"g": row(1), "x": row(*HALF)},
            lambda machine: machine.apple.l2_gradient_of_float16(
                PoolingL2Norm((1, 2), (1, 2), offset=(0, 1)), row(1), row(*HALF)
            ),
            {"exact": HALF / np.hypot(*HALF), "rounded": HALF / float(np.float16(np.hypot(*HALF)))},
            {"source": "Float16", "kernel_size": [1, 2], "strides": [1, 2]},
            tolerance=1e-6,
        ),
    ),
    Choice(
        "pooling-kernel-offset",
        "Without a clip the first pixel of the destination is the first pixel of the first window inside the source; a "
        "kernel offset is added to it.",
        "MPSCNNPooling.h describes the position without a kernel offset, whose default is 0.",
        {
            "mps_objects": ("Another kernel offset is added to this pixel", "the result is that of `MPSCNNPooling.h`"),
            "pooling_average": "`kernel_offset` shifts pooling gradients",
        },
        {
            "added": "the kernel offset is added to the position in MPSCNNPooling.h",
            "general": "pixel q is source pixel q + kernelOffset + offset - 1 for an even window, as for a convolution",
            "ignored": "the kernel offset has no effect",
        },
        [
            ProbeProblem(
                "MPSCNNPoolingAverageGradient",
                "gradient",
                {"g": row(1, 10), "kernelOffsetX": [kernel_offset]},
                lambda machine, ko=kernel_offset: machine.apple.pooling_gradient(  # type: ignore[misc]
                    PoolingAverage((1, 2), (1, 2)), row(1, 10), (1, 1, 4, 1), ko
                ),
                {"added": added, "general": general, "ignored": [0.5, 5, 5, 0]},
                {"kernel_size": [1, 2], "strides": [1, 2], "offset": [0, 0], "destination": 4},
            )
            for kernel_offset, added, general in KERNEL_OFFSETS
        ],
    ),
    Choice(
        "pooling-primary-offset",
        "A pooling gradient with offsets set by hand is 0 where the destination pixel is no pixel of the source, as the kernel "
        "offset places it.",
        "The formulas of Apple are those of source pixels, and there are no others.",
        {"windows": "For pooling the pair counts at the borders"},
        {
            "source": "0 where there is no source pixel: primary and kernel offset count, not their sum alone",
            "effective": "the effective offset alone counts, as for a convolution",
            "primary": "the effective offset, with windows from the primary offset on",
        },
        [
            ProbeProblem(
                "MPSCNNPoolingAverageGradient",
                "gradient",
                {"g": row(3, 30, 300), "primaryOffsetX": [primary], "kernelOffsetX": [offset]},
                lambda machine, p=primary, ko=offset: machine.apple.pooling_gradient(  # type: ignore[misc]
                    PoolingAverage((1, 3), (1, 3), offset=(0, 1)), row(3, 30, 300), (1, 1, 9, 1), ko, p
                ),
                {
                    "source": np.repeat([float(n) for n in ours], 3),
                    "effective": np.repeat([1.0, 10.0, 100.0], 3),
                    "primary": np.repeat([float(n) for n in limited], 3),
                },
                {"kernel_size": [1, 3], "strides": [1, 3], "offset": [0, 1], "destination": 9},
            )
            for primary, offset, ours, limited in (
                (1, -3, (0, 10, 100), (0, 10, 100)),
                (-1, 3, (1, 10, 0), (1, 10, 100)),
            )
        ],
    ),
    Choice(
        "pooling-state-position",
        "A gradient that configures itself from a state writes the gradient of each source pixel to that pixel, also where "
        "the first window begins inside the image.",
        "The result then has the size of the source, and is the adjoint of the forward pass.",
        {"windows": "the term of the clip is a choice"},
        {"source": "destination pixel = source pixel", "window": "the first pixel is that of the first window"},
        operation(
            "MPSCNNPoolingAverageGradient",
            FIRST_INSIDE,
            "gradient",
            {"g": row(3, 30), "shape": (1, 1, 9, 1)},
            {"source": [0, 1, 1, 1, 0, 10, 10, 10, 0], "window": [1, 1, 1, 0, 10, 10, 10, 0, 0]},
        ),
    ),
    Choice(
        "pooling-state-offset",
        "A state sets the kernel offset that the rule of MPSCNNPooling.h needs: 0 where the first window starts at or before "
        "pixel 0.",
        "The default then means the same with and without a state.",
        {},
        {
            "rule": "0, by the rule of MPSCNNPooling.h",
            "canonical": "1 - offset for an even window, as for a convolution",
        },
        ProbeProblem(
            "MPSCNNPoolingAverageGradient",
            "property",
            {"g": row(1, 10), "x": row(*[0] * 8)},
            lambda machine: machine.apple.state_kernel_offset(
                PoolingAverage((1, 6), (1, 4), offset=(0, -1)), row(1, 10), row(*[0] * 8)
            ),
            {"rule": [0], "canonical": [2]},
            {"kernel_size": [1, 6], "strides": [1, 4], "offset": [0, -1]},
            "kernelOffsetX",
        ),
    ),
    Choice(
        "pooling-strides",
        "The default strides are 1.",
        "The short initializer does not name them.",
        dict.fromkeys(("pooling_average", "pooling_max", "pooling_l2norm"), "the default strides are 1"),
        {"one": "1", "size": "the kernel size"},
        ProbeProblem(
            "MPSCNNPoolingMax",
            "property",
            {"kernelWidth": [6]},
            lambda machine: machine.apple.default_strides(6, 8),
            {"one": [1], "size": [6]},
            writes="strideInPixelsX",
        ),
    ),
    Choice(
        "average-clamp",
        "With edge mode Clamp and no zero pad, pixels outside do not count.",
        "Caffe2's tests on devices compare with an average that leaves padding out.",
        {"pooling_average": '`"clamp"` without a zero pad excludes padding'},
        {"excluded": "N counts the pixels inside", "counted": "N is the size of the window"},
        operation(
            "MPSCNNPoolingAverage",
            PoolingAverage((1, 4), (1, 3), edge_mode="clamp"),
            "forward",
            {"x": row(1, 2, 3, 4, 5)},
            {"excluded": [1.5, 3.5, 5], "counted": [0.75, 3.5, 1.25]},
            output_size=(1, 3),
        ),
        tag="obs",
    ),
    Choice(
        "window-offset",
        "An offset is the position of the centre: with p zeros before the image it is c - p, and a window of 2 has its "
        "centre at its second pixel.",
        "PyTorch and Caffe2 set this offset on Apple devices.",
        {"windows": "**`o = c - p`**"},
        {"top-left": "an even window has one more pixel before its centre", "bottom-right": "one more pixel behind it"},
        operation(
            "MPSCNNPoolingAverage",
            PoolingAverage((1, 4), (1, 4), offset=(0, 2)),
            "forward",
            {"x": row(1, 3, 5, 8, 2, 9, 4, 7)},
            {"top-left": [4.25, 5.5], "bottom-right": [4.5, 5]},
        ),
        tag="obs",
    ),
    Choice(
        "default-size",
        "Without a size, results extend to the last window whose centre lies before the end of the image.",
        "It is the smallest size at which no pixel is left out for stride 1. In MPS the caller gives the size: with the destination, or with a padding policy.",
        dict.fromkeys(("pooling_average", "pooling_max", "pooling_l2norm", "convolution"), "`output_size=None`"),
        tag="design",
    ),
    Choice(
        "new-destination",
        "A destination that mpsref allocates is 0 outside the clip.",
        "Undefined pixels would make results irreproducible. In MPS pixels that no kernel wrote are undefined.",
        {
            **dict.fromkeys(
                ("pooling_average", "pooling_max", "pooling_l2norm"),
                "a destination allocated by mpsref is initialized with zeros",
            ),
            "windows": ". Padding policies, below, determine size",
        },
        tag="design",
    ),
    Choice(
        "summation",
        "The order of sums is free; N or factors 1/Ny and 1/Nx may divide them.",
        "Apple documents no order. The error bound covers every order of the terms of a window. It does not cover running "
        "sums, which are suspected in the average pooling of MPSGraph (pytorch/pytorch#180115, #179936, #179608): an error "
        "is then relative to values before the window.",
        {"pooling_average": "summation in float64 (reference) or float32 (backends)"},
        {
            "exact": "in wider numbers, or large numbers first",
            "raster": "from the first tap to the last",
            "reverse": "from the last tap to the first",
            "pairs": "sums of two taps",
            "prefix": "differences of running sums over the row",
        },
        operation(
            "MPSCNNPoolingAverage",
            PoolingAverage((1, 4), (1, 4), offset=(0, 2)),
            "forward",
            # small numbers get lost next to large ones; of the second window, in running sums alone
            {"x": row(9, 2.0**27, -(2.0**27), 3, *[2.0**30] * 4, 1, 2, 3, 6)},
            {
                "exact": [3, 2.0**30, 3],
                "raster": [4.75, 2.0**30, 3],
                "reverse": [2.25, 2.0**30, 3],
                "pairs": [4, 2.0**30, 3],
                "prefix": [4.75, 2.0**30, 0],
            },
            tolerance=1e-12,
        ),
    ),
)
