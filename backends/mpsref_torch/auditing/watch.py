"""Watch a forward and a backward pass: every call of a known function, and what its nodes of autograd returned."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from mpsref.conformance.audit import Compared, Step
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref_torch.auditing.functions import KNOWN, of_module
from mpsref_torch.auditing.layer import DTYPES, RULES, Translated, rules_on
from mpsref_torch.auditing.sampled import Draw

NODES = 64
"""Nodes of autograd of one call; a larger graph is not that of one layer."""

HERE = str(Path(__file__).parent)


@dataclass(eq=False)
class Seen(Step):
    """One call of a known function."""

    kind: str = ""
    """Name in ``torch.nn.functional``."""
    translated: Translated | None = None
    module: nn.Module | None = None
    """The module, if what it returned was compared, not what a function in it did."""
    dtype: str = ""
    repeated: bool = False
    """Whether the call is in the backward pass, which repeats a part of the forward pass."""
    differentiable: bool = False
    """Whether the result requires a gradient."""

    def key(self, method: str) -> object:
        """Return what two calls have in common that are wrong in the same small cases."""
        problem = None if self.translated is None else self.translated.whole(method)
        kind = self.module if self.module is None else type(self.module).__qualname__
        return kind, self.kind, method, None if problem is None else problem.spec, tuple(self.layouts.items())


def layout(tensor: Tensor) -> str:
    """Return the layout of a tensor (N, C, H, W) as case strings have it, or nothing."""
    if tensor.dim() != 4:
        return ""
    if tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous():
        return "nhwc"
    if tensor.is_contiguous():
        # Where an axis is 1 long both orders are contiguous; the strides decide what PyTorch takes it for.
        return "nhwc" if tensor.stride(1) == 1 and tensor.shape[1] > 1 and tensor.stride(3) != 1 else "nchw"
    order = sorted(range(4), key=lambda axis: -int(tensor.stride(axis)))
    gaps: dict[tuple[int, ...], str] = {(0, 2, 3, 1): "nhwc-gap", (1, 0, 2, 3): "cnhw", (0, 1, 2, 3): "nchw-gap"}
    return gaps.get(tuple(order), "nchw-gap")


class Watch(TorchFunctionMode):  # type: ignore[misc]  # PyTorch need not be installed
    """Compares the known functions that are called while it is entered, and lists the others.

    Parameters
    ----------
    model : Module
        The model, whose modules give calls their names.
    draw : Draw
        Draws the parts that are compared.
    compiles : bool
        Whether modules and functions run through ``torch.compile``, each by itself.
    """

    def __init__(self, model: nn.Module, draw: Draw, *, compiles: bool = False) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.rules: tuple[str, ...] = RULES
        """Those of the devices of all layers."""
        self.others: Counter[tuple[str, str]] = Counter()
        """How many calls of unknown functions there were, by place and name."""
        self._draw, self._compiles = draw, compiles
        self._model = model
        self._stack: list[str] = []
        self._handles: list[RemovableHandle] = []
        self._compiled: dict[Any, Any] = {}
        self._began: list[tuple[int, Any]] = []
        self._busy = False
        """Whether functions are those of the audit itself."""
        self.in_backward = False
        """Whether the forward pass is over."""

    # --- modules ------------------------------------------------------------------------------------------------------

    def watch_modules(self) -> None:
        """Register the hooks of all modules."""
        for name, module in self._model.named_modules():
            known = of_module(module)
            if self._compiles and known is not None:
                self._compile(module)
            self._handles += [
                module.register_forward_pre_hook(self._entering(name, module, known), with_kwargs=True),
                module.register_forward_hook(self._leaving(module, known), with_kwargs=True, always_call=True),
            ]

    def compared(self) -> list[Seen]:
        """Return the calls; those that a checkpoint repeats in the backward pass only if they got gradients."""
        return [one for one in self.seen if not (one.repeated and NO_GRADIENT in one.reasons)]

    def remove(self) -> None:
        """Remove the hooks, and what was compiled."""
        for handle in self._handles:
            handle.remove()
        for module in self._model.modules():
            if getattr(module.__dict__.get("forward"), "of_audit", False):
                del module.forward

    def _compile(self, module: nn.Module) -> None:
        compiled = torch.compile(module.forward, dynamic=False)

        mode: Any = self

        def forward(*args: Any, **keywords: Any) -> Any:
            mode.__exit__(None, None, None)  # what is compiled must not see this mode
            try:
                return compiled(*args, **keywords)
            finally:
                mode.__enter__()

        forward.of_audit = True  # type: ignore[attr-defined]
        module.forward = forward

    def _entering(self, name: str, module: nn.Module, known: Any) -> Callable[..., None]:
        def enter(_: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            self._stack.append(name)
            call = None
            if known is not None:
                with self._own():
                    call = self._begin(known[0], args, keywords, module=module, read=known[1])
            self._began.append((len(self.seen), call))

        return enter

    def _leaving(self, module: nn.Module, known: Any) -> Callable[..., None]:
        def leave(_: nn.Module, args: Any, keywords: Any, output: Any) -> None:
            self._stack.pop()
            before, call = self._began.pop()
            y = output[0] if isinstance(output, tuple) and output else output
            if call is None or not isinstance(y, torch.Tensor):
                return
            # A function of the same kind in it is what the module computes, unless a Function of its own hides it.
            inner = [one for one in self.seen[before:] if one.kind == call.seen.kind]
            if not any(one.differentiable == y.requires_grad for one in inner):
                self.seen[before:] = [one for one in self.seen[before:] if one not in inner]
                with self._own():
                    self._end(call, output)

        return leave

    @contextlib.contextmanager
    def _own(self) -> Iterator[None]:
        """Call functions of PyTorch without watching them."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    # --- functions ----------------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of PyTorch, and compare what it returned."""
        kwargs = kwargs or {}
        if self._busy:
            return func(*args, **kwargs)
        if func not in KNOWN:
            output = func(*args, **kwargs)
            self._other(func, args, output)
            return output
        call = self._begin(func, args, kwargs)
        in_place = call is not None and call.seen.translated is not None and call.seen.translated.works_in_place
        output = (self._compiled_function(func) if self._compiles and not in_place else func)(*args, **kwargs)
        if call is not None:
            self._end(call, output)
        return output

    def _compiled_function(self, function: Any) -> Any:
        if function not in self._compiled:
            self._compiled[function] = torch.compile(
                lambda *args, **keywords: function(*args, **keywords), dynamic=False
            )
        return self._compiled[function]

    def _other(self, function: Any, args: tuple[Any, ...], output: Any) -> None:
        """Count an unknown function that returns a tensor of floating-point numbers."""
        first = output[0] if isinstance(output, (tuple, list)) and output else output
        if isinstance(first, torch.Tensor) and first.is_floating_point() and not first.is_leaf:
            name = getattr(function, "__name__", str(function))
            if name not in QUIET:
                self.others[self._stack[-1] if self._stack else "", name] += 1

    def _begin(
        self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any], module: Any = None, read: Any = None
    ) -> _Call | None:
        """Translate a call; return ``None`` for one that computes no floating-point numbers."""
        x = args[0] if args else keywords.get("input")
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return None
        kind, translate = KNOWN[function]
        name = getattr(function, "__name__", "_") if module is None else type(module).__name__
        seen = Seen(
            self._place(module),
            kind if name.startswith("_") or name == "fn" else name,
            tuple(x.shape),
            rules_on(x.device),
            kind=kind,
            module=module,
            dtype=str(x.dtype).removeprefix("torch."),
            repeated=self.in_backward,
        )
        self.rules = tuple(dict.fromkeys((*self.rules, *seen.rules)))
        try:
            if read is not None:
                more, named = read(module)
                args, keywords = (x, *more), named
            seen.translated = translate(*args, **keywords)
            if not all(one.numel() for one in seen.translated.inputs.values()):
                raise UnsupportedError("a tensor without elements")
            if seen.dtype not in DTYPES:
                raise UnsupportedError(f"{seen.dtype}; there are bounds for {' and '.join(DTYPES)}")
            if seen.translated.works_in_place:
                with torch.no_grad():
                    seen.translated.prepare(self._draw)
        except UnsupportedError as error:
            seen.translated, seen.reasons = None, [str(error)]
        except (TypeError, AttributeError, ValueError) as error:
            seen.translated, seen.reasons = None, [f"arguments that an audit does not take: {error}"]
        return _Call(seen, {} if seen.translated is None else _edges(seen.translated))

    def _end(self, call: _Call, output: Any) -> None:
        """Compare the result, and register what waits for the gradients."""
        seen, layer = call.seen, call.seen.translated
        self.seen.append(seen)
        y = output[0] if isinstance(output, tuple) else output
        seen.differentiable = y.requires_grad
        if layer is None:
            return
        if y.dtype != layer.inputs["x"].dtype:
            seen.reasons.append(f"a result of another dtype, {y.dtype}")
            return
        seen.reasons += layer.notes
        seen.layouts = {name: layout(tensor) for name, tensor in (*layer.inputs.items(), ("result", y))}
        wanted = frozenset(call.edges) if y.requires_grad else frozenset()
        seen.judge(lambda: layer.result(y, wanted, self._draw))
        same = y is layer.inputs["x"] and call.edges and _edges(layer) == call.edges
        layer.release()
        if same:
            return  # dropout in evaluation, for example: there is nothing whose gradient could be wrong
        if not y.requires_grad:
            seen.reasons.append("no gradient: the result does not require one")
        elif wanted:
            Gradients(seen, layer, y, call.edges, self._draw)

    def _place(self, module: Any) -> str:
        """Return where a call is: the path of its module, and for a function the line that calls it."""
        path = self._stack[-1] if self._stack else ""
        if module is not None:
            return path or type(self._model).__name__
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename.startswith((TORCH, HERE)):
            if frame.f_code.co_name == "_call_impl":  # a module of PyTorch itself calls the function
                return path
            frame = frame.f_back
        if frame is None:
            return path
        return f"{path} {Path(frame.f_code.co_filename).name}:{frame.f_lineno}".strip()


