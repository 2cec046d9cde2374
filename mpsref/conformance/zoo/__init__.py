"""Real layers by name: the geometries of published networks, next to the random cases.

Each row is written in the words of the framework that published the layer, and :mod:`mpsref.padding` turns them into
an offset and an output size, so that a row can be compared with its source at a glance. There is one module a kernel
family, with its layers and the networks that they are of.

>>> from mpsref.conformance import zoo
>>> layer = zoo.by_name("inception_v3.mixed_5b")
>>> layer.spec
PoolingAverage(kernel_size=(3, 3), strides=(1, 1), offset=(0, 0), edge_mode='clamp', zero_pad_size=(1, 1))
>>> layer.source_shape, layer.call["output_size"]
((4, 35, 35, 192), (35, 35))
"""

from __future__ import annotations

from importlib import import_module

from mpsref.conformance.zoo.layer import Layer

__all__ = ["LAYERS", "NETWORKS", "Layer", "by_name"]

FAMILIES = tuple(
    import_module(f"{__name__}.{name}")
    for name in (
        *("arithmetic", "batch_normalization", "convolution", "dropout", "loss", "movement", "neuron", "normalization"),
        *("optimizers", "pooling", "reduce", "softmax", "upsampling"),
    )
)

NETWORKS: dict[str, str] = {key: text for family in FAMILIES for key, text in family.NETWORKS.items()}
"""The networks, by the first part of the names of their layers, with the size of their input images."""

LAYERS: tuple[Layer, ...] = tuple(layer for family in FAMILIES for layer in family.LAYERS)
"""Every layer there is."""


def by_name(name: str) -> Layer:
    """Return the layer of this name; raise ``ValueError`` for one that is not in :data:`LAYERS`."""
    for layer in LAYERS:
        if layer.name == name:
            return layer
    network = name.partition(".")[0]
    near = [layer.name for layer in LAYERS if layer.name.partition(".")[0] == network] or sorted(NETWORKS)
    raise ValueError(f"no layer is called {name!r}; known here: {', '.join(near)}")
