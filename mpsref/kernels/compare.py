"""Comparison of two images: 1 where it holds, else 0.

Equal is ``|x - y| <= threshold``, "notequal" its negation; the orderings compare x with y and ignore the threshold. A
comparison with NaN is 0, and 1 for "notequal"; so is one of equal infinities, whose difference is NaN. MPS has no
gradient for it.

Source: MPSNNCompare in ``MPSCNNMath.h`` [doc]; that the orderings ignore the threshold [choice compare-threshold].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import numpy as np

from mpsref import codecs
from mpsref.arguments.arrays import Array
from mpsref.arguments.parameters import Triple
from mpsref.codecs import parameter
from mpsref.kernels.broadcasting import Broadcasting, BroadcastProblem
from mpsref.kernels.reference import selected
from mpsref.operations import operation

Comparison: TypeAlias = Literal["equal", "notequal", "less", "lessorequal", "greater", "greaterorequal"]

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)
"""In the order of MPSNNComparisonType."""


class Compare(Broadcasting):
    """Comparison of two images, element by element: 1 where it holds, else 0.

    Parameters
    ----------
    comparison_type : {"equal", "notequal", "less", "lessorequal", "greater", "greaterorequal"}
        The comparison.
    threshold : float
        The largest difference of equal values, >= 0; may be infinite.
    primary_strides, secondary_strides, primary_offset, secondary_offset
        As in :class:`mpsref.Arithmetic`.

    Examples
    --------
    >>> import numpy as np
    >>> x, y = (np.array(row, np.float32).reshape(1, 1, 3, 1) for row in ([1, 2, 3], [2, 2, 2]))
    >>> Compare("equal", threshold=1.0).forward(x, y).ravel().tolist(), Compare("less").forward(x, y).ravel().tolist()
    ([1.0, 1.0, 1.0], [1.0, 0.0, 0.0])
    """

    comparison_type: Comparison = parameter(codecs.word(*COMPARISONS), default="equal")
    threshold: float = parameter(codecs.real("t", low=0), default=0.0)
    primary_strides: Triple = parameter(codecs.triple("ps", 0, 1), default=(1, 1, 1))
    secondary_strides: Triple = parameter(codecs.triple("ss", 0, 1), default=(1, 1, 1))
    primary_offset: Triple = parameter(codecs.triple("po", 0), default=(0, 0, 0))
    secondary_offset: Triple = parameter(codecs.triple("so", 0), default=(0, 0, 0))


class CompareForward(
    BroadcastProblem, method="forward", inputs={"x": "n h w c", "y": "secondary_shape"}, results={"r": "shape"}
):
    """``forward`` of a comparison: r from x and y."""

    spec: Compare

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Round the operands so that differences are exact and equal values are frequent."""
        return {name: np.round(np.clip(array, -8, 8) * 4) / 4 for name, array in drawn.items()}


ORDERINGS: dict[Comparison, Callable[[Array, Array], Array]] = {
    "less": np.less,
    "lessorequal": np.less_equal,
    "greater": np.greater,
    "greaterorequal": np.greater_equal,
}


@operation(Compare, problem=CompareForward, bound=selected)
def forward(problem: CompareForward, x: Array, y: Array) -> Array:
    """r = 1 where the comparison holds."""
    kind, threshold = problem.spec.comparison_type, problem.spec.threshold
    first, second = problem.spread(x, y)
    if kind in ORDERINGS:
        return ORDERINGS[kind](first, second).astype(x.dtype)
    with np.errstate(invalid="ignore"):
        equal = np.abs(first - second) <= threshold
    return np.asarray(equal if kind == "equal" else ~equal, x.dtype)
