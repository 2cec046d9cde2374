"""Run the Metal kernels of mlx-lm on the CPU, under all checks, and compare them with NumPy or with plain MLX.

    python -m pip install "mlx[cpu]"
    python -m pip install --no-deps mlx-lm
    python scripts/mlx_lm_kernels.py

The modules of mlx-lm are imported from the installed package and called as they are: nothing of them is copied.
Packages that these modules import only for other things, such as transformers, need not be installed. It prints a row
for each kernel; the exit status is 1 if one disagrees, if a kernel has other reports than the race that is known, or if
one of the package did not run.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

import anymetal

UNUSED = ("transformers", "huggingface_hub", "tokenizers", "sentencepiece", "safetensors", "datasets", "tqdm", "jinja2")
"""Packages that mlx-lm imports and its kernels do not use."""

Pairs: TypeAlias = list[tuple[Any, Any]]
"""Results of a kernel, and what they should be."""


class Absent(MetaPathFinder, Loader):
    """Modules without contents, in the place of packages that are not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find what is not installed."""
        return ModuleSpec(name, self, is_package=True) if name.partition(".")[0] in UNUSED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make a module; each name in it is a class."""

        def named(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)
            return type(name, (), {"register": classmethod(lambda *_, **__: None)})

        module = ModuleType(spec.name)
        module.__getattr__ = named  # type: ignore[method-assign]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def missing() -> str | None:
    """Return why the kernels cannot run."""
    try:
        importlib.import_module("mlx.core")
    except ImportError as error:
        return f"mlx.core cannot be imported ({error}): pip install 'mlx[cpu]'"
    return None if find_spec("mlx_lm") else "mlx-lm is not installed: pip install --no-deps mlx-lm"


@contextmanager
def imported(**options: Any) -> Iterator[Callable[[str], Any]]:
    """Let mlx-lm find Metal; yield a function that imports its modules, which make their kernels then."""
    from anymetal.mlx import metal

    finder, known = Absent(), set(sys.modules)
    sys.meta_path.append(finder)
    try:
        with metal(**options):
            yield lambda name: importlib.import_module(f"mlx_lm.{name}")
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in (*UNUSED, "mlx_lm"):
                del sys.modules[name]


def numbers(array: Any) -> NDArray[np.float64]:
    """Return an array of MLX in float64."""
    import mlx.core as mx

    values: NDArray[np.float64] = np.array(array.astype(mx.float32), np.float64)
    return values


class Draw:
    """Random arrays, from a seed."""

    def __init__(self) -> None:
        """Start with seed 0."""
        self._random = np.random.default_rng(0)

    def __call__(self, *shape: int, low: float = -1, high: float = 1) -> Any:
        """Return numbers between two."""
        import mlx.core as mx

        return mx.array(self._random.uniform(low, high, shape).astype(np.float32))


def rms(x: NDArray[np.float64], eps: float) -> NDArray[np.float64]:
    """Divide rows by the root of their mean square."""
    rows: NDArray[np.float64] = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return rows


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


HEADS: dict[str, Any] = {"n_heads": 3, "n_kv_heads": 2, "head_dim": 40, "eps": 1e-5, "query_scale": 1.7}


def _heads(qkvg: Any) -> tuple[Any, Any]:
    x = numbers(qkvg).reshape(*qkvg.shape[:-1], -1, 40)
    return rms(x[..., :3, :], 1e-5) * 1.7, rms(x[..., 3:5, :], 1e-5)


def qk_norm(load: Callable[[str], Any]) -> Pairs:
    """2 x 5 tokens, heads of 40."""
    qkvg = Draw()(2, 5, 10 * 40)
    return list(zip(load("kernels").qk_norm(qkvg, **HEADS), _heads(qkvg), strict=True))


def qk_norm_rope(load: Callable[[str], Any]) -> Pairs:
    """2 x 5 tokens from positions 3 and 11 on."""
    import mlx.core as mx

    qkvg, start = Draw()(2, 5, 10 * 40), np.array([3, 11])
    done = load("kernels").qk_norm_rope(qkvg, **HEADS, rope_base=1e4, offset=mx.array(start))
    angle = (start[:, None] + np.arange(5))[:, :, None, None] * 1e4 ** (-np.arange(0, 40, 2) / 40)

    def rotated(x: Any) -> Any:
        even, odd = x[..., ::2], x[..., 1::2]
        pairs = even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle)
        return np.stack(pairs, -1).reshape(x.shape)

    return list(zip(done, map(rotated, _heads(qkvg)), strict=True))


