"""Show the findings in Metal kernels of released packages that docs/kernel_findings.md lists.

    python scripts/live_kernel_faults.py --packages packages [--checkout mlx] [--checkout candle] [--checkout pytorch]

The packages come from PyPI into the folder. Sources that no package has are read from checkouts of repositories. The
second part shows ``FINDINGS`` of the collections in ``published``: the smallest arguments with which results
differ from NumPy, or what the checks report. A finding that is not there prints "not found".
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import anymetal
from published import collection
from published import releases as published
from published.bench import described
from published.candle import Candle
from published.releases import Found, find, undefined

GGML = "libggml_python-0.20.2.post1.tar.gz"
WANTED = r"ggml-metal(-impl)?\.(metal|h)$|ggml-common\.h$"
FIELD = re.compile(r"\b(u?int\d+_t|float)\s+(\w+);")


def arguments(place: Path, name: str, **values: float) -> bytes:
    """Return the struct of a header of ggml; what is not given is 0."""
    text = next(place.rglob("ggml-metal-impl.h")).read_text()
    body = text[: text.index(f"}} ggml_metal_kargs_{name};")].rpartition("typedef struct {")[2]
    fields = [(field, kind.removesuffix("_t").replace("float", "float32")) for kind, field in FIELD.findall(body)]
    return np.array([tuple(values.get(one, 0) for one, _ in fields)], np.dtype(fields, align=True)).tobytes()


def soft_max(place: Path) -> Found:
    """Compute softmax of a row of 101 with 128 threads, as ggml launches it."""
    source = next(place.rglob("ggml-metal.metal"))
    x, n = np.linspace(0, 1, 101, dtype=np.float32).view(np.int8), 101
    sizes = {"ne00": n, "ne01": 1, "ne02": 1, "ne11": 1, "ne12": 1, "ne13": 1, "scale": 1}
    strides = dict.fromkeys(("nb01", "nb02", "nb03", "nb11", "nb12", "nb13", "nb1", "nb2", "nb3"), 4 * n)
    return find(
        source.read_text(), "kernel_soft_max_f32", (1, 1, 1), (128, 1, 1),
        arguments(place, "soft_max", **sizes, **strides), x, x, x,
        anymetal.undefined(np.zeros(4 * n, np.int8)), whole=True, local={0: 128},
        include=[source.parent, source.parents[1]],
    )  # fmt: skip


def mul_mm(place: Path) -> Found:
    """Multiply a matrix of 65 rows with one of 40 columns: columns of the result are 260 bytes apart."""
    source = next(place.rglob("ggml-metal.metal"))
    m, n, k = 65, 40, 64
    sizes = {"ne00": k, "ne02": 1, "ne12": 1, "ne0": m, "ne1": n, "r2": 1, "r3": 1}
    strides = {"nb01": 4 * k, "nb02": 4 * k * m, "nb03": 4 * k * m, "nb10": 4, "nb11": 4 * k, "nb12": 4 * k * n}
    constants = {"FC_mul_mm_bc_inp": False, "FC_mul_mm_bc_out": True}
    constants |= {f"FC_mul_mm_{one}": 1 for one in ("ne12", "ne13", "r2", "r3")}
    a, b = (np.ones(rows * k, np.float32).view(np.int8) for rows in (m, n))
    return find(
        source.read_text(), "kernel_mul_mm_f32_f32", (2, 2, 1), (128, 1, 1),
        arguments(place, "mul_mm", **sizes, **strides), a, b,
        anymetal.undefined(np.zeros(4 * m * n, np.int8)), whole=True, local={0: 8192}, constants=constants,
        include=[source.parent, source.parents[1]],
    )  # fmt: skip


def softmax_of_candle(place: Path) -> Found:
    """Compute softmax of a row of 200 with 128 threads."""
    source = next(place.rglob("metal_src/reduce.metal"))
    return find(
        source.read_text(), "softmax_f32", 128, 128, np.uint32(200), np.uint32(200),
        np.linspace(0, 1, 200, dtype=np.float32), undefined(200), include=[source.parent],
    )  # fmt: skip


def findings(options: argparse.Namespace) -> Iterator[tuple[str, Path, Found]]:
    """Yield what, where, and what was found."""
    for fault in published.FAULTS:
        if fault.repair:
            place = published.Release(fault.package, fault.files[0], options.packages).unpack(fault.wanted)
            yield fault.name, place, fault.run(place)
    ggml = published.Release("libggml-python", GGML, options.packages).unpack(WANTED)
    yield "ggml kernel_mul_mm", ggml, mul_mm(ggml)
    yield "ggml kernel_soft_max", ggml, soft_max(ggml)
    if marker := collection.find(Candle, options.checkout):
        yield "candle softmax", marker.parents[3], softmax_of_candle(marker.parents[3])


def differences(options: argparse.Namespace) -> Iterator[tuple[str, str | None]]:
    """Yield each finding of the collections that are here, and what shows it."""
    for module in collection.modules().values():
        kind = collection.kind_of(module)
        if (marker := collection.find(kind, [*options.checkout, options.packages])) is None:
            continue
        opened = kind(marker)
        for name, (case, why) in module.FINDINGS.items():
            if file := collection.lacking(module, opened, name):
                yield f"{kind.name} {name}", f"not looked at: {file} is not there"
                continue
            outcome = collection.examine(opened, case, 12)
            seen = outcome.difference or next(collection.unseen(outcome.reports, module.REVIEWED), None)
            yield f"{kind.name} {name}", f"{why}\n  {seen}" if seen else None


def main() -> None:
    """Print the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, required=True, metavar="DIR", help="where the packages are or come to")
    parser.add_argument("--checkout", type=Path, metavar="DIR", action="append", default=[], help="a checkout")
    options = parser.parse_args()
    for name, place, found in findings(options):
        print(f"{name}:{'' if found[1] else ' not found'}")
        for one in found[1]:
            code = "` / `".join(published.lines(found, place, one))
            print(f"  {one.kind} ({one.level}): {described(one)}: `{code}`")
    for name, seen in differences(options):
        print(f"{name}:\n  {seen}" if seen else f"{name}: not found", flush=True)


if __name__ == "__main__":
    main()
