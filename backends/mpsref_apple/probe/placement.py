"""Choices about padding policies, storage, and graphs."""

from __future__ import annotations

import numpy as np

from mpsref_apple.probe.declare import Choice, ProbeProblem, pixel

ORDERS = {"load": [0, 1, 2, 3, 4], "descriptor": [1, 0, 2, 3, 4], "biases": [0, 1, 3, 2, 4]}
SLOPES = [[1e8, 1, -1e8], [1, 1e8, -1e8], [1e8, -1e8, 1]]
"""For each channel, the slopes of three branches: the order of float32 sums decides whether the 1 is lost."""
EVEN = 2.0**-11
HALVES = np.array([1, 3, 1.5, -1, -3, -1.5]) * EVEN + np.sign([1, 1, 1, -1, -1, -1])
"""Two numbers halfway between neighbouring float16 numbers, and one above the middle; and the same below 0."""


def _placed(
    method: int, size: int, stride: int, length: int, expected: dict[str, list[float]], bits: str
) -> ProbeProblem:
    return ProbeProblem(
        "MPSCNNPoolingMax",
        "property",
        {"length": [length]},
        lambda machine: machine.apple.policy_offset(method, size, stride, length),
        expected,
        {"kernelWidth": size, "strideInPixelsX": stride, "padding": bits},
        "offset",
        {name: lambda _, value=values: (int(value[0]), 0, 0) for name, values in expected.items()},  # type: ignore[misc]
    )


