"""Wide cases: each operation at sizes that random cases do not reach, with few elements in all.

A kernel that is right on small images may hold an index of a tap in 8 bits or that of a pixel in 16, leave out the tail
of 31 channels, or launch for at most 8 images, 256 rows or 32 columns.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.mutants import Mutant, computed, correct, of_input, of_result, of_results, zeroed
from mpsref.kernels.convolution import ConvolutionForward
from mpsref.kernels.optimizers import OptimizerStep
from mpsref.kernels.upsampling import UpsamplingForward
from mpsref.operations import Operation, Problem

MANY, TALL = "n9h3w70c31", "n1h300w224c1"
"""Nine images, 70 columns, 31 channels; and 300 rows, with a plane of 67,200 pixels."""

BOTH = (MANY, TALL)

PACKED = "n1h8w9c8"
"""72 pixels of two whole vectors of four channels: a threadgroup of whole pixels is full."""

EXTREME = "n1h1w3c521,hard"
"""521 channels, of which the last have the largest numbers."""

TILED = (f"{MANY},k3x3", f"{TALL},k3x5,s10x40", "n1h18w19c1,k17x17")
"""Windows: of nine taps; few of a large plane; of 289 taps."""

WEIGHTS = (f"{MANY},k3x3,co31", f"{TALL},k3x2,co1", "n1h18w19c1,k17x17,co1")

SIZES: Mapping[str, tuple[str, ...]] = {
    "Adam": ("v9x300x31",),
    "RMSProp": ("v9x300x31",),
    "StochasticGradientDescent": ("v9x300x31,momentum0.9,moving",),
    "Arithmetic": (f"{MANY},multiply", f"{TALL},multiply"),
    "BatchNormalization": (f"{MANY},eps0.001", f"{TALL},eps0.001"),
    "Compare": (f"{MANY},less", f"{TALL},less"),
    "Concatenation": ("n9h3w70,c31x2x33", "n1h300w224,c1x2"),
    "Convolution": WEIGHTS,
    "ConvolutionTranspose": (f"{MANY},k3x3,co31", f"{TALL},k3x2,co1", "n1h2w3c1,k17x17,co1"),
    "CropAndResizeBilinear": (
        f"{MANY},size4x71,box0.0_0.0_1.0_1.0",
        f"{TALL},size7x9,box0.0_0.0_1.0_1.0",
        "n1h5w3c1,size300x224,box0.0_0.0_1.0_1.0",
    ),
    "CrossChannelNormalization": (f"{MANY},k5", f"{TALL},k1", f"{PACKED},k5"),
    "Dropout": BOTH,
    "FullyConnected": (
        "n9h2w3c31,k2x3,co300",
        "n1h300w2c1,k300x2,co2",
        "n1h17w17c1,k17x17,co70",
        "n1h3w2c11000,k3x2,co1",
    ),
    "GroupNormalization": (f"{MANY},eps1e-05", f"{TALL},eps1e-05"),
    "InstanceNormalization": (f"{MANY},eps1e-05", f"{TALL},eps1e-05"),
    "LocalContrastNormalization": (
        "n9h3w70c31,k3x3,alpha1.0",
        "n1h300w3c1,k17x17,alpha1.0",
        "n1h257w256c1,k2x2,alpha1.0,o253x251,out4x5",
    ),
    "SpatialNormalization": (
        "n9h3w70c31,k3x3,beta0.75",
        "n1h300w3c1,k17x17,beta0.75",
        "n1h257w256c1,k2x2,beta0.75,o253x251,out4x5",
    ),
    "LogSoftMax": (MANY, "n1h300w224c2", EXTREME),
    "SoftMax": (MANY, "n1h300w224c2", EXTREME),
    "Loss": (f"{MANY},meansquarederror", f"{TALL},meansquarederror"),
    "Neuron": (f"{MANY},sigmoid", f"{TALL},softsign"),
    "Neuron.parameter_gradient": (
        f"{MANY},prelu,data{'_'.join(str(k / 8) for k in range(31))}",
        f"{TALL},prelu,data0.5",
    ),
    "Pad": (f"{MANY},before1x2x3,after2x1x1", f"{TALL},before1x2x0,after2x1x0"),
    "PoolingAverage": TILED,
    "PoolingL2Norm": TILED,
    "PoolingMax": TILED,
    "Reduce.forward": (f"{MANY},sum,featurechannels", f"{TALL},sum,row", "n9h300w2c31,sum,column"),
    "Reduce.gradient": (f"{MANY},mean,spatial", f"{TALL},mean,spatial"),
    "Reshape": (f"{MANY},size31x70x3", f"{TALL},size224x100x3"),
    "GraphPoolingMax": (f"{MANY},k2x3", f"{TALL},k3x2,s2x1,o1x1", "n1h40w37c3,k17x19,o8x9,local_flatten_2d"),
    "GraphResizeBilinear": (f"{MANY},size4x71", f"{TALL},size7x9,cornered", "n1h5w3c1,size300x224,aligned"),
    "GraphResizeNearest": (f"{MANY},size4x71", f"{TALL},size7x9", "n1h5w3c1,size300x224", "n1h20w6c1,size11x49"),
    "ResizeBilinear": (f"{MANY},size4x71", f"{TALL},size7x9", "n1h5w3c1,size300x224"),
    "Slice": (f"{MANY},o0x1x1", f"{TALL},o1x2x0"),
    "UpsamplingBilinear": ("n9h2w70c31,s2x1", "n1h6w5c1,s41x47", f"{TALL},s1x2"),
    "UpsamplingNearest": ("n9h2w70c31,s2x1", "n1h6w5c1,s41x47", f"{TALL},s1x2"),
}
"""The fields of wide cases, by kernel or by operation."""


MANY_TERMS, MANY_MAPS = "n1h2w3c1031,k2x2,co3", "n1h2w3c3,k2x2,co1031"

NONFINITE = "v7x31,clipped,min-1.0,max0.5,nonfinite"
"""Gradients and values with NaN, which clipping keeps, and with infinities."""

EDGES: Mapping[str, tuple[str, ...]] = {
    "Convolution.forward": (
        f"{MANY_TERMS},biased",
        "n1h24w25c4,k23x23,o11x11,groups4,co4,biased,out2x3",
        "n1h1w1c1,k1x1,co65537",
        "n2h257w1c1,k256x1,o128x0,co2,out2x1",
    ),
    "Convolution.gradient_weights": ("n65537h1w1c1,k1x1,co1",),
    "Convolution.gradient_data": (MANY_MAPS,),
    "ConvolutionTranspose.forward": (f"{MANY_TERMS},biased",),
    "ConvolutionTranspose.gradient_data": (MANY_MAPS,),
    "FullyConnected.gradient_data": ("n1h1w1c2,k1x1,co4100",),
    "FullyConnected.gradient_weights": ("n4100h1w1c2,k1x1,co2",),
    "PoolingAverage.forward": ("n1h64w65c2,k64x64,o32x32",),
    "PoolingAverage.gradient": ("n1h66w64c1,k64x64",),
    "Reduce.forward": ("n1h2w4100c1,sum,row",),
    "UpsamplingNearest.gradient": ("n1h2w1c1,s65x64",),
    "Adam": ("v3x4,beta1_0.0,beta2_0.0,eps0.0", NONFINITE, f"{NONFINITE},amsgrad"),
    "RMSProp": ("v3x4,decay0.0,eps0.0", "v3x4,decay1.0", NONFINITE),
    "StochasticGradientDescent": (NONFINITE, f"{NONFINITE},momentum0.5,moving,nesterov"),
    "Loss": ("n2h3w2c4,sigmoidcrossentropy,none,ls1.0", "n2h3w2c4,log,none,eps0.0"),
    "Neuron.forward": ("n2h3w4c5,absolute",),
    "Neuron.gradient": ("n2h3w4c5,absolute",),
    "PoolingL2Norm.gradient": ("n1h5w6c3,k3x3,size0x2,g3x3",),
}
"""The fields of cases that no other case has: values of parameters, sums of many terms, NaN where only this kernel has
none otherwise. A family of data may be among them.
"""


def wide_cases(operation: Operation, drawn: Callable[[], Iterable[Case]] = tuple) -> Iterator[Case]:
    """Yield the wide cases of an operation, and those of its edges.

    A kernel without a row has images of both sizes, with the parameters of one of the cases that ``drawn`` returns.

    >>> from mpsref.conformance.case import operation_named
    >>> next(wide_cases(operation_named("PoolingMax.forward"))).problem.source_shape
    (9, 3, 70, 31)
    """
    name = str(operation)
    kernel = name.partition(".")[0]
    found = [one for table in (SIZES, EDGES) for one in table.get(name, table.get(kernel, ()))]
    found = found or list(_enlarged(operation, drawn()))
    for number, fields in enumerate(found):
        yield Case.parse(f"{name}:{fields},float32,seed={number + 1}")


def _enlarged(operation: Operation, drawn: Iterable[Case]) -> Iterator[str]:
    """Yield the fields of problems on images of both sizes, of the case of most words that is legal there."""
    texts = sorted((str(case).partition(":")[2] for case in drawn), key=len, reverse=True)
    for size in BOTH:
        for fields in texts:
            _, *others = fields.partition(",float32")[0].split(",")
            with contextlib.suppress(ValueError):  # a parameter does not fit to images of this size
                Case.parse(",".join((f"{operation}:{size}", *others)))
                yield ",".join((size, *others))
                break


# --- mutants that only wide cases expose ------------------------------------------------------------------------------


def _eight_bits(weights: Array, problem: Problem) -> Array:
    """Read tap k - 256 in place of tap k."""
    taps = weights.reshape(len(weights), -1, weights.shape[-1])
    return taps[:, np.arange(taps.shape[1]) % 256].reshape(weights.shape)


def _sixteen_bits(result: Array, *_: object) -> None:
    pixels = result.reshape(len(result), -1, result.shape[-1])
    pixels[:, 2**16 :] = pixels[:, : max(0, pixels.shape[1] - 2**16)].copy()


def _tail_of_seven(result: Array, *_: object) -> None:
    if 24 < result.shape[-1] < 32:
        result[..., 24:] = 0


def _no_halo(problem: Problem, x: Array) -> Array:
    """Compute tiles of 32 columns whose windows do not read the tile before."""
    alone = x.copy()
    alone[:, :, :32] = 0
    return np.concatenate([correct(problem, x)[:, :, :32], correct(problem, alone)[:, :, 32:]], axis=2)


def _rounded_scale(problem: UpsamplingForward, x: Array) -> Array:
    """Take pixels at positions that are multiplied by the reciprocal of the scale, rounded to float32."""
    rows, columns = (
        (np.arange(outputs, dtype=np.float32) * np.float32(length / outputs)).astype(int)
        for length, outputs in zip(x.shape[1:3], problem.large_shape[1:3], strict=True)
    )
    return x[:, rows][:, :, columns]


def _first_channels(problem: Problem, x: Array) -> Array:
    """Subtract the largest of the first 250 channels."""
    powers = np.exp((x - x[..., :250].max(axis=-1, keepdims=True)).astype(np.float32))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _bias_twice(result: Array, problem: ConvolutionForward, x: Array, weights: Array, *biases: Array) -> None:
    if weights.shape[1] * weights.shape[2] > 512:
        for bias in biases:
            result += bias


def _zeros_missing(result: Array, problem: Problem, x: Array) -> None:
    """Read what is behind the last of 53 pixels of two vectors of channels."""
    pixels = result.reshape(-1, result.shape[-1])
    if result.shape[-1] == 8:
        pixels[52::53, 6:] *= 0.5


def _short_indices(results: tuple[Array, ...], *_: object) -> tuple[Array, ...]:
    y, indices = results
    return y, np.minimum(indices, 65504).astype(np.float16).astype(np.int64)


def _clipped(gradient: Array, problem: OptimizerStep) -> Array:
    spec = problem.spec
    return np.where(np.isnan(gradient), spec.gradient_clip_min, gradient) if spec.apply_gradient_clipping else gradient


def size_mutants() -> tuple[Mutant, ...]:
    """Return the mutants that are right on all smaller cases."""
    table = {
        "the index of a tap has 8 bits": ("Convolution.forward", of_input("weights", _eight_bits)),
        "the index of a pixel has 16 bits": ("Neuron.forward", of_result(_sixteen_bits)),
        "channels 25 to 31 have no tail": ("PoolingMax.forward", of_result(_tail_of_seven)),
        "column 32 has no halo": ("PoolingAverage.forward", computed(_no_halo)),
        "images beyond the 8th are left out": ("SoftMax.forward", zeroed(np.s_[8:])),
        "rows beyond 256 are left out": ("InstanceNormalization.forward", zeroed(np.s_[:, 256:])),
        "positions by a scale in float32": ("UpsamplingNearest.forward", computed(_rounded_scale)),
        "the maximum is that of the first 250 channels": ("SoftMax.forward", computed(_first_channels)),
        "a bias is added twice beyond 512 taps": ("Convolution.forward", of_result(_bias_twice)),
        "the last zeros between whole pixels are missing": (
            "CrossChannelNormalization.forward",
            of_result(_zeros_missing),
        ),
        "indices are float16": ("GraphPoolingMax.forward", of_results(_short_indices)),
        "a NaN is clipped to a bound": ("Adam.step", of_input("gradient", _clipped)),
    }
    return tuple(Mutant(name, operation_named(operation), run) for name, (operation, run) in table.items())
