"""Comparison of two images: 1 where it holds, else 0.

Equal is ``|x - y| <= threshold``, "notequal" its negation; the orderings compare x with y and leave the threshold
aside. A comparison with NaN is 0, and 1 for "notequal"; so is one of equal infinities, whose difference is NaN. MPS has
no gradient for it.

Source: MPSNNCompare in ``MPSCNNMath.h`` [doc]; that the orderings ignore the threshold [choice].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from mpsref import codecs, registry
from mpsref.arguments.arrays import Array, Shape, as_image
from mpsref.arguments.parameters import Triple, choice, number
from mpsref.kernels.broadcasting import Broadcasting, BroadcastProblem
from mpsref.kernels.reference import ErrorBound
from mpsref.operations import Declaration, Formula, OperationKey

Comparison: TypeAlias = Literal["equal", "notequal", "less", "lessorequal", "greater", "greaterorequal"]

COMPARISONS: tuple[Comparison, ...] = get_args(Comparison)
"""In the order of MPSNNComparisonType."""


class CompareForward(BroadcastProblem):
    """``forward`` of a comparison: r from x and y."""

    method: ClassVar[str] = "forward"
    spec: Compare

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """The operands."""
        return {"x": self.source_shape, "y": self.secondary_shape}

    @property
    def result_shapes(self) -> tuple[Shape]:
        """The image r."""
        return (self.shape,)

    def legal(self, drawn: dict[str, Array]) -> dict[str, Array]:
        """Give the operands so few digits that their difference is exact, and equal ones are frequent."""
        return {name: np.round(np.clip(array, -8, 8) * 4) / 4 for name, array in drawn.items()}


class Compare(Broadcasting):
    """``x ? y``; strides and offsets are those of :class:`mpsref.Arithmetic`.

    >>> import numpy as np
    >>> x, y = (np.array(row, np.float32).reshape(1, 1, 3, 1) for row in ([1, 2, 3], [2, 2, 2]))
    >>> Compare("equal", threshold=1.0).forward(x, y).ravel().tolist(), Compare("less").forward(x, y).ravel().tolist()
    ([1.0, 1.0, 1.0], [1.0, 0.0, 0.0])
    """

    comparison_type: Comparison = field(default="equal", metadata={"codec": codecs.word(*COMPARISONS)})
    threshold: float = field(default=0.0, metadata={"codec": codecs.number("t")})
    primary_strides: Triple = field(default=(1, 1, 1), metadata={"codec": codecs.triple("ps")})
    secondary_strides: Triple = field(default=(1, 1, 1), metadata={"codec": codecs.triple("ss")})
    primary_offset: Triple = field(default=(0, 0, 0), metadata={"codec": codecs.triple("po")})
    secondary_offset: Triple = field(default=(0, 0, 0), metadata={"codec": codecs.triple("so")})

    problems: ClassVar = {"forward": CompareForward}

    def __post_init__(self) -> None:
        """Check every parameter."""
        object.__setattr__(self, "comparison_type", choice("comparison_type", self.comparison_type, COMPARISONS))
        threshold = math.inf if self.threshold == math.inf else number("threshold", self.threshold, low=0)
        object.__setattr__(self, "threshold", threshold)
        self._check_operands()

    def forward(self, x: Any, y: Any, *, out: Any = None, backend: Any = None) -> Array:
        """Return 1 or 0 for each element of the images x and y, both (N, H, W, C), in the dtype of x.

        Raises ``ValueError`` or ``TypeError`` for what does not fit.
        """
        x, y = as_image("x", x), as_image("y", y)
        problem = CompareForward(self, x.shape, y.shape)
        return registry.run_one(problem, x, y, out=out, backend=backend)


ORDERINGS: dict[Comparison, Callable[[Array, Array], Array]] = {
    "less": np.less,
    "lessorequal": np.less_equal,
    "greater": np.greater,
    "greaterorequal": np.greater_equal,
}


def forward(problem: CompareForward, x: Array, y: Array) -> Array:
    """r = 1 where the comparison holds."""
    kind, threshold = problem.spec.comparison_type, problem.spec.threshold
    first, second = problem.spread(x, y)
    if kind in ORDERINGS:
        return ORDERINGS[kind](first, second).astype(x.dtype)
    with np.errstate(invalid="ignore"):
        equal = np.abs(first - second) <= threshold
    return np.asarray(equal if kind == "equal" else ~equal, x.dtype)


def terms(problem: CompareForward, x: Array, y: Array) -> ErrorBound:
    """Nothing is rounded: 0 or 1."""
    return ErrorBound(np.zeros(problem.shape), np.float64(0), True)


SPECS = (Compare,)
REFERENCE: dict[OperationKey, Formula] = {(Compare, "forward"): forward}
TERMS: dict[OperationKey, Formula] = {(Compare, "forward"): terms}

for _spec_type, _method in REFERENCE:
    _spec_type.declared[_method] = Declaration(REFERENCE[_spec_type, _method], TERMS[_spec_type, _method])