CHOICES = (
    Choice(
        "padding-crop",
        "A negative number of padded pixels is divided by 2 as in C, towards zero.",
        "Apple's helper code is C, taken literally.",
        {"windows": "This makes a difference only for a negative `extra`"},
        {"truncates": "towards zero", "floors": "towards minus infinity"},
        _placed(
            12,
            2,
            4,
            9,
            {"truncates": [2], "floors": [3]},
            "SizeValidOnly, AlignCentered, AddRemainderToBottomRight",
        ),
    ),
    Choice(
        "padding-align-crop",
        "AlignTopLeft puts a negative number of padded pixels at the top left, AlignBottomRight at the bottom right.",
        "It is the documented rule, taken for negative numbers too.",
        {
            "windows": (
                "AlignTopLeft        [choice for negative extra]",
                "AlignBottomRight    [choice for negative extra]",
            )
        },
        {"side": "at that side", "end": "pixels are left out at the bottom right always"},
        _placed(1, 3, 4, 9, {"side": [3], "end": [1]}, "SizeValidOnly, AlignTopLeft"),
    ),
    Choice(
        "padding-tensorflow-valid",
        "paddingForTensorflowAveragePoolingValidOnly starts at pixel 0.",
        "It equals VALID of TensorFlow for every stride. Apple calls it a typical policy without padding.",
        {},
        {"begin": "windows start at pixel 0", "centred": "pixels that are left out are shared by both sides"},
        ProbeProblem(
            "MPSCNNPoolingMax",
            "property",
            {"length": [9]},
            lambda machine: machine.apple.tensorflow_valid_offset(2, 4, 9),
            {"begin": [1], "centred": [2]},
            {"kernelWidth": 2, "strideInPixelsX": 4},
            "offset",
            {"begin": lambda _: (1, 0, 0), "centred": lambda _: (2, 0, 0)},
        ),
    ),
    Choice(
        "padding-reverse",
        "A padding policy places the result of a reverse kernel in coordinates with inserted zeros, by its kernel offset.",
        "Converters of ONNX models do so. Apple documents the size.",
        {},
        {"inserted": "centred in coordinates with inserted zeros", "kept": "the kernel offset is not changed"},
        ProbeProblem(
            "MPSCNNConvolutionTranspose",
            "property",
            {"length": [4]},
            lambda machine: machine.apple.reverse_kernel_offset(32, 3, 2, 4),
            {"inserted": [-1], "kept": [0]},
            {"kernelWidth": 3, "strideInPixelsX": 2, "padding": "SizeFull"},
            "kernelOffsetX",
        ),
    ),
    Choice(
        "padding-inverse",
        "The inverse of a policy exchanges Valid and Full, and the sides of remainders.",
        "For stride 1 it gives the size of the source. Apple documents that it suits a gradient pass.",
        {},
        {"sides": "Valid and Full, and the sides of remainders", "sizes": "Valid and Full alone"},
        ProbeProblem(
            "MPSNNDefaultPadding",
            "property",
            {},
            lambda machine: machine.apple.inverse_method(0),
            {"sides": [44], "sizes": [32]},
            {"padding": "SizeValidOnly"},
            "paddingMethod",
        ),
    ),
    Choice(
        "error-bounds",
        "Bounds of errors charge 3 units to a division, 4 to an exponential, and so on.",
        "They come from the accuracy tables of Metal, with what sums and factors add.",
        {},
        tag="design",
    ),
    Choice(
        "float16-store",
        "Storing float16 rounds to the nearest number, ties to even.",
        "It is IEEE 754. One measured GPU truncates.",
        {},
        {"even": "nearest, ties to even", "truncates": "towards zero", "away": "nearest, ties away from zero"},
        ProbeProblem(
            "MPSCNNNeuron",
            "forward",
            {"x": HALVES},
            lambda machine: machine.apple.stored_in_float16(HALVES),
            {
                name: [*(1 + EVEN * np.array(units)), *(-1 - EVEN * np.array(units))]
                for name, units in (("even", [0, 4, 2]), ("truncates", [0, 2, 0]), ("away", [2, 4, 2]))
            },
            {"destination": "Float16"},
            tolerance=1e-6,
        ),
    ),
    Choice(
        "multiary-runs",
        "Kernels that read whole images have one way to run.",
        "Apple describes no offsets for them.",
        {"mps_objects": "runs *["},
        tag="design",
    ),
    Choice(
        "graph-additions",
        "Gradients of an image that several nodes read are added two at a time, in the order in which they are computed.",
        "Results are then the same from run to run.",
        {
            "graph": (
                "`MPSNNAdditionNode`s add their gradients",
                "Gradients of an input that several nodes read are added",
            )
        },
        {
            "last": "those of the last two nodes first",
            "first": "those of the first two nodes first",
            "outer": "those of the first and the last node first",
            "wide": "in wider numbers",
        },
        ProbeProblem(
            "MPSNNGraph",
            "gradient",
            {"x": pixel(-1, -1, -1), "slopes": SLOPES},
            lambda machine: machine.apple.gradient_of_branches(SLOPES),
            {"last": [0, 1, 0], "first": [0, 0, 1], "outer": [1, 0, 0], "wide": [1, 1, 1]},
            {"nodes": "three MPSCNNNeuronPReLUNodes, whose results are added"},
        ),
    ),
    Choice(
        "graph-no-gradient",
        "A node without a gradient raises.",
        "A branch that is dropped silently would train wrongly. MPS does not describe what it does.",
        {"graph": "no branch is dropped silently"},
        tag="design",
    ),
    Choice(
        "graph-custom-policy",
        "Nodes without windows refuse a custom padding policy that their kernel would follow.",
        "A policy that is ignored would be a silent difference to the kernel.",
        {"graph": "Nodes without windows whose kernel would follow a custom"},
        tag="design",
    ),
    Choice(
        "graph-updates",
        "A node with gradients of several losses is updated once; new parameters take effect at the end of a run.",
        "All kernels of a run then use the same parameters.",
        {
            "graph": (
                "A node with gradients from several losses is updated once",
                "All steps of a run use the parameters at the start",
                "end, all at once",
                "can thus update the parameters of a whole network",
            )
        },
        {"once": "once, from the sum of the gradients", "each": "once for each of two gradients"},
        ProbeProblem(
            "MPSNNGraph",
            "property",
            {"x": pixel(1)},
            lambda machine: machine.apple.updates_with_two_branches(),
            {"once": [1], "each": [2]},
            {"nodes": "MPSCNNConvolutionNode, two neurons that read its result, MPSNNAdditionNode"},
            "updates",
            {"once": lambda _: 1, "each": lambda _: 2},
        ),
    ),
    Choice(
        "graph-format",
        "Images of a graph are float32 by default.",
        "A reference must not hide errors behind the rounding of storage. MPS stores float16.",
        {"graph": "Images are stored as float32, not float16, by default"},
        tag="design",
    ),
    Choice(
        "graph-order",
        "A graph computes in the order of first use, and calls a completion handler before it returns.",
        "Apple leaves the order open.",
        {},
        {
            "use": "inputs in the order of first use",
            "sources": "inputs in the order of sources, from the result on",
            "handles": "inputs in the order in which their nodes were made",
        },
        ProbeProblem(
            "MPSNNGraph",
            "property",
            {},
            lambda machine: machine.apple.order_of_inputs(),
            {"use": [1, 0, 2], "sources": [2, 1, 0], "handles": [0, 1, 2]},
            {"graph": "2 + (1 + 0)"},
            "sourceImageHandles",
            # positions in the order of first use
            {"use": lambda _: [0, 1, 2], "sources": lambda _: [2, 0, 1], "handles": lambda _: [1, 0, 2]},
        ),
    ),
    Choice(
        "objects-not-built",
        "Classes without a kernel in mpsref raise an error that names what to use.",
        "They have no part in training of a convolutional network, or no documented result.",
        {},
        tag="design",
    ),
    Choice(
        "objects-options",
        "Some arguments have no effect: copies, reuse of memory, precision, policies of gradient nodes.",
        "They have no effect on results, or a state has precedence.",
        {},
        tag="design",
    ),
    Choice(
        "data-source-calls",
        "A kernel calls load, the other methods and purge in one order, when it is made and reloaded; what it reads is copied.",
        "Apple documents pairs of load and purge, and no order between them.",
        {},
        {
            "load": "load, descriptor, weights, biasTerms, purge",
            "descriptor": "descriptor, load, weights, biasTerms, purge",
            "biases": "load, descriptor, biasTerms, weights, purge",
        },
        ProbeProblem(
            "MPSCNNConvolution",
            "property",
            {},
            lambda machine: machine.apple.order_of_calls(),
            ORDERS,
            {"result": "positions of load, descriptor, weights, biasTerms and purge"},
            "calls",
            {name: lambda _, ranks=ranks: ranks for name, ranks in ORDERS.items()},  # type: ignore[misc]
        ),
    ),
)
