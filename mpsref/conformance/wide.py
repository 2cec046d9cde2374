"""Wide cases: each operation at sizes that random cases do not reach, with few elements in all.

A kernel that is right on small images may hold an index of a tap in 8 bits or that of a pixel in 16, leave out the tail
of 31 channels, or launch for at most 8 images, 256 rows or 32 columns.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.conformance.case import Case, operation_named
from mpsref.conformance.mutants import Mutant, computed, correct, in_half, of_input, of_result, of_results, zeroed
from mpsref.kernels.convolution import ConvolutionForward
from mpsref.kernels.optimizers import OptimizerStep
from mpsref.kernels.upsampling import UpsamplingForward
from mpsref.operations import Operation, Problem

MANY, TALL = "n9h3w70c31", "n1h300w224c1"
"""Nine images, 70 columns, 31 channels; and 300 rows, with a plane of 67,200 pixels."""

PACKED = "n1h8w9c8"
"""72 pixels of two whole vectors of four channels: a threadgroup of whole pixels is full."""

FULL = "n1h16w16c8"
"""256 pixels of two whole vectors: whole threadgroups of 32, 64 and 256 threads, without a rest."""

EXTREME = "n1h1w3c521,hard"
"""521 channels, of which the last have the largest numbers."""

LONG = (
    *("n65540h1w1c1", "n1h65540w1c1", "n1h1w65540c1", "n1h1w1c65540"),
    *("n32770h1w1c2", "n1h32770w1c2,hard", "n1h1w32770c2", "n1h1w2c32770"),
)
"""Along each axis an index of more than 16 bits, then one of more than 15; of the latter 65,540 elements, too."""

CHANNELS = ("n1h2w3c104", "n2h1w3c208,hard", "n1h3w2c440", "n1h2w3c512,hard", "n1h1w3c777", "n1h2w1c1031")
"""Numbers of channels between which blocks and vectors of kernels change; with images of one row or column."""

EQUAL = "float16,memory=nhwc-scalar"
"""Of data: all elements are equal, in a type that does not count beyond 2,048."""

POINTWISE = (MANY, *LONG, *CHANNELS, FULL)

AVERAGED = tuple(f"{shape},float16" if shape == "n1h1w65540c1" else shape for shape in POINTWISE)
"""Of means: 65,540 pixels in float16, in which their number is infinite, and its reciprocal a subnormal."""


def _with(fields: str, *shapes: str) -> tuple[str, ...]:
    """Return the fields of a kernel for each shape, which may be followed by a family of data."""
    return tuple(f"{shape},{fields}" for shape in shapes)


def _in_half(fields: str, length: int = 2053) -> tuple[str, ...]:
    """Return the fields of a kernel for long images in float16, in which positions beyond 2,048 are not integers."""
    return tuple(f"{shape},{fields},float16" for shape in (f"n1h{length}w1c2", f"n1h1w{length}c2"))


def _lengths(shape: str) -> list[int]:
    return [int(number) for number in re.findall(r"[nhwc](\d+)", shape)]


def _concatenated(shape: str) -> str:
    n, h, w, c = _lengths(shape)
    return f"n{n}h{h}w{w},c{c}x2"


def _reshaped(shape: str) -> str:
    _, h, w, c = _lengths(shape)
    return f"{shape},size{h}x{c}x{w}"


def _padded(shape: str) -> str:
    """Pad the longest axis of an image, or the columns of several: with more, results are many times larger.

    More than 2**16 rows or columns are reflected; of as many images the last pixels are repeated.
    """
    n, *lengths = _lengths(shape)
    before = [0, 1, 0] if n > 1 else [int(length == max(lengths)) for length in lengths]
    mode = ",mirror" if max(lengths[:2]) > 2**16 else ",clamp" if n > 2**16 else ""
    return f"{shape},before{'x'.join(map(str, before))},after0x0x0{mode}"


def _reduced(shape: str, kind: str) -> str:
    """Return the reduction along the longest axis of an image, or along its channels."""
    _, *lengths = _lengths(shape)
    axis = ("column", "row", "featurechannels")[lengths.index(max(lengths))]
    return f"{shape},{kind},{axis}"


_ONE_ROW = ("n2h1w9c6,k1x3,s1x2", "n2h9w1c6,k3x1", "n2h1w9c6,k1x2")

USUAL = ("n2h5w6c5,k2x2,s2x2", "n1h5w5c3,k3x3,s2x2")
"""The windows of most networks, for which kernels have code of their own, on images narrower than its vectors."""

_POOLED = (
    *(f"{MANY},k3x3", f"{TALL},k3x5,s10x40", "n1h24w25c2,k23x23"),
    *("n65540h1w2c1,k1x2", "n1h65540w1c1,k3x1,s4096x1", "n1h1w2c65540,k1x2"),
    *("n32770h1w1c2,k1x1", "n1h32770w1c1,k3x1,s4096x1", "n1h1w32770c1,k1x3,s1x4096", "n1h2w1c32770,k2x1"),
    *("n1h4w5c104,k3x3", "n1h3w4c208,k3x3,hard", "n1h1w6c440,k1x3", "n1h4w2c512,k2x2,s2x2,hard", "n1h2w3c777,k2x2"),
    *(f"{FULL},k3x3", *_ONE_ROW, *USUAL),
    *_in_half("k2x2,s57x57"),
)
"""Windows: of nine taps; few of a large plane; of 529 taps; long axes with few windows; channels; one row."""

_WEIGHTED = (
    *(f"{MANY},k3x3,co31", "n1h24w25c1,k23x23,co1"),
    *(
        "n65540h1w1c1,k1x1,co2",
        "n1h65540w1c1,k3x1,s4096x1,co1",
        "n1h1w65540c1,k1x3,s1x4096,co1",
        "n1h1w1c65540,k1x1,co2",
    ),
    *(
        "n32770h1w1c2,k1x1,co1",
        "n1h32770w1c1,k3x1,s4096x1,co1",
        "n1h1w32770c1,k1x3,s1x4096,co1",
        "n1h1w2c32770,k1x2,co1",
    ),
    *("n1h1w1c1,k1x1,co65540", "n1h1w2c1,k1x1,co32770"),
    *("n1h3w3c104,k3x3,co208", "n1h1w6c208,k1x3,co104", "n2h2w3c440,k1x1,co104,hard", "n1h2w3c104,k1x1,co512"),
    *(
        "n1h4w5c208,k3x3,groups208,co208",
        "n1h3w3c208,k3x3,groups4,co104",
        "n1h2w2c512,k1x1,co40",
        "n1h1w3c40,k1x1,co777",
    ),
    *(f"{FULL},k3x3,co8", *(f"{fields},co4" for fields in (*_ONE_ROW, *USUAL)), "n2h1w9c6,k1x3,groups2,co4"),
    *_in_half("k2x2,co1"),
)
"""Convolutions of such images; long axes and numbers of channels of the source, then of the result."""


def _transposed(fields: str) -> bool:
    """Whether fields of a convolution are those of a transposed one, whose result has few pixels."""
    return "23" not in fields and "4096" not in fields


_GROUPED = tuple(
    "n32770h1w1c1" if shape.startswith("n32770") else shape for shape in AVERAGED if not shape.startswith("n65540")
)
"""Without 65,540 images, each of which is a group of threads: metal:clang takes 2 s."""

_PARAMETERS = ("v9x300x31", "v65540", "v2x32770", "v1x104", "v520x1")

_SOFTMAX = (
    *(MANY, "n65540h1w1c2", "n1h32770w2c2", "n1h2w32770c2", "n1h1w1c65540", "n1h1w2c32770", *CHANNELS, FULL),
    *("n1h300w224c2", EXTREME, f"n1h1w1c4100,{EQUAL}"),
)
"""With several channels: of one, all results are 1."""

SIZES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("Adam", "RMSProp", "StochasticGradientDescent"), ("v9x300x31", "v65540", "v2x32770", "v1x104", "v520x1")
    ),
    "Arithmetic": _with("multiply", *POINTWISE),
    "BatchNormalization": _with("eps0.001", *AVERAGED),
    "Chain": (
        *("n1h4w5c2,conv3+max3+where", "n1h8w9c2,crop+sum3", "n1h8w9c2,crop+conv3", "n2h6w6c2,conv3+relu+add"),
        *("n1h6w6c2,conv3+max2+relu", "n1h5w4c2,up2+conv3+max2", "n2h5w6c3,sum3+rows+gate", "n1h5w6c3,abs+pad+max3"),
        *("n1h130w260c1,sum2x1", "n1h64w130c1,dilated", "n1h5w4c2,cropped", "n1h6w7c2,max3+conv3+gate"),
        *("n1h1w5c2,apart+sum3", "n1h1w5c2,apart+conv3", "n1h256w128c160,modulate"),
    ),
    "Compare": _with("less", *POINTWISE),
    "Concatenation": ("n9h3w70,c31x2x33", "n1h300w224,c1x2", *map(_concatenated, (*LONG, *CHANNELS))),
    "Convolution": (*_WEIGHTED, "n2h1w12c6,k1x3,d1x2,co4", "n1h7w6c5,k3x3,d2x2,groups5,co5"),
    "ConvolutionTranspose": (*filter(_transposed, _WEIGHTED), "n1h2w3c1,k23x23,co1", "n1h17w1c1,k3x1,s4096x1,co1"),
    "CropAndResizeBilinear": (
        f"{MANY},size4x71,box0.0_0.0_1.0_1.0",
        f"{TALL},size7x9,box0.0_0.0_1.0_1.0",
        "n1h5w3c1,size300x224,box0.0_0.0_1.0_1.0",
        *_with("size2x3,box0.0_0.0_1.0_1.0", *CHANNELS),
    ),
    "CrossChannelNormalization": (
        *_with(
            "k5", MANY, *CHANNELS, FULL, PACKED, *(shape for shape in LONG if not shape.endswith(("c65540", "c32770")))
        ),
        f"{TALL},k1",
    ),
    "Dropout": POINTWISE,
    "FullyConnected": (
        *("n9h2w3c31,k2x3,co300", "n1h300w2c1,k300x2,co2", "n1h17w17c1,k17x17,co70", "n1h3w2c11000,k3x2,co1"),
        *("n65540h1w1c2,k1x1,co1", "n1h1w1c65540,k1x1,co1"),
        *("n32770h1w1c1,k1x1,co2", "n1h1w1c1,k1x1,co65540", "n2h1w1c1,k1x1,co32770", "n1h2w1c32770,k2x1,co1"),
        *("n3h1w1c104,k1x1,co208", "n2h1w2c208,k1x2,co104,hard", "n3h1w1c440,k1x1,co40", "n2h1w1c40,k1x1,co512,hard"),
    ),
    **{
        kernel: (*_with("eps1e-05", *_GROUPED), f"n1h9w6c31,{fields},memory=nhwc-expanded")
        for kernel, fields in (("GroupNormalization", "g31,eps1e-05"), ("InstanceNormalization", "eps1e-05"))
    },
    **{
        kernel: (
            *(f"n9h3w70c31,k3x3,{fields}", f"n1h300w3c1,k17x17,{fields}", f"n1h24w25c1,k23x23,{fields}"),
            f"n1h257w256c1,k2x2,{fields},o253x251,out4x5",
            *_with(f"k2x2,{fields}", "n65540h1w1c1", "n1h1w1c65540", "n1h2w3c104", "n1h2w1c208", "n1h1w3c440", FULL),
        )
        for kernel, fields in (("LocalContrastNormalization", "alpha1.0"), ("SpatialNormalization", "beta0.75"))
    },
    **dict.fromkeys(
        ("LogSoftMax", "SoftMax"),
        (
            *(MANY, "n65540h1w1c2", "n1h32770w2c2", "n1h2w32770c2", "n1h1w1c65540", "n1h1w2c32770", *CHANNELS, FULL),
            *("n1h300w224c2", EXTREME, f"n1h1w1c4100,{EQUAL}"),
        ),
    ),
    "Loss": (
        *_with("meansquarederror", *POINTWISE),
        *("n1h1w3c521,softmaxcrossentropy,hard", "n1h3w4c5,sigmoidcrossentropy,none,hard"),
    ),
    "Neuron": (*_with("sigmoid", MANY, *LONG), *_with("softsign", *CHANNELS, FULL)),
    "Neuron.parameter_gradient": (
        f"{MANY},prelu,data{'_'.join(str(k / 8) for k in range(31))}",
        *_with("prelu,data0.5", *(shape for shape in LONG if shape.endswith("c1"))),
        *_with("prelu,data0.5_0.25", "n32770h1w1c2", "n1h32770w1c2", "n1h1w32770c2"),
        *(f"n1h2w3c{c},prelu,data{'_'.join(str(k / 8) for k in range(c))}" for c in (104, 208, 512)),
    ),
    "Pad": (
        *(f"{MANY},before1x2x0,after2x1x1", *map(_padded, LONG)),
        *_with("before1x2x0,after2x1x1", *CHANNELS, FULL),
        *_in_half("before1x1x0,after0x0x0"),
    ),
    "PoolingAverage": _POOLED,
    "PoolingL2Norm": _POOLED,
    "PoolingMax": _POOLED,
    "Reduce.forward": (
        *(f"{MANY},sum,featurechannels", f"{TALL},sum,row", "n9h300w2c31,sum,column"),
        *(_reduced(shape, "sum") for shape in (*LONG, *CHANNELS, FULL)),
        *(_with("argumentmax,featurechannels", "n1h1w1c65540", "n32770h1w1c2,hard", "n1h182w182c1")),
        *(
            f"n1h9w31c{fields},featurechannels"
            for fields in ("7,argumentmax", "7,argumentmin", "1,nonfinite,argumentmin")
        ),
        *(f"{TALL},mean,spatial,float16", f"n1h2w4100c1,mean,row,{EQUAL}"),
        *(f"n1h1w1{shape},featurechannels,{EQUAL}" for shape in ("c4100,sum", "c8200,max")),
    ),
    "Reduce.gradient": (*_with("mean,spatial", *AVERAGED), f"n1h70w70c1,mean,spatial,{EQUAL}"),
    "Reshape": (f"{MANY},size31x70x3", f"{TALL},size224x100x3", *map(_reshaped, (*LONG, *CHANNELS))),
    "GraphPoolingMax": (
        *(f"{MANY},k2x3", f"{TALL},k3x2,s10x40,o1x1", "n1h40w37c3,k17x19,s4x3,o8x9,local_flatten_2d"),
        *USUAL,
        *_with("k1x2", "n65540h1w2c1", "n1h1w2c65540", "n1h2w3c104", "n1h1w6c208", "n1h2w3c440,hard", "n1h2w2c512"),
        *_in_half("k2x2"),
    ),
    "GraphResizeBilinear": (
        *(f"{MANY},size4x71", f"{TALL},size7x9,cornered", "n1h5w3c1,size300x224,aligned"),
        *_with("size2x3", *CHANNELS),
    ),
    "GraphResizeNearest": (
        *(f"{MANY},size4x71", f"{TALL},size7x9", "n1h5w3c1,size300x224", "n1h20w6c1,size11x49"),
        *_with("size2x3", *CHANNELS),
    ),
    "ResizeBilinear": (
        *(f"{MANY},size4x71", f"{TALL},size7x9", "n1h5w3c1,size300x224"),
        *("n1h65540w1c1,size9x2", "n1h1w65540c1,size2x9", "n65540h1w1c1,size1x2", "n1h1w2c65540,size1x2"),
        *_with("size2x3", *CHANNELS),
    ),
    "Slice": (*_with("o0x0x0", *POINTWISE), f"{MANY},o0x1x1", f"{TALL},o1x2x0", *_in_half("o0x0x1")),
    **{
        kernel: (
            *("n9h2w70c31,s2x1", "n1h2w3c1,s41x211", f"{TALL},s1x2"),
            *("n32770h1w1c1,s2x1", "n1h1w1c32770,s1x2", "n65540h1w1c1,s1x2", "n1h1w1c65540,s2x1"),
            *_with("s2x2", *CHANNELS, FULL),
            *along,
        )
        for kernel, along in (
            ("UpsamplingBilinear", ()),
            ("UpsamplingNearest", ("n1h1w16385c1,s1x4", *_in_half("s2x2", 1027))),
        )
    },
}
"""The fields of wide cases, by kernel or by operation."""


MANY_TERMS, MANY_MAPS = "n1h2w3c1031,k2x2,co3", "n1h2w3c3,k2x2,co1031"

MANY_TAPS = "n1h182w182c1,k182x182,o91x91"
"""A window of 33,124 taps, whose number needs 16 bits."""

WHOLE = "n1h257w256c1,k257x256,o128x128"
"""A window of 65,792 taps, whose number is infinite in float16."""

NONFINITE = "v7x31,clipped,min-1.0,max0.5,nonfinite"
"""Gradients and values with NaN, which clipping keeps, and with infinities."""

EDGES: Mapping[str, tuple[str, ...]] = {
    "Convolution.forward": (
        *(f"{MANY_TERMS},biased", "n1h24w25c4,k23x23,o11x11,groups4,co4,biased,out2x3"),
        "n1h24w25c4,k23x23,o11x11,groups2,co4,out1x1",
        *(
            "n1h1w65540c1,k1x1,co1",
            "n1h65540w1c1,k1x1,co1",
            "n1h4w4c32800,k1x1,co16,small",
            "n2h1w9c6,k1x3,co4,biased",
            "n2h257w1c1,k256x1,o128x0,co2,out2x1",
            f"{MANY_TAPS},co1,out1x1,small",
        ),
    ),
    "Convolution.gradient_data": (MANY_MAPS, "n1h4w4c16,k1x1,co32800,small"),
    "Convolution.gradient_weights": ("n1h182w181c16,k1x1,co16,small",),
    "ConvolutionTranspose.forward": (f"{MANY_TERMS},biased",),
    "ConvolutionTranspose.gradient_data": (MANY_MAPS,),
    "FullyConnected.forward": ("n16h1w1c32800,k1x1,co16,small", "n65540h1w1c2,k1x1,co2,biased"),
    "FullyConnected.gradient_data": ("n1h1w1c2,k1x1,co4100", "n16h1w1c16,k1x1,co32800,small"),
    "FullyConnected.gradient_weights": ("n4100h1w1c2,k1x1,co2", "n32800h1w1c16,k1x1,co16,small"),
    "PoolingAverage.forward": (
        f"{MANY_TAPS},out1x1",
        "n1h64w65c2,k64x64,o32x32",
        f"{WHOLE},out1x1,{EQUAL}",
    ),
    "PoolingAverage.gradient": ("n1h66w64c1,k64x64", f"{WHOLE},g1x1,{EQUAL}"),
    "PoolingMax.forward": (f"{MANY_TAPS},out1x1",),
    "PoolingMax.gradient": (
        f"{MANY_TAPS},g1x1",
        f"n1h64w64c1,k64x64,o32x32,g1x1,{EQUAL}",
    ),
    "Reduce.forward": ("n1h2w4100c1,sum,row",),
    "UpsamplingNearest.gradient": ("n1h2w1c1,s65x64", f"n1h1w1c2,s65x64,{EQUAL}"),
    "Adam": ("v3x4,beta1_0.0,beta2_0.0,eps0.0", NONFINITE, f"{NONFINITE},amsgrad"),
    "RMSProp": ("v3x4,decay0.0,eps0.0", "v3x4,decay1.0", NONFINITE),
    "StochasticGradientDescent": (
        *(NONFINITE, f"{NONFINITE},momentum0.5,moving,nesterov"),
        "v9x300x31,momentum0.9,moving",
    ),
    "Loss": ("n2h3w2c4,sigmoidcrossentropy,none,ls1.0", "n2h3w2c4,log,none,eps0.0"),
    "Neuron.forward": ("n2h3w4c5,absolute",),
    "Neuron.gradient": ("n2h3w4c5,absolute",),
    "PoolingL2Norm.gradient": ("n1h5w6c3,k3x3,size0x2,g3x3",),
}
"""The fields of cases that no other case has: values of parameters, sums of many terms, products of matrices whose
common axis has an index of 16 bits, NaN where only this kernel has none otherwise. A family of data may be among them.
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
    sizes, edges = (table.get(name, table.get(kernel, ())) for table in (SIZES, EDGES))
    for number, fields in enumerate((*(sizes or _enlarged(operation, drawn())), *edges)):
        dtype = "" if "float16" in fields else ",float32"
        yield Case.parse(f"{name}:{fields}{dtype},seed={number + 1}")


