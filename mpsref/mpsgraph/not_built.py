"""Operations of MPSGraph for training that mpsref does not build: calls raise an error.

>>> lstm()  # doctest: +ELLIPSIS
Traceback (most recent call last):
mpsref.errors.UnsupportedError: lstm (macOS 12.3) is not built: mpsref has no recurrent kernels; ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Never, TypeAlias

from mpsref.errors import UnsupportedError

Refusing: TypeAlias = Callable[..., Never]

VOLUMES = "mpsref has kernels of images alone, of two axes and a channel"
FOUR = f"{VOLUMES}; where at most two axes have a kernel larger than 1, move them to H and W and use the 2-D form"
THREE = f"{VOLUMES}; where the kernel is 1 along an axis, move that axis to the batch and use the 2-D form"
RECURRENT = "mpsref has no recurrent kernels; unroll it with matrix_multiplication, addition and sigmoid"


def _refusing(name: str, since: str, why: str) -> Refusing:
    def refuse(*args: object, **kwargs: object) -> Never:
        raise UnsupportedError(f"{name} (macOS {since}) is not built: {why}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = f"Raise ``UnsupportedError``: {why}."
    return refuse


convolution_3d = _refusing("convolution_3d", "13.2", THREE)
convolution_3d_data_gradient = _refusing("convolution_3d_data_gradient", "13.2", THREE)
convolution_3d_weights_gradient = _refusing("convolution_3d_weights_gradient", "13.2", THREE)
depthwise_convolution_3d = _refusing("depthwise_convolution_3d", "12.0", THREE)
depthwise_convolution_3d_data_gradient = _refusing("depthwise_convolution_3d_data_gradient", "12.0", THREE)
depthwise_convolution_3d_weights_gradient = _refusing("depthwise_convolution_3d_weights_gradient", "11.0", THREE)
max_pooling_4d = _refusing("max_pooling_4d", "12.0", FOUR)
max_pooling_4d_return_indices = _refusing("max_pooling_4d_return_indices", "12.2", FOUR)
max_pooling_4d_gradient = _refusing("max_pooling_4d_gradient", "12.0", FOUR)
avg_pooling_4d = _refusing("avg_pooling_4d", "12.0", FOUR)
avg_pooling_4d_gradient = _refusing("avg_pooling_4d_gradient", "12.0", FOUR)
l2_norm_pooling_4d = _refusing("l2_norm_pooling_4d", "12.0", FOUR)
l2_norm_pooling_4d_gradient = _refusing("l2_norm_pooling_4d_gradient", "12.0", FOUR)
single_gate_rnn = _refusing("single_gate_rnn", "12.3", RECURRENT)
lstm = _refusing("lstm", "12.3", RECURRENT)
gru = _refusing("gru", "13.0", RECURRENT)
