"""Kernels on matrices with Apple's names: fully connected layers, batch normalization, neurons, softmax, sums.

The rows of a matrix are the images of a batch, each of one pixel, and its columns are the channels; each matrix of an
``MPSMatrix`` is a batch of its own. The kernels call the operations of these images.

>>> import numpy as np
>>> x, w = MPSMatrix(np.float32([[1, 2], [3, 4]])), MPSMatrix(np.float32([[1, 0, 1], [0, 1, 1]]))
>>> layer = MPSMatrixFullyConnected(alpha=2)
>>> layer.encode(x, w, MPSVector(np.float32([0, 0, 1]))).data[0].tolist()
[[2.0, 4.0, 7.0], [6.0, 8.0, 15.0]]

Source: ``MPSMatrixFullyConnected.h``, ``MPSMatrixBatchNormalization.h``, ``MPSMatrixNeuron.h``, ``MPSMatrixSoftMax.h``,
``MPSMatrixSum.h``, ``MPSMatrixTypes.h`` [doc]. Where a printed formula is not that of the name, the function of the
name is computed: the root in batch normalization, and the gradient of log-softmax [math].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from mpsref.arguments.arrays import Array, as_array
from mpsref.arguments.parameters import flag, integer, number
from mpsref.errors import ShapeError
from mpsref.kernels import BatchNormalization, FullyConnected, LogSoftMax, Neuron, SoftMax
from mpsref.kernels.softmax import OverChannels
from mpsref.mps.core import types
from mpsref.mps.core.call import made
from mpsref.mps.core.command_buffer import MPSCommandBuffer, check_encodable, check_not_a_command_buffer
from mpsref.mps.core.kernel import MPSKernel
from mpsref.mps.core.properties import Alias, Argument, Property, at_least, constructed, instance_of
from mpsref.mps.core.types import MTLOrigin
from mpsref.mps.matrix import MPSMatrix, MPSVector
from mpsref.mps.neuron import MPSCNNNeuronType, MPSNNNeuronDescriptor, neuron_descriptor, neuron_of

ZERO = MTLOrigin(0, 0, 0)
Stored = TypeVar("Stored", MPSMatrix, MPSVector)


def _origin(name: str, value: object) -> MTLOrigin:
    corner = types.origin(name, value)
    if corner.z:
        raise ValueError(f"{name}.z is {corner.z}; it must be 0")
    return corner


def _origin_property(of: str) -> Property[MTLOrigin]:
    return Property(_origin, ZERO, f"Row (x) and column (y) at which the {of} begins; z is 0.")


def _limit_property(of: str) -> Property[int | None]:
    return Property(types.limit, None, f"The largest number of {of}; ``None`` or NSUIntegerMax for all.")


def _kind_of(name: str, value: object, kind: type[Stored]) -> Stored:
    check_not_a_command_buffer(name, value)
    return instance_of(name, value, kind)


class _MatrixKernel(MPSKernel):
    """A kernel on matrices; not a class of MPS."""

    result_matrix_origin = _origin_property("result")
    batch_start: Property[int] = Property(at_least(0), 0, "The number of the first matrix that is processed.")
    batch_size = _limit_property("matrices that are processed")

    def _limits_of_sources(self) -> tuple[int | None, int | None]:
        """Return the largest numbers of rows and columns that are read of a source."""
        return None, None

    def _source(self, name: str, value: object, origin: MTLOrigin, rows: int | None, columns: int | None) -> Array:
        """Return the part of a matrix that is read, (matrices, rows, columns)."""
        array = _kind_of(name, value, MPSMatrix).data
        first, size = self.batch_start, self.batch_size
        part = array[first : None if size is None else first + size, origin.x :, origin.y :][:, :rows, :columns]
        if not part.size:
            raise ShapeError(
                f"{name} has {array.shape[0]} matrices of {array.shape[1]} x {array.shape[2]}; there is nothing to "
                f"read from matrix {first}, row {origin.x} and column {origin.y} on: change the origin or batch_start"
            )
        return part

    @staticmethod
    def _same(name: str, part: Array, shape: Sequence[int], of: str) -> Array:
        if part.shape != tuple(shape):
            raise ShapeError(
                f"{part.shape} of {name} (matrices, rows, columns) are read; they must be {tuple(shape)}, as of {of}: "
                "change the limits or the origin"
            )
        return part

    def _written(
        self,
        name: str,
        value: object,
        rows: Sequence[Array],
        like: Array,
        command_buffer: MPSCommandBuffer | None,
        *vectors: tuple[Array | None, Array],
    ) -> MPSMatrix:
        """Write the rows of each result into a matrix, a new one for ``None``, and values into vectors; return it."""
        corner, shape = self.result_matrix_origin, (len(rows), *rows[0].shape)
        if value is None:
            n, height, width = shape
            value = MPSMatrix(np.zeros((self.batch_start + n, corner.x + height, corner.y + width), like.dtype))
        result = _kind_of(name, value, MPSMatrix)
        array, (n, height, width) = result.data, shape
        part = array[self.batch_start :, corner.x :, corner.y :][:n, :height, :width]
        if part.shape != shape:
            raise ShapeError(
                f"{name} has {array.shape[0]} matrices of {array.shape[1]} x {array.shape[2]}; it must hold {shape} "
                f"(matrices, rows, columns) from matrix {self.batch_start}, row {corner.x} and column {corner.y} on"
            )
        check_encodable(command_buffer)
        for target, values in (*zip(part, rows, strict=True), *vectors):
            if target is not None:
                target[...] = values
        return result

    @staticmethod
    def _vector(name: str, value: object, length: int) -> Array:
        """Return the first elements of the only vector of an MPSVector."""
        array = _kind_of(name, value, MPSVector).data
        if len(array) != 1 or array.shape[1] < length:
            raise ShapeError(
                f"{name} has {len(array)} vector(s) of {array.shape[1]} elements; it must be one of at least {length}"
            )
        return array[0, :length]

    def _vectors(self, length: int, **given: object) -> list[Array | None]:
        """Return the first elements of optional vectors."""
        return [None if value is None else self._vector(name, value, length) for name, value in given.items()]

    def _biases(self, value: object, gradient: Array) -> Array | None:
        """Return the vector for the sums of a gradient over rows, if it is given: those of one matrix."""
        (biases,) = self._vectors(gradient.shape[2], result_gradient_for_bias_vector=value)
        if biases is not None and len(gradient) > 1:
            raise ShapeError(
                f"result_gradient_for_bias_vector is given for {len(gradient)} matrices; it holds the sums of one: set "
                "batch_size to 1"
            )
        return biases

    def _each(self, function: Callable[..., Array], *parts: Array) -> list[Array]:
        """Return what a function of images computes of the rows of each matrix, as rows."""
        return [function(*map(_images, rows), backend=self.backend)[:, 0, 0] for rows in zip(*parts, strict=True)]


def _images(rows: Array) -> Array:
    """Return rows as images of one pixel."""
    return np.ascontiguousarray(rows)[:, None, None, :]


class MPSMatrixUnaryKernel(_MatrixKernel):
    """Base class of the kernels with one source matrix."""

    source_matrix_origin = _origin_property("source")

    def _input(self, value: object) -> Array:
        """Return what is read of the input matrix."""
        return self._source("input_matrix", value, self.source_matrix_origin, *self._limits_of_sources())


class MPSMatrixBinaryKernel(_MatrixKernel):
    """Base class of the kernels with two source matrices."""

    primary_source_matrix_origin = _origin_property("primary source")
    secondary_source_matrix_origin = _origin_property("secondary source")

    def _gradient_and(self, name: str, gradient_matrix: object, value: object) -> tuple[Array, Array]:
        """Return the source gradient, and what is read of the matrix ``name``, in the same shape."""
        limits = self._limits_of_sources()
        g = self._source("gradient_matrix", gradient_matrix, self.primary_source_matrix_origin, *limits)
        part = self._source(name, value, self.secondary_source_matrix_origin, *limits)
        return g, self._same(name, part, g.shape, "gradient_matrix")


ALPHA = Property(number, 1.0, "The factor of the product or of the source; a finite number.")


class _Neural(_MatrixKernel):
    """A kernel with a neuron; not a class of MPS."""

    neuron_descriptor: Property[MPSNNNeuronDescriptor] = Property(
        neuron_descriptor,
        neuron_descriptor("neuron_descriptor", MPSNNNeuronDescriptor("none")),
        "The neuron that is applied to the result.",
    )

    def set_neuron_type(
        self,
        neuron_type: MPSCNNNeuronType | int | str,
        parameter_a: float | None = None,
        parameter_b: float | None = None,
        parameter_c: float | None = None,
    ) -> None:
        """Set the neuron; PReLU, with a slope for each column, has a setter of its own."""
        self.neuron_descriptor = MPSNNNeuronDescriptor(neuron_type, parameter_a, parameter_b, parameter_c)

    neuron_type: Alias[MPSCNNNeuronType] = Alias("neuron_descriptor.neuron_type", "The type of the neuron.")
    neuron_parameter_a: Alias[float] = Alias("neuron_descriptor.a", "The first parameter of the neuron.")
    neuron_parameter_b: Alias[float] = Alias("neuron_descriptor.b", "The second parameter of the neuron.")
    neuron_parameter_c: Alias[float] = Alias("neuron_descriptor.c", "The third parameter of the neuron.")

    def _neuron(self) -> Neuron | None:
        return neuron_of(self.neuron_descriptor)


class _Limited(_Neural):
    """Limits of rows and columns; not a class of MPS."""

    source_number_of_feature_vectors = _limit_property("rows of the input")
    source_input_feature_channels = _limit_property("columns of the input")

    def _limits_of_sources(self) -> tuple[int | None, int | None]:
        return self.source_number_of_feature_vectors, self.source_input_feature_channels


# --- fully connected layers -------------------------------------------------------------------------------------------


class _FullyConnected(MPSMatrixBinaryKernel):
    """Properties of the layer and its gradient; not a class of MPS."""

    source_number_of_feature_vectors = _limit_property("rows of the input")
    source_input_feature_channels = _limit_property("columns of the input, which are rows of the weights")
    source_output_feature_channels = _limit_property("columns of the weights")
    alpha = ALPHA

    def _weights(self, w: Array) -> Array:
        """Return the weights (matrices, inputs, outputs) with a row for each output, times alpha."""
        return (w if self.alpha == 1 else w * w.dtype.type(self.alpha)).swapaxes(1, 2)


class MPSMatrixFullyConnected(_FullyConnected, _Neural):
    """``neuron(alpha x W + bias)`` for each row x: :class:`mpsref.FullyConnected`."""

    def encode(
        self,
        input_matrix: MPSMatrix,
        weight_matrix: MPSMatrix,
        bias_vector: MPSVector | None = None,
        result_matrix: MPSMatrix | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Compute the layer.

        Returns
        -------
        MPSMatrix
            The result matrix.
        """
        rows, inputs = self.source_number_of_feature_vectors, self.source_input_feature_channels
        outputs = self.source_output_feature_channels
        x = self._source("input_matrix", input_matrix, self.primary_source_matrix_origin, rows, inputs)
        w = self._source("weight_matrix", weight_matrix, self.secondary_source_matrix_origin, inputs, outputs)
        common = min(x.shape[2], w.shape[1])
        x, w = x[:, :, :common], w[:, :common]
        self._same("weight_matrix", w[:, :1, :1], (len(x), 1, 1), "input_matrix")
        (biases,) = self._vectors(w.shape[2], bias_vector=bias_vector)
        forward = partial(FullyConnected(1, neuron=self._neuron()).forward, biases=biases)
        results = self._each(forward, x, self._weights(w))
        return self._written("result_matrix", result_matrix, results, x, command_buffer)


