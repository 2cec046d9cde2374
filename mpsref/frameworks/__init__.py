"""Problems of mpsref in the terms of PyTorch, TensorFlow, ONNX and JAX, for adapters of frameworks.

:mod:`mpsref.padding` turns the arguments of a framework into offset and output size. This package is the inverse, and
what else an adapter needs: a second way for geometries that a framework does not have, the layouts of weights, and
operations that frameworks compute in one. It imports no framework.
"""

from mpsref.frameworks.adapter import AdaptedCall, Framework, adapted, adapted_transposed
from mpsref.frameworks.exchange import (
    WEIGHT_LAYOUTS,
    TrainingResult,
    logits,
    per_image,
    training_batch_normalization,
    weights_from,
    weights_to,
)
from mpsref.frameworks.explicit_padding import (
    Selection,
    canonical,
    counted,
    divided,
    unpadded,
    with_explicit_padding,
    without_padding,
)
from mpsref.frameworks.words import CallArguments, jax, onnx, pytorch, tensorflow

__all__ = [
    "WEIGHT_LAYOUTS",
    "AdaptedCall",
    "CallArguments",
    "Framework",
    "Selection",
    "TrainingResult",
    "adapted",
    "adapted_transposed",
    "canonical",
    "counted",
    "divided",
    "jax",
    "logits",
    "onnx",
    "per_image",
    "pytorch",
    "tensorflow",
    "training_batch_normalization",
    "unpadded",
    "weights_from",
    "weights_to",
    "with_explicit_padding",
    "without_padding",
]
