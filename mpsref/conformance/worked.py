"""Worked examples: small problems whose results were worked out by hand from the definition of each kernel.

The reference and the backends share the code that places windows, makes tables and derives constants. A mistake there
changes both, and they still agree. These examples share nothing with them: each result is arithmetic on the inputs, as
the documentation of the kernel states it, and every backend is compared with the numbers themselves.

The inputs count up, 1, 2, 3, ..., for every array, if an example does not list them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import exp, log, sqrt
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.arguments.layouts import repeats
from mpsref.conformance.case import Case
from mpsref.conformance.comparator import Mismatch
from mpsref.conformance.runner import compute
from mpsref.registry import Backend, Operation

Numbers: TypeAlias = Sequence[Any]
"""Numbers in C order; nested as in the shape of the result where an example is about the shape."""

NEAR = 2.0**-15
"""Largest error of float32 as a part of the largest number of a result: far above rounding, far below any mistake.
Numbers in float16 must be equal."""


class Worked(NamedTuple):
    """The results of an example, and its inputs where they do not count up."""

    results: tuple[Numbers, ...]
    inputs: tuple[Numbers, ...] = ()


def _sigmoid(y: float) -> float:
    return 1 / (1 + exp(-y))


def _of(*results: Numbers) -> Worked:
    return Worked(results)


EXAMPLES: Mapping[str, Worked] = {
    # --- windows ------------------------------------------------------------------------------------------------------
    # An even window has one more pixel before its centre than after it. Window i of a kernel of 2 with a stride of 2
    # has its centre at pixel 2 i, and reads pixels 2 i - 1 and 2 i.
    "PoolingAverage.forward:n1h1w5c1,k1x2,s1x2": _of([(0 + 1) / 2, (2 + 3) / 2, (4 + 5) / 2]),
    # The zero pad is (y, x) = (1, 0). All windows have the four pixels, three counted rows and two counted columns.
    "PoolingAverage.forward:n1h2w2c1,k3x3,clamp,zp1x0": _of([(1 + 2 + 3 + 4) / (3 * 2)] * 4),
    # The offset is (y, x) = (1, 0); windows of three rows and one column, centres at rows 1 and 3.
    "PoolingAverage.forward:n1h4w2c1,k3x1,s2x1,o1x0,clamp": _of(
        [(1 + 3 + 5) / 3, (2 + 4 + 6) / 3, (5 + 7) / 2, (6 + 8) / 2]
    ),
    # The same windows of 2 give 1/2 of their gradient to each pixel.
    "PoolingAverage.gradient:n1h1w4c1,k1x2,s1x2,g1x2": _of([1 / 2, 2 / 2, 2 / 2, 0]),
    # Windows with centres at 1, 3, ... read (0, 1), (2, 3). The source gradient is read from pixel 1 on, two pixels.
    "PoolingAverage.gradient:n1h1w6c1,k1x2,s1x2,o0x1,g1x4,p0x1,size1x2": _of([2 / 2, 2 / 2, 3 / 2, 3 / 2, 0, 0]),
    # Only the clip of two pixels from pixel 1 on is written.
    "PoolingAverage.gradient:n1h1w6c1,k1x2,s1x2,o0x1,g1x4,p0x1,size1x2,clip0x1+1x2": _of([0, 2 / 2, 3 / 2, 0, 0, 0]),
    # A kernel offset 2 above that of pixel = pixel, here ev - o = 0, moves the result by 2.
    "PoolingAverage.gradient:n1h1w6c1,k1x2,s1x2,o0x1,g1x4,p0x1,size1x2,ko0x2": _of([3 / 2, 3 / 2, 0, 0, 0, 0]),
    # Two taps at a distance of 3 extend over 4 pixels: from 2 before the centre to 1 after it. Outside there are zeros.
    "PoolingMax.forward:n1h1w5c1,k1x2,d1x3": _of([2, 3, max(1, 4), max(2, 5), 3]),
    "PoolingMax.gradient:n1h1w5c1,k1x2,s1x2": _of([1, 0, 2, 0, 3]),
    # Taps before and after the image are never the maximum: windows of pixels (-1, 1), (0, 2) and so on.
    "GraphPoolingMax.forward:n1h1w3c1,k1x2,d1x2": Worked(([-2, -1, -2], [1, 0, 1]), ([-1, -2, -3],)),
    # The window wholly outside has no maximum.
    "GraphPoolingMax.forward:n1h1w2c1,k1x1,s1x3,o0x-3,out1x2": _of([-math.inf, 1], [-1, 0]),
    # Two channels, 1 3 5 and 2 4 6 of one row: of (N, C, H, W) the second begins with the number 3.
    "GraphPoolingMax.forward:n1h1w3c2,k1x2,o0x1,out1x3,global_flatten_3d": _of([3, 4, 5, 6, 5, 6], [1, 4, 2, 5, 2, 5]),
    "GraphPoolingMax.forward:n1h1w3c2,k1x2,o0x1,out1x3,global_flatten_3d,NHWC": _of(
        [3, 4, 5, 6, 5, 6], [2, 3, 4, 5, 4, 5]
    ),
    # The numbers of the taps of a window of 2 x 2; the last column of windows has one column in the image.
    "GraphPoolingMax.forward:n1h2w2c1,k2x2,o1x1,out1x2,local_flatten_2d": _of([4, 4], [3, 2]),
    # Windows (0, 1), (1, 2), (2): two select pixel 1.
    "GraphPoolingMax.gradient:n1h1w3c1,k1x2,o0x1,g1x3": Worked(([0, 1 + 2, 3],), ([1, 2, 3], [1, 1, 2])),
    # Tap 1 of both windows, at pixels 1 and 3.
    "GraphPoolingMax.gradient:n1h1w4c1,k1x2,s1x2,o0x1,g1x2,local_flatten_2d": Worked(([0, 1, 0, 2],), ([1, 2], [1, 1])),
    "PoolingL2Norm.forward:n1h1w5c1,k1x2,s1x2": _of([1, sqrt(4 + 9), sqrt(16 + 25)]),
    # g x / y, with y of the forward pass
    "PoolingL2Norm.gradient:n1h1w5c1,k1x2,s1x2": _of(
        [1, 2 * 2 / sqrt(13), 2 * 3 / sqrt(13), 3 * 4 / sqrt(41), 3 * 5 / sqrt(41)]
    ),
    # Pixels i - 1 and i have the weights 1 and 2.
    "Convolution.forward:n1h1w3c1,k1x2,co1": _of([0 + 2, 1 + 4, 2 + 6]),
    # Two channels by themselves, 1 3 5 7 9 and 2 4 6 8 10, weights (1, 2) and (3, 4), biases 1 and 2. Two taps at a
    # distance of 2 around pixels 1 and 3 read (0, 2) and (2, 4).
    "Convolution.forward:n1h1w5c2,k1x2,s1x2,d1x2,o0x1,groups2,co2,biased,out1x2": _of(
        [1 + 10 + 1, 6 + 24 + 2, 5 + 18 + 1, 18 + 40 + 2]
    ),
    # dx[j] = 1 g[j + 1] + 2 g[j]
    "Convolution.gradient_data:n1h1w3c1,k1x2,co1": _of([2 + 2, 3 + 4, 6]),
    # dw[0] = sum of g[i] x[i - 1], dw[1] = sum of g[i] x[i]
    "Convolution.gradient_weights:n1h1w3c1,k1x2,co1": _of([2 * 1 + 3 * 2, 1 + 4 + 9], [1 + 2 + 3]),
    # The results of two groups of two source channels: weights 1 2, 3 4 for the first, 5 6, 7 8 for the second.
    "Convolution.forward:n1h1w1c4,k1x1,groups2,co4": _of([1 * 1 + 2 * 2, 1 * 3 + 2 * 4, 3 * 5 + 4 * 6, 3 * 7 + 4 * 8]),
    "Convolution.gradient_weights:n1h1w1c4,k1x1,groups2,co4": _of(
        [1, 2, 2, 4, 3 * 3, 3 * 4, 4 * 3, 4 * 4], [1, 2, 3, 4]
    ),
    # The effective offset is 1 * 2 - 1 = 1. Source pixel j gives 1 times its value to pixel 2 j, 2 times to 2 j - 1.
    "ConvolutionTranspose.forward:n1h1w3c1,k1x2,s1x2,o0x1,ko0x-1,co1": _of([1, 2 * 2, 2, 2 * 3, 3]),
    "ConvolutionTranspose.gradient_data:n1h1w3c1,k1x2,s1x2,o0x1,ko0x-1,co1": _of([1, 3 + 2 * 2, 5 + 2 * 4]),
    "ConvolutionTranspose.gradient_weights:n1h1w3c1,k1x2,s1x2,o0x1,ko0x-1,co1": _of(
        [1 * 1 + 2 * 3 + 3 * 5, 2 * 2 + 3 * 4], [1 + 2 + 3 + 4 + 5]
    ),
    "ConvolutionTranspose.gradient_weights:n1h1w1c4,k1x1,groups2,co4": _of(
        [1, 2, 2, 4, 3 * 3, 3 * 4, 4 * 3, 4 * 4], [1, 2, 3, 4]
    ),
    "FullyConnected.forward:n1h1w2c1,k1x2,co2": _of([1 * 1 + 2 * 2, 1 * 3 + 2 * 4]),
    "FullyConnected.gradient_data:n1h1w2c1,k1x2,co2": _of([1 * 1 + 2 * 3, 1 * 2 + 2 * 4]),
    "FullyConnected.gradient_weights:n1h1w2c1,k1x2,co2": _of([1, 2, 2, 4], [1, 2]),
    # --- normalization ------------------------------------------------------------------------------------------------
    # x[c] / (1 + 2 / 2 * (x[c - 1]**2 + x[c]**2))
    "CrossChannelNormalization.forward:n1h1w1c4,k2,alpha2.0,beta1.0,delta1.0": _of([1 / 2, 2 / 6, 3 / 14, 4 / 26]),
    # g / T - 2 x[c] * sum of g x / T**2 over the windows that contain c, those of c and c + 1
    "CrossChannelNormalization.gradient:n1h1w1c4,k2,alpha2.0,beta1.0,delta1.0": _of(
        [
            1 / 2 - 2 * (1 / 4 + 4 / 36),
            2 / 6 - 4 * (4 / 36 + 9 / 196),
            3 / 14 - 6 * (9 / 196 + 16 / 676),
            4 / 26 - 8 * 16 / 676,
        ]
    ),
    "SpatialNormalization.forward:n1h1w3c1,k1x2,alpha2.0,beta1.0,delta1.0": _of([1 / 2, 2 / 6, 3 / 14]),
    "SpatialNormalization.gradient:n1h1w3c1,k1x2,alpha2.0,beta1.0,delta1.0": _of(
        [1 / 2 - 2 * (1 / 4 + 4 / 36), 2 / 6 - 4 * (4 / 36 + 9 / 196), 3 / 14 - 6 * 9 / 196]
    ),
    # A column of three pixels with an offset of one row, so that the results belong to rows 1 and 2.
    "SpatialNormalization.forward:n1h3w1c1,k2x1,alpha2.0,beta1.0,delta1.0,o1x0,out2x1": _of([2 / 6, 3 / 14]),
    # Windows (0, 1), (1, 2), (2, 3) have the means 1/2, 3/2, 5/2 and the variance 1/4: T = 1 + 2 / 4.
    "LocalContrastNormalization.forward:n1h1w3c1,k1x2,alpha2.0,beta1.0,delta1.0": _of([0.5 / 1.5] * 3),
    # dx[j] = g[j] / T - sum over the windows j and j + 1 of g (1/2 / T + 2 (x - M) / T**2 (x[j] - M)), x - M = 1/2
    "LocalContrastNormalization.gradient:n1h1w3c1,k1x2,alpha2.0,beta1.0,delta1.0": _of(
        [g / 1.5 - g * (1 / 3 + 1 / 4.5) - after * (1 / 3 - 1 / 4.5) for g, after in ((1, 2), (2, 3), (3, 0))]
    ),
    # Each channel of 1, 3 and 2, 4 has the deviation 1; then gamma 1, 2 and beta 1, 2.
    "InstanceNormalization.forward:n1h1w2c2,eps0.0,scaled,shifted": _of([-1 + 1, -2 + 2, 1 + 1, 2 + 2]),
    # r = sqrt(1/2), xhat = -r and r, and h = g gamma is 1, 3 and 4, 8: r (h - mean of h - xhat * mean of h xhat)
    "InstanceNormalization.gradient:n1h1w2c2,eps1.0": _of(
        [sqrt(1 / 2) * (-1 + 1 / 2), sqrt(1 / 2) * (-2 + 1), sqrt(1 / 2) * (1 - 1 / 2), sqrt(1 / 2) * (2 - 1)],
        [(3 - 1) * sqrt(1 / 2), (4 - 2) * sqrt(1 / 2)],
        [1 + 3, 2 + 4],
    ),
    # Groups of three channels, 1, 2, 3 and 4, 5, 6, with the variance 2/3; gamma is 1, 2, ..., 6.
    "GroupNormalization.forward:n1h1w1c6,g2,eps0.0": Worked(
        ([c * xhat * sqrt(3 / 2) + 10 - c for c, xhat in enumerate((-1, 0, 1, -1, 0, 1), start=1)],),
        ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 5, 4]),
    ),
    # r = 1, xhat = -1, 0, 1, and h = 1, 4, 9 and 16, 25, 36 with the means 14/3 and 77/3; the means of h xhat are 8/3
    # and 20/3.
    "GroupNormalization.gradient:n1h1w1c6,g2,eps0.3333333333333333": _of(
        [
            *(h - 14 / 3 - xhat * 8 / 3 for h, xhat in ((1, -1), (4, 0), (9, 1))),
            *(h - 77 / 3 - xhat * 20 / 3 for h, xhat in ((16, -1), (25, 0), (36, 1))),
        ],
        [-1, 0, 3, -4, 0, 6],
        [1, 2, 3, 4, 5, 6],
    ),
    "BatchNormalization.statistics:n2h1w1c2,eps0.0": _of([2, 3], [1 + 1, 1 + 1]),
    "BatchNormalization.forward:n2h1w1c2,eps0.0,gamma,beta": Worked(
        ([(1 - 2) / 2 * 5 + 7, (2 - 3) / 4 * 6 + 8, (3 - 2) / 2 * 5 + 7, (4 - 3) / 4 * 6 + 8],),
        ([1, 2, 3, 4], [2, 3], [4, 16], [5, 6], [7, 8]),
    ),
    "BatchNormalization.statistics_gradient:n2h1w1c2,eps0.0": Worked(
        ([1 + 3, 2 + 4], [(-1 + 3) / 2, (-2 + 4) / 4]), ([1, 2, 3, 4], [1, 2, 3, 4], [2, 3], [4, 16])
    ),
    # gamma r (g - dbeta / n - xhat dgamma / n), n = 2 pixels, xhat = -1/2, 1/2 and -1/4, 1/4
    "BatchNormalization.gradient:n2h1w1c2,eps0.0,gamma,count2": Worked(
        (
            [
                5 / 2 * (1 - 4 / 2 + 1 / 2 * 1 / 2),
                6 / 4 * (2 - 6 / 2 + 1 / 4 * 0.5 / 2),
                5 / 2 * (3 - 4 / 2 - 1 / 2 * 1 / 2),
                6 / 4 * (4 - 6 / 2 - 1 / 4 * 0.5 / 2),
            ],
        ),
        ([1, 2, 3, 4], [1, 2, 3, 4], [2, 3], [4, 16], [5, 6], [4, 6], [1, 0.5]),
    ),
    # --- losses -------------------------------------------------------------------------------------------------------
    # A label t is smoothed to t / 2 + 1/4: half of it, and half of 1/2, since there are two classes.
    # -t' log s - (1 - t') log (1 - s)
    "Loss.forward:n1h1w1c2,sigmoidcrossentropy,none,ls0.5": Worked(
        (
            [
                -0.75 * log(_sigmoid(2)) - 0.25 * log(1 - _sigmoid(2)),
                -0.25 * log(_sigmoid(-1)) - 0.75 * log(1 - _sigmoid(-1)),
            ],
        ),
        ([2, -1], [1, 0]),
    ),
    "Loss.gradient:n1h1w1c2,sigmoidcrossentropy,none,ls0.5": Worked(
        ([_sigmoid(2) - 0.75, _sigmoid(-1) - 0.25],), ([2, -1], [1, 0])
    ),
    "Loss.gradient_labels:n1h1w1c2,sigmoidcrossentropy,none,ls0.5": Worked(([-0.5 * 2, 0.5 * 1],), ([2, -1], [1, 0])),
    # Labels 1, 0, 0, 0 of one of four classes become 5/8, 1/8, 1/8, 1/8; two pixels.
    "Loss.forward:n1h1w2c4,softmaxcrossentropy,mean,ls0.5,classes4": Worked(
        (
            [
                (
                    log(3 + exp(2))
                    - 5 / 8 * 2  # the logits are 2, 0, 0, 0
                    + log(4)  # all are 0
                )
                / 2
            ],
        ),
        ([2, 0, 0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 1, 0, 0, 0]),
    ),
    "Loss.gradient:n1h1w1c4,softmaxcrossentropy,mean,ls0.5,classes4": Worked(
        ([1 / 4 - 5 / 8, 1 / 4 - 1 / 8, 1 / 4 - 1 / 8, 1 / 4 - 1 / 8],), ([0, 0, 0, 0], [1, 0, 0, 0])
    ),
    # All logits are 0, so that each loss is log 2: six times, by the weights of two images, over three that are not 0.
    # The sum is in image 0.
    "Loss.forward:n2h1w1c2,sigmoidcrossentropy,sumbynonzeroweights,across,weighted": Worked(
        ([(1 + 0 + 2 + 3) * log(2) / 3, 0],), ([0, 0, 0, 0], [1, 1, 0, 1], [1, 0, 2, 3])
    ),
    "Loss.forward:n2h1w1c2,sigmoidcrossentropy,mean,w3.0": Worked(
        ([3 * (2 * log(2)) / 2] * 2,), ([0, 0, 0, 0], [1, 1, 0, 1])
    ),
    # The gradient is that of the sum, whatever the reduction is; across the batch, g of image 0 holds for all.
    "Loss.gradient:n2h1w1c2,sigmoidcrossentropy,mean,across,weighted,chained": Worked(
        ([5 * 1 * -0.5, 0, 5 * 2 * 0.5, 5 * 3 * -0.5],), ([5, 7], [0, 0, 0, 0], [1, 1, 0, 1], [1, 0, 2, 3])
    ),
    "Loss.gradient_labels:n2h1w1c2,sigmoidcrossentropy,weighted,chained": Worked(
        ([5 * 1 * -1, 0, 7 * 2 * -3, 7 * 3 * -4],), ([5, 7], [1, 2, 3, 4], [1, 1, 0, 1], [1, 0, 2, 3])
    ),
    # 1 - sum of y t, twice
    "Loss.forward:n2h1w1c2,cosinedistance,w2.0": Worked(
        ([2 * (1 - (3 + 2)), 2 * (1 - 16)],), ([1, 2, 3, 4], [3, 1, 0, 4])
    ),
    # --- optimizers ---------------------------------------------------------------------------------------------------
    # Algorithm 1 of Kingma and Ba, in its second step, with beta1 = 1/2 and beta2 = 3/4: m' = m / (1 - 1/4), u' = u /
    # (1 - 9/16). m = 1/2 (4, 8) + 1/2 (1, 2), u = 3/4 (4, 5) + 1/4 (1, 4).
    "Adam.step:v2,lr0.1,beta1_0.5,beta2_0.75,eps0.0,t2": Worked(
        (
            [7 - 0.1 * (2.5 / 0.75) / sqrt(3.25 / 0.4375), 9 - 0.1 * (5 / 0.75) / sqrt(4.75 / 0.4375)],
            [2.5, 5],
            [3.25, 4.75],
        ),
        ([1, 2], [7, 9], [4, 8], [4, 5]),
    ),
    # s = (4 + 1) / 2 and (5 + 4) / 2
    "RMSProp.step:v2,lr0.1,decay0.5,eps0.0": Worked(
        ([7 - 0.1 * 1 / sqrt(2.5), 9 - 0.1 * 2 / sqrt(4.5)], [2.5, 4.5]), ([1, 2], [7, 9], [4, 5])
    ),
    # m = m / 2 + g / 4
    "StochasticGradientDescent.step:v2,lr0.25,momentum0.5,moving": Worked(
        ([7 - 2.25, 9 - 4.5], [2 + 0.25, 4 + 0.5]), ([1, 2], [7, 9], [4, 8])
    ),
    # --- pointwise, masks, reductions ---------------------------------------------------------------------------------
    # The logarithm to the base 2 of 3 x + 2, and 2 to the power 3 x + 2
    "Neuron.forward:n1h1w2c1,logarithm,a3.0,b2.0,c2.0": Worked(([3, 5],), ([2, 10],)),
    "Neuron.forward:n1h1w2c1,exponential,a3.0,b2.0,c2.0": Worked(([4, 1 / 2],), ([0, -1],)),
    # 2 tanh(3 x), with tanh(log 2) = 3/5
    "Neuron.gradient:n1h1w2c1,tanh,a2.0,b3.0": Worked(
        ([1 * 2 * 3, 2 * 2 * 3 * (1 - 9 / 25)],), ([1, 2], [0, log(2) / 3])
    ),
    # Elements 0 and 2 are negative.
    "Neuron.parameter_gradient:n1h1w3c1,prelu,data0.5": Worked(([1 * -1 + 3 * -3],), ([1, 2, 3], [-1, 2, -3])),
    "SoftMax.forward:n1h1w1c2": Worked(([1 / 4, 3 / 4],), ([0, log(3)],)),
    # y (g - sum of g y)
    "SoftMax.gradient:n1h1w1c2": Worked(([1 / 4 * (1 - 7 / 4), 3 / 4 * (2 - 7 / 4)],), ([1, 2], [1 / 4, 3 / 4])),
    "LogSoftMax.forward:n1h1w1c2": Worked(([-log(4), log(3) - log(4)],), ([0, log(3)],)),
    # g - exp(y) * sum of g
    "LogSoftMax.gradient:n1h1w1c2": Worked(([1 - 1 / 4 * 3, 2 - 3 / 4 * 3],), ([1, 2], [log(1 / 4), log(3 / 4)])),
    "Compare.forward:n1h1w3c1,lessorequal": Worked(([1, 1, 0],), ([1, 2, 3], [2, 2, 2])),
    # Philox4x32-10 of counter 0 and key 0 gives 6627e8d5, e169c58d, bc57ac4c, 9b00dbd8 (known answers of Random123).
    # 3/4 of the words are below c0000000.
    "Dropout.mask:n1h1w2c2,keep0.75": _of([1, 0, 1, 1]),
    # Two images from number 85a308d3 on, with the key a4093822 299f31d0 and the sequence 13198a2e 03707344, low words
    # first: fa41fe35 5ca892be 93e574d8 107ec793, and 2d7b3e1d f5ccb601 e12c8c77 290be357; 1 for those below 80000000.
    "Dropout.mask:n2h1w2c2,key2999170649027065890,seq247824715720788526,first2242054355": _of([0, 1, 0, 1, 1, 0, 0, 1]),
    # One mask element for all channels: the first two of the words.
    "Dropout.mask:n1h1w2c2,keep0.75,ms1x1x0": _of([1, 0]),
    "Dropout.forward:n1h1w1c2,keep0.75": Worked(([0, 2 / 0.75],), ([1, 2], [0, 1])),
    "Dropout.gradient:n1h1w1c2,keep0.75": Worked(([0, 2 / 0.75],), ([1, 2], [0, 1])),
    # Rows 1 and 2 of columns 0 and 1 of an image of three columns: 4 5, 7 8
    "Reduce.forward:n1h3w3c1,mean,spatial,clip1x0+9x2": _of([(4 + 5 + 7 + 8) / 4]),
    "Reduce.forward:n1h3w3c1,sum,row,clip1x0+9x2": _of([4 + 5, 7 + 8]),
    "Reduce.forward:n1h1w1c3,sum,featurechannels,weight0.5": _of([(1 + 2 + 3) / 2]),
    "Reduce.gradient:n1h3w3c1,mean,spatial,clip1x0+9x2": _of([0, 0, 0, 1 / 4, 1 / 4, 0, 1 / 4, 1 / 4, 0]),
    # r = 2 x + 3 y + 1, where y is its channel 1, 2, everywhere: 9 and 11, of which the second exceeds the bound 10.
    "Arithmetic.forward:n1h1w1c2,add,p2.0,q3.0,b1.0,ss0x0x0,so0x0x1,max10.0": _of([9, 10]),
    "Arithmetic.gradient:n1h1w1c2,add,p2.0,q3.0,b1.0,ss0x0x0,so0x0x1,max10.0": _of([2 * 1, 0], [0, 3 * 1]),
    "Arithmetic.gradient:n1h1w1c2,multiply,p2.0,q3.0,secondary": _of([2 * 3 * 1 * 1, 2 * 3 * 2 * 2]),
    # --- movement -----------------------------------------------------------------------------------------------------
    # Each source has a multiple of four channels.
    "Concatenation.forward:n1h1w1,c1x2": _of([1, 0, 0, 0, 1, 2, 0, 0]),
    "Concatenation.gradient:n1h1w1,c1x2": _of([1], [5, 6]),
    "Pad.forward:n1h1w2c1,before0x1x0,after1x2x1,constant,fill9.0": _of([9, 9, 1, 9, 2, 9, 9, 9, 9, 9] + [9] * 10),
    "Pad.forward:n1h1w2c1,before0x1x0,after1x0x1,constant,fills7.0_8.0": _of([7, 8, 1, 8, 2, 8, 7, 8, 7, 8, 7, 8]),
    "Pad.gradient:n1h1w2c1,before0x1x0,after1x2x1": _of([3, 5]),
    # From pixel 1 and channel 1 on
    "Slice.forward:n1h1w3c2,o0x1x1": _of([4, 6]),
    "Slice.gradient:n1h1w3c2,o0x1x1": _of([0, 0, 0, 1, 0, 2]),
    "Reshape.forward:n1h1w2c3,size3x2x1": _of([[[[1], [2]], [[3], [4]], [[5], [6]]]]),
    # The channels of the two pixels are 1 2 3 and 4 5 6; the order of the elements is CHW in both images.
    "Reshape.forward:n1h1w2c3,size3x2x1,CHW": _of([1, 4, 2, 5, 3, 6]),
    "Reshape.gradient:n1h1w2c3,size3x2x1": _of([1, 2, 3, 4, 5, 6]),
    # --- positions ----------------------------------------------------------------------------------------------------
    # Output i reads position i / scale.
    "UpsamplingNearest.forward:n1h1w2c1,s2x3": _of([1, 1, 1, 2, 2, 2] * 2),
    "UpsamplingNearest.gradient:n1h1w2c1,s2x3": _of([1 + 2 + 3 + 7 + 8 + 9, 4 + 5 + 6 + 10 + 11 + 12]),
    # The last one reads half of a zero outside, or with "clamp" the last pixel.
    "UpsamplingBilinear.forward:n1h1w2c1,s1x2": _of([1, 1.5, 2, 2 / 2]),
    "UpsamplingBilinear.forward:n1h1w2c1,s1x2,clamp": _of([1, 1.5, 2, 2]),
    "UpsamplingBilinear.gradient:n1h1w2c1,s1x2,clamp": _of([1 + 2 / 2, 2 / 2 + 3 + 4]),
    # Positions are 0, 1/2, 1, 3/2, or with aligned corners 0, 1/3, 2/3, 1.
    "ResizeBilinear.forward:n1h1w2c1,size2x4": _of([1, 1.5, 2, 2] * 2),
    "ResizeBilinear.forward:n1h1w2c1,size2x4,aligned": _of([1, 4 / 3, 5 / 3, 2] * 2),
    # Centres of pixels: positions -1/4, 1/4, 3/4, 5/4, outside the image its first and its last pixel. Rows are one.
    "GraphResizeBilinear.forward:n1h1w2c1,size2x4": _of([1, 1.25, 1.75, 2] * 2),
    "GraphResizeBilinear.gradient:n1h1w2c1,size1x4": _of([1 + 2 * 3 / 4 + 3 / 4, 2 / 4 + 3 * 3 / 4 + 4]),
    # (i + 1) / 2 is the position for a scale of 2 and an offset of -1 along x, 2 i - 2 that for 1/2 and 1.
    "GraphResizeBilinear.forward:n1h1w3c1,size1x4,at1.0_2.0_0.0_-1.0": _of([1.5, 2, 2.5, 3]),
    "GraphResizeNearest.forward:n1h1w3c1,size1x3,at1.0_0.5_0.0_1.0": _of([1, 1, 3]),
    # Corners without centres: positions 0, 5/4, 5/2, 15/4 of five pixels; the half is rounded by each rule.
    **{
        f"GraphResizeNearest.forward:n1h1w5c1,size1x4,cornered,{rule}": _of([1, first, half, last])
        for rule, first, half, last in (
            ("round_prefer_ceil", 2, 4, 5),
            ("round_prefer_floor", 2, 3, 5),
            ("ceil", 3, 4, 5),
            ("floor", 2, 3, 4),
            ("round_to_even", 2, 3, 5),
            ("round_to_odd", 2, 4, 5),
        )
    },
    # Aligned corners: positions 0, 1/3, 2/3, 1.
    "GraphResizeNearest.gradient:n1h1w2c1,size1x4,aligned": _of([1 + 2, 3 + 4]),
    # Rows 1 and 2 of the image 1 2, 3 4, 5 6, at the middle of the columns
    "CropAndResizeBilinear.forward:n1h3w2c1,size2x1,box0.5_0.0_1.0_1.0": _of([3.5, 5.5]),
    # A single output is the middle of the box, here position 1/4.
    "CropAndResizeBilinear.forward:n1h1w3c1,size1x1,box0.0_0.0_1.0_0.25": _of([1 * 3 / 4 + 2 * 1 / 4]),
    # --- float16 ------------------------------------------------------------------------------------------------------
    # From 2048 on the numbers of float16 are even, below 2**-14 multiples of 2**-24. Halfway it is the one whose
    # last digit is even: 2049 becomes 2048, and 2051 becomes 2052.
    "Arithmetic.forward:n1h1w2c1,add,float16": Worked(([2048, 2052],), ([2048, 2048], [1, 3])),
    "Convolution.forward:n1h1w2c2,k1x1,co1,float16": Worked(([2048, 2052],), ([2048, 1, 2048, 3], [1, 1])),
    "Neuron.forward:n1h1w2c1,linear,a1.0,b2048.0,float16": Worked(([2048, 2052],), ([1, 3],)),
    "Neuron.forward:n1h1w4c1,linear,a0.5,b0.0,float16": Worked(
        ([2 * 2**-24, 2 * 2**-24, 0, -2 * 2**-24],), ([3 * 2**-24, 5 * 2**-24, 2**-24, -3 * 2**-24],)
    ),
    "Pad.gradient:n1h2w1c1,before0x1x0,clamp,float16": Worked(([2048, 2052],), ([2048, 1, 2048, 3],)),
    "PoolingAverage.forward:n1h1w4c1,k1x2,s1x2,o0x1,float16": Worked(([2048, 2052],), ([2048, 2050, 2050, 2052],)),
    "PoolingAverage.gradient:n1h1w2c1,k1x2,float16": Worked(([2048, 2050 / 2],), ([2048, 2050],)),
    "Reduce.forward:n1h1w2c2,sum,featurechannels,float16": Worked(([2048, 2052],), ([2048, 1, 2048, 3],)),
    "ResizeBilinear.forward:n1h1w2c1,size1x4,float16": Worked(([2048, 2048, 2050, 2050],), ([2048, 2050],)),
    "UpsamplingBilinear.forward:n1h1w2c1,s1x2,clamp,float16": Worked(([2048, 2048, 2050, 2050],), ([2048, 2050],)),
}
"""By the case, without its data; in float32, if it names no dtype."""


@cache
def _examples(operation: Operation) -> Mapping[Case, str]:
    """Return the cases of the examples of an operation, and the text of each."""
    return {_case(text): text for text in EXAMPLES if text.startswith(f"{operation}:")}


def _case(text: str) -> Case:
    """Return a new case, of whose problem nothing is kept from calls before."""
    dtype = "" if text.endswith("float16") else "float32,"
    return Case.parse(f"{text},{dtype}exact,seed=0")


def cases(operation: Operation) -> Iterator[Case]:
    """Yield the cases of the worked examples of an operation.

    >>> from mpsref.conformance.case import operation_named
    >>> [str(case) for case in cases(operation_named("UpsamplingNearest.forward"))]
    ['UpsamplingNearest.forward:n1h1w2c1,s2x3,float32,exact,seed=0']
    """
    yield from _examples(operation)


def worked_example(case: Case, backend: Backend) -> None:
    """A case that was worked out by hand gives the numbers that were worked out."""
    if case.seed or case.family != "exact":
        return
    if any(repeats(layout, 1) for layout in case.layouts):  # other numbers than those of the example
        return
    text = _examples(case.problem.operation).get(replace(case, layouts=()))
    if text is None:
        return
    worked, problem = EXAMPLES[text], _case(text).problem
    dtypes = problem.input_dtypes(np.dtype(case.dtype))
    given = worked.inputs or [range(1, math.prod(shape) + 1) for shape in problem.input_shapes.values()]
    inputs = [
        np.array(numbers, dtypes[name]).reshape(shape)
        for numbers, (name, shape) in zip(given, problem.input_shapes.items(), strict=True)
    ]
    near = NEAR if case.dtype == "float32" else 0.0
    for result, numbers in zip(compute(problem, backend, *inputs), worked.results, strict=True):
        _require(result, np.array(numbers, float), near)


def _require(result: Array, expected: Array, near: float) -> None:
    """Require that a result has these numbers."""
    if result.size != expected.size or (expected.ndim > 1 and result.shape != expected.shape):
        raise Mismatch(f"worked example: the result has shape {result.shape}, by hand there are {expected.shape}")
    expected, found = expected.ravel(), result.astype(np.float64).ravel()
    with np.errstate(invalid="ignore"):  # of infinities, which must be equal
        limit = near * abs(expected[np.isfinite(expected)]).max(initial=0)
        wrong = (found != expected) & ~(abs(found - expected) <= limit)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        index = tuple(int(k) for k in np.unravel_index(first, result.shape))
        raise Mismatch(
            f"worked example: element {list(index)} is {result[index]!s}, by hand it is {expected[first]:.9g}; the "
            "reference may have the same mistake",
            index,
        )