class MPSMatrixFullyConnectedGradient(_FullyConnected):
    """The gradients of :class:`MPSMatrixFullyConnected` without a neuron, for its input, or for weights and biases."""

    def _gradient(self, gradient_matrix: object) -> Array:
        rows, outputs = self.source_number_of_feature_vectors, self.source_output_feature_channels
        return self._source("gradient_matrix", gradient_matrix, self.primary_source_matrix_origin, rows, outputs)

    def encode_gradient_for_data(
        self,
        gradient_matrix: MPSMatrix,
        weight_matrix: MPSMatrix,
        result_gradient_for_data_matrix: MPSMatrix | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Compute ``alpha g W^T``; return the result matrix. Errors as in the forward encode."""
        g, inputs = self._gradient(gradient_matrix), self.source_input_feature_channels
        w = self._source("weight_matrix", weight_matrix, self.secondary_source_matrix_origin, inputs, g.shape[2])
        self._same("weight_matrix", w[:, :1], (len(g), 1, g.shape[2]), "gradient_matrix")
        gradient = partial(FullyConnected(1).gradient_data, source_shape=(g.shape[1], 1, 1, w.shape[1]))
        rows, name = self._each(gradient, g, self._weights(w)), "result_gradient_for_data_matrix"
        return self._written(name, result_gradient_for_data_matrix, rows, g, command_buffer)

    encode = encode_gradient_for_data

    def encode_gradient_for_weights_and_bias(
        self,
        gradient_matrix: MPSMatrix,
        input_matrix: MPSMatrix,
        result_gradient_for_weight_matrix: MPSMatrix | None = None,
        result_gradient_for_bias_vector: MPSVector | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Compute ``alpha x^T g``, and the sums of the rows of g into the bias vector, if it is given.

        Return the result matrix, by default a new one. Errors as in the forward encode; a bias vector is legal for one
        matrix only.
        """
        g, inputs = self._gradient(gradient_matrix), self.source_input_feature_channels
        x = self._source("input_matrix", input_matrix, self.secondary_source_matrix_origin, g.shape[1], inputs)
        self._same("input_matrix", x[:, :, :1], (*g.shape[:2], 1), "gradient_matrix")
        biases = self._biases(result_gradient_for_bias_vector, g)
        layer, factor = FullyConnected(1), g.dtype.type(self.alpha)
        dw, db = zip(
            *(layer.gradient_weights(_images(a), _images(b), backend=self.backend) for a, b in zip(g, x, strict=True)),
            strict=True,
        )
        rows, name = [weights[:, 0, 0].T * factor for weights in dw], "result_gradient_for_weight_matrix"
        return self._written(name, result_gradient_for_weight_matrix, rows, g, command_buffer, (biases, db[0]))


# --- neurons ----------------------------------------------------------------------------------------------------------


class _OnColumns(_Limited):
    """Factor and slopes of neurons; not a class of MPS."""

    alpha = ALPHA

    def set_neuron_to_prelu_with_parameters_a(self, a: ArrayLike) -> None:
        """Set the neuron to PReLU with a slope for each column."""
        self.neuron_descriptor = MPSNNNeuronDescriptor("prelu", data=a)

    def _argument(self, x: Array, bias_vector: object) -> Array:
        """Return ``alpha x + bias``."""
        bias = 0 if bias_vector is None else self._vector("bias_vector", bias_vector, x.shape[2])
        slopes = self.neuron_descriptor.data
        if slopes is not None and len(slopes) != x.shape[2]:
            raise ShapeError(f"the neuron has {len(slopes)} slopes; there must be one for each of {x.shape[2]} columns")
        return np.asarray(x * x.dtype.type(self.alpha) + bias, x.dtype)


class MPSMatrixNeuron(MPSMatrixUnaryKernel, _OnColumns):
    """``neuron(alpha x + bias)`` for each row x: :class:`mpsref.Neuron`."""

    def encode(
        self,
        input_matrix: MPSMatrix,
        bias_vector: MPSVector | None = None,
        result_matrix: MPSMatrix | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Apply the neuron; return the result matrix."""
        x = self._input(input_matrix)
        rows = self._each(self.neuron_descriptor.neuron.forward, self._argument(x, bias_vector))
        return self._written("result_matrix", result_matrix, rows, x, command_buffer)


class MPSMatrixNeuronGradient(MPSMatrixBinaryKernel, _OnColumns):
    """The gradient of :class:`MPSMatrixNeuron`, ``alpha g f'(alpha x + bias)``, and the sums over rows for the bias."""

    def encode(
        self,
        gradient_matrix: MPSMatrix,
        input_matrix: MPSMatrix,
        bias_vector: MPSVector | None = None,
        result_gradient_for_data_matrix: MPSMatrix | None = None,
        result_gradient_for_bias_vector: MPSVector | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Compute the gradient for the data, and that for the bias if its vector is given, for one matrix only."""
        g, x = self._gradient_and("input_matrix", gradient_matrix, input_matrix)
        biases = self._biases(result_gradient_for_bias_vector, g)
        slopes = self._each(self.neuron_descriptor.neuron.gradient, g, self._argument(x, bias_vector))
        rows, sums = [slope * g.dtype.type(self.alpha) for slope in slopes], slopes[0].sum(axis=0, dtype=np.float64)
        name = "result_gradient_for_data_matrix"
        return self._written(name, result_gradient_for_data_matrix, rows, g, command_buffer, (biases, sums))


# --- batch normalization ----------------------------------------------------------------------------------------------


class _Normalization(_Limited):
    """Properties of batch normalization and its gradient; not a class of MPS."""

    epsilon: Property[float] = Property(
        partial(number, low=0), float(np.finfo(np.float32).tiny), "Added to the variance; >= 0."
    )

    def _function(self) -> BatchNormalization:
        return made(BatchNormalization, self.epsilon, self._neuron())  # type: ignore[no-any-return]

    def _one(self, part: Array, name: str) -> Array:
        """Return the only matrix: statistics are those of one."""
        if len(part) > 1:
            raise ShapeError(
                f"{len(part)} matrices of {name} are read; statistics are those of one: set batch_size to 1"
            )
        return _images(part[0])

    def _statistics(self, mean: object, variance: object, x: Array) -> tuple[Array, Array]:
        return self._vector("mean_vector", mean, x.shape[3]), self._vector("variance_vector", variance, x.shape[3])


class MPSMatrixBatchNormalization(MPSMatrixUnaryKernel, _Normalization):
    """Batch normalization over the rows of a matrix: :class:`mpsref.BatchNormalization`."""

    compute_statistics: Property[bool] = Property(flag, False, "Whether to compute mean and variance, and write them.")

    def encode(
        self,
        input_matrix: MPSMatrix,
        mean_vector: MPSVector,
        variance_vector: MPSVector,
        gamma_vector: MPSVector | None = None,
        beta_vector: MPSVector | None = None,
        result_matrix: MPSMatrix | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Normalize the columns; return the result matrix.

        With ``compute_statistics`` mean and (population) variance are written into their vectors, else they are read.
        """
        x = self._one(self._input(input_matrix), "input_matrix")
        mean, variance = self._statistics(mean_vector, variance_vector, x)
        gamma, beta = self._vectors(x.shape[3], gamma_vector=gamma_vector, beta_vector=beta_vector)
        function = self._function()
        used: tuple[Any, Any] = mean, variance
        if self.compute_statistics:
            statistics = function.statistics(x, backend=self.backend)
            used = statistics.mean, statistics.variance
        y = function.forward(x, *used, gamma, beta, backend=self.backend)
        vectors = (mean, used[0]), (variance, used[1])
        return self._written("result_matrix", result_matrix, [y[:, 0, 0]], x, command_buffer, *vectors)


class MPSMatrixBatchNormalizationGradient(MPSMatrixBinaryKernel, _Normalization):
    """The gradient of :class:`MPSMatrixBatchNormalization` with the statistics of the rows [math].

    Apple's class has no property that distinguishes fixed statistics.
    """

    def encode(
        self,
        gradient_matrix: MPSMatrix,
        input_matrix: MPSMatrix,
        mean_vector: MPSVector,
        variance_vector: MPSVector,
        gamma_vector: MPSVector | None = None,
        beta_vector: MPSVector | None = None,
        result_gradient_for_data_matrix: MPSMatrix | None = None,
        result_gradient_for_gamma_vector: MPSVector | None = None,
        result_gradient_for_beta_vector: MPSVector | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Compute the gradient for the data, and those for gamma and beta if their vectors are given."""
        part, other = self._gradient_and("input_matrix", gradient_matrix, input_matrix)
        g, x = self._one(part, "gradient_matrix"), self._one(other, "input_matrix")
        statistics = self._statistics(mean_vector, variance_vector, x)
        gamma, beta, dgamma, dbeta = self._vectors(
            x.shape[3],
            gamma_vector=gamma_vector,
            beta_vector=beta_vector,
            result_gradient_for_gamma_vector=result_gradient_for_gamma_vector,
            result_gradient_for_beta_vector=result_gradient_for_beta_vector,
        )
        function, vectors = self._function(), (*statistics, gamma, beta)
        sums = function.statistics_gradient(g, x, *vectors, backend=self.backend)
        dx = function.gradient(g, x, *vectors, sums=sums, backend=self.backend)[:, 0, 0]
        name, written = "result_gradient_for_data_matrix", ((dgamma, sums.dgamma), (dbeta, sums.dbeta))
        return self._written(name, result_gradient_for_data_matrix, [dx], g, command_buffer, *written)


# --- softmax ----------------------------------------------------------------------------------------------------------


class _OverColumns(_MatrixKernel):
    """Function and limits of softmax; not a class of MPS."""

    source_rows = _limit_property("rows")
    source_columns = _limit_property("columns")
    function: ClassVar[OverChannels] = SoftMax()

    def _limits_of_sources(self) -> tuple[int | None, int | None]:
        return self.source_rows, self.source_columns


class MPSMatrixSoftMax(MPSMatrixUnaryKernel, _OverColumns):
    """Softmax over the columns of each row: :class:`mpsref.SoftMax`."""

    def encode(
        self,
        input_matrix: MPSMatrix,
        result_matrix: MPSMatrix | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Compute the result; return its matrix."""
        x = self._input(input_matrix)
        rows = self._each(self.function.forward, x)
        return self._written("result_matrix", result_matrix, rows, x, command_buffer)


class MPSMatrixLogSoftMax(MPSMatrixSoftMax):
    """The logarithm of softmax over the columns of each row: :class:`mpsref.LogSoftMax`."""

    function = LogSoftMax()


class MPSMatrixSoftMaxGradient(MPSMatrixBinaryKernel, _OverColumns):
    """The gradient of :class:`MPSMatrixSoftMax`, from g and the forward result."""

    def encode(
        self,
        gradient_matrix: MPSMatrix,
        forward_output_matrix: MPSMatrix,
        result_matrix: MPSMatrix | None = None,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Compute the gradient; return the result matrix."""
        g, y = self._gradient_and("forward_output_matrix", gradient_matrix, forward_output_matrix)
        rows = self._each(self.function.gradient, g, y)
        return self._written("result_matrix", result_matrix, rows, g, command_buffer)


class MPSMatrixLogSoftMaxGradient(MPSMatrixSoftMaxGradient):
    """The gradient of :class:`MPSMatrixLogSoftMax`, from g and the forward result."""

    function = LogSoftMax()


# --- sums -------------------------------------------------------------------------------------------------------------


@constructed()
class MPSMatrixSum(_Neural):
    """``neuron(sum of alpha[i] B[i] + bias)`` of ``count`` matrices B, each with an origin of its own.

    ``transpose`` transposes the sum before bias and neuron.
    """

    count: Argument[int] = Argument(at_least(1), "The number of matrices that are summed.")
    rows: Argument[int] = Argument(at_least(1), "The number of rows that are read of each.")
    columns: Argument[int] = Argument(at_least(1), "The number of columns that are read of each.")
    transpose: Argument[bool] = Argument(flag, "Whether the sum is transposed.", default=False)

    def encode(
        self,
        source_matrices: Sequence[MPSMatrix],
        result_matrix: MPSMatrix | None = None,
        scale_vector: MPSVector | None = None,
        offset_vector: ArrayLike | None = None,
        bias_vector: MPSVector | None = None,
        start_index: int = 0,
        *,
        command_buffer: MPSCommandBuffer | None = None,
    ) -> MPSMatrix:
        """Compute the sum.

        Parameters
        ----------
        source_matrices : sequence of MPSMatrix
            ``count`` matrices.
        scale_vector : MPSVector, optional
            The factors, that of the first matrix at ``start_index``; ones by default.
        offset_vector : array_like of int (n, 2), optional
            Row and column at which each matrix is read, that of the first one at ``start_index``; zeros by default.
        start_index : int, default 0
            The first element of factors and offsets.

        Returns
        -------
        MPSMatrix
            The result matrix.
        """
        check_not_a_command_buffer("source_matrices", source_matrices)
        if not isinstance(source_matrices, (list, tuple)) or len(source_matrices) != self.count:
            raise TypeError(f"source_matrices must be a list of {self.count} MPSMatrix")
        first = integer("start_index", start_index, 0)
        last = first + self.count
        scales = np.ones(last) if scale_vector is None else self._vector("scale_vector", scale_vector, last)
        parts: list[Array] = []
        for k, (row, column) in enumerate(self._offsets(offset_vector, last)[first:last]):
            name, origin = f"source_matrices[{k}]", MTLOrigin(int(row), int(column), 0)
            part = self._source(name, source_matrices[k], origin, self.rows, self.columns)
            size = len(parts[0]) if parts else len(part), self.rows, self.columns
            parts.append(self._same(name, part, size, "count, rows and columns"))
        total = sum(
            float(scale) * part.astype(np.float64) for scale, part in zip(scales[first:last], parts, strict=True)
        )
        total = np.asarray(total).swapaxes(1, 2) if self.transpose else np.asarray(total)
        if bias_vector is not None:
            total = total + self._vector("bias_vector", bias_vector, total.shape[2])
        rows = self._each(self.neuron_descriptor.neuron.forward, total.astype(parts[0].dtype))
        return self._written("result_matrix", result_matrix, rows, parts[0], command_buffer)

    @staticmethod
    def _offsets(value: object, last: int) -> Any:
        if value is None:
            return np.zeros((last, 2), int)
        array = as_array("offset_vector", value)
        if array.dtype.kind not in "iu":
            raise TypeError(f"offset_vector has dtype {array.dtype}; it must have integers")
        if array.ndim != 2 or array.shape[1] != 2 or len(array) < last:
            raise ShapeError(f"offset_vector has shape {array.shape}; it must be at least ({last}, 2): row and column")
        return [[integer(f"offset_vector[{k}]", int(n), 0) for n in row] for k, row in enumerate(array)]
