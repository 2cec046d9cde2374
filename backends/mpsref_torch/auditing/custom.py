"""Functions with a backward pass of their own, each against the derivative of its own forward pass."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, Function
from torch.overrides import TorchFunctionMode

from mpsref.arguments.arrays import Array
from mpsref.conformance import derivative
from mpsref.conformance.audit import Compared
from mpsref.frameworks.adapter import Tensor
from mpsref_torch.auditing.layer import RecordedCall
from mpsref_torch.auditing.sampled import array


class Context:
    """What ``forward`` gets in place of the context of autograd: it keeps what it is given."""

    needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors."""
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def _nothing(self, *args: Any) -> None:
        """Ignore what only concerns autograd."""

    mark_dirty = mark_non_differentiable = mark_shared_storage = set_materialize_grads = _nothing


@dataclass(eq=False)
class Applied:
    """One call of a ``torch.autograd.Function``."""

    seen: RecordedCall
    cls: Any
    arguments: tuple[Any, ...]
    outputs: list[Tensor]
    """Copies of the results."""
    random: Tensor
    covered: RecordedCall | None = None
    """The module that only calls it, if that was compared as a whole."""
    g: tuple[Any, ...] = ()
    """Copies of the gradients of the results."""
    found: tuple[Any, ...] = ()
    """Copies of what its backward returned for the wanted arguments."""
    changes_g: bool = False
    """Whether its backward changed the gradients that it got."""
    wanted: list[int] = field(default_factory=list)
    """Positions of the arguments that require a gradient."""


def where(cls: Any) -> str:
    """Return file and line of a class."""
    try:
        return f"{Path(inspect.getsourcefile(cls) or '').name}:{inspect.getsourcelines(cls)[1]}"
    except (OSError, TypeError):
        return str(cls.__module__)


def of_pytorch(cls: Any) -> bool:
    """Return whether a function is a part of PyTorch that computes nothing of its own, such as a checkpoint."""
    module = str(cls.__module__)
    return module.startswith("torch.") and not module.startswith("torch._library")


BASE: Any = next(one for one in Function.__mro__[1:] if "apply" not in vars(one))
"""A base class of ``Function`` whose ``apply`` that of ``Function`` calls, also where it was bound before."""

ALONE = threading.RLock()
"""Held while ``BASE`` is changed: an audit in another thread waits."""


@contextlib.contextmanager
def applying(record: Callable[[Any, tuple[Any, ...], Callable[..., Any]], Any]) -> Iterator[None]:
    """Call ``record(class, arguments, apply)`` for every function that is applied in this thread."""
    thread = threading.get_ident()
    with ALONE:
        before = vars(BASE).get("apply")  # of an audit around this one

        def apply(cls: Any, *args: Any, **keywords: Any) -> Any:
            own = super(BASE, cls).apply
            if keywords or threading.get_ident() != thread:
                return own(*args, **keywords)
            return record(cls, args, own)

        BASE.apply = classmethod(apply)
        try:
            yield
        finally:
            if before is None:
                del BASE.apply
            else:
                BASE.apply = before


def class_of(node: Any) -> Any:
    """Return the ``Function`` of a node, or ``None`` for an operation of PyTorch or of C++.

    No public name leads from a node to its class, and a name may belong to several.
    """
    return getattr(node, "_forward_cls", None)


def node_of(output: Tensor, cls: Any) -> Any:
    """Return the node of a function that computed a tensor, or ``None``."""
    pending = [output.grad_fn]
    for _ in range(8):
        node = pending.pop(0) if pending else None
        if node is None:
            return None
        if class_of(node) is cls:
            return node
        pending += [following for following, _ in node.next_functions]
    return None


def is_stranger(node: Any) -> bool:
    """Return whether a node is no operation of PyTorch."""
    return isinstance(node, BackwardCFunction) or "CppNode" in node.name()


def nodes(root: Any) -> Iterator[Any]:
    """Yield the nodes of a graph."""
    pending, known = [root], {root}
    while pending:
        node = pending.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in known:
                known.add(following)
                pending.append(following)


# --- one call ---------------------------------------------------------------------------------------------------------


