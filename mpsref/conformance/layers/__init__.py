"""Layers of published networks by name, in addition to random cases.

There is a TOML file for each family of kernels, with one row for each layer. Where windows are padded, the row has the
arguments of the framework that published the layer, which :mod:`mpsref.padding` converts into an offset and an output
size, so that a row can be compared with its source.

>>> from mpsref.conformance import layers
>>> layer = layers.by_name("inception_v3.mixed_5b")
>>> layer.spec
PoolingAverage(kernel_size=(3, 3), strides=(1, 1), offset=(0, 0), edge_mode='clamp', zero_pad_size=(1, 1))
>>> layer.source_shape, layer.call["output_size"]
((4, 35, 35, 192), (35, 35))
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from mpsref.arguments.text import near, shown
from mpsref.conformance import families
from mpsref.conformance.family import Family
from mpsref.conformance.layer import Layer

HERE = resources.files(__name__)


def load(*kernels: str) -> tuple[Layer, ...]:
    """Return all layers, or those of some kernels, family by family.

    >>> len(load("PoolingL2Norm"))
    11
    """
    everything = (layer for family in families.load() for layer in _read(family)[1])
    return tuple(layer for layer in everything if not kernels or type(layer.spec).__name__ in kernels)


def networks() -> dict[str, str]:
    """Return the networks by the first part of the names of their layers."""
    return _published() | {name: text for family in families.load() for name, text in _read(family)[0].items()}


@functools.cache
def _published() -> dict[str, str]:
    return tomllib.loads(HERE.joinpath("networks.toml").read_text("utf-8"))


@functools.cache
def _read(family: Family) -> tuple[dict[str, str], tuple[Layer, ...]]:
    """Return the networks that only the file of this family has, and its layers."""
    file = family.layers or HERE.joinpath(f"{family.name}.toml")
    if not file.is_file():
        return {}, ()
    table = tomllib.loads(file.read_text("utf-8"))
    kernels = {kernel.__name__: kernel for kernel in family.kernels}
    own = table.get("networks", {})
    known = _published() | own
    layers = []
    for row in table["layers"]:
        named = {
            "network": _entry(file, row, "network", row["name"].partition(".")[0], known),
            "kernel": _entry(file, row, "kernel", row["kernel"], kernels),
        }
        layers.append(family.layer(**{key: _tuples(value) for key, value in row.items()} | named))
    return own, tuple(layers)


def _entry(file: Traversable, row: Mapping[str, Any], kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """Return the network or the kernel of a row; raise ``ValueError`` for an unknown one."""
    if name in known:
        return known[name]
    remedy = f'describe it in the table [networks] of this file, as {name} = "Network, size of its images"'
    if kind == "kernel":
        remedy = f"those of this family are {', '.join(known)}"
    raise ValueError(f"{file.name}: layer {row['name']!r} names the {kind} {name!r}{near(name, known)}; {remedy}")


def _tuples(value: Any) -> Any:
    """Return a TOML value with tuples in place of lists."""
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return {key: _tuples(one) for key, one in value.items()} if isinstance(value, dict) else value


def by_name(name: str) -> Layer:
    """Return the layer of this name; raise ``ValueError`` for an unknown one."""
    everything = {layer.name: layer for layer in load()}
    if name in everything:
        return everything[name]
    network = name.partition(".")[0]
    near = [known for known in everything if known.partition(".")[0] == network] or sorted(networks())
    raise ValueError(f"no layer is called {shown(name)}; known here: {', '.join(near)}")