def expert_routing(load: Callable[[str], Any]) -> Pairs:
    """2 x 3 tokens, 4 of 40 experts."""
    draw = Draw()
    logits, bias = draw(2, 3, 40), draw(40)
    options = {"top_k": 4, "multiplier": 0.7, "score_eps": 1e-2, "route_scale": 2.5}
    experts, weights = load("kernels").expert_routing(logits, bias, **options)
    scores = sigmoid(numbers(logits) * 0.7)
    best = np.argsort(-(scores + numbers(bias)), -1)[..., :4]
    chosen = np.take_along_axis(scores, best, -1)
    return [(experts, best), (weights, chosen / (chosen.sum(-1, keepdims=True) + 1e-2) * 2.5)]


def post_expert_norm_combine(load: Callable[[str], Any]) -> Pairs:
    """3 rows of 1000, 4 experts."""
    draw = Draw()
    experts, weights, scale = draw(3, 4, 1000), draw(3, 4), draw(1000)
    done = load("kernels").post_expert_norm_combine(experts, weights, norm_weight=scale, eps=1e-6)
    return [(done, (rms(numbers(experts) * numbers(scale), 1e-6) * numbers(weights)[..., None]).sum(-2))]


def rms_norm_sigmoid_gate(load: Callable[[str], Any]) -> Pairs:
    """2 x 5 tokens, 3 heads of 40, with strides."""
    draw = Draw()
    x, gate = draw(2, 5, 3, 40).transpose(0, 2, 1, 3), draw(2, 5, 240)[..., 120:]
    done = load("kernels").rms_norm_sigmoid_gate(x, gate, eps=1e-5)
    rows = rms(numbers(x), 1e-5).transpose(0, 2, 1, 3).reshape(2, 5, 120)
    return [(done, rows * sigmoid(numbers(gate)))]


def norm_add_norm(load: Callable[[str], Any]) -> Pairs:
    """3 rows of 1000."""
    return _norm_add(load, True)


def norm_add(load: Callable[[str], Any]) -> Pairs:
    """3 rows of 1000, without the second norm."""
    return _norm_add(load, False)


def _norm_add(load: Callable[[str], Any], is_followed: bool) -> Pairs:
    import mlx.nn as nn

    draw = Draw()
    branch, stream, alpha, beta, scale = draw(3, 1000), draw(3, 1000), draw(1000), draw(1000), draw(1000)
    norm = nn.RMSNorm(1000, eps=1e-5)
    norm.weight = draw(1000)
    done, normed = load("kernels").norm_add_norm(
        branch,
        stream,
        alpha=alpha,
        beta=beta,
        post_weight=scale,
        post_eps=1e-6,
        next_norm=norm if is_followed else None,
    )
    new = numbers(alpha) * numbers(stream) + numbers(beta) * rms(numbers(branch) * numbers(scale), 1e-6)
    return [(done, new)] + ([(normed, rms(new, 1e-5) * numbers(norm.weight))] if is_followed else [])


def pre_norm(load: Callable[[str], Any]) -> Pairs:
    """3 rows of 1000."""
    import mlx.core as mx
    import mlx.nn as nn

    draw = Draw()
    stream, norm = draw(3, 1000), nn.RMSNorm(1000, eps=1e-5)
    norm.weight = draw(1000)
    done = load("kernels").pre_norm(stream, norm, dtype=mx.float32)
    return [(done, rms(numbers(stream), 1e-5) * numbers(norm.weight))]