def check(applied: Applied) -> None:
    """Compare the gradients of a call with the derivative of its forward pass."""
    if applied.changes_g:
        message = "its backward changes it in place; other functions may get the same tensor"
        applied.seen.compared.append(Compared("gradient of the result", float("inf"), message))
    with torch.random.fork_rng(devices=[]):
        _Call(applied).check()


class _Call(derivative.Applied):
    """A call, for what compares its gradients: with arrays in place of tensors."""

    def __init__(self, applied: Applied) -> None:
        self.applied, self.step, self.wanted = applied, applied.seen, applied.wanted
        self.arguments = [_double(one) if _is_number(one) else one for one in applied.arguments]
        self.unit = max(_unit(applied.arguments[k]) for k in applied.wanted)
        self.outputs = _arrays(applied.outputs)
        self.g, self.found = _arrays(applied.g), _arrays(applied.found)

    def name(self, k: int) -> str:
        cls = self.applied.cls
        skipped = int(cls.setup_context is Function.setup_context)  # the context
        return derivative.parameter(cls.forward, k + skipped) or super().name(k)

    def _tensors(self, arguments: Sequence[Any], dtype: torch.dtype | None = None) -> list[Any]:
        """Return new tensors of the arguments; numbers in a type, by default their own."""
        return [
            torch.as_tensor(new).to(old.device, dtype or old.dtype, copy=True)
            if _is_number(old)
            else old.clone()
            if isinstance(old, torch.Tensor)
            else old
            for new, old in zip(arguments, self.applied.arguments, strict=True)
        ]

    def _forward(self, arguments: list[Any]) -> list[Any]:
        applied = self.applied
        torch.set_rng_state(applied.random)
        old = applied.cls.setup_context is Function.setup_context
        context = Context()
        context.needs_input_grad = tuple(k in applied.wanted for k in range(len(arguments)))
        return _listed(applied.cls.forward(*([context] if old else []), *arguments))

    def forward(self, arguments: Sequence[Any]) -> list[Array | None]:
        with torch.no_grad():
            return _arrays(self._forward(self._tensors(arguments, torch.float64)))

    def inside(self) -> float:
        given = self._tensors(self.arguments, torch.float64)
        with torch.no_grad(), _Types() as types:
            self._forward(given)
        return float(types.unit)

    def derivative(self, arguments: Sequence[Any]) -> list[Array]:
        given = self._tensors(arguments, torch.float64)
        leaves = [given[k].requires_grad_() for k in self.wanted]
        with torch.enable_grad():
            outputs = self._forward([one.clone() if isinstance(one, torch.Tensor) else one for one in given])
        pairs = [
            (y, g.to(y.dtype))
            for y, g in zip(outputs, self.applied.g, strict=False)
            if isinstance(y, torch.Tensor) and g is not None and y.requires_grad
        ]
        if not pairs or any(is_stranger(node) for y, _ in pairs for node in nodes(y.grad_fn)):
            raise TypeError("its forward is not made of operations that PyTorch differentiates")
        found = torch.autograd.grad([y for y, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
        return [_double(torch.zeros_like(x) if dx is None else dx) for x, dx in zip(leaves, found, strict=True)]

    def again(self, arguments: Sequence[Any], *, double: bool = False) -> list[Array | None]:
        torch.set_rng_state(self.applied.random)
        with torch.no_grad():
            given = self._tensors(arguments, torch.float64 if double else None)
            results = _listed(self.applied.cls.apply(*given))
        if double and not all(y.dtype == torch.float64 for y in results if _is_number(y)):
            raise TypeError("its results are not in float64")
        return _arrays(results)

    def image(self, array: Array) -> Array:
        return array.transpose(0, 2, 3, 1) if array.ndim == 4 else array


class _Types(TorchFunctionMode):  # type: ignore[misc]  # PyTorch need not be installed
    """Keeps the largest unit roundoff of the tensors that functions return."""

    unit = 2.0**-53

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of PyTorch."""
        found = func(*args, **(kwargs or {}))
        self.unit = max([self.unit, *(_unit(one) for one in _listed(found) if _is_number(one))])
        return found


def _listed(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _is_number(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.is_floating_point()


def _unit(tensor: Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps) / 2


def _double(tensor: Tensor) -> Array:
    found: Array = tensor.detach().double().cpu().numpy()
    return found


def _arrays(found: Sequence[Any]) -> list[Array | None]:
    return [array(one) if _is_number(one) else None for one in found]
