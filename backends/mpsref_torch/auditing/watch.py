"""Watch a forward and a backward pass: every call of a known function, and what its nodes of autograd returned."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from mpsref.conformance.audit import NO_NEED, Compared, Waiting
from mpsref.errors import UnsupportedError
from mpsref.frameworks.adapter import Tensor
from mpsref.kernels.reference import UNIT_ROUNDOFF
from mpsref_torch.auditing import custom, replay
from mpsref_torch.auditing.custom import Applied
from mpsref_torch.auditing.functions import Known, has_own_forward, known_function, name_of, of_module
from mpsref_torch.auditing.layer import DTYPES, RULES, RecordedCall, Translated, rules_on
from mpsref_torch.auditing.moves import CONVERSIONS, MOVES
from mpsref_torch.auditing.replay import Like, Repetition, changed, joined, numbers
from mpsref_torch.auditing.sampled import Draw

NODES = 64
"""Nodes of autograd of one call; a larger graph is not that of one layer."""

HERE = str(Path(__file__).parent)


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
    """Compares the known functions that a model calls while it is entered, on drawn parts, and lists the others."""

    def __init__(self, model: nn.Module, draw: Draw, *, compiles: bool = False) -> None:
        super().__init__()
        self.seen: list[RecordedCall] = []
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
        self._applied: dict[Any, Applied] = {}
        """The calls of functions with a backward pass of their own, by their nodes."""
        self._again: list[Repetition] = []
        self._arriving: dict[str, Tensor] = {}
        """By parameter, the sum of the gradients for it, before hooks get it."""
        self._checks = Waiting()
        self._waiting: list[_Call] = []
        """The calls with several results, of which some may get no gradient."""

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

    def compared(self) -> list[RecordedCall]:
        """Return the calls; those that a checkpoint repeats in the backward pass only if they got gradients."""
        covered = {one.seen for one in self._applied.values() if one.covered is not None}
        seen = [one for one in self.seen if one not in covered and not one.is_silent]
        return [one for one in seen if not (one.repeated and NO_GRADIENT in one.reasons)]

    @property
    def silent(self) -> int:
        """How many calls only arranged elements anew, and are right."""
        return sum(one.is_silent for one in self.seen)

    def finish(self) -> None:
        """Compare what waits for the end: functions against their derivatives, and calls that are repeated."""
        for handle in self._handles:
            handle.remove()
        for call in self._waiting:
            call.compare()
        self._hooks_of_parameters()
        for applied in self._applied.values():
            module = applied.covered
            if module is not None and not any(one.what.startswith("gradient") for one in module.compared):
                applied.covered = None  # nothing else compares its backward
            if applied.covered is None:
                custom.check(applied)
        with replay.own_random() as generator:
            kinds: dict[object, Repetition] = {}
            for again in self._again:
                if (same := kinds.setdefault(again.key(), again)) is not again:
                    same.seen += again.seen
            for again in kinds.values():
                try:
                    again.run(self._draw, generator)
                except (UnsupportedError, RuntimeError, TypeError, ValueError) as error:
                    again.seen[0].notes.append(f"not called again on other numbers: {str(error).partition(chr(10))[0]}")
        self._checks.settle()

    def before_backward(self, root: Any) -> None:
        """Follow the gradients of parameters, and record the functions of a graph that nothing compares."""
        leaves = {
            get_gradient_edge(one).node: name for name, one in self._model.named_parameters() if one.requires_grad
        }
        for node in custom.nodes(root):
            for k, (following, _) in enumerate(node.next_functions):
                if following in leaves:
                    node.register_hook(partial(self._arrives, leaves[following], k))
        for node in filter(custom.is_stranger, custom.nodes(root)):
            cls = custom.class_of(node)
            if node in self._applied:
                continue
            name, place = (node.name(), "") if cls is None else (cls.__qualname__, custom.where(cls))
            if cls is not None and custom.of_pytorch(cls):
                if "CompiledFunction" in name:
                    continue  # what torch.compile made of a layer, which is compared
                self.seen.append(
                    RecordedCall(place, name, reasons=["a part of PyTorch whose backward pass is in Python"])
                )
                continue
            why = "its backward: it is not Python" if cls is None else "its backward: it was applied before the audit"
            self.seen.append(RecordedCall(place, name, reasons=[why], required=True))

    def _arrives(self, name: str, k: int, grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
        g = grad_inputs[k]
        if g is not None:
            g = g.detach().to_dense() if g.is_sparse else g.detach().clone()
            self._arriving[name] = self._arriving[name] + g if name in self._arriving else g

    def _hooks_of_parameters(self) -> None:
        """List the parameters whose gradient is not the sum of what arrived."""
        parameters = dict(self._model.named_parameters())
        for name, total in self._arriving.items():
            found = parameters[name].grad
            found = found.to_dense() if found is not None and found.is_sparse else found
            if found is not None and torch.equal(found, total):
                continue
            size = total.abs().nan_to_num(0, 0).sum() / max(1, total.numel())
            limit = 16 * _unit(total) * float(size)  # of sums in another order
            if found is None or not torch.allclose(found, total, rtol=0, atol=limit, equal_nan=True):
                self._listed(name, "hook of a parameter", tuple(total.shape), CHANGED)

    def remove(self) -> None:
        """Remove the hooks, and what was compiled."""
        for handle in self._handles:
            handle.remove()
        for module in self._model.modules():
            if getattr(module.__dict__.get("forward"), "of_audit", False):
                del module.forward

    def _compile(self, module: nn.Module) -> None:
        compiled = self._compiled_alone(module.forward)

        mode: Any = self

        def forward(*args: Any, **keywords: Any) -> Any:
            if mode.in_backward:  # a repeated call
                return compiled(*args, **keywords)
            mode.__exit__(None, None, None)  # what is compiled must not see this mode
            try:
                return compiled(*args, **keywords)
            finally:
                mode.__enter__()

        forward.of_audit = True  # type: ignore[attr-defined]
        module.forward = forward

    def _compiled_alone(self, function: Any) -> Callable[..., Any]:
        """Return a compiled function; each has code of its own, of which PyTorch compiles eight cases at most."""

        def call(*args: Any, **keywords: Any) -> Any:
            return function(*args, **keywords)

        code = call.__code__.replace(co_firstlineno=len(self._compiled) + 1)
        compiled = torch.compile(types.FunctionType(code, globals(), closure=call.__closure__), dynamic=False)

        def run(*args: Any, **keywords: Any) -> Any:
            with stance("default"):
                return compiled(*args, **keywords)

        return run

    def _is_compiled(self) -> bool:
        """Return whether compiled code of the model would run here; that is listed."""
        frame, outermost = inspect.currentframe(), None
        while frame is not None:
            outermost = frame if frame.f_code.co_filename == COMPILED else outermost
            frame = frame.f_back
        if outermost is None:
            return self._compiles
        while outermost is not None and not isinstance(outermost.f_locals.get("self"), nn.Module):
            outermost = outermost.f_back
        paths = {id(module): name for name, module in self._model.named_modules()}
        own = self._model if outermost is None else outermost.f_locals["self"]
        place = paths.get(id(own)) or type(own).__name__
        self._listed(place, "torch.compile", (), "code for several functions; here each is compiled alone")
        return True

    def _entering(self, name: str, module: nn.Module, known: Any) -> Callable[..., None]:
        def enter(_: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            if self._busy:
                return
            self._stack.append(name)
            call = None
            if known is not None and not self._shows_function(module):
                with self._own():
                    call = self._begin(known[0], module, args, keywords, known[1])
            self._began.append((len(self.seen), call))

        return enter

    def _shows_function(self, module: nn.Module) -> bool:
        """Return whether a module only calls a function that leaves its input, and that is compared instead."""
        own = self._compiles or self.in_backward or has_own_forward(module)
        return not own and "forward" not in module.__dict__ and not getattr(module, "inplace", False)

    def _leaving(self, module: nn.Module, known: Any) -> Callable[..., None]:
        def leave(_: nn.Module, args: Any, keywords: Any, output: Any) -> None:
            if self._busy:
                return
            self._stack.pop()
            before, call = self._began.pop()
            y = output[0] if isinstance(output, tuple) and output else output
            if known is None or not isinstance(y, torch.Tensor):
                return
            if call is None and not any(one.kind == known[0].name for one in self.seen[before:]):
                with self._own():  # it was called in another thread, for example
                    call = self._begin(known[0], module, args, keywords, known[1])
            if call is None:
                return
            # A function of the same kind in it is what the module computes, unless a Function of its own hides it.
            inner = [one for one in self.seen[before:] if one.kind == call.seen.kind]
            own = [one for one in self._applied.values() if one.seen in self.seen[before:]]
            if has_own_forward(module) and not own:
                return  # it computes what it likes, by functions that are compared
            if not any(one.differentiable == y.requires_grad for one in inner):
                functions = self.seen[before:]
                self.seen[before:] = [one for one in functions if one not in inner]
                with self._own():
                    self._end(call, output, only_right=has_own_forward(module))
                if call.seen not in self.seen:
                    self.seen[before:] = functions
                    return
                for applied in own:
                    if len(own) == 1 and custom.node_of(y, applied.cls) is not None:
                        applied.covered = call.seen
                    call.seen.functions.append(f"{applied.cls.__qualname__} ({custom.where(applied.cls)})")

        return leave

    @contextlib.contextmanager
    def _own(self) -> Iterator[None]:
        """Call functions of PyTorch without watching them."""
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before

    # --- functions ----------------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, of_types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of PyTorch, and compare what it returned."""
        kwargs = kwargs or {}
        if self._busy:
            return func(*args, **kwargs)
        name, known = name_of(func), known_function(func)
        if name in DETACHING:
            self._detached(name, args[0])
        if name == "register_hook":
            args = args[0], self._hooked(args[1], args[0]), *args[2:]
        compiles = self._is_compiled()
        call = None if known is None else self._begin(known, func, args, kwargs)
        if call is None:
            output = func(*args, **kwargs)
            self._other(name, output)
            return output
        layer = call.seen.translated
        if compiles and not call.moves and not (layer is not None and layer.works_in_place):
            output = self._compiled_function(func, call)(*args, **kwargs)
        else:
            output = func(*args, **kwargs)
        self._end(call, args[0] if output is None else output)
        return output

    def _compiled_function(self, function: Any, call: _Call) -> Any:
        """Return a function that is compiled for the tensors of a call."""
        key = function, *((tuple(one.shape), one.dtype) for one in numbers((call.args, call.keywords)))
        call.seen.compiled = True
        compiled = self._compiled[key] = self._compiled.get(key) or self._compiled_alone(function)
        if call.again is not None:
            call.again.what, call.again.call = compiled, lambda args, keywords, fresh: compiled(*args, **keywords)
        return compiled

    def _other(self, name: str, output: Any) -> None:
        """Count an unknown function that returns a tensor of numbers with a gradient."""
        found = [one for one in numbers(output) if not one.is_leaf]
        if found and name not in CHANGES_NOTHING:
            kind = f" of {str(found[0].dtype).removeprefix('torch.')}" if found[0].is_complex() else ""
            self.others[self._stack[-1] if self._stack else "", name + kind] += 1

    def _detached(self, name: str, tensor: Tensor) -> None:
        """List a place where a gradient ends."""
        if torch.is_grad_enabled() and tensor.requires_grad and not is_lazy(tensor):
            self._listed(self._place(None), name, tuple(tensor.shape), "the gradient of its result ends here")

    def _hooked(self, hook: Callable[[Tensor], Tensor | None], tensor: Tensor) -> Callable[[Tensor], Tensor | None]:
        """Return a hook of the model, which is listed if it changes a gradient."""
        place = self._place(None)

        def call(g: Tensor) -> Tensor | None:
            before = g.detach().clone()
            found = hook(g)
            if not _same(before, g if found is None else found):
                self._listed(place, "register_hook", tuple(g.shape), CHANGED)
            return found

        return call

    def _listed(self, place: str, function: str, shape: tuple[int, ...], reason: str) -> None:
        """List what is not compared, once for each place."""
        row = RecordedCall(place, function, shape, reasons=[reason])
        if not any((one.place, one.function, one.reasons) == (place, function, [reason]) for one in self.seen):
            self.seen.append(row)

    def _begin(
        self, row: Known, function: Any, args: tuple[Any, ...], keywords: dict[str, Any], read: Any = None
    ) -> _Call | None:
        """Translate a call of a function, or of a module if there is ``read``; ``None`` if it has no numbers."""
        module = None if read is None else function
        given = list(numbers((args, keywords))) or list(numbers(getattr(module, "weight", None)))  # of an embedding
        kind, translate, *_ = row
        moves = kind in MOVES or kind in CONVERSIONS
        if not given or (
            moves and not (torch.is_grad_enabled() and any(one.requires_grad and one.numel() for one in given))
        ):
            return None
        x = given[0]
        name = getattr(function, "__name__", "_") if module is None else type(module).__name__
        seen = RecordedCall(
            self._place(module),
            kind if name.startswith("_") or name == "fn" or "." in name else name,
            tuple(x.shape),
            rules_on(x.device),
            kind=kind,
            again=row.again,
            module=module,
            dtype=str(x.dtype).removeprefix("torch."),
            repeated=self.in_backward,
            waiting=self._checks,
        )
        self.rules = tuple(dict.fromkeys((*self.rules, *seen.rules)))
        try:
            if seen.dtype not in DTYPES:
                raise UnsupportedError(f"{seen.dtype}; there are bounds for {', '.join(DTYPES)}")
            if read is not None:
                more, named = read(module)
                args, keywords = (args[0] if args else x, *more), named
            seen.translated = translate(*args, **keywords)
            if not all(one.numel() for one in seen.translated.inputs.values()):
                raise UnsupportedError("a tensor without elements")
            if seen.translated.works_in_place:
                with torch.no_grad():
                    seen.translated.prepare(self._draw)
        except UnsupportedError as error:
            seen.translated, seen.reasons = None, [str(error)]
        except (TypeError, AttributeError, ValueError, RuntimeError, LookupError) as error:
            seen.translated, seen.reasons = None, [f"arguments that an audit does not take: {error}"]
        edges = {} if seen.translated is None else _edges(seen.translated)
        call = _Call(seen, edges, translate, args, keywords, self._draw, moves=moves)
        if seen.translated is not None and row.again and not seen.translated.works_in_place:
            call.again = self._repeatable(function, call)
        return call

    def _repeatable(self, function: Any, call: _Call) -> Repetition:
        """Return what runs a call again."""
        layer, module = call.seen.translated, call.seen.module
        assert layer is not None
        named = {id(tensor): name for name, tensor in (*layer.fixed.items(), *layer.inputs.items())}

        def described(one: Any) -> Any:
            return Like.of(named[id(one)], one) if id(one) in named else one

        args, keywords = changed(call.args, described), changed(call.keywords, described)
        device = str(next(iter(layer.inputs.values())).device.type)
        context = device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        if module is None:

            def run(args: Any, keywords: Any, fresh: Any) -> Any:
                return function(*args, **keywords)
        else:
            own = (*module.named_parameters(), *module.named_buffers())
            paths = {path: named[id(tensor)] for path, tensor in own if id(tensor) in named}

            def run(args: Any, keywords: Any, fresh: Any) -> Any:
                kept = {path: tensor.clone() for path, tensor in module.named_buffers()}
                given = {path: fresh[name] for path, name in paths.items()}
                return torch.func.functional_call(module, {**kept, **given}, (fresh.get("x", args[0]),))

        return Repetition(
            function if module is None else type(module),
            run,
            call.translate,
            args,
            keywords,
            context=context,
        )

    def _end(self, call: _Call, output: Any, *, only_right: bool = False) -> None:
        """Compare the result, and register what waits for the gradients; or record nothing if it is not right."""
        seen, layer = call.seen, call.seen.translated
        results = list(numbers(output)) if isinstance(output, (tuple, list)) else [output]
        results = results if layer is not None and layer.joins else results[:1]
        if call.moves and (
            not any(one.requires_grad and one.numel() for one in results) or results[0] is call.args[0] is not output
        ):
            return
        self.seen.append(seen)
        seen.differentiable = any(one.requires_grad for one in results)
        if layer is None:
            return
        with torch.no_grad():
            y = joined(results)
        first = next(iter(layer.inputs.values()))
        seen.unit = max(map(_unit, (y, *layer.inputs.values())))
        if y.dtype in REDUCED and _is_product(seen) and not layer.works_in_place:
            with torch.no_grad():  # autocast computes products of rounded numbers
                args, keywords = _rounded(call.args, y.dtype), _rounded(call.keywords, y.dtype)
                seen.translated = layer = call.translate(*args, **keywords)
        seen.reasons += layer.notes
        seen.layouts = {name: layout(tensor) for name, tensor in (*layer.inputs.items(), ("result", y))}
        wanted = frozenset(call.edges) if seen.differentiable else frozenset()
        seen.judge(lambda: layer.result(y, wanted, self._draw), _unit(y), _stores(seen, layer, y))
        if only_right and (seen.row().message or not seen.compared):
            self.seen.remove(seen)
            return
        same = results[0] is first and call.edges and _edges(layer) == call.edges
        layer.release()
        if call.again is not None:
            call.again.seen.append(seen)
            self._again.append(call.again)
        call.release()
        if same:
            return  # dropout in evaluation, for example: there is nothing whose gradient could be wrong
        if not seen.differentiable:
            seen.reasons.append(NO_NEED)
        elif wanted:
            call.collect(results)
            self._waiting += [call] if len(results) > 1 else []

    def applied(self, cls: Any, arguments: tuple[Any, ...], apply: Callable[..., Any]) -> Any:
        """Call a function with a backward pass of its own, and record its call."""
        if self._busy or self.in_backward or custom.of_pytorch(cls):
            return apply(*arguments)
        with self._own():
            kept = tuple(one.detach().clone() if isinstance(one, torch.Tensor) else one for one in arguments)
        random = torch.get_rng_state()
        output = apply(*arguments)
        results = [one for one in (output if isinstance(output, tuple) else (output,)) if isinstance(one, torch.Tensor)]
        node = next(filter(None, (custom.node_of(one, cls) for one in results if one.requires_grad)), None)
        if node is None:
            return output
        path = self._stack[-1] if self._stack else ""
        with self._own():
            copies = [one.detach().clone() for one in results]
        x = next((one for one in arguments if isinstance(one, torch.Tensor)), results[0])
        seen = RecordedCall(f"{path} {custom.where(cls)}".strip(), cls.__qualname__, tuple(x.shape), required=True)
        wanted = [k for k, one in enumerate(arguments) if isinstance(one, torch.Tensor) and one.requires_grad]
        applied = Applied(seen, cls, kept, copies, random, wanted=wanted)
        tensors = [k for k, one in enumerate(arguments) if isinstance(one, torch.Tensor)]

        def give(grad_outputs: tuple[Any, ...]) -> None:
            with self._own():  # a backward may change the tensors that it gets
                applied.g = tuple(None if g is None else g.detach().clone() for g in grad_outputs)

        def take(grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
            of = dict(zip(tensors, grad_inputs, strict=False))
            with self._own():
                found = [of.get(k) for k in wanted]
                applied.found = tuple(None if dx is None else dx.detach().clone() for dx in found)
                applied.changes_g = not all(
                    g is None or _same(g, now) for g, now in zip(applied.g, grad_outputs, strict=True)
                )

        node.register_prehook(give)
        node.register_hook(take)
        self._applied[node] = applied
        self.seen.append(seen)
        return output

    def _place(self, module: Any) -> str:
        """Return where a call is: the path of its module, and for a function the line that calls it."""
        path = self._stack[-1] if self._stack else ""
        if module is not None:
            return path or type(self._model).__name__
        frame = inspect.currentframe()
        while frame is not None and frame.f_code.co_filename.startswith((TORCH, HERE)):
            if isinstance(frame.f_locals.get("self"), nn.Module) and frame.f_code.co_filename != COMPILED:
                return path  # a module of PyTorch itself calls the function
            frame = frame.f_back
        if frame is None:
            return path
        return f"{path} {Path(frame.f_code.co_filename).name}:{frame.f_lineno}".strip()


@contextlib.contextmanager
def stance(name: str) -> Iterator[None]:
    """Let compiled functions run as they are written, or compiled again; PyTorch has none until one is made."""
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):
        yield
        return
    with torch.compiler.set_stance(name):
        yield


