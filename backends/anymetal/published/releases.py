"""Published faults of Metal kernels in the releases that have them, and nothing in those that do not.

The packages come from PyPI into a folder (300 MB for all) and stay there; nothing of them is copied elsewhere. Each
fault is a kernel of two releases, run once with the checks of accesses. It counts as found if an error of the expected
kind names a line with the expected text.
"""

from __future__ import annotations

import ast
import io
import re
import tarfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urljoin

import numpy as np

import anymetal
from anymetal import clang
from anymetal.clang.findings import Finding
from published.bench import KERNELS, KernelBug, described

INDEX = "https://pypi.org/simple/"


class Remote(io.RawIOBase):
    """A file behind a URL that is read in pieces: of a large wheel only the directory and a few headers."""

    def __init__(self, url: str) -> None:
        """Ask for the length."""
        self._url, self._at = url, 0
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:
            self._length = int(answer.headers["Content-Length"])

    def seekable(self) -> bool:
        """Return whether positions can be set."""
        return True

    def readable(self) -> bool:
        """Return whether it can be read."""
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position."""
        self._at = offset + (0, self._at, self._length)[whence]
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read a piece."""
        last = min(self._at + len(buffer), self._length) - 1
        if last < self._at:
            return 0
        asked = urllib.request.Request(self._url, headers={"Range": f"bytes={self._at}-{last}"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            data = answer.read()
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@dataclass(frozen=True)
class Release:
    """A file of a release, and the folder that it is unpacked into."""

    package: str
    file: str
    folder: Path

    def unpack(self, wanted: str) -> Path:
        """Return a folder with the members of the release whose names match a pattern."""
        into = self.folder / self.file
        if into.is_dir():
            return into
        with urllib.request.urlopen(f"{INDEX}{self.package}/", timeout=60) as page:
            links = dict(re.findall(r'<a[^>]*href="([^"#]+)[^"]*"[^>]*>([^<]+)</a>', page.read().decode()))
        url = next((link for link, name in links.items() if name.strip() == self.file), None)
        if url is None:
            raise FileNotFoundError(f"{INDEX}{self.package}/ has no {self.file}")
        url = urljoin(f"{INDEX}{self.package}/", url)
        for name, data in _members(url, wanted):
            path = into / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return into


def _members(url: str, wanted: str) -> Iterator[tuple[str, bytes]]:
    if url.endswith(".whl"):
        with zipfile.ZipFile(io.BufferedReader(Remote(url), 1 << 20)) as wheel:
            names = [name for name in wheel.namelist() if re.search(wanted, name) and not name.endswith("/")]
            yield from ((name, wheel.read(name)) for name in names)
        return
    with urllib.request.urlopen(url, timeout=600) as answer:
        data = answer.read()
    with tarfile.open(fileobj=io.BytesIO(data)) as sdist:
        for member in sdist:
            if member.isfile() and re.search(wanted, member.name) and (file := sdist.extractfile(member)):
                yield member.name.partition("/")[2], file.read()


Found: TypeAlias = tuple[str, list[Finding]]
"""A source, and the findings of a launch."""


@dataclass(frozen=True)
class Fault:
    """A published fault: the releases with and without it, and how its kernel is run."""

    name: str
    where: str
    package: str
    files: tuple[str, str]
    wanted: str
    run: Callable[[Path], Found]
    kind: str
    says: str
    mechanism: str
    repair: Callable[[Path], Found] | None = None
    """How the repaired kernel is run, where no release has it."""


def find(source: str, kernel: str, grid: Any, group: Any, *arguments: Any, **options: Any) -> Found:
    """Run a kernel with checks; return what is found."""
    local, whole = options.pop("local", None), options.pop("whole", False)
    known: dict[str, Any] = {"sanitize": True, "check_order": False, "version": "3.2", "levels": {"unread": "off"}}
    compiled = anymetal.compile(source, **known, **options)[kernel]
    try:
        done = (compiled.threadgroups if whole else compiled)(grid, group, *arguments, local=local)
    except anymetal.LaunchError as error:
        if not error.findings:
            raise
        return source, list(error.findings)
    return source, list(done.findings)


def undefined(count: int) -> Any:
    """Return an output."""
    return anymetal.undefined(np.zeros(count, np.float32))


def _text(folder: Path, name: str) -> tuple[str, Path]:
    path = next(folder.rglob(name))
    return path.read_text(), path.parent


def ggml_matmul(folder: Path) -> Found:
    """Multiply two blocks along k, as ggml_metal_graph_compute does for float16 weights."""
    source, _ = _text(folder, "ggml-metal.metal")
    m, n, k = 64, 32, 64
    a, b = np.ones((m, k), np.float16), np.ones((n, k), np.float32)
    sizes = [np.int64(one) for one in (k, 1, 2 * k, 2 * k * m, 1, m, n)]
    return find(
        source, "kernel_mul_mm_f16_f32", (1, 1, 1), (128, 1, 1), a.view(np.uint8), b, undefined(m * n), *sizes,
        np.uint32(1), local={0: 8192}, whole=True,
    )  # fmt: skip


def ggml_norm(folder: Path) -> Found:
    """Normalize two rows."""
    source, _ = _text(folder, "ggml-metal.metal")
    x = np.arange(512, dtype=np.float32)
    row = np.int64(256), np.uint64(1024), np.float32(1e-5)
    return find(source, "kernel_norm", 2, 256, x, undefined(512), *row, local={0: 1024}, whole=True)


BLOCKS = {"q2_K": 84, "q3_K": 110, "q4_K": 144, "q5_K": 176, "q6_K": 210}
"""Bytes of a block of 256 weights."""


def ggml_vector(kind: str, folder: Path) -> Found:
    """Multiply a matrix of 5 rows with a vector; its memory has the 8 rows of a whole tile, all of which are read."""
    source, place = _text(folder, "ggml-metal.metal")
    rows, size = 5, BLOCKS[kind]
    first = {"ne00": 256, "ne01": rows, "ne02": 1, "nb00": size, "nb01": size, "nb02": 8 * size, "nb03": 8 * size}
    second = {"ne10": 256, "ne11": 1, "ne12": 1, "nb10": 4, "nb11": 1024, "nb12": 1024, "nb13": 1024}
    values = {**first, **second, "ne0": rows, "ne1": 1, "r2": 1, "r3": 1}
    types = {"ne": "i4", "nb": "u8", "r2": "i2", "r3": "i2"}
    arguments = np.array([tuple(values.values())], np.dtype([(one, types[one[:2]]) for one in values], align=True))
    groups = -(-rows // {"q2_K": 8, "q6_K": 2}.get(kind, 4))
    return find(
        source, f"kernel_mul_mv_{kind}_f32", (groups, 1, 1), (4, 8, 1) if kind == "q4_K" else (2, 32, 1), arguments,
        np.zeros(8 * size, np.int8), np.ones(256, np.float32).view(np.int8),
        anymetal.undefined(np.zeros(4 * rows, np.int8)), whole=True, include=[place, place.parent],
    )  # fmt: skip


MASKED = """#include <metal_simdgroup>
#include <metal_stdlib>
#include "mlx/backend/metal/kernels/utils.h"
#include "mlx/backend/metal/kernels/gemv_masked.h"
template [[host_name("gemv_masked")]] [[kernel]] decltype(gemv_masked<float, bool, bool, 1, 1, 4, 8, 4, 4, 0>)
    gemv_masked<float, bool, bool, 1, 1, 4, 8, 4, 4, 0>;
"""


def mlx_masked(folder: Path) -> Found:
    """Multiply a matrix of 32 x 64 with a vector, with a mask for each block of 32 x 32."""
    place = next(folder.rglob("gemv_masked.h")).parents[4]
    bfloat = next(folder.rglob("metal_3_1/bf16.h")).parent
    matrix, vector, mask = np.ones((32, 64), np.float32), np.ones(64, np.float32), np.ones(2, np.bool_)
    sizes = np.int32(64), np.int32(32), np.int32(64), np.int32(1)
    batch = np.ones(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64)
    strides = np.array([1, 1, 1, 2, 1, 1], np.int32), np.zeros(3, np.int64)
    return find(
        MASKED, "gemv_masked", (2, 1, 1), (32, 1, 1), matrix, vector, undefined(32), *sizes, *batch, mask[:1], mask,
        mask.copy(), *strides, whole=True, include=[place, bfloat],
    )  # fmt: skip


MAXIMUM = """#include <metal_stdlib>
#include <c10/metal/utils.h>
#include <c10/metal/reduction_utils.h>
kernel void maximum(device const long *x, device long *out, uint t [[thread_position_in_threadgroup]],
                    uint size [[threads_per_threadgroup]]) {
    threadgroup long shared[32];
    long largest = c10::metal::threadgroup_max(shared, x[t], t, size);
    if (t == 0) *out = largest;
}
"""


def torch_maximum(folder: Path) -> Found:
    """Reduce 64 integers of 64 bits."""
    place = next(folder.rglob("reduction_utils.h")).parents[2]
    x, out = np.arange(64), anymetal.undefined(np.zeros(1, np.int64))
    return find(MAXIMUM, "maximum", 64, 64, x, out, include=[place])


def losses(folder: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the bodies of the kernels of mlx-lm's losses, and the names of their arrays."""
    bodies, arrays = {}, {}
    for one in ast.walk(ast.parse(_text(folder, "losses.py")[0])):
        if isinstance(one, ast.FunctionDef) and (made := re.fullmatch(r"_make_(\w+)_kernel", one.name)):
            text = next(part.value for part in ast.walk(one) if isinstance(part, ast.Assign))
            call = next(part for part in ast.walk(one) if isinstance(part, ast.Call) and part.keywords)
            lists = {key.arg: ast.literal_eval(key.value) for key in call.keywords if key.arg and "names" in key.arg}
            bodies[made[1]], arrays[made[1]] = ast.literal_eval(text), lists["input_names"] + lists["output_names"]
    return bodies, arrays


ATTRIBUTES = (
    "uint3 threadgroup_position_in_grid", "uint thread_index_in_simdgroup", "uint simdgroup_index_in_threadgroup",
    "uint thread_index_in_threadgroup",
)  # fmt: skip


def fused_loss(name: str, is_repaired: bool, folder: Path) -> Found:
    """Run a loss over one row of 5000 logits, with the signature that mx.fast.metal_kernel makes for it."""
    bodies, arrays = losses(folder)
    body, length = bodies[name], 5000
    if is_repaired:  # a barrier behind each read of what others share, and the flag of the memory
        body = re.sub(r"(\n *max_p = shared\[[^\n]*)", r"\1 threadgroup_barrier(mem_flags::mem_threadgroup);", body)
        body = body.replace("mem_flags::mem_none", "mem_flags::mem_threadgroup")
    parameters, made = [], []
    for one in arrays[name]:
        is_output = one.startswith("out") and one != "output_kl_q"
        is_row = one.startswith("logits") or (is_output and "backward" in name)
        count = length if is_row else 1
        parameters.append(f"{'' if is_output else 'const '}device T *{one}")
        made.append(undefined(count) if is_output else np.linspace(0, 1, count, dtype=np.float32))
    parameters += [f"{one} [[{one.split()[1]}]]" for one in ATTRIBUTES]
    source = (
        f"#include <metal_stdlib>\nusing namespace metal;\ntypedef float T;\nconstant constexpr int V = {length};\n"
        f"[[kernel]] void {name}({', '.join(parameters)}) {{{body}}}\n"
    )
    return find(source, name, (1024, 1, 1), (1024, 1, 1), *made)


def _pair(name: str, bad: str, good: str) -> tuple[str, str]:
    return name.format(bad), name.format(good)


METAL = r"ggml-metal(-impl)?\.(metal|h)$|ggml-common\.h$"
LLAMA = "llama_cpp_python-{}.tar.gz"
MLX = "mlx_cpu-{}-py3-none-manylinux_2_35_x86_64.whl"
MLX_LM = "mlx_lm-{}.tar.gz"
TORCH = "torch-{}-cp312-cp312-macosx_14_0_arm64.whl"
FAULTS = (
    Fault("llama.cpp kernel_mul_mm", "ggml-org/llama.cpp#2699", "llama-cpp-python", _pair(LLAMA, "0.1.78", "0.1.79"),
          METAL, ggml_matmul, "race", "simdgroup_load",
          "Two barriers are missing between the rounds of a product of tiles."),
    Fault("llama.cpp kernel_norm", "ggml-org/llama.cpp#3057", "llama-cpp-python", _pair(LLAMA, "0.1.83", "0.1.84"),
          METAL, ggml_norm, "race", "= sum[0]",
          "The mean is read from an element that the next sum overwrites, with no barrier between."),
    *(Fault(f"llama.cpp kernel_mul_mv_{kind}", "ggml-org/llama.cpp#11314", "llama-cpp-python",
            _pair(LLAMA, "0.3.6", "0.3.7"), METAL, partial(ggml_vector, kind), "out-of-bounds", "dst",
            "Rows are stored behind the last one of the result.")
      for kind in BLOCKS),
    Fault("MLX gemv_masked", "ml-explore/mlx#2508", "mlx-cpu", _pair(MLX, "0.28.0", "0.29.0"), r"kernels/.*\.h$",
          mlx_masked, "out-of-bounds", "mask",
          "The mask of the output is read behind its end."),
    Fault("PyTorch threadgroup_max<long>", "pytorch/pytorch#187976", "torch", _pair(TORCH, "2.13.0", "2.14.0"),
          r"include/c10/metal/", torch_maximum, "inactive-lane", "simd_",
          "The emulation for 64 bits shuffles under a condition, and reads lanes that are not active."),
    *(Fault(f"mlx-lm {name}", "ml-explore/mlx-lm#1700", "mlx-lm", _pair(MLX_LM, "0.32.2", "0.32.2"),
            r"tuner/losses\.py$", partial(fused_loss, name, False), "race", "shared[",
            "Sums are written to the slots that other simdgroups still read maxima from.",
            partial(fused_loss, name, True))
      for name in ("kl_forward", "kl_backward", "js_forward", "js_backward")),
)  # fmt: skip


def lines(found: Found, folder: Path, one: Finding) -> list[str]:
    """Return the lines of the source that a finding names."""
    texts = []
    for place in filter(None, (one.place, one.other)):
        file = next(
            (path for path in folder.resolve().rglob(Path(place.file).name) if str(path).endswith(place.file)), None
        )
        texts.append((file.read_text() if file else found[0]).splitlines()[place.line - 1].strip())
    return texts


def _message(fault: Fault, packages: Path, *, wrong: bool) -> str:
    """Return the error that names a fault; of the repaired version, any error."""
    folder = Release(fault.package, fault.files[not wrong], packages).unpack(fault.wanted)
    found = fault.run(folder) if wrong or fault.repair is None else fault.repair(folder)
    errors = [(one, lines(found, folder, one)) for one in found[1] if one.level == "error"]
    named = [
        (one, text)
        for one, text in errors
        if not wrong or (one.kind == fault.kind and any(fault.says in line for line in text))
    ]
    return next((f"{described(one)}: `{'` / `'.join(text)}`" for one, text in named), "")


def bugs(packages: Path | None) -> tuple[KernelBug, ...]:
    """Return all faults; those of releases look for these in the folder ``packages``, or download them into it."""
    if (why := clang.unavailable()) is not None:
        raise ValueError(why)
    if packages is None:
        return KERNELS
    return (
        *KERNELS,
        *(
            KernelBug(
                one.name,
                one.where,
                one.mechanism,
                one.files[0] if one.repair is None else f"{one.files[0]}, newest",
                one.kind,
                partial(_message, one, packages, wrong=True),
                partial(_message, one, packages, wrong=False),
            )
            for one in FAULTS
        ),
    )
