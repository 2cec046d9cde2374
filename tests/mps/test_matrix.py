"""Matrices, vectors and the kernels on them: bytes, origins, batches, and agreement with PyTorch or the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpsref
from mpsref import OrderError, mps
from mpsref.mps import MPSMatrix, MPSMatrixDescriptor, MPSVector, MPSVectorDescriptor

RNG = np.random.default_rng(5)
X = RNG.normal(size=(4, 3)).astype(np.float32)
G = RNG.normal(size=(4, 5)).astype(np.float32)
W = RNG.normal(size=(3, 5)).astype(np.float32)
B = RNG.normal(size=5).astype(np.float32)


def vector(*values: float) -> MPSVector:
    return MPSVector(np.float32(values))


# --- memory -----------------------------------------------------------------------------------------------------------


def test_an_element_is_where_apple_documents_it() -> None:
    memory = np.arange(40, dtype=np.float32)
    made = MPSMatrix(memory, 8, MPSMatrixDescriptor(2, 3, 2, row_bytes=20, matrix_bytes=60))
    for k in range(2):
        for i in range(2):
            for j in range(3):
                assert made.data[k, i, j] == (8 + 60 * k + 20 * i + 4 * j) / 4
    assert (made.rows, made.columns, made.matrices, made.row_bytes, made.matrix_bytes, made.offset) == (
        2,
        3,
        2,
        20,
        60,
        8,
    )
    assert made.resource_size == 60 + 20 + 12
    made.data[1, 0, 2] = -1
    assert memory[2 + 15 + 2] == -1, "the memory is shared"
    vectors = MPSVector(memory.view(np.float16), 4, MPSVectorDescriptor(3, 2, vector_bytes=10, data_type="float16"))
    np.testing.assert_array_equal(vectors.data, [memory.view(np.float16)[start : start + 3] for start in (2, 7)])
    assert (vectors.length, vectors.vectors, vectors.vector_bytes, vectors.data_type) == (
        3,
        2,
        10,
        mps.MPSDataType.Float16,
    )


def test_descriptors_of_apple() -> None:
    name = "matrix_descriptor_with_rows_columns_matrices_row_bytes_matrix_bytes_data_type"
    made = getattr(MPSMatrixDescriptor, name)(2, 3, 4, 16, 48, "float32")
    assert made == MPSMatrixDescriptor(2, 3, 4, row_bytes=16, matrix_bytes=48)
    one = MPSMatrixDescriptor.matrix_descriptor_with_rows_columns_row_bytes_data_type(2, 3, 16, "float16")
    assert MPSMatrix(descriptor=one).data.strides == (32, 16, 2)
    assert not MPSMatrix(descriptor=one).data.any()
    assert MPSMatrixDescriptor.row_bytes_for_columns(3, "float16") == 6
    assert MPSVectorDescriptor.vector_bytes_for_length(3, "float32") == 12
    long = MPSVectorDescriptor.vector_descriptor_with_length_vectors_vector_bytes_data_type(3, 2, 16, "float32")
    assert MPSVector(descriptor=long).data.shape == (2, 3)
    assert MPSVectorDescriptor.vector_descriptor_with_length_data_type(3, "float32") == MPSVectorDescriptor(3)
    made.rows = 3
    assert made.rows == 3


ILLEGAL = [
    (lambda: MPSMatrix(), TypeError, "needs a descriptor"),
    (lambda: MPSMatrix(X, 4), ValueError, "offset is 4; without a descriptor"),
    (lambda: MPSMatrix(X.astype(np.float64)), TypeError, "buffer has dtype float64"),
    (lambda: MPSMatrix(X[0]), mpsref.ShapeError, "must have 2 or 3 axes"),
    (lambda: MPSMatrix([[1]]), TypeError, "buffer has dtype int64"),
    (lambda: MPSVector(X, 0, MPSMatrixDescriptor(1, 1)), TypeError, "must be an MPSVectorDescriptor"),
    (lambda: MPSMatrix(X, 2, MPSMatrixDescriptor(1, 1)), ValueError, "multiple of the size of an element, 4 bytes"),
    (lambda: MPSMatrix(X, 0, MPSMatrixDescriptor(4, 4)), mpsref.ShapeError, "buffer has 48 bytes; .* need 64"),
    (lambda: MPSMatrix(X.T, 0, MPSMatrixDescriptor(3, 4)), ValueError, "not contiguous"),
    (lambda: MPSMatrix(b"0000", 0, MPSMatrixDescriptor(1, 1)), TypeError, "must be a NumPy array"),
    (lambda: MPSMatrix(descriptor=MPSMatrixDescriptor(2, 3, row_bytes=8)), ValueError, "row_bytes is 8; .* least 12"),
    (lambda: MPSMatrix(descriptor=MPSMatrixDescriptor(2, 3, row_bytes=14)), ValueError, "multiple of 4 bytes"),
    (lambda: MPSMatrix(descriptor=MPSMatrixDescriptor(2, 3, 2, matrix_bytes=30)), ValueError, "matrix_bytes is 30"),
    (lambda: MPSVector(descriptor=MPSVectorDescriptor(2, 2, vector_bytes=4)), ValueError, "vector_bytes is 4"),
    (lambda: MPSMatrix(descriptor=MPSMatrixDescriptor(2, 3, data_type="uint8")), ValueError, "data_type is UInt8"),
    (lambda: MPSMatrixDescriptor(0, 3), ValueError, "rows is 0"),
    (lambda: setattr(MPSVectorDescriptor(2), "width", 3), mps.PropertyError, "has no property 'width'"),
]


@pytest.mark.parametrize(("call", "error", "words"), ILLEGAL, ids=[row[2] for row in ILLEGAL])
def test_illegal_memory(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


# --- kernels ----------------------------------------------------------------------------------------------------------


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_a_fully_connected_layer(backend: str) -> None:
    layer = mps.MPSMatrixFullyConnected(alpha=0.5, backend=backend)
    layer.set_neuron_type("tanh", 2, 0.5)
    u = 0.5 * X @ W + B
    close(layer.encode(MPSMatrix(X), MPSMatrix(W), MPSVector(B)).data[0], 2 * np.tanh(0.5 * u))
    assert (layer.neuron_type, layer.neuron_parameter_a, layer.neuron_parameter_b) == (
        mps.MPSCNNNeuronType.TanH,
        2,
        0.5,
    )
    gradient = mps.MPSMatrixFullyConnectedGradient(alpha=0.5, backend=backend)
    close(gradient.encode_gradient_for_data(MPSMatrix(G), MPSMatrix(W)).data[0], 0.5 * G @ W.T)
    biases = vector(*np.zeros(6))
    dw = gradient.encode_gradient_for_weights_and_bias(MPSMatrix(G), MPSMatrix(X), None, biases)
    close(dw.data[0], 0.5 * X.T @ G)
    close(biases.data[0], [*G.sum(axis=0), 0])


def test_origins_limits_and_batches_select_elements(backend: str) -> None:
    x, w = RNG.normal(size=(3, 5, 6)).astype(np.float32), RNG.normal(size=(3, 7, 4)).astype(np.float32)
    layer = mps.MPSMatrixFullyConnected(
        primary_source_matrix_origin=(1, 2, 0), secondary_source_matrix_origin=(3, 1, 0),
        result_matrix_origin=(2, 1, 0),
        source_number_of_feature_vectors=3, source_input_feature_channels=3, source_output_feature_channels=2,
        batch_start=1, batch_size=2, backend=backend,
    )  # fmt: skip
    result = MPSMatrix(np.full((4, 6, 4), 7, np.float32))
    assert layer.encode(MPSMatrix(x), MPSMatrix(w), None, result) is result
    expected = np.full((4, 6, 4), 7, np.float32)
    expected[1:3, 2:5, 1:3] = x[1:, 1:4, 2:5] @ w[1:, 3:6, 1:3]
    close(result.data, expected)
    layer.source_input_feature_channels = mps.NSUIntegerMax
    assert layer.source_input_feature_channels is None
    layer.encode(MPSMatrix(x), MPSMatrix(w), None, result)
    expected[1:3, 2:5, 1:3] = x[1:, 1:4, 2:6] @ w[1:, 3:7, 1:3]
    close(result.data, expected)


def test_a_neuron_and_its_gradient(backend: str) -> None:
    bias = MPSVector(B)
    neuron = mps.MPSMatrixNeuron(alpha=-2, backend=backend)
    neuron.set_neuron_type("sigmoid")
    y = 1 / (1 + np.exp(-(-2 * G + B)))
    close(neuron.encode(MPSMatrix(G), bias).data[0], y)
    gradient = mps.MPSMatrixNeuronGradient(alpha=-2, neuron_descriptor=neuron.neuron_descriptor, backend=backend)
    upstream, biases = np.arange(20, dtype=np.float32).reshape(4, 5), vector(0, 0, 0, 0, 0)
    close(gradient.encode(MPSMatrix(upstream), MPSMatrix(G), bias, None, biases).data[0], -2 * upstream * y * (1 - y))
    close(biases.data[0], (upstream * y * (1 - y)).sum(axis=0))
    neuron.set_neuron_to_prelu_with_parameters_a([1, 2, 3, 4, 5])
    neuron.alpha = 1
    close(neuron.encode(MPSMatrix(G)).data[0], np.where(G < 0, G * [1, 2, 3, 4, 5], G))
    neuron.set_neuron_to_prelu_with_parameters_a([1, 2])
    with pytest.raises(mpsref.ShapeError, match="the neuron has 2 slopes; there must be one for each of 5 columns"):
        neuron.encode(MPSMatrix(G))


def test_batch_normalization_and_its_gradient(backend: str) -> None:
    torch = pytest.importorskip("torch")
    rows, gamma, beta = (RNG.normal(size=size).astype(np.float32) for size in ((6, 5), 5, 5))
    mean, variance = vector(*np.zeros(5)), vector(*np.zeros(5))
    kernel = mps.MPSMatrixBatchNormalization(epsilon=1e-2, compute_statistics=True, backend=backend)
    y = kernel.encode(MPSMatrix(rows), mean, variance, MPSVector(gamma), MPSVector(beta))
    x, g, b = (torch.tensor(array, requires_grad=True) for array in (rows, gamma, beta))
    expected = torch.nn.functional.batch_norm(x, None, None, g, b, training=True, eps=1e-2)
    close(y.data[0], expected.detach())
    close(mean.data[0], rows.mean(axis=0))
    close(variance.data[0], rows.var(axis=0))
    upstream = RNG.normal(size=(6, 5)).astype(np.float32)
    expected.backward(torch.tensor(upstream))
    dgamma, dbeta = vector(*np.zeros(5)), vector(*np.zeros(5))
    given = MPSMatrix(upstream), MPSMatrix(rows), mean, variance, MPSVector(gamma), MPSVector(beta)
    dx = mps.MPSMatrixBatchNormalizationGradient(epsilon=1e-2, backend=backend).encode(*given, None, dgamma, dbeta)
    for found, theirs in ((dx, x), (dgamma, g), (dbeta, b)):
        np.testing.assert_allclose(found.data[0], theirs.grad, 1e-4, 1e-4)
    kernel.compute_statistics = False
    fixed = kernel.encode(MPSMatrix(rows), vector(1, 1, 1, 1, 1), vector(4, 4, 4, 4, 4))
    close(fixed.data[0], (rows - 1) / np.sqrt(4.01))


@pytest.mark.parametrize("name", ["SoftMax", "LogSoftMax"])
def test_softmax_and_its_gradient(name: str, backend: str) -> None:
    torch = pytest.importorskip("torch")
    function = getattr(torch, "softmax" if name == "SoftMax" else "log_softmax")
    x = torch.tensor(np.stack([G, 2 * G]), requires_grad=True)
    expected = function(x, 2)
    y = getattr(mps, f"MPSMatrix{name}")(backend=backend).encode(MPSMatrix(np.stack([G, 2 * G])))
    close(y.data, expected.detach())
    upstream = RNG.normal(size=(2, 4, 5)).astype(np.float32)
    expected.backward(torch.tensor(upstream))
    dx = getattr(mps, f"MPSMatrix{name}Gradient")(backend=backend).encode(MPSMatrix(upstream), y)
    close(dx.data, x.grad)


def test_a_sum(backend: str) -> None:
    first, second = RNG.normal(size=(2, 4, 5)).astype(np.float32)
    total = mps.MPSMatrixSum(2, 2, 3, True, backend=backend)
    total.set_neuron_type("absolute")
    scales, offsets = vector(9, 2, -3), [(0, 0), (1, 2), (2, 0)]
    sources = [MPSMatrix(first), MPSMatrix(second)]
    found = total.encode(sources, None, scales, offsets, vector(0.5, -1), 1)
    expected = (2 * first[1:3, 2:5] - 3 * second[2:4, :3]).T + np.float32([0.5, -1])
    close(found.data[0], abs(expected))
    close(mps.MPSMatrixSum(2, 4, 5).encode(sources).data[0], first + second)
    with pytest.raises(TypeError, match="source_matrices must be a list of 2 MPSMatrix"):
        total.encode(sources[:1])
    with pytest.raises(mpsref.ShapeError, match="offset_vector has shape"):
        total.encode(sources, None, scales, offsets[:2], start_index=1)


def test_matrices_of_float16_stay_so(backend: str) -> None:
    half = MPSMatrix(G.astype(np.float16))
    if "float16" not in mpsref.registry.get_backend(backend).dtypes:
        pytest.skip("no float16")
    y = mps.MPSMatrixSoftMax(backend=backend).encode(half)
    assert y.data_type is mps.MPSDataType.Float16
    np.testing.assert_allclose(y.data[0].sum(axis=1), 1, 1e-2)


M = MPSMatrix(X)
WRONG = [
    (lambda: mps.MPSMatrixSoftMax().encode(X), TypeError, "input_matrix is of type ndarray; it must be an MPSMatrix"),
    (lambda: mps.MPSMatrixSoftMax(source_matrix_origin=(4, 0, 0)).encode(M), mpsref.ShapeError, "nothing to read"),
    (lambda: mps.MPSMatrixSoftMax(source_matrix_origin=(0, 0, 1)), ValueError, "source_matrix_origin.z is 1"),
    (lambda: mps.MPSMatrixSoftMax(source_rows=0), ValueError, "source_rows is 0"),
    (lambda: mps.MPSMatrixSoftMax(batch_start=1).encode(M), mpsref.ShapeError, "from matrix 1"),
    (lambda: mps.MPSMatrixSoftMax().encode(M, MPSMatrix(X[:2].copy())), mpsref.ShapeError, "it must hold"),
    (lambda: mps.MPSMatrixSoftMaxGradient().encode(M, MPSMatrix(W)), mpsref.ShapeError, "as of gradient_matrix"),
    (lambda: mps.MPSMatrixFullyConnected().encode(M, MPSMatrix(W), vector(1)), mpsref.ShapeError, "at least 5"),
    (lambda: mps.MPSMatrixFullyConnected(alpha=np.inf), ValueError, "alpha is inf"),
    (
        lambda: mps.MPSMatrixBatchNormalization().encode(MPSMatrix(np.stack([X, X])), vector(0, 0, 0), vector(1, 1, 1)),
        mpsref.ShapeError,
        "statistics are those of one: set batch_size to 1",
    ),
    (lambda: mps.MPSMatrixNeuron().encode(mps.MPSCommandBuffer()), TypeError, "command_buffer"),
]


@pytest.mark.parametrize(("call", "error", "words"), WRONG, ids=[row[2] for row in WRONG])
def test_wrong_arguments_of_encodes(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_nothing_is_written_after_a_commit() -> None:
    buffer, result = mps.MPSCommandBuffer(), MPSMatrix(np.full((4, 3), 7, np.float32))
    buffer.commit()
    with pytest.raises(OrderError):
        mps.MPSMatrixSoftMax().encode(M, result, command_buffer=buffer)
    with pytest.raises(OrderError):
        M.synchronize(buffer)
    assert (result.data == 7).all()
