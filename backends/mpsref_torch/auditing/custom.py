"""Functions with a backward pass of their own, each against the derivative of its own forward pass."""

from __future__ import annotations

import contextlib
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction, Function

from mpsref.conformance.audit import Check, Compared, Computed
from mpsref.frameworks.adapter import Tensor
from mpsref.kernels.reference import ErrorBound
from mpsref_torch.auditing.layer import Seen
from mpsref_torch.auditing.sampled import array

DIRECTIONS = 4
"""Random directions of the central differences for each input."""

INEXACT = 0.1
"""The largest relative error of central differences that decide."""

PERTURBED = 3
"""How often the inputs are perturbed for the error that roundings make in a derivative."""


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

    seen: Seen
    cls: Any
    arguments: tuple[Any, ...]
    outputs: list[Tensor]
    """Copies of the results."""
    random: Tensor
    covered: Seen | None = None
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


def strangers(root: Any) -> Iterator[Any]:
    """Yield the nodes of a graph that are no operations of PyTorch."""
    pending, known = [root], {root}
    while pending:
        node = pending.pop()
        if isinstance(node, BackwardCFunction) or "CppNode" in node.name():
            yield node
        for following, _ in node.next_functions:
            if following is not None and following not in known:
                known.add(following)
                pending.append(following)


# --- one call ---------------------------------------------------------------------------------------------------------


def check(applied: Applied) -> None:
    """Compare the gradients of a call with the derivative of its forward pass."""
    seen = applied.seen
    if not applied.g or all(g is None or not bool(g.any()) for g in applied.g):
        seen.reasons.append("its backward: the gradient of the result is 0 everywhere, or none reached it")
        return
    if not all(g is None or bool(g.isfinite().all()) for g in applied.g):
        seen.reasons.append("its backward: NaN or infinities in the gradient of the result")
        return
    if applied.changes_g:
        message = "its backward changes it in place; other functions may get the same tensor"
        seen.compared.append(Compared("gradient of the result", float("inf"), message))
    with torch.random.fork_rng(devices=[]):
        try:
            exact = _Exact(applied)
            checks = exact.checks()
        except Exception as error:  # what a user's function raises in float64 is anything
            checks, why = None, f"{type(error).__name__}: {error}"
        else:
            why = exact.why
        if checks is not None:
            seen.notes.append("its backward against the derivative of its forward in float64, by autograd")
            seen.judge(lambda: checks)
            return
        try:
            _by_differences(applied, why)
        except Exception as error:  # the same
            seen.reasons.append(f"its backward: its forward does not run again: {type(error).__name__}: {error}")


