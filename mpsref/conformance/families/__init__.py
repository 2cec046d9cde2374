"""The families of kernels under test. They are discovered, not listed.

A family is the :class:`~mpsref.conformance.family.Family` called ``FAMILY`` of a module in this package, the object
that another package names by an entry point of the group ``mpsref.families``, or an argument of :func:`register`.

>>> from mpsref.conformance import families
>>> [family.name for family in families.load()][:4]
['arithmetic', 'batch_normalization', 'chain', 'convolution']
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from importlib import metadata

from mpsref.conformance.case import operations
from mpsref.conformance.family import Family, KernelTests
from mpsref.conformance.golden_entries import Adapter
from mpsref.conformance.mutants import Mutant, common_mutants, memory_mutants, nonfinite_mutants
from mpsref.conformance.runner import Property
from mpsref.errors import loaded
from mpsref.registry import Operation, Spec

ENTRY_POINT_GROUP = "mpsref.families"

_registered: dict[str, Family] = {}


def register(family: Family) -> Family:
    """Add a family in this process; one of the same name that was registered before is replaced.

    Parameters
    ----------
    family : Family
        The family of kernels.

    Returns
    -------
    Family
        The same family.
    """
    _registered[family.name] = family
    return family


def load() -> tuple[Family, ...]:
    """Return all families: those of this package, those of installed packages, then the registered ones."""
    return (*_discovered(), *_registered.values())


@functools.cache
def _discovered() -> tuple[Family, ...]:
    points = sorted(metadata.entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)
    installed: list[Family] = [loaded(point) for point in points]
    modules = (importlib.import_module(f"{__name__}.{name}") for _, name, _ in pkgutil.iter_modules(__path__))
    return (*sorted((module.FAMILY for module in modules), key=lambda family: family.name), *installed)


def is_discovered(operation: Operation) -> bool:
    """Return whether other processes find the family of ``operation``."""
    return any(operation.spec_type in family.kernels for family in _discovered())


def family_of(spec_type: type[Spec]) -> Family:
    """Return the family of a kernel; raise ``ValueError`` if no family has it."""
    for family in load():
        if spec_type in family.kernels:
            return family
    raise ValueError(
        f"no family has tests of kernel {spec_type.__name__!r}; name one by an entry point of the group "
        f"{ENTRY_POINT_GROUP!r}, or pass it to mpsref.conformance.families.register"
    )


def kernel_tests(spec_type: type[Spec]) -> KernelTests:
    """Return the tests of a kernel."""
    return family_of(spec_type).kernels[spec_type]


def properties(operation: Operation) -> tuple[Property, ...]:
    """Return the properties of an operation."""
    return kernel_tests(operation.spec_type).properties[operation.method]


def mutants() -> tuple[Mutant, ...]:
    """Return the mutants of all operations; those of memory only for the first operation of each family."""
    found: list[Mutant] = []
    of_memory: dict[str, Operation] = {}
    for operation in operations():
        family = family_of(operation.spec_type)
        tests = family.kernels[operation.spec_type]
        equivalent = tests.equivalent_mutants.get(operation.method, frozenset())
        memory = memory_mutants() if of_memory.setdefault(family.name, operation) == operation else {}
        nonfinite = nonfinite_mutants() if operation.method in tests.nonfinite else {}
        common = {**memory, **common_mutants(), **nonfinite}
        common = {name: run for name, run in common.items() if name not in equivalent}
        table = {**common, **family.mutants.get(operation, {})}
        found += [Mutant(name, operation, run) for name, run in table.items()]
    return tuple(found)


def golden_adapters() -> dict[str, Adapter]:
    """Return the adapter of each MPS class that has one."""
    return {name: adapter for family in load() for name, adapter in family.golden.items()}


def together() -> dict[type[Spec], tuple[str, ...]]:
    """Return the methods of each kernel of which frameworks compute several in one."""
    return {kernel: methods for family in load() for kernel, methods in family.together.items()}