def gated_delta(kind: str, load: Callable[[str], Any]) -> Pairs:
    """2 x 5 tokens, 4 heads of values and 2 of keys."""
    import mlx.core as mx

    draw, module = Draw(), load("models.gated_delta")
    size = 128 if kind in ("packed", "xtree") else 64
    q, k, v = draw(2, 5, 2, size, low=-0.1, high=0.1), draw(2, 5, 2, size, low=-0.1, high=0.1), draw(2, 5, 4, 8)
    decay = draw(*(2, 5, 4, size) if kind.startswith("vector") else (2, 5, 4), low=0.8)
    arrays = [q, k, v, decay, draw(2, 5, 4, low=0), draw(2, 4, 8, size)]
    mask = mx.arange(5)[None] < mx.array([[5], [3]]) if kind.endswith("mask") else None
    run = module.gated_delta_kernel_xtree if kind == "xtree" else module.gated_delta_kernel
    done, state = run(*arrays, mask)
    expected, last = module.gated_delta_ops(*arrays, mask)
    if mask is not None:  # the kernel gives zeros there, the formula does not
        expected = mx.where(mask[..., None, None], expected, 0)
    return [(done, expected), (state, last)]


def ssm(load: Callable[[str], Any]) -> Pairs:
    """2 x 4 heads of 8, states of 64."""
    draw = Draw()
    x, log, state = draw(2, 1, 4, 8), draw(4), draw(2, 4, 8, 64)
    b, c, d, dt, bias = draw(2, 1, 2, 64), draw(2, 1, 2, 64), draw(4), draw(2, 1, 4), draw(4)
    done, after = load("models.ssm").ssm_update_kernel(x, log, b, c, d, dt, bias, state, (0.001, 100.0))
    step = np.clip(np.log1p(np.exp(numbers(dt) + numbers(bias))), 0.001, 100.0)[:, 0]
    rows, left, right = numbers(x)[:, 0], *(np.repeat(numbers(one)[:, 0], 2, 1) for one in (b, c))
    new = np.exp(-np.exp(numbers(log)) * step)[..., None, None] * numbers(state)
    new = new + (rows * step[..., None])[..., None] * left[:, :, None]
    return [(done, ((new * right[:, :, None]).sum(-1) + rows * numbers(d)[:, None])[:, None]), (after, new)]


def wkv7(load: Callable[[str], Any]) -> Pairs:
    """2 x 5 tokens, 2 heads of 64."""
    draw = Draw()
    r, w, k, v, a, b = (draw(2, 5, 2, 64, low=-0.3, high=0.3) for _ in range(6))
    state = draw(2, 2, 64, 64)
    done, last = load("models.rwkv7").wkv7_kernel(r, w, k, v, a, b, state)
    now, rows = numbers(state), []
    for t in range(5):
        r_, w_, k_, v_, a_, b_ = (numbers(one)[:, t] for one in (r, w, k, v, a, b))
        gained = v_[..., None] * k_[..., None, :] + (now @ a_[..., None]) * b_[..., None, :]
        now = now * w_[..., None, :] + gained
        rows.append((now @ r_[..., None])[..., 0])
    return [(done, np.stack(rows, 1)), (last, now)]


def bitlinear(load: Callable[[str], Any]) -> Pairs:
    """3 rows of 128 to 12, with weights of 2 bits."""
    import mlx.core as mx

    layer = load("models.bitlinear_layers").BitLinear(128, 12, bias=False)
    packed = np.random.default_rng(0).integers(0, 3, (4, 3, 128), np.uint8)
    layer.weight = mx.array(packed[0] | packed[1] << 2 | packed[2] << 4 | packed[3] << 6)
    layer.weight_scale = mx.array([0.5])
    x = Draw()(3, 128)
    return [(layer(x), numbers(x) @ (packed.reshape(12, 128).T - 1.0) * 0.5)]


def attnres_mix(load: Callable[[str], Any]) -> Pairs:
    """3 rows of 600, 4 blocks."""
    draw, module = Draw(), load("models.kimi_k3")
    blocks, scale, part = module.ResidualBlocks(1e-5), draw(600), draw(3, 600)
    rows = [draw(3, 600) for _ in range(4)]
    for one in rows:
        blocks.append(one)
    every = np.stack([numbers(one) for one in (*rows, part)])
    logits = np.exp(rms(every, 1e-5) @ numbers(scale))
    return [(module._attn_res_mix(blocks, part, scale, 1e-5), ((logits / logits.sum(0))[..., None] * every).sum(0))]