TORCH = str(Path(torch.__file__).parent)

COMPILED = str(Path(torch.__file__).parent / "_dynamo" / "eval_frame.py")
"""The file of PyTorch from which compiled functions are called."""


REDUCED = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
"""Unit roundoff of the types that are less precise than float32."""


def _is_product(seen: RecordedCall) -> bool:
    """Return whether autocast rounds the arguments."""
    return seen.again == "products" or seen.kind == "scaled_dot_product_attention"


def _stores(seen: RecordedCall, layer: Translated, y: Tensor) -> Callable[[str], float | None]:
    """Return how many partial results of an element are stored in a less precise type, ``None`` for all.

    Functions of elements, normalizations and products compute in float32, and round their results. In float16 on a CPU
    the sums of the taps of a convolution are stored before they are added; so are sums over windows and over rows.
    """
    products = _is_product(seen)
    taps = math.prod(getattr(layer, "size", ())) if products and y.dtype == torch.float16 else 0

    def stores(what: str) -> float | None:
        if products:
            return 1.0 + taps
        if seen.again == "balanced":
            # The scale and the shift of each channel; the bound has a rounding for each element of the means.
            return 8.0 / getattr(layer, "count", 8.0) if what.endswith(("result", "x")) else None
        if seen.kind in ("sigmoid", "tanh") and what.startswith("gradient"):
            return None  # the slope is computed from the result, which was stored
        return 0.0 if seen.again == "pieces" else None

    return stores


