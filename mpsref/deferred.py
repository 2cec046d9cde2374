"""Backends whose kernels are imported at their first use: most programs need a few of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mpsref.registry import Implementation, Operation, OperationKey

__all__ = ["Deferred"]

KERNELS = "mpsref.kernels."
"""Where the specs of this package live."""


class Deferred(Mapping[OperationKey, Implementation]):
    """A backend's implementations of whole kernels, whose modules are imported at their first use.

    ``families`` says which module of ``package`` has which kernels, by the names of their specs; each module has a
    table ``IMPLEMENTATIONS``. ``adapted`` turns its functions into implementations.
    """

    def __init__(
        self,
        package: str,
        families: Mapping[str, Iterable[str]],
        adapted: Callable[[Any], Implementation] = lambda function: function,
    ) -> None:
        """Keep all that for later."""
        self._homes = {spec: f"{package}.{module}" for module, specs in families.items() for spec in specs}
        self._adapted = adapted
        self._found: dict[OperationKey, Implementation] = {}

    def __contains__(self, key: object) -> bool:
        if key in self._found:
            return True
        if not isinstance(key, tuple):
            return False
        spec_type, method = key
        return self._known(spec_type) and method in spec_type.problems

    def _known(self, spec_type: type[Any]) -> bool:
        return spec_type.__name__ in self._homes and spec_type.__module__.startswith(KERNELS)

    def __getitem__(self, key: OperationKey) -> Implementation:
        found = self._found.get(key)
        if found is None:
            if key not in self:
                raise KeyError(key)
            found = self._found[key] = self._at_first_call(key)
        return found

    def _at_first_call(self, key: OperationKey) -> Implementation:
        """Return an implementation that imports its module when it is called, and gives way to what is there."""

        def first(*args: Any, **kwargs: Any) -> None:
            if self._found[key] is first:
                module = importlib.import_module(self._homes[key[0].__name__])
                self._found[key] = self._adapted(module.IMPLEMENTATIONS[key])
            self._found[key](*args, **kwargs)

        return first

    def __iter__(self) -> Iterator[OperationKey]:
        from mpsref.kernels import SPECS  # all kernels, which nobody who uses one of them needs

        for spec_type in SPECS:
            if self._known(spec_type):
                yield from (Operation(spec_type, method) for method in spec_type.problems)

    def __len__(self) -> int:
        return sum(1 for _ in self)
