"""What ``mpsref audit`` runs: a model by its name in a module, on an input of a shape or a batch by its name."""

from __future__ import annotations

import importlib.util
from typing import Any, cast

from mpsref.conformance.audit import Audit, Options, named
from mpsref.errors import install
from mpsref.frameworks.adapter import Tensor
from mpsref_torch.auditing import audit


def run(options: Options) -> Audit:
    """Make model and batch, and audit the model: a module, or what makes one.

    Raises
    ------
    ValueError
        If a name or a shape cannot be used, the device is missing, or the model does not take the input.
    """
    model, batch, shape = options.model, options.batch, options.shape
    device, autocast = options.device, options.autocast
    if (shape is None) == (batch is None):
        raise ValueError("pass --input 1,3,256,256, the shape of a random input, or --batch package.module:name")
    if importlib.util.find_spec("torch") is None:
        raise ValueError(f"PyTorch is not installed: {install('torch')}")
    import torch

    if autocast not in (None, "bfloat16", "float16"):
        raise ValueError(f"--autocast is {autocast!r}; it must be bfloat16 or float16")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, AttributeError) as error:
        raise ValueError(f"PyTorch {torch.__version__} has no device {device!r} here: {error}") from error
    torch.manual_seed(options.seed)
    network = _made(model)
    if not isinstance(network, torch.nn.Module):
        raise ValueError(
            f"{model} gives {type(network).__name__}; it must be a torch.nn.Module or a function that makes one"
        )
    given = torch.randn(_shape(shape)) if batch is None else _made(str(batch))
    network = network.to(device).train(not options.evaluates)
    given = _moved(given, device, options.channels_last)
    if options.channels_last:
        network = cast(Any, network).to(memory_format=torch.channels_last)
    try:
        dtype = None if autocast is None else getattr(torch, autocast)
        with torch.autocast(torch.device(device).type, enabled=autocast is not None, dtype=dtype):
            loss = None if options.loss is None else named(options.loss)
            return audit(network, loss, given, seed=options.seed, compiles=options.compiles, as_is=options.as_is)
    except RuntimeError as error:
        what = f"an input of shape {shape}" if batch is None else f"the batch {batch}"
        raise ValueError(f"{model} failed with {what}: {error}") from error


def _shape(text: Any) -> tuple[int, ...]:
    sizes = str(text).split(",")
    if not all(size.strip().isdigit() and int(size) > 0 for size in sizes):
        raise ValueError(f"--input is {text!r}; it must be positive integers with commas, such as 1,3,256,256")
    return tuple(int(size) for size in sizes)


def _made(text: str) -> Any:
    """Return the named object, or what it returns if it is a function or a class."""
    import torch

    found = named(text)
    return found if isinstance(found, (torch.nn.Module, torch.Tensor)) or not callable(found) else found()


def _moved(given: Any, device: str, channels_last: bool) -> Any:
    import torch

    if isinstance(given, dict):
        return {name: _moved(one, device, channels_last) for name, one in given.items()}
    if isinstance(given, (tuple, list)):
        return type(given)(_moved(one, device, channels_last) for one in given)
    if not isinstance(given, torch.Tensor):
        return given
    moved: Tensor = given.to(device)
    return moved.contiguous(memory_format=torch.channels_last) if channels_last and moved.dim() == 4 else moved