TORCH = str(Path(torch.__file__).parent)


QUIET = frozenset({"detach", "clone", "contiguous", "to", "requires_grad_", "__get__", "backward"})
"""Functions that change no numbers."""


@dataclass
class _Call:
    """A call between its begin and its end."""

    seen: Seen
    edges: dict[str, Any]
    """Edge of the graph of each input that requires a gradient."""


def _edges(layer: Translated) -> dict[str, Any]:
    if not torch.is_grad_enabled():
        return {}
    return {name: get_gradient_edge(tensor) for name, tensor in layer.inputs.items() if tensor.requires_grad}


class Gradients:
    """Collects the gradients of one call from its own nodes, before they are added to those of other calls.

    Parameters
    ----------
    seen, layer
        The call.
    y : Tensor
        What the function returned.
    edges : dict of str to GradientEdge
        Where the gradients of the inputs go.
    draw : Draw
        Draws parts.
    """

    def __init__(self, seen: Seen, layer: Translated, y: Tensor, edges: dict[str, Any], draw: Draw) -> None:
        self._seen, self._layer, self._draw = seen, layer, draw
        self._shape = tuple(y.shape)
        self._g: Tensor | None = None
        self._found: dict[str, Tensor] = {}
        end = get_gradient_edge(y)
        boundary = list(_boundary(end.node, edges))
        self._left = len(boundary)
        reached = {name for _, places in boundary for _, name in places}
        if reached != set(edges):
            seen.reasons.append("no gradient: its graph does not lead from the result to the inputs")
            return
        node, self._number = _computing(end.node, end.output_nr)
        node.register_prehook(self._source)
        for node, places in boundary:
            node.register_hook(self._taking(places))
        seen.reasons.append(NO_GRADIENT)

    def _source(self, grad_outputs: tuple[Any, ...]) -> None:
        self._g = grad_outputs[self._number]

    def _taking(self, places: list[tuple[int, str]]) -> Callable[..., None]:
        def take(grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
            for index, name in places:
                dx = grad_inputs[index]
                if dx is not None:
                    self._found[name] = self._found[name] + dx if name in self._found else dx
            self._left -= 1
            if not self._left:
                self._compare()

        return take

    def _compare(self) -> None:
        seen, g, layer = self._seen, self._g, self._layer
        seen.reasons.remove(NO_GRADIENT)
        found = {name: self._viewed(dx, layer.inputs[name].shape) for name, dx in self._found.items()}
        self._g, self._found = None, {}
        if g is None or not found:
            seen.reasons.append("no gradient: that of the result is undefined")
            return
        g = self._viewed(g, self._shape)
        for name, tensor in [*found.items(), ("result", g)]:
            shape = self._shape if name == "result" else tuple(layer.inputs[name].shape)
            if tuple(tensor.shape) != shape:
                message = f"shape {tuple(tensor.shape)}, expected {shape}"
                seen.compared.append(Compared(f"gradient for {name}", float("inf"), message))
                return
        seen.layouts["g"] = layout(g)
        with torch.no_grad():
            seen.judge(lambda: layer.gradients(g, found, self._draw))

    @staticmethod
    def _viewed(tensor: Tensor, shape: Any) -> Tensor:
        """Return a gradient of the tensor that a tensor is a view of, in the shape of the view."""
        return tensor.reshape(shape) if tensor.dim() != len(shape) or tensor.numel() == math.prod(shape) else tensor


NO_GRADIENT = "no gradient: none reached it"


VIEWS = ("ViewBackward", "UnsafeViewBackward", "ReshapeAliasBackward")


def _computing(node: Any, number: int) -> tuple[Any, int]:
    """Return the node that computed a tensor, and the number of its output, behind those of views.

    A function that works in place on a view replaces the node of the view, but not the one behind it.
    """
    while node.name().startswith(VIEWS) or (node.name().startswith("AsStrided") and _follows(node, "CopySlices")):
        following, index = node.next_functions[0]
        if following is None or following.name().endswith("AccumulateGrad"):
            break
        node, number = following, index
    return node, number


def _follows(node: Any, name: str) -> bool:
    following = node.next_functions[0][0]
    return following is not None and name in following.name()


def _boundary(start: Any, edges: dict[str, Any]) -> Iterator[tuple[Any, list[tuple[int, str]]]]:
    """Yield the nodes of a call that have an edge to one of its inputs: the positions of these, and the inputs."""
    ends = [(name, edge.node, edge.output_nr) for name, edge in edges.items()]
    ends += [(name, *_computing(node, number)) for name, node, number in ends]
    pending, known = [start], {start}
    while pending and len(known) <= NODES:
        node = pending.pop()
        places = []
        for index, (following, number) in enumerate(node.next_functions):
            name = next((n for n, end, k in ends if end is following and k == number), None)
            if name is not None:
                places.append((index, name))
            elif following is not None and following not in known:
                known.add(following)
                pending.append(following)
        if places:
            yield node, places