def _tensors(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _is_number(one: Any) -> bool:
    return isinstance(one, torch.Tensor) and one.is_floating_point()


def _double(one: Any) -> Any:
    return one.double() if _is_number(one) else one


def _unit(tensor: Tensor) -> float:
    return float(torch.finfo(tensor.dtype).eps) / 2


class _Exact:
    """The derivative of a forward pass that is made of PyTorch operations, in float64."""

    def __init__(self, applied: Applied) -> None:
        self.applied, self.why = applied, ""
        self.starts = [_double(one) for one in applied.arguments]

    def forward(self, arguments: Sequence[Any]) -> list[Any]:
        """Run the forward pass as a function of its arguments."""
        applied = self.applied
        torch.set_rng_state(applied.random)
        old = applied.cls.setup_context is Function.setup_context
        context = Context()
        context.needs_input_grad = tuple(k in applied.wanted for k in range(len(arguments)))
        given = [one.clone() if isinstance(one, torch.Tensor) else one for one in arguments]
        return _tensors(applied.cls.forward(*([context] if old else []), *given))

    def derivative(self, arguments: Sequence[Any]) -> list[Tensor]:
        """Return the product of the source gradient and the derivative for each wanted argument."""
        arguments = list(arguments)
        leaves = []
        for k in self.applied.wanted:
            arguments[k] = arguments[k].detach().clone().requires_grad_()
            leaves.append(arguments[k])
        with torch.enable_grad():
            outputs = self.forward(arguments)
        pairs = [
            (y, g.to(y.dtype))
            for y, g in zip(outputs, self.applied.g, strict=False)
            if isinstance(y, torch.Tensor) and g is not None and y.requires_grad
        ]
        if not pairs or any(True for y, _ in pairs for _ in strangers(y.grad_fn)):
            raise TypeError("its forward is not made of operations that PyTorch differentiates")
        found = torch.autograd.grad([y for y, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True)
        return [torch.zeros_like(x) if dx is None else dx for x, dx in zip(leaves, found, strict=True)]

    def checks(self) -> list[Check] | None:
        """Return the comparisons, or ``None`` if autograd does not see all of the forward pass."""
        applied, checks = self.applied, []
        right = self.derivative(self.starts)
        if not all(bool(dx.isfinite().all()) for dx in right):
            self.why = "its derivative has NaN or infinities"
            return None
        for k, dx in zip(applied.wanted, right, strict=True):
            direction = _signs(self.starts[k], 0)
            slope, error, size = _slope(self.forward, self.starts, k, direction, applied, 2.0**-53)
            if abs(float((dx * direction).sum()) - slope) > 4 * error + 1e-4 * size:
                self.why = "autograd does not see all of its forward pass"
                return None
        unit = max(_unit(applied.arguments[k]) for k in applied.wanted)
        spread = [torch.zeros_like(dx) for dx in right]
        for number in range(PERTURBED):
            moved = [one * (1 + 4 * unit * _signs(one, number)) if _is_number(one) else one for one in self.starts]
            for most, dx, other in zip(spread, right, self.derivative(moved), strict=True):
                torch.maximum(most, abs(other - dx), out=most)
        for k, dx, most, actual in zip(applied.wanted, right, spread, applied.found, strict=True):
            actual = torch.zeros_like(dx) if actual is None else actual
            if actual.shape != dx.shape:
                message = f"shape {tuple(actual.shape)}, expected {tuple(dx.shape)}"
                applied.seen.compared.append(Compared(f"gradient for argument {k}", float("inf"), message))
                continue
            typical = float(dx.square().mean().sqrt())
            limit = 4 * (most + float(most.square().mean().sqrt())) + 8 * unit * (abs(dx) + typical)
            axes = (0, 2, 3, 1) if dx.dim() == 4 else range(dx.dim())
            reference, given, bound = (array(one.permute(*axes)) for one in (dx, actual, limit))
            computed = Computed((reference,), (ErrorBound(bound),))
            checks.append(Check(computed, (), {f"gradient for argument {k}": given}))
        return checks


# --- central differences ----------------------------------------------------------------------------------------------


def _signs(tensor: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1)
    return (torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1).to(tensor)


def _slope(
    forward: Callable[[Sequence[Any]], list[Any]],
    arguments: Sequence[Any],
    k: int,
    direction: Tensor,
    applied: Applied,
    unit: float,
) -> tuple[float, float, float]:
    """Return the derivative along a direction by central differences, its error, and the sum of its terms' sizes."""
    x = arguments[k]
    scale = max(float(x.double().square().mean().sqrt()), 1e-3)
    found, noise, size = [], 0.0, 0.0
    for step in (2.0, 1.0):
        h = step * scale * unit ** (1 / 3)
        moved = [list(arguments), list(arguments)]
        moved[0][k], moved[1][k] = x + h * direction, x - h * direction
        with torch.no_grad():
            plus, minus = (forward(one) for one in moved)
        total = 0.0
        noise = size = 0.0
        for a, b, g in zip(plus, minus, applied.g, strict=False):
            if g is None or not isinstance(a, torch.Tensor):
                continue
            terms = g.double() * (a.double() - b.double())
            total += float(terms.sum()) / (2 * h)
            size += float(terms.square().sum().sqrt()) / (2 * h)
            noise += (
                2 * unit * float((g.double() * (abs(a.double()) + abs(b.double()))).square().sum().sqrt()) / (2 * h)
            )
        found.append(total)
    return found[1], abs(found[0] - found[1]) + 4 * noise, size


def _by_differences(applied: Applied, why: str) -> None:
    """Compare along random directions."""
    seen = applied.seen

    def forward(arguments: Sequence[Any]) -> list[Any]:
        torch.set_rng_state(applied.random)
        given = [one.clone() if isinstance(one, torch.Tensor) else one for one in arguments]
        with torch.no_grad():
            return _tensors(applied.cls.apply(*given))

    again = [one for one in forward(applied.arguments) if isinstance(one, torch.Tensor)]
    if not all(torch.allclose(a, b, equal_nan=True) for a, b in zip(again, applied.outputs, strict=True)):
        seen.reasons.append("its backward: its forward gives other numbers when it runs again")
        return
    unit, arguments = max(_unit(applied.arguments[k]) for k in applied.wanted), list(applied.arguments)
    with contextlib.suppress(Exception):  # what a user's function raises in float64 is anything
        double = [_double(one) for one in arguments]
        if all(y.dtype == torch.float64 for y in forward(double) if _is_number(y)):
            arguments, unit = double, 2.0**-53
    worst = 0.0
    for position, k in enumerate(applied.wanted):
        what, dx = f"gradient for argument {k}", applied.found[position]
        dx = torch.zeros_like(applied.arguments[k]) if dx is None else dx
        norm = float(dx.double().square().sum().sqrt())
        if tuple(dx.shape) != tuple(applied.arguments[k].shape):
            seen.compared.append(Compared(what, float("inf"), f"shape {tuple(dx.shape)}"))
            continue
        fractions, message, inexact = [], "", 0.0
        for number in range(DIRECTIONS):
            direction = _signs(arguments[k], number)
            slope, error, size = _slope(forward, arguments, k, direction, applied, unit)
            if not math.isfinite(slope):
                inexact = math.inf
                break
            actual = float((dx.double() * direction.double()).sum())
            own = _unit(applied.arguments[k])
            limit = 4 * error + 32 * own * (norm + size)
            inexact = max(inexact, limit / max(norm, size, 1e-300))
            fractions.append(abs(actual - slope) / max(limit, 1e-300))
            if not fractions[-1] <= 1 and not message:
                message = (
                    f"along a random direction its derivative is {slope:.6g}, with an error up to {limit:.2g}; "
                    f"the gradient says {actual:.6g}"
                )
        if inexact == math.inf:
            seen.reasons.append(f"{what}: its forward gives NaN or infinities close to the arguments")
            continue
        if inexact > INEXACT and not message:
            seen.reasons.append(f"{what}: central differences have a relative error of {inexact:.1g}")
            continue
        worst = max(worst, inexact)
        seen.compared.append(Compared(what, max(fractions), message))
    if seen.compared:
        detail = f" ({why.splitlines()[0][:120]})" if why else ""
        seen.notes.append(
            f"its backward against central differences along {DIRECTIONS} random directions, "
            f"with a relative error up to {worst:.1g}{detail}"
        )