def _enlarged(operation: Operation, drawn: Iterable[Case]) -> Iterator[str]:
    """Yield the fields of problems on images of both sizes, of the case of most words that is legal there."""
    texts = sorted((str(case).partition(":")[2] for case in drawn), key=len, reverse=True)
    for size in (MANY, TALL):
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


def _sixteen_bits_of(axis: int) -> Callable[..., None]:
    """Leave out what is behind the first 2**16 elements of an axis of the result."""

    def change(result: Array, *_: object) -> None:
        np.moveaxis(result, axis, 0)[2**16 :] = 0

    return change


def _half_positions(problem: Problem, *inputs: Array) -> Array:
    """Take rows and columns beyond 2,048 from a position that is a number in float16."""
    result = correct(problem, *inputs)
    for axis in (1, 2):
        positions = np.arange(result.shape[axis]).astype(np.float16).astype(int)
        result = result.take(np.minimum(positions, result.shape[axis] - 1), axis)
    return result


def _fifteen_bits_of_terms(result: Array, problem: Problem, g: Array, x: Array, *_: object) -> None:
    """Add one more term to sums of more than 2**15 products if both results axes have 16 elements."""
    terms, outputs = g.reshape(-1, g.shape[-1]), x.reshape(len(g), -1)
    if len(terms) > 2**15 and min(terms.shape[1], outputs.shape[1]) >= 16:
        result += np.outer(terms[0], outputs[0]).reshape(result.shape)