def sinkhorn(load: Callable[[str], Any]) -> Pairs:
    """6 matrices of 4 x 4, 5 iterations."""
    import mlx.core as mx

    x = Draw()(2, 3, 4, 4, low=0.1)
    done = load("models.deepseek_v41")._sinkhorn(x, iters=5, eps=mx.array([1e-6]))
    expected = numbers(x)
    for axis in (-2, *(-1, -2) * 4):
        expected = expected / (expected.sum(axis, keepdims=True) + 1e-6)
    return [(done, expected)]


def loss(name: str, is_backward: bool, load: Callable[[str], Any]) -> Pairs:
    """2 rows of 5000 logits."""
    import mlx.core as mx

    draw, module = Draw(), load("tuner.losses")
    q, p, cotangent = draw(2, 5000), draw(2, 5000), draw(2)
    function = getattr(module, f"{name}_div_loss")
    left, right = (one - np.log(np.exp(one).sum(-1, keepdims=True)) for one in (numbers(q), numbers(p)))
    to, of = np.exp(right), np.exp(left)
    log = right if name == "kl" else np.log((to + of) / 2)
    value = (to * (right - left)).sum(-1)
    gradient = of - to
    if name == "js":
        value = ((to * (right - log)).sum(-1) + (of * (left - log)).sum(-1)) / 2
        gradient = of * (left - log - (of * (left - log)).sum(-1, keepdims=True)) / 2
    if not is_backward:
        return [(function(q, p), value)]
    return [(mx.vjp(function, [q, p], [cotangent])[1][0], gradient * numbers(cotangent)[:, None])]


@dataclass(frozen=True)
class Case:
    """A kernel of mlx-lm, how it is called, and what it is compared with."""

    kernel: str
    file: str
    plain: str
    run: Callable[[Callable[[str], Any]], Pairs]
    is_race: bool = False
    """Whether its text has the race of ml-explore/mlx-lm#1700."""


def _delta(kernel: str, kind: str) -> Case:
    def run(load: Callable[[str], Any]) -> Pairs:
        return gated_delta(kind, load)

    return Case(kernel, "models/gated_delta.py", "MLX, `gated_delta_ops`", run)


def _loss(name: str, is_backward: bool) -> Case:
    def run(load: Callable[[str], Any]) -> Pairs:
        return loss(name, is_backward, load)

    kernel = f"{name}_{'backward' if is_backward else 'forward'}"
    return Case(kernel, "tuner/losses.py", "NumPy", run, True)


CASES = (
    Case("qk_norm", "kernels/qk_norm.py", "NumPy", qk_norm),
    Case("qk_norm_rope", "kernels/qk_norm_rope.py", "NumPy", qk_norm_rope),
    Case("expert_routing", "kernels/expert_routing.py", "NumPy", expert_routing),
    Case("post_expert_norm_combine", "kernels/post_expert_norm_combine.py", "NumPy", post_expert_norm_combine),
    Case("rms_norm_sigmoid_gate", "kernels/rms_norm_sigmoid_gate.py", "NumPy", rms_norm_sigmoid_gate),
    Case("norm_add_norm", "kernels/norm_add_norm.py", "NumPy", norm_add_norm),
    Case("norm_add", "kernels/norm_add_norm.py", "NumPy", norm_add),
    Case("norm_add_norm_pre_norm", "kernels/norm_add_norm.py", "NumPy", pre_norm),
    _delta("gated_delta_step", "plain"),
    _delta("gated_delta_step_mask", "mask"),
    _delta("gated_delta_step_vec", "vector"),
    _delta("gated_delta_step_vec_mask", "vector mask"),
    _delta("gated_delta_step_xtree", "xtree"),
    _delta("gated_delta_step_packed_btree", "packed"),
    Case("ssm_kernel", "models/ssm.py", "NumPy", ssm),
    Case("wkv7_kernel", "models/rwkv7.py", "NumPy", wkv7),
    Case("bitlinear_matmul", "models/bitlinear_layers.py", "NumPy", bitlinear),
    Case("attnres_mix", "models/kimi_k3.py", "NumPy", attnres_mix),
    Case("deepseek_v41_sinkhorn", "models/deepseek_v41.py", "NumPy", sinkhorn),
    _loss("kl", False),
    _loss("kl", True),
    _loss("js", False),
    _loss("js", True),
)


