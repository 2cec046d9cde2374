"""Run functions of TensorFlow on arrays (N, H, W, C), eagerly."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np

from mpsref.arguments.arrays import Array
from mpsref.frameworks import call_text
from mpsref.frameworks.adapter import Framework, Function, Tensor


class TensorFlow(Framework):
    """TensorFlow on the CPU."""

    title = "TensorFlow"
    package = "tensorflow"
    syntax = call_text.Syntax(
        "import numpy as np, tensorflow as tf",
        "tf.constant({}, tf.float32)",
        "tf.random.normal({})",
        "with tf.GradientTape() as tape:\n    tape.watch([{names}])\n    y = {call}\ntape.gradient(y, [{names}], g)",
    )
    refusals = ("only supports", "not supported", "not implemented", "No OpKernel", "Current implementation")

    def described(self) -> str:
        """Return device and version, of the package that is installed; without an import, which starts threads."""
        for package in ("tensorflow", "tensorflow-cpu"):
            with contextlib.suppress(metadata.PackageNotFoundError):
                return f"CPU, TensorFlow {metadata.version(package)}"
        return "CPU, TensorFlow"

    @property
    def tf(self) -> Any:
        """The module."""
        import tensorflow

        return call_text.named("tf", tensorflow)

    @property
    def layers(self) -> Any:
        """The layers of Keras, which are built before they are called: no expression is their text."""
        import tensorflow

        return tensorflow.keras.layers

    def tensor(self, array: Array) -> Tensor:
        """Return an array as a tensor."""
        return self.tf.constant(np.ascontiguousarray(array))

    def array(self, tensor: Tensor) -> Array:
        """Return a tensor as an array."""
        found: Array = tensor.numpy()
        return found

    def on_device(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which new tensors are on the CPU."""
        context: contextlib.AbstractContextManager[Any] = self.tf.device("/CPU:0")
        return context

    def differentiate(self, function: Function, tensors: list[Tensor], g: Tensor, count: int) -> Sequence[Tensor]:
        """Return the gradients by ``tf.GradientTape``."""
        with self.tf.GradientTape() as tape:
            tape.watch(tensors[:count])
            y = function(*tensors)
        zero = self.tf.UnconnectedGradients.ZERO
        found = tape.gradient(y, tensors[:count], output_gradients=g, unconnected_gradients=zero)
        return [self.tf.convert_to_tensor(one) for one in found]
