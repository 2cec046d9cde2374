"""Run a layer again on other images, as a backend, to search for a small case in which it is wrong, too."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from mpsref.backend import Backend
from mpsref.conformance.audit import smallest
from mpsref.frameworks.adapter import Function, Tensor
from mpsref_torch.auditing.layer import RecordedCall
from mpsref_torch.auditing.normalizing import ByKernel
from mpsref_torch.operations import table
from mpsref_torch.run import Torch


@dataclass(eq=False)
class Again(Torch):
    """PyTorch with other functions in place of some of ``torch.nn.functional``."""

    own: dict[str, Function] = field(default_factory=dict)

    @property
    def functional(self) -> Any:
        """The functions."""
        return types.SimpleNamespace(**{**vars(F), **self.own})


def small_case(seen: RecordedCall, method: str, dtype: str, device: str, *, compiles: bool) -> tuple[str, str]:
    """Return the string of a small case in which a layer is wrong, and the command that runs it again.

    Both are empty if no small case is wrong; the command is empty if no installed backend runs the layer.
    """
    layer = seen.translated
    problem = None if layer is None else layer.whole(method)
    own = _functions(seen)
    if problem is None or own is None:
        return "", ""
    run = Again(device, compiles, own=own)
    backend = Backend("audited layer", table(run), dtypes=(dtype,), rules=seen.rules)
    tensors = {"weights": "weight"}
    layouts = tuple(seen.layouts.get(tensors.get(name, name), "") or "nhwc" for name in problem.input_shapes)
    case = smallest(problem, backend, dtype, layouts)
    if case is None:
        return "", ""
    named = {"cpu": "torch:compile" if compiles else "torch", "cuda": "torch:cuda", "mps": "torch:mps"}.get(device)
    replay = f"mpsref replay '{case}' --backend {named}" if named and not own else ""
    return str(case), replay


def _functions(seen: RecordedCall) -> dict[str, Function] | None:
    """Return what runs instead of functions of PyTorch, or ``None`` for a module that cannot run on other images."""
    layer, kind, module = seen.translated, seen.kind, seen.module
    of_rows = isinstance(layer, ByKernel) and layer.of_rows
    joins_images = isinstance(layer, ByKernel) and layer.joins_images
    if module is None:
        if of_rows:
            return {"group_norm": _layer_norm}
        if joins_images:
            return {"instance_norm": _training_batch_norm}
        if kind == "adaptive_avg_pool2d":
            return {"avg_pool2d": partial(_adaptive, F.adaptive_avg_pool2d)}
        if kind == "adaptive_max_pool2d":
            return {"max_pool2d": partial(_adaptive, F.adaptive_max_pool2d)}
        return {}
    name = "instance_norm" if joins_images else kind.removeprefix("adaptive_")
    function = getattr(F, name, None)
    if function is None or kind.endswith("1d") or of_rows:
        return None
    # Functions that are built in have no signature; the table passes only tensors to them without names.
    names = [*inspect.signature(function).parameters][1:] if inspect.isfunction(function) else ["weight", "bias"]
    return {name: partial(_module, module, names)}


def _module(module: torch.nn.Module, names: Sequence[str], x: Tensor, *args: Any, **keywords: Any) -> Tensor:
    """Run a copy of a module with other tensors and attributes."""
    given = {**dict(zip(names, args, strict=False)), **keywords}
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    clone = copy.copy(module)
    for name, value in given.items():
        if name not in tensors and hasattr(clone, name) and not isinstance(getattr(clone, name), torch.Tensor):
            setattr(clone, name, value)
    own = clone.__dict__.get("forward")
    if isinstance(own, types.MethodType) and own.__self__ is module:
        clone.__dict__["forward"] = types.MethodType(own.__func__, clone)
    expected = {*dict(clone.named_parameters()), *dict(clone.named_buffers())}
    if "bias" in expected and "bias" not in tensors and "weight" in tensors:
        tensors["bias"] = x.new_zeros(len(tensors["weight"]))
    used = {name: value for name, value in tensors.items() if name in expected}
    return torch.func.functional_call(clone, used, (x,))


def _layer_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    rows = x.permute(0, 2, 3, 1)
    return F.layer_norm(rows, rows.shape[-1:], weight, bias, eps).permute(0, 3, 1, 2)


def _training_batch_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)


def _adaptive(function: Function, x: Tensor, kernel_size: tuple[int, int], **keywords: Any) -> Tensor:
    return function(x, (x.shape[2] // kernel_size[0], x.shape[3] // kernel_size[1]))
