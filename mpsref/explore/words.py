"""The layer of a case in other words: Python, the classes of MPS, and the arguments of frameworks; and back."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mpsref import frameworks, padding
from mpsref.arguments.text import shown
from mpsref.conformance.case import Case
from mpsref.errors import UnsupportedError
from mpsref.operations import Problem
from mpsref.padding import Placement

FRAMEWORKS: dict[str, Callable[[Problem], frameworks.CallArguments]] = {
    "PyTorch": frameworks.pytorch,
    "TensorFlow": frameworks.tensorflow,
    "ONNX": frameworks.onnx,
    "JAX": frameworks.jax,
}

CONVENTIONS = ("PyTorch", "TensorFlow", "ONNX", "Caffe", "MPS")
"""The frameworks whose padding can be entered."""


class Spelling(NamedTuple):
    """A layer in the words of a framework, or the sentence why it has none."""

    framework: str
    text: str
    exists: bool


def of_frameworks(problem: Any) -> list[Spelling]:
    """Return the arguments of each framework for a problem of pooling or convolution; nothing for other kernels."""
    if not hasattr(problem, "result_size"):
        return []
    placed = frameworks.canonical(problem) if problem.operation.method == "gradient" else problem
    if placed is None:
        return [Spelling(name, "no pixel of the source gradient contributes", False) for name in FRAMEWORKS]
    found = []
    for name, function in FRAMEWORKS.items():
        try:
            words = function(placed)
        except UnsupportedError as error:
            found.append(Spelling(name, str(error), False))
            continue
        text = ", ".join(f"{key}={value!r}" for key, value in words.keywords.items())
        if words.output_size != words.size:
            text += f"; the result is the first {words.size[0]} x {words.size[1]} of {words.output_size}"
        found.append(Spelling(name, text, True))
    return found


def python_call(case: Case, edits: str = "") -> str:
    """Return Python that computes a case, after the lines that edit its inputs."""
    problem: Any = case.problem
    method = problem.operation.method
    lines = ["import mpsref", "from mpsref.conformance.case import Case", ""]
    names = ", ".join(problem.input_shapes)
    lines.append(f"{names}{',' if len(problem.input_shapes) == 1 else ''} = Case.parse({str(case)!r}).inputs(){edits}")
    lines.append(f"spec = mpsref.{problem.spec!r}")
    known = inspect.signature(getattr(type(problem.spec), method)).parameters
    arguments = []
    for name in list(known)[1:]:
        if name in problem.input_shapes:
            arguments.append(name)
        elif name == "x_or_shape":
            arguments.append("x" if "x" in problem.input_shapes else f"{problem.source_shape}")
        elif name == "source_shape":
            arguments.append(f"{problem.source_shape}")
        elif hasattr(problem, name) and getattr(problem, name) != known[name].default:
            arguments.append(f"{name}={getattr(problem, name)!r}")
    result = {"forward": "y", "gradient_weights": "dw, db"}.get(method, "dx")
    return "\n".join([*lines, f"{result} = spec.{method}({', '.join(arguments)})"])


def mps_call(case: Case) -> str:
    """Return the same layer as calls of :mod:`mpsref.mps`, whose names and arguments are Apple's."""
    problem: Any = case.problem
    spec: Any = problem.spec
    name = f"MPSCNN{type(spec).__name__}"
    if getattr(spec, "dilation", (1, 1)) != (1, 1):
        name = "MPSCNNDilatedPoolingMax"
    method = problem.operation.method
    lines = ["from mpsref import mps", ""]
    if hasattr(problem, "weights_shape"):
        lines += _weighted(spec)
        lines.append(f"kernel = mps.{name}({', '.join(['source', *_properties(spec, ('edge_mode',))])})")
    else:
        lines.append(f"kernel = mps.{name}({', '.join([*_sizes(spec, name), *_properties(spec)])})")
    size = getattr(problem, "output_size", None) or getattr(problem, "gradient_size", None)
    destination = f", destination_size={size}" if size else ""
    if method == "forward":
        return "\n".join([*lines, f"y = kernel.encode(x{destination})"])
    lines.append(f"y, state = kernel.encode(x{destination}, return_state=True)")
    parameters = _properties(spec, ("alpha", "beta", "delta", "p0", "pm", "ps"), offset=False)
    arguments = ["source"] if "source = " in "".join(lines) else [*_sizes(spec, name), *parameters]
    option = f", gradient_option=mps.MPSCNNConvolutionGradientOption.{_OPTIONS[method]}" if method in _OPTIONS else ""
    lines.append(f"gradient = mps.{name}Gradient({', '.join(arguments)}{option})")
    given = [n for n in ("primary_offset", "source_size", "kernel_offset", "clip") if _differs(problem, n)]
    if given:
        lines.append(f"# {', '.join(given)}: set these properties in place of the values from the state")
    result = "gradient.encode(g, x, state)"
    if method == "gradient_weights":
        return "\n".join([*lines, result, "state.synchronize()", "dw = state.gradient_for_weights"])
    return "\n".join([*lines, f"dx = {result}"])


_OPTIONS = {"gradient_data": "GradientWithData", "gradient_weights": "GradientWithWeightsAndBias"}


def _differs(problem: Any, name: str) -> bool:
    default = {one.name: one.default for one in dataclasses.fields(problem)}.get(name)
    return getattr(problem, name, default) != default


