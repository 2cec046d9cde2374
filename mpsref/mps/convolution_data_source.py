"""Where a convolution gets its weights from: the protocol of data sources, and one that holds arrays.

>>> from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
>>> source = ArrayConvolutionDataSource(MPSCNNConvolutionDescriptor(3, 1, 1, 1), [1, 10, 100], [0.5])
>>> source.weights().shape, source.bias_terms()
((1, 1, 3, 1), array([0.5], dtype=float32))

Source: ``MPSCNNConvolutionDataSource`` in ``MPSCNNConvolution.h`` [doc].
"""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.mps.convolution_descriptor import MPSCNNConvolutionDescriptor
from mpsref.mps.core.serialization import SecureCoding, secure_coding

__all__ = ["ArrayConvolutionDataSource", "MPSCNNConvolutionDataSource"]


class MPSCNNConvolutionDataSource(Protocol):
    """What a kernel asks for when it is made and when it reloads: always between ``load`` and ``purge``.

    The calls come in one order: ``load``, ``data_type``, ``descriptor``, ``weights``, ``bias_terms``, those for 8-bit
    weights, ``weights_layout``, ``kernel_weights_data_type``, ``label``, ``purge``; the last one in any case.
    Everything is copied before ``purge``, so arrays need not outlive it, and later changes wait for a reload.

    Optional methods: ``weights_quantization_type()`` and ``ranges_for_uint8_kernel()``, float32 (Co, 2) of minimum and
    maximum, or ``lookup_table_for_uint8_kernel()``, float32 (256,), which 8-bit weights need; ``weights_layout()``;
    ``kernel_weights_data_type()``, what weights are rounded to before use, "float16" where the method is missing [doc];
    ``copy_with_device(device)`` or ``copy()``, for copies of a kernel; ``update(gradient_state, source_state,
    command_buffer=None)`` and ``update_cpu(gradient_state, source_state)``, which a training graph calls.
    """

    def load(self) -> bool:
        """Make the data ready; ``False`` says that this failed."""

    def data_type(self) -> Any:
        """Return the dtype of the weights: "uint8", "float16" or "float32"."""

    def descriptor(self) -> MPSCNNConvolutionDescriptor:
        """Return the descriptor of the convolution."""

    def weights(self) -> Array:
        """Return the weights in the order of ``descriptor().weights_shape``, shaped like that or flat."""

    def bias_terms(self) -> Array | None:
        """Return the biases, float32 (Co,) whatever the weights are, or ``None``."""

    def label(self) -> str | None:
        """Return a name for people, or ``None``."""

    def purge(self) -> None:
        """Let go of what ``load`` has made ready."""


@secure_coding(version=1, arguments=("descriptor", "weights", "biases", "kernel_weights_data_type", "label"))
class ArrayConvolutionDataSource(SecureCoding):
    """A data source that holds float32 arrays; kernels use them unrounded, unless ``kernel_weights_data_type`` says so.

    ``weights_array`` and ``biases_array`` (or ``None``) are copies of what is passed in, and yours to change: a kernel
    sees a change when it reloads.
    """

    def __init__(
        self,
        descriptor: MPSCNNConvolutionDescriptor,
        weights: Any,
        biases: Any = None,
        kernel_weights_data_type: Any = "float32",
        label: str | None = None,
    ) -> None:
        """Copy the arrays; they, and the descriptor, are checked by the kernel that loads them.

        Flat weights of the right size get the shape of the layout. Raises ``TypeError`` for what are no numbers.
        """
        if not isinstance(descriptor, MPSCNNConvolutionDescriptor):
            raise TypeError(
                f"descriptor is of type {type(descriptor).__name__}; it must be an MPSCNNConvolutionDescriptor"
            )
        self._descriptor, self._kernel_weights_data_type, self._label = descriptor, kernel_weights_data_type, label
        self.weights_array = _numbers("weights", weights)
        """The weights, float32."""
        if self.weights_array.ndim == 1 and self.weights_array.size == np.prod(descriptor.weights_shape):
            self.weights_array = self.weights_array.reshape(descriptor.weights_shape)
        self.biases_array = None if biases is None else np.atleast_1d(_numbers("biases", biases))
        """The biases, float32, or ``None``."""

    def load(self) -> bool:
        """Return ``True``: the arrays are always there."""
        return True

    def data_type(self) -> str:
        """Return "float32"."""
        return "float32"

    def descriptor(self) -> MPSCNNConvolutionDescriptor:
        """Return the descriptor that was passed in."""
        return self._descriptor

    def weights(self) -> Array:
        """Return ``weights_array``."""
        return self.weights_array

    def bias_terms(self) -> Array | None:
        """Return ``biases_array``."""
        return self.biases_array

    def kernel_weights_data_type(self) -> Any:
        """Return what kernels round the weights to before use: "float32" leaves them as they are."""
        return self._kernel_weights_data_type

    def label(self) -> str | None:
        """Return the label that was passed in."""
        return self._label

    def purge(self) -> None:
        """Do nothing: the arrays stay."""

    def copy(self) -> Self:
        """Return a data source of equal arrays and an equal descriptor; nothing is shared."""
        arrays = self.weights_array, self.biases_array
        return type(self)(self._descriptor.copy(), *arrays, self._kernel_weights_data_type, self._label)

    def saved_values(self) -> dict[str, Any]:
        """Return what is saved; arrays flat."""
        biases = self.biases_array
        return {
            "descriptor": self._descriptor,
            "weights": tuple(self.weights_array.ravel().tolist()),
            "biases": None if biases is None else tuple(biases.tolist()),
            "kernel_weights_data_type": np.dtype(self._kernel_weights_data_type).name,
            "label": self._label,
        }

    def __eq__(self, other: object) -> bool:
        """Whether both deliver the same."""
        return self.saved_values() == other.saved_values() if type(other) is type(self) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # arrays change

    def __repr__(self) -> str:
        biases = "without biases" if self.biases_array is None else "with biases"
        return f"<{type(self).__name__}: weights {self.weights_array.shape}, {biases}>"


def _numbers(name: str, value: Any) -> Array:
    """Return a float32 copy of an array of real numbers."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise TypeError(f"{name} cannot be read as an array of numbers: {error}") from error
    if array.dtype.kind not in "iuf":
        raise TypeError(f"{name} has dtype {array.dtype}; it must be an array of real numbers")
    return np.array(array, np.float32, order="C")