def _unit(tensor: Tensor) -> float:
    return REDUCED.get(tensor.dtype, UNIT_ROUNDOFF)


def _rounded(given: Any, dtype: torch.dtype) -> Any:
    """Return arguments with their tensors of floating-point numbers in another type."""
    if isinstance(given, dict):
        return {name: _rounded(one, dtype) for name, one in given.items()}
    if isinstance(given, tuple):
        return tuple(_rounded(one, dtype) for one in given)
    return given.to(dtype) if isinstance(given, torch.Tensor) and given.is_floating_point() else given


def _same(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or (a.shape == b.shape and bool(torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)))


def _edges(layer: Translated) -> dict[str, Any]:
    if not torch.is_grad_enabled():
        return {}
    return {name: get_gradient_edge(tensor) for name, tensor in layer.inputs.items() if tensor.requires_grad}


@dataclass(eq=False)
class _Call:
    """A call, which collects its gradients from its own nodes, before they are added to those of other calls."""

    seen: RecordedCall
    edges: dict[str, Any]
    """Edge of the graph of each input that requires a gradient."""
    translate: Callable[..., Translated]
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    draw: Draw
    again: Repetition | None = None
    """What will run it again, and needs the kind of the gradient."""
    moves: bool = False
    """Whether elements only move."""

    def release(self) -> None:
        """Keep no tensors."""
        self.args, self.keywords = (), {}

    def collect(self, results: list[Tensor]) -> None:
        """Register what takes the gradients of the results and of the inputs."""
        self._like = [(tuple(y.shape), y.dtype, y.device) for y in results]
        self._g: dict[int, Tensor] = {}
        self._found: dict[str, Tensor] = {}
        ends = {k: get_gradient_edge(y) for k, y in enumerate(results) if y.requires_grad}
        boundary = list(_boundary([end.node for end in ends.values()], self.edges))
        self._left = len(boundary)
        if {name for _, places in boundary for _, name in places} != set(self.edges):
            self.seen.reasons.append("no gradient: its graph does not lead from the result to the inputs")
            return
        for k, end in ends.items():
            # Where elements only move, a view is the function itself.
            node, number = end[:2] if self.moves else _computing(end.node, end.output_nr)
            node.register_prehook(partial(self._source, k, number))
        for node, places in boundary:
            node.register_hook(self._taking(places))
        self.seen.reasons.append(NO_GRADIENT)

    def _source(self, k: int, number: int, grad_outputs: tuple[Any, ...]) -> None:
        if grad_outputs[number] is not None:
            self._g[k] = grad_outputs[number]

    def _taking(self, places: list[tuple[int, str]]) -> Callable[..., None]:
        def take(grad_inputs: tuple[Any, ...], grad_outputs: tuple[Any, ...]) -> None:
            for index, name in places:
                dx = grad_inputs[index]
                if dx is not None:
                    self._found[name] = self._found[name] + dx if name in self._found else dx
            self._left -= 1
            if not self._left:
                self.compare()

        return take

    def compare(self) -> None:
        """Compare the gradients, once; of results that got none it is 0."""
        seen, layer = self.seen, self.seen.translated
        assert layer is not None
        if NO_GRADIENT not in seen.reasons or not (self._found or not self._left):
            return
        seen.reasons.remove(NO_GRADIENT)
        found = {name: self._viewed(dx, layer.inputs[name].shape) for name, dx in self._found.items()}
        given, self._g, self._found = self._g, {}, {}
        if not given or not found:
            seen.reasons.append("no gradient: that of the result is undefined")
            return
        each = [
            self._viewed(given[k], shape) if k in given else torch.zeros(shape, dtype=dtype, device=device)
            for k, (shape, dtype, device) in enumerate(self._like)
        ]
        with torch.no_grad():
            g = joined(each)
        whole = tuple(g.shape) if len(each) > 1 else self._like[0][0]
        for name, tensor in [*found.items(), ("result", g)]:
            shape = whole if name == "result" else tuple(layer.inputs[name].shape)
            if tuple(tensor.shape) != shape:
                message = f"shape {tuple(tensor.shape)}, expected {shape}"
                seen.compared.append(Compared(f"gradient for {name}", float("inf"), message))
                return
        seen.layouts["g"] = layout(g)
        first = g[..., :1] if g.dim() else g  # in most cases it decides, in a hundredth of the time
        if not (bool(first.any()) or bool(g.any())):
            seen.reasons.append("gradients: that of the result is 0 everywhere")
            return
        if self.again is not None:
            self.again.g = Like.of("g", g)
        with torch.no_grad():
            seen.judge(lambda: layer.gradients(g, found, self.draw), seen.unit, _stores(seen, layer, g))

    @staticmethod
    def _viewed(tensor: Tensor, shape: Any) -> Tensor:
        """Return a gradient of the tensor that a tensor is a view of, in the shape of the view."""
        return tensor.reshape(shape) if tensor.dim() != len(shape) or tensor.numel() == math.prod(shape) else tensor


NO_GRADIENT = "no gradient: none reached it"

CHANGED = "a hook changes the gradient, on which nothing is compared"

DETACHING = frozenset({"detach", "detach_", "data"})
"""Names of functions and properties that end a gradient."""

CHANGES_NOTHING = frozenset({"requires_grad_", "retain_grad", "grad", "detach_"})
"""Names of functions and properties of tensors that compute nothing."""


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


def _boundary(starts: list[Any], edges: dict[str, Any]) -> Iterator[tuple[Any, list[tuple[int, str]]]]:
    """Yield the nodes of a call that have an edge to one of its inputs: the positions of these, and the inputs."""
    ends = [(name, edge.node, edge.output_nr) for name, edge in edges.items()]
    ends += [(name, *_computing(node, number)) for name, node, number in ends]
    pending, known = list(dict.fromkeys(starts)), set(starts)
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