def _between(low: int, high: int) -> Callable[..., None]:
    def change(result: Array, problem: Problem, x: Array, *_: object) -> None:
        if low <= x.shape[-1] <= high:
            result[..., -1] = 0

    return change


def _saturated(problem: Problem, *inputs: Array) -> Array:
    """Divide by a sum that float16 does not count beyond 2,048."""
    found = correct(problem, *inputs)
    (x, *_), count = inputs, math.prod(inputs[0].shape[1:])
    return found * count / 2048 if count > 2048 and x.size == count and (x == x.ravel()[0]).all() else found


def _one_row(result: Array, problem: Problem, x: Array, *_: object) -> None:
    if x.shape[1] == 1 and x.shape[3] > 1:
        result[...] = result[:, :, ::-1].copy()


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
        "output channels beyond 2**16 are left out": ("Convolution.forward", of_result(_sixteen_bits_of(3))),
        "columns beyond 2**16 are left out": ("Convolution.forward", of_result(_sixteen_bits_of(2))),
        "images beyond 2**16 are left out": ("Pad.gradient", of_result(_sixteen_bits_of(0))),
        "channels beyond 2**16 are left out": ("Pad.gradient", of_result(_sixteen_bits_of(3))),
        "positions are float16": ("ConvolutionTranspose.forward", in_half(_half_positions)),
        "a sum of more than 2**15 products has one more": (
            "FullyConnected.gradient_weights",
            of_result(_fifteen_bits_of_terms),
        ),
        "the last of 104 to 207 channels is 0": ("PoolingMax.forward", of_result(_between(104, 207))),
        "the last of 208 channels is 0": ("InstanceNormalization.forward", of_result(_between(208, 208))),
        "the last of 440 to 511 channels is 0": ("PoolingAverage.forward", of_result(_between(440, 511))),
        "the last of 512 channels and more is 0": ("SoftMax.gradient", of_result(_between(512, 1 << 30))),
        "ties are counted in float16": ("SoftMax.forward", computed(_saturated)),
        "indices are float16": ("GraphPoolingMax.forward", of_results(_short_indices)),
        "a NaN is clipped to a bound": ("Adam.step", of_input("gradient", _clipped)),
    }
    return tuple(Mutant(name, operation_named(operation), run) for name, (operation, run) in table.items())