def repaired(source: str) -> str:
    """Return the text of a loss with the barriers that it lacks."""
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"
    return re.sub(r"(\n *max_p = shared\[[^\n]*)", rf"\1 {barrier}", source).replace("mem_none", "mem_threadgroup")


def run(case: Case) -> tuple[float, list[str]]:
    """Run a case; return the largest error of its values, and the kinds of errors that the checks report.

    A kernel with reports runs again, repaired, for its values.
    """
    reports: list[str] = []
    try:
        pairs = results(case, lambda name, source: source if name == case.kernel else repaired(source))
    except anymetal.LaunchError as error:
        reports = sorted({one.kind for one in error.findings if one.level == "error"})
        pairs = results(case, lambda _, source: repaired(source))
    return max(largest_error(*one) for one in pairs), reports


def results(case: Case, change: Callable[[str, str], str]) -> Pairs:
    """Return the results of a case, whose kernels have the text ``change(name, text)``."""
    import mlx.core as mx

    ran = set()
    with imported() as load:
        make = mx.fast.metal_kernel

        def changed(*args: Any, name: str, source: str, **options: Any) -> Callable[..., Any]:
            kernel = make(*args, name=name, source=change(name, source), **options)

            def call(**arguments: Any) -> Any:
                ran.add(name)
                return kernel(**arguments)

            return call

        with patch.object(mx.fast, "metal_kernel", changed):
            pairs = case.run(load)
    if case.kernel not in ran:
        raise ValueError(f"{case.kernel} did not run, but {', '.join(sorted(ran))}")
    return pairs


