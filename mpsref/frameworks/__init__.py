"""Problems of mpsref in the terms of PyTorch, TensorFlow, ONNX and JAX, for adapters of frameworks.

:mod:`mpsref.padding` turns the arguments of a framework into offset and output size. This package is the inverse, and
what else an adapter needs: a second way for geometries that a framework does not have, the layouts of weights, and
operations that frameworks compute in one. It imports no framework.
"""

from mpsref.frameworks.adapter import Framework, Way, transposed_way, way
from mpsref.frameworks.exchange import (
    WEIGHT_LAYOUTS,
    TrainingResult,
    logits,
    per_image,
    training_batch_normalization,
    weights_from,
    weights_to,
)
from mpsref.frameworks.grown import Selection, canonical, counted, divided, grown, unpadded, without_padding
from mpsref.frameworks.words import Words, jax, onnx, pytorch, tensorflow

__all__ = [
    "WEIGHT_LAYOUTS",
    "Framework",
    "Selection",
    "TrainingResult",
    "Way",
    "Words",
    "canonical",
    "counted",
    "divided",
    "grown",
    "jax",
    "logits",
    "onnx",
    "per_image",
    "pytorch",
    "tensorflow",
    "training_batch_normalization",
    "transposed_way",
    "unpadded",
    "way",
    "weights_from",
    "weights_to",
    "without_padding",
]
