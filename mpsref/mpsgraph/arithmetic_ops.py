"""Arithmetic of two tensors, reductions, products of matrices, and other shapes of a tensor.

Operands broadcast against each other as in NumPy. Reduced axes keep length 1 [doc]. Of NaN, ``reduction_maximum`` and
``reduction_minimum`` take the numbers, as measured [obs mpsgraph-reduction-nan]; the forms ``propagate_nan`` give NaN.

Source: ``MPSGraphArithmeticOps.h``, ``MPSGraphReductionOps.h``, ``MPSGraphMatrixMultiplicationOps.h``,
``MPSGraphTensorShapeOps.h``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from mpsref.arguments.arrays import Array, Shape
from mpsref.arguments.parameters import integer
from mpsref.arguments.text import shown
from mpsref.backend import BackendLike
from mpsref.errors import ShapeError
from mpsref.kernels import Arithmetic, Convolution, Neuron, Reduce
from mpsref.kernels.arithmetic import Name
from mpsref.kernels.reduce import Reduction
from mpsref.mpsgraph.function import Tensor, axes_of, flat, from_last, function, kept, last, not_empty

ARITHMETIC = "MPSGraphArithmeticOps.h"
REDUCTION = "MPSGraphReductionOps.h"
MATRIX = "MPSGraphMatrixMultiplicationOps.h"
SHAPE = "MPSGraphTensorShapeOps.h"

Axes: TypeAlias = int | Sequence[int]

SQUARE_ROOT, PRODUCT = Neuron("power", 1.0, 0.0, 0.5), Convolution(1)
_arithmetic, _reduce = functools.cache(Arithmetic), functools.cache(Reduce)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _combined(operation: Name, primary: Array, secondary: Array, backend: BackendLike) -> Array:
    try:
        x, y = np.broadcast_arrays(primary, secondary)
    except ValueError:
        raise ShapeError(
            f"primary has shape {primary.shape} and secondary {secondary.shape}; on each axis, from the last one on, "
            "the lengths must be equal, or one of them 1"
        ) from None
    return _arithmetic(operation).forward(flat(x), flat(y), backend=backend).reshape(x.shape)


def _pair(operation: str) -> tuple[str, str, str, str, str]:
    return f"{operation}WithPrimaryTensor:secondaryTensor:name:", "11.0", ARITHMETIC, "primary", "secondary"


@function(*_pair("addition"))
def addition(primary: Tensor, secondary: Tensor, *, backend: BackendLike = None) -> Array:
    """Add two tensors.

    Examples
    --------
    >>> addition(np.float32([[1], [2]]), np.float32([10, 20])).tolist()
    [[11.0, 21.0], [12.0, 22.0]]
    """
    return _combined("add", primary, secondary, backend)


@function(*_pair("subtraction"))
def subtraction(primary: Tensor, secondary: Tensor, *, backend: BackendLike = None) -> Array:
    """Subtract the secondary tensor from the primary one.

    Examples
    --------
    >>> subtraction(np.float32([1, 2]), np.float32([10, 20])).tolist()
    [-9.0, -18.0]
    """
    return _combined("subtract", primary, secondary, backend)


@function(*_pair("multiplication"))
def multiplication(primary: Tensor, secondary: Tensor, *, backend: BackendLike = None) -> Array:
    """Multiply two tensors, element by element.

    Examples
    --------
    >>> multiplication(np.float32([1, 2]), np.float32([10, 20])).tolist()
    [10.0, 40.0]
    """
    return _combined("multiply", primary, secondary, backend)


@function(*_pair("division"))
def division(primary: Tensor, secondary: Tensor, *, backend: BackendLike = None) -> Array:
    """Divide the primary tensor by the secondary one, element by element.

    Examples
    --------
    >>> division(np.float32([1, 2]), np.float32([4, 8])).tolist()
    [0.25, 0.25]
    """
    return _combined("divide", primary, secondary, backend)


@function("squareRootWithTensor:name:", "11.0", ARITHMETIC, "tensor")
def square_root(tensor: Tensor, *, backend: BackendLike = None) -> Array:
    """Take the square root of each element.

    Examples
    --------
    >>> square_root(np.float32([4, 9])).tolist()
    [2.0, 3.0]
    """
    return SQUARE_ROOT.forward(flat(tensor), backend=backend).reshape(tensor.shape)


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduced(operation: Reduction, tensor: Array, axes: tuple[int, ...], backend: BackendLike) -> Array:
    not_empty(tensor=tensor)
    image = _reduce(operation, "featurechannels").forward(last(tensor, axes), backend=backend)
    return from_last(image, axes, kept(tensor.shape, axes))


def _propagated(operation: Reduction, tensor: Array, axes: tuple[int, ...], backend: BackendLike) -> Array:
    is_nan = np.isnan(tensor).any(axis=axes, keepdims=True)
    return np.where(is_nan, tensor.dtype.type(np.nan), _reduced(operation, tensor, axes, backend))


def _over(operation: str) -> tuple[str, str, str, str]:
    return f"{operation}WithTensor:axes:name:", "11.0", REDUCTION, "tensor"


@function(*_over("reductionSum"))
def reduction_sum(tensor: Tensor, axes: Axes, *, backend: BackendLike = None) -> Array:
    """Sum over axes, which keep length 1.

    Examples
    --------
    >>> reduction_sum(np.float32([[1, 2], [3, 4]]), [0]).tolist()
    [[4.0, 6.0]]
    """
    return _reduced("sum", tensor, axes_of("axes", axes, tensor.ndim), backend)


@function(*_over("reductionMaximum"))
def reduction_maximum(tensor: Tensor, axes: Axes, *, backend: BackendLike = None) -> Array:
    """Take the largest number over axes, which keep length 1; NaN is skipped.

    Examples
    --------
    >>> reduction_maximum(np.float32([[1, 2], [3, np.nan]]), [1]).tolist()
    [[2.0], [3.0]]
    """
    return _reduced("max", tensor, axes_of("axes", axes, tensor.ndim), backend)


@function(*_over("reductionMinimum"))
def reduction_minimum(tensor: Tensor, axes: Axes, *, backend: BackendLike = None) -> Array:
    """Take the smallest number over axes, which keep length 1; NaN is skipped.

    Examples
    --------
    >>> reduction_minimum(np.float32([[1, 2], [3, np.nan]]), [1]).tolist()
    [[1.0], [3.0]]
    """
    return _reduced("min", tensor, axes_of("axes", axes, tensor.ndim), backend)


@function(*_over("reductionMaximumPropagateNaN"))
def reduction_maximum_propagate_nan(tensor: Tensor, axes: Axes, *, backend: BackendLike = None) -> Array:
    """Take the maximum over axes, which keep length 1; NaN if there is one.

    Examples
    --------
    >>> reduction_maximum_propagate_nan(np.float32([[1, 2], [3, np.nan]]), [1]).tolist()
    [[2.0], [nan]]
    """
    return _propagated("max", tensor, axes_of("axes", axes, tensor.ndim), backend)


@function(*_over("reductionMinimumPropagateNaN"))
def reduction_minimum_propagate_nan(tensor: Tensor, axes: Axes, *, backend: BackendLike = None) -> Array:
    """Take the minimum over axes, which keep length 1; NaN if there is one.

    Examples
    --------
    >>> reduction_minimum_propagate_nan(np.float32([[1, 2], [3, np.nan]]), [1]).tolist()
    [[1.0], [nan]]
    """
    return _propagated("min", tensor, axes_of("axes", axes, tensor.ndim), backend)


def _index(operation: Reduction, tensor: Array, axis: int, backend: BackendLike) -> Array:
    return _reduced(operation, tensor, axes_of("axis", axis, tensor.ndim), backend).astype(np.int32)


@function("reductionArgMaximumWithTensor:axis:name:", "12.0", REDUCTION, "tensor")
def reduction_arg_maximum(tensor: Tensor, axis: int, *, backend: BackendLike = None) -> Array:
    """Return the index of the largest number along an axis, which keeps length 1: the lowest one of equal numbers.

    Returns
    -------
    ndarray of int32

    Examples
    --------
    >>> reduction_arg_maximum(np.float32([[1, 2], [3, 3]]), 1).tolist()
    [[1], [0]]
    """
    return _index("argumentmax", tensor, axis, backend)


@function("reductionArgMinimumWithTensor:axis:name:", "12.0", REDUCTION, "tensor")
def reduction_arg_minimum(tensor: Tensor, axis: int, *, backend: BackendLike = None) -> Array:
    """Return the index of the smallest number along an axis, which keeps length 1: the lowest one of equal numbers.

    Returns
    -------
    ndarray of int32

    Examples
    --------
    >>> reduction_arg_minimum(np.float32([[1, 2], [3, 3]]), 1).tolist()
    [[0], [0]]
    """
    return _index("argumentmin", tensor, axis, backend)


# --- matrices and shapes ----------------------------------------------------------------------------------------------


@function("matrixMultiplicationWithPrimaryTensor:secondaryTensor:name:", "11.0", MATRIX, "primary", "secondary")
def matrix_multiplication(primary: Tensor, secondary: Tensor, *, backend: BackendLike = None) -> Array:
    """Multiply two matrices: ``result[m, n] = sum over k of primary[m, k] secondary[k, n]``.

    Parameters
    ----------
    primary, secondary : array_like, shapes (M, K) and (K, N)
        Matrices.

    Returns
    -------
    ndarray, shape (M, N)

    Examples
    --------
    >>> matrix_multiplication(np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])).tolist()
    [[13.0, 16.0]]
    """
    if primary.ndim != 2 or secondary.ndim != 2 or primary.shape[1] != secondary.shape[0]:
        raise ShapeError(
            f"primary has shape {primary.shape} and secondary {secondary.shape}; they must be (M, K) and (K, N)"
        )
    not_empty(primary=primary, secondary=secondary)
    rows, columns = primary[:, None, None, :], secondary.T[:, None, None, :]
    return PRODUCT.forward(rows, columns, backend=backend)[:, 0, 0]


@function("reshapeTensor:withShape:name:", "11.0", SHAPE, "tensor")
def reshape(tensor: Tensor, shape: Shape, *, backend: BackendLike = None) -> Array:
    """Give a tensor another shape; its elements keep their order. No kernel of a backend runs.

    Parameters
    ----------
    shape : tuple of int
        The new shape; one length may be -1, it follows from the other ones.

    Examples
    --------
    >>> reshape(np.float32([[1, 2], [3, 4]]), (1, -1)).tolist()
    [[1.0, 2.0, 3.0, 4.0]]
    """
    if not isinstance(shape, (tuple, list, np.ndarray)):
        raise TypeError(f"shape is {shown(shape)}; it must be a tuple of integers")
    lengths = [integer(f"shape[{axis}]", length, low=-1) for axis, length in enumerate(shape)]
    try:
        return tensor.reshape(lengths).copy()  # type: ignore[no-any-return]
    except ValueError:
        raise ShapeError(
            f"shape is {tuple(lengths)}; it must have as many elements as the tensor of shape {tensor.shape}"
        ) from None


@function("transposeTensor:dimension:withDimension:name:", "11.0", SHAPE, "tensor")
def transpose(tensor: Tensor, dimension: int, with_dimension: int, *, backend: BackendLike = None) -> Array:
    """Exchange two axes of a tensor. No kernel of a backend runs.

    Parameters
    ----------
    dimension, with_dimension : int
        The axes; negative ones count from the end.

    Examples
    --------
    >>> transpose(np.float32([[1, 2], [3, 4]]), 0, 1).tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    (one,), (other,) = (
        axes_of("dimension", dimension, tensor.ndim),
        axes_of("with_dimension", with_dimension, tensor.ndim),
    )
    return np.array(tensor.swapaxes(one, other), order="C")


@function("broadcastTensor:toShape:name:", "12.0", SHAPE, "tensor")
def broadcast(tensor: Tensor, shape: Shape, *, backend: BackendLike = None) -> Array:
    """Repeat a tensor along its axes of length 1, and along new axes in front. No kernel of a backend runs.

    Parameters
    ----------
    shape : tuple of int
        The new shape.

    Examples
    --------
    >>> broadcast(np.float32([[1], [2]]), (2, 3)).tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """
    try:
        return np.array(np.broadcast_to(tensor, shape), order="C")
    except (ValueError, TypeError):
        raise ShapeError(
            f"shape is {shown(shape)}; the tensor of shape {tensor.shape} must broadcast to it: equal lengths, or 1"
        ) from None