def largest_error(found: Any, expected: Any) -> float:
    """Return the largest error, relative to the largest number; infinity for another shape."""
    wanted = expected if isinstance(expected, np.ndarray) else numbers(expected)
    if found.shape != wanted.shape:
        return float("inf")
    return float(np.abs(numbers(found) - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def sampled(x: NDArray[np.float64], grid: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample images (N, H, W, C) at places from -1 to 1, bilinearly; outside they are 0."""
    (_, height, width, _), out = x.shape, np.zeros(1)
    column, row = ((grid[..., 0] + 1) * width - 1) / 2, ((grid[..., 1] + 1) * height - 1) / 2
    for i, j in np.ndindex(2, 2):
        r, c = np.floor(row).astype(int) + i, np.floor(column).astype(int) + j
        weight = (1 - np.abs(row - r)) * (1 - np.abs(column - c))
        weight = weight * ((r >= 0) & (r < height) & (c >= 0) & (c < width))
        image = np.arange(len(x))[:, None, None]
        out = out + weight[..., None] * x[image, r.clip(0, height - 1), c.clip(0, width - 1)]
    return out


def _exponential(view: Callable[[Any], Any], names: dict[str, Any]) -> Pairs:
    x = view(Draw()(8, 16))
    return [(names["exp_elementwise"](x), np.exp(numbers(x)))]


def _sample(largest: float, names: dict[str, Any]) -> Pairs:
    draw = Draw()
    x, grid = draw(2, 6, 5, 4), draw(2, 3, 4, 2, low=-largest, high=largest)
    names["forward"] = names["kernel"]  # the name is used again below
    return [(names["grid_sample"](x, grid), sampled(numbers(x), numbers(grid)))]


def _sample_gradient(height: int, width: int, names: dict[str, Any]) -> Pairs:
    """Compare derivatives along a random direction."""
    import mlx.core as mx

    draw, backward = Draw(), names["kernel"]
    x, grid = draw(2, height, width, 4), draw(2, 3, 4, 2, low=-0.5, high=0.5)
    cotangent, *along = draw(2, 3, 4, 4), numbers(draw(*x.shape)), numbers(draw(*grid.shape))
    either = {2: names["forward"], 3: backward}
    names["kernel"] = lambda **options: either[len(options["inputs"])](**options)
    found = mx.vjp(names["grid_sample"], [x, grid], [cotangent])[1]
    names["kernel"] = backward
    pairs, arrays, step = [], [numbers(x), numbers(grid)], 1e-6
    for i in range(2):
        near = [[one + h * along[j] if i == j else one for j, one in enumerate(arrays)] for h in (step, -step)]
        ends = [sampled(*one) for one in near]
        slope = ((ends[0] - ends[1]) * numbers(cotangent)).sum() / (2 * step)
        pairs.append((mx.array([(numbers(found[i]) * along[i]).sum()]), np.array([slope])))
    return pairs


EXAMPLES: dict[str, dict[str, Callable[[dict[str, Any]], Pairs]]] = {
    "myexp": {"myexp": partial(_exponential, lambda x: x)},
    "myexp_strided": {
        "myexp_strided, every other row": partial(_exponential, lambda x: x[::2]),
        "myexp_strided, reversed": partial(_exponential, lambda x: x[::-1]),
    },
    "grid_sample": {
        "grid_sample, inside": partial(_sample, 0.5),
        "grid_sample, at the border": partial(_sample, 0.99),
    },
    "grid_sample_grad": {
        "grid_sample_grad, 6 x 4": partial(_sample_gradient, 6, 4),
        "grid_sample_grad, 6 x 5": partial(_sample_gradient, 6, 5),
    },
}
"""What is run after the block of MLX's page of examples that makes a kernel."""


def examples(page: Path) -> Iterator[tuple[str, str]]:
    """Run MLX's examples of kernels; yield what was run, and its error or the first report."""
    import mlx.core as mx

    from anymetal.mlx import metal

    names: dict[str, Any] = {"mx": mx, "np": np}
    with metal():
        blocks = re.findall(r"^\.\. code-block:: python\n\s*\n((?: +[^\n]*\n|\s*\n)+)", page.read_text(), re.MULTILINE)
        for block in map(textwrap.dedent, blocks):
            if not re.match(r"x\.shape", block):  # the sizes of a measurement
                exec(block, names)
            made = re.search(r'name="(\w+)"', block)
            for what, run_example in EXAMPLES.get(made[1] if made else "", {}).items():
                try:
                    yield what, f"{max(largest_error(*one) for one in run_example(names)):.1e}"
                except anymetal.LaunchError as error:
                    yield what, next(one.kind for one in error.findings if one.level == "error")


def declared() -> set[str]:
    """Return the names of kernels in the text of the package, those with a computed name up to the first brace."""
    spec = find_spec("mlx_lm")
    folders = (spec and spec.submodule_search_locations) or ()
    texts = (path.read_text() for folder in folders for path in sorted(Path(folder).rglob("*.py")))
    calls = (call for text in texts for call in text.split("metal_kernel(")[1:])
    return {found[1] for call in calls if (found := re.match(r"\s*name=f?\"(\w+)", call))}


LARGEST = 2e-5
"""The largest error, relative to the largest number; the losses use fast functions."""


def main() -> None:
    """Run all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, metavar="DIR", help="MLX's sources: run its page of examples, too")
    options = parser.parse_args()
    page = options.checkout and options.checkout / "docs/src/dev/custom_metal_kernels.rst"
    if page and not page.is_file():
        parser.error(f"--checkout: there is no {page}")
    if reason := missing():
        raise SystemExit(reason)
    failed, kinds = 0, Counter[str]()
    print("| kernel | file | compared with | largest error | reports |\n| - | - | - | - | - |")
    for case in CASES:
        error, reports = run(case)
        is_right = error <= LARGEST and ("race" in reports if case.is_race else not reports)
        failed += not is_right
        kinds.update(reports)
        print(f"| {case.kernel} | {case.file} | {case.plain} | {error:.1e} | {', '.join(reports)} |"
              f"{'' if is_right else ' wrong'}", flush=True)  # fmt: skip
    unknown = declared() - {case.kernel for case in CASES}
    if unknown:
        print("without a case:", ", ".join(sorted(unknown)))
    found = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
    print(f"mlx-lm {version('mlx-lm')}: {len(CASES)} kernels, {len(CASES) - failed} as expected; reports: {found}")
    if page:
        print("\n| example of MLX | largest error, or report |\n| - | - |")
        for row in examples(page):
            print(f"| {' | '.join(row)} |", flush=True)
    sys.exit(bool(failed or unknown))


if __name__ == "__main__":
    main()