def _weighted(spec: Any) -> list[str]:
    """Return the descriptor and the data source of a convolution."""
    (height, width), (stride_y, stride_x) = spec.kernel_size, spec.strides
    properties = [f"stride_in_pixels_x={stride_x}, stride_in_pixels_y={stride_y}"]
    if getattr(spec, "dilations", (1, 1)) != (1, 1):
        properties.append(f"dilation_rate_x={spec.dilations[1]}, dilation_rate_y={spec.dilations[0]}")
    return [
        f"descriptor = mps.MPSCNNConvolutionDescriptor({width}, {height}, 1, 1, {', '.join(properties)})",
        "source = mps.ArrayConvolutionDataSource(descriptor, weights)",
    ]


def _sizes(spec: Any, name: str) -> list[str]:
    """Return the arguments of the constructor of a kernel, x before y."""
    if hasattr(spec, "scale"):
        aligned = [f"align_corners={spec.align_corners}"] if hasattr(spec, "align_corners") else []
        return [f"integer_scale_factor_x={spec.scale[1]}", f"integer_scale_factor_y={spec.scale[0]}", *aligned]
    found = [f"kernel_width={spec.kernel_size[1]}", f"kernel_height={spec.kernel_size[0]}"]
    if "Dilated" in name:
        found += [f"dilation_rate_x={spec.dilations[1]}", f"dilation_rate_y={spec.dilations[0]}"]
    if hasattr(spec, "strides"):
        found += [f"stride_in_pixels_x={spec.strides[1]}", f"stride_in_pixels_y={spec.strides[0]}"]
    return found


PARAMETERS = ("edge_mode", "zero_pad_size", "alpha", "beta", "delta", "p0", "pm", "ps")


def _properties(spec: Any, only: tuple[str, ...] = PARAMETERS, offset: bool = True) -> list[str]:
    """Return the properties of a kernel that differ from their defaults."""
    found = []
    defaults = {one.name: one.default for one in dataclasses.fields(spec)}
    if offset and getattr(spec, "offset", (0, 0)) != (0, 0):
        found.append(f"offset=({spec.offset[1]}, {spec.offset[0]}, 0)")
    for name in only:
        value = getattr(spec, name, None)
        if value is None or value == defaults.get(name, value):
            continue
        if name == "zero_pad_size":
            found.append(f"zero_pad_size_x={value[1]}, zero_pad_size_y={value[0]}")
        else:
            found.append(f"{name}={value!r}")
    return found


def placed(case: Case, form: Mapping[str, str]) -> Case:
    """Return a case with the windows of a framework's padding.

    Parameters
    ----------
    case : Case
        A forward pass or a gradient of pooling or convolution.
    form : mapping of str
        ``framework``, ``padding`` ("1", "0, 1", "SAME", ...), and "on" for ``ceil_mode`` and ``count_include_pad``.

    Raises
    ------
    ValueError, TypeError or UnsupportedError
        For arguments that the framework does not have.
    """
    problem: Any = case.problem
    spec: Any = problem.spec
    if not hasattr(spec, "framework_padding"):
        raise UnsupportedError(f"{type(spec).__name__} has no padding; use pooling or a convolution")
    placement = _placement(spec, problem.source_shape[1:3], form)
    changes: dict[str, Any] = {"offset": placement.offset}
    if spec.framework_padding == "counted":
        changes |= {"edge_mode": placement.edge_mode, "zero_pad_size": placement.zero_pad_size}
    new = dataclasses.replace(spec, **changes)
    size = "output_size" if case.problem.operation.method == "forward" else "gradient_size"
    values: Any = {"spec": new, size: placement.output_size}
    return dataclasses.replace(case, problem=dataclasses.replace(case.problem, **values))


def _placement(spec: Any, image: tuple[int, ...], form: Mapping[str, str]) -> Placement:
    framework, text = form.get("framework", ""), form.get("padding", "").strip()
    ceil_mode, count = form.get("ceil_mode") == "on", form.get("count_include_pad") == "on"
    dilations: dict[str, Any] = {"dilations": getattr(spec, "dilations", (1, 1))}
    sizes: dict[str, Any] = {"input_size": image, "kernel_size": spec.kernel_size, "strides": spec.strides}
    numbers = _integers(text)
    if framework == "PyTorch":
        words: dict[str, Any] = {"padding": _one_or_two(numbers), "ceil_mode": ceil_mode, "count_include_pad": count}
        return padding.pytorch(**sizes, **dilations, **words)
    if framework == "TensorFlow":
        return padding.tensorflow(**sizes, **dilations, padding=text or "SAME")
    if framework == "ONNX":
        pads = {"auto_pad": text} if numbers is None else {"pads": numbers or (0, 0, 0, 0)}
        return padding.onnx(**sizes, **dilations, **pads, ceil_mode=ceil_mode, count_include_pad=count)
    if framework == "Caffe":
        return padding.caffe(**sizes, pad=_one_or_two(numbers))
    if framework == "MPS":
        methods = {bit.name: bit for bit in padding.PaddingMethod if bit.name and bit.name.startswith("Size")}
        methods |= {"SizeValidOnly": padding.PaddingMethod.SizeValidOnly}
        if text not in methods:
            raise ValueError(f"padding is {shown(text)}; the policies of MPS are {', '.join(methods)}")
        return padding.mps(**sizes, **dilations, policy=methods[text])
    raise ValueError(f"framework is {shown(framework)}; use one of {', '.join(CONVENTIONS)}")


def _integers(text: str) -> tuple[int, ...] | None:
    """Return the integers of a text; ``None`` if it has words."""
    try:
        return tuple(int(part) for part in text.replace("(", "").replace(")", "").split(",") if part.strip())
    except ValueError:
        return None


def _one_or_two(numbers: tuple[int, ...] | None) -> Any:
    if numbers is None or len(numbers) > 2:
        raise ValueError("padding must be one integer, or two: y, x")
    return numbers[0] if len(numbers) == 1 else numbers or 0
