"""Audit of a model: what its layers returned in one step of training, compared with the reference."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from mpsref.frameworks.adapter import Tensor

if TYPE_CHECKING:
    from mpsref.conformance.audit import Audit
    from mpsref.operations import Problem
    from mpsref_torch.auditing.layer import RecordedCall

__all__ = ["audit"]


def audit(
    model: Any,
    loss: Callable[..., Tensor] | None,
    batch: Any,
    *,
    seed: int = 0,
    compiles: bool = False,
    shrinks: bool = True,
    as_is: bool = False,
) -> Audit:
    """Run a forward and a backward pass of a model, and compare every layer with the reference.

    What each layer returned, its result, the gradient for its input and the gradients for its parameters, is compared
    with the reference in float64 on the numbers and memory layouts that occurred, within the derived bounds. Large
    layers are compared in part.

    Parameters
    ----------
    model : torch.nn.Module
        The model, in the mode, on the device and in the memory format in which it is trained.
    loss : callable or None
        ``loss(output, *targets)`` returns a tensor of one element. ``None``: the sum of all outputs, each times a
        number that is drawn, so that every output has a gradient of its own.
    batch : Tensor or tuple
        What the model gets; of a tuple the first element, and the others are the targets.
    seed : int, optional
        Of the parts of large layers, of random numbers of the model such as dropout, and of the default loss.
    compiles : bool, optional
        Whether layers run through ``torch.compile``, each by itself.
    shrinks : bool, optional
        Whether to search for a small case of each wrong layer.
    as_is : bool, optional
        Whether parameters that are 0 stay so: behind a gain of 0 all gradients are 0, and cannot be compared. By
        default they are small random numbers while the model is audited.

    Returns
    -------
    Audit
        A row for each call of a layer; ``ok`` if nothing is wrong, and every backward pass that is no operation of
        PyTorch was compared. ``print`` shows the table.

    Raises
    ------
    TypeError
        If ``model`` is not a module, or the loss no tensor of one element.

    Notes
    -----
    The parameters, their gradients and the buffers of the model, such as running means, are afterwards what they were.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    >>> report = audit(model, None, torch.randn(2, 3, 16, 16))
    >>> report.ok, [row.function for row in report.rows]
    (True, ['conv2d', 'batch_norm', 'relu'])
    """
    import torch

    from mpsref.conformance.audit import Audit, filled
    from mpsref.kernels.reference import UNIT_ROUNDOFF
    from mpsref_torch.auditing.custom import applying
    from mpsref_torch.auditing.sampled import Draw
    from mpsref_torch.auditing.watch import Watch, stance

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is of type {type(model).__name__}; it must be a torch.nn.Module")
    start = time.perf_counter()
    x, *targets = batch if isinstance(batch, (tuple, list)) else (batch,)
    devices = [x.device] if isinstance(x, torch.Tensor) and x.is_cuda else []
    with _restored(model) as stack:
        zeros = [] if as_is else _fill_zeros(model, seed, stack)
        watch = Watch(model, Draw(seed), compiles=compiles)
        stack.callback(watch.remove)
        watch.watch_modules()
        stack.callback(torch.set_autocast_cache_enabled, torch.is_autocast_cache_enabled())
        torch.set_autocast_cache_enabled(False)  # each call rounds parameters by itself, and has its own gradients
        with torch.random.fork_rng(devices=devices), applying(watch.applied), stance("force_eager"):
            torch.manual_seed(seed)
            with watch:
                output = _called(model, x)
                value = None if loss is None else loss(output, *targets)
            if loss is None:
                value = _weighted_sum(output)
            if not isinstance(value, torch.Tensor) or value.numel() != 1:
                shown = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
                raise TypeError(f"the loss is {shown}; it must be a tensor of one element")
            watch.in_backward = True
            if value.requires_grad:
                watch.before_backward(value.grad_fn)
                torch.autograd.backward(value)
            watch.finish()
    runtime = f"PyTorch {torch.__version__} on {value.device}{', layers compiled' if compiles else ''}"
    cases: dict[object, tuple[str, str]] = {}

    def small(seen: RecordedCall, problem: Problem) -> tuple[str, str]:
        """Return a small case; one search for layers of the same kind."""
        from mpsref_torch.auditing.again import small_case

        if seen.dtype not in ("float32", "float64") or seen.unit > UNIT_ROUNDOFF:
            return "", ""  # a case would run without autocast
        if (key := seen.key(problem.method)) not in cases:
            compiled = compiles or seen.compiled
            cases[key] = small_case(seen, problem.method, seen.dtype, str(value.device.type), compiles=compiled)
        return cases[key]

    rows = tuple(seen.row(partial(small, seen) if shrinks else None) for seen in watch.compared())
    others = tuple((layer, name, calls) for (layer, name), calls in watch.others.items())
    remarks = (filled(zeros),) if zeros else ()
    return Audit(rows, others, runtime, seed, watch.rules, time.perf_counter() - start, remarks, watch.silent)


@contextmanager
def _restored(model: Any) -> Iterator[ExitStack]:
    """Give parameters no gradients, and give them and all buffers back at the end; the stack takes what else to undo.

    Parameters and buffers of lazy modules that have no values yet keep those that they get.
    """
    from torch.nn.parameter import is_lazy

    with ExitStack() as stack:  # it calls the rest if one call raises
        young, *older = gc.get_threshold()
        stack.callback(gc.set_threshold, young, *older)
        gc.set_threshold(100 * young, *older)  # graphs and records live until the end: collections find little
        for parameter in model.parameters():
            stack.callback(setattr, parameter, "grad", parameter.grad)
            parameter.grad = None
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                if not is_lazy(buffer):
                    stack.callback(_give_back, buffer, buffer.detach().clone())
                    stack.callback(_put_back, module, name, buffer)
        yield stack


def _put_back(module: Any, name: str, buffer: Tensor) -> None:
    """Undo an assignment such as ``self.steps = self.steps + 1``."""
    if getattr(module, name, None) is not buffer:
        setattr(module, name, buffer)


def _give_back(tensor: Tensor, values: Tensor) -> None:
    """Undo changes of a tensor; one that is expanded cannot be written, and has not changed."""
    import torch

    if not torch.equal(tensor, values):
        with torch.no_grad():
            tensor.copy_(values)


def _fill_zeros(model: Any, seed: int, stack: ExitStack) -> list[str]:
    """Give parameters that are 0 small random numbers, which the stack undoes; return their names."""
    import numpy as np
    import torch
    from torch.nn.parameter import is_lazy

    from mpsref.conformance.audit import without_zeros
    from mpsref_torch.auditing.sampled import array

    rng = np.random.default_rng(seed)
    found = []
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_lazy(parameter) or not parameter.is_floating_point() or parameter.is_meta or not parameter.numel():
                continue
            values = without_zeros(array(parameter), rng)
            if values is None:
                continue
            found.append(name)
            stack.callback(_give_back, parameter, parameter.detach().clone())
            parameter.copy_(torch.as_tensor(values))
    return found


def _called(model: Any, x: Any) -> Any:
    if isinstance(x, Mapping):
        return model(**x)
    return model(*x) if isinstance(x, (tuple, list)) else model(x)


def _weighted_sum(output: Any) -> Tensor:
    """Return the sum of all outputs, each times a number from a normal distribution."""
    import torch

    terms = [(one * torch.randn_like(one)).sum() for one in _tensors(output) if one.is_floating_point()]
    if not terms:
        raise TypeError(f"the model returned {type(output).__name__} without a tensor of numbers; pass a loss")
    return torch.stack(terms).sum()


def _tensors(output: Any) -> Iterator[Tensor]:
    """Yield the tensors of what a model returned."""
    import torch

    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, Mapping):
        for one in output.values():
            yield from _tensors(one)
    elif isinstance(output, Sequence) and not isinstance(output, str):
        for one in output:
            yield from _tensors(one)
