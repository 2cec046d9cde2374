"""A family of kernels under test: everything that the suite and the benchmark need in order to handle its kernels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable

from hypothesis import strategies as st

from mpsref.conformance.golden_entries import Adapter
from mpsref.conformance.layer import Layer
from mpsref.conformance.mutants import MutantTable
from mpsref.conformance.runner import Property
from mpsref.registry import OperationKey, Problem, Spec


@dataclass(frozen=True)
class KernelTests:
    """How one kernel is tested.

    Parameters
    ----------
    problems
        Returns a strategy that draws problems of a method.
    properties
        The properties of each method, checked in addition to agreement with the reference.
    equivalent_mutants
        By method, the names of the common mutants that are equivalent to a correct implementation, such as a wrong
        layout of a result that is no image.
    nonfinite
        The methods that are also tested on data with NaN and infinities: those that select, compare or copy elements.
    by_framework
        As ``problems``, those that the arguments of a framework describe. Backends that compile few problems get these.
    """

    problems: Callable[[str], st.SearchStrategy[Problem]]
    properties: Mapping[str, tuple[Property, ...]]
    equivalent_mutants: Mapping[str, frozenset[str]] = field(default_factory=dict)
    nonfinite: Collection[str] = ()
    by_framework: Callable[[str], st.SearchStrategy[Problem]] | None = None


@dataclass(frozen=True, eq=False)
class Family:
    """Kernels that are tested by one module.

    Parameters
    ----------
    name
        The name of the module, and of the file of layers.
    kernels
        The tests of each kernel.
    mutants
        By operation, the mutants in addition to those that any kernel can have.
    golden
        By MPS class, the adapter that runs its golden entries.
    together
        By kernel, the several operations that frameworks compute in one.
    layer
        Returns the layer of a row of the file of layers; the keys of the row are its arguments.
    layers
        The file of layers; by default ``layers/<name>.toml`` of this package, if there is one.
    """

    name: str
    kernels: Mapping[type[Spec], KernelTests] = field(default_factory=dict)
    mutants: Mapping[OperationKey, MutantTable] = field(default_factory=dict)
    golden: Mapping[str, Adapter] = field(default_factory=dict)
    together: Mapping[type[Spec], tuple[str, ...]] = field(default_factory=dict)
    layer: Callable[..., Layer] = Layer.read
    layers: Traversable | None = None
