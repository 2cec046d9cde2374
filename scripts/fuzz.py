"""Call mpsref with random input until the time is over: every call ends with a result or a documented error.

Each part draws from a seed, one draw after the other, in a process of its own. A finding is an exception that is not
documented, a changed argument, a result that depends on how an array lies in memory, a process that dies, or a draw
without end. It is printed with the line that repeats it, and the exit status is 1::

    python scripts/fuzz.py run --seconds 60 --seed 7
    python scripts/fuzz.py draw arrays 12
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 120.0
"""Seconds of one draw, compilation of kernels included."""
TURN = 10.0
"""Seconds of a part before the next one has its turn."""

app = typer.Typer(help="Call mpsref with random input.", pretty_exceptions_enable=False)


@functools.cache
def illegal() -> Any:
    """Return the tests of illegal calls, which count their calls."""
    sys.path[:0] = [str(ROOT)]
    (file,) = (ROOT / "tests").rglob("test_illegal_calls.py")
    tests: Any = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    attempt = tests.attempt

    def counted(*args: Any, **keywords: Any) -> Any:
        made["calls"] += 1
        return attempt(*args, **keywords)

    tests.attempt = counted
    return tests


def parameters(test: Any) -> list[Any]:
    """Return the parameters of a test, those that are marked slow included."""
    import pytest

    marked = type(pytest.param())
    found = (one for mark in test.pytestmark if mark.name == "parametrize" for one in mark.args[1])
    return [one.values[0] if isinstance(one, marked) else one for one in found]


made: Counter[str] = Counter()


# --- parts ------------------------------------------------------------------------------------------------------------


def calls(random: Random) -> None:
    """Call kernels, functions of padding, and Apple's classes with illegal arguments."""
    tests = illegal()
    test = random.choice((tests.test_kernels, tests.test_classes, tests.test_padding))
    test(random.choice(parameters(test)))


def texts(random: Random) -> None:
    """Parse case strings: changed ones, and legal ones that must come back."""
    from mpsref.conformance import checker, data
    from mpsref.conformance.case import Case

    tests = illegal()
    operation = random.choice(parameters(tests.test_cases))
    tests.test_cases(operation)
    for case in checker.random_cases(operation, ("float32", "float16"), 9, random.randrange(2**32)):
        made["calls"] += 1
        assert Case.parse(str(case)) == case, str(case)
        assert case.family in data.FINITE


def saved(random: Random) -> None:
    """Read JSON of changed objects of Apple's classes."""
    tests = illegal()
    kinds = [kind for kind in parameters(tests.test_classes) if hasattr(kind, "from_json")]
    kind = random.choice(kinds)
    one = tests.made(kind)
    text = tests.FAILED if one is tests.FAILED else tests.attempt(one.to_json)
    for _ in range(0 if text is tests.FAILED else 100):
        tests.attempt(kind.from_json, tests.changed_text(text, random))
        changed = tests.changed_data(json.loads(text), random, tests.PLAIN)
        tests.attempt(random.choice(kinds).from_json, json.dumps(changed))


def checkpoints(random: Random) -> None:
    """Read changed checkpoints of a training."""
    with tempfile.TemporaryDirectory() as folder:
        illegal().test_checkpoints(Path(folder))


def arrays(random: Random) -> None:
    """Run a legal call with arrays of any layout and class: results have the bits of those of plain arrays."""
    import numpy as np

    from mpsref import registry
    from mpsref.arguments.layouts import LAYOUTS, arranged, repeats
    from mpsref.conformance import checker

    class Own(np.ndarray[Any, Any]):
        pass

    def hostile(array: Any) -> Any:
        ways = [one for one in LAYOUTS if not repeats(one, array.ndim)]  # others change the numbers
        way = random.choice(("plain", "subclass", "order", "unaligned", *ways))
        found = arranged(array, way) if way in ways else array.copy(order="F" if way == "order" else "C")
        if way == "unaligned":
            found = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
            found[...] = array
        return found.view(random.choice((Own, np.memmap, np.recarray))) if way == "subclass" else found

    operation = random.choice(parameters(illegal().test_kernels))
    names = [info.name for info in registry.backends() if info.available]
    able = [name for name in ("reference", "cpu", "metal:clang") if name in names]
    backend = random.choice([name for name in able if registry.get_backend(name).lacks(operation) is None])
    for case in checker.random_cases(operation, ("float32", "float16"), 20, random.randrange(2**32)):
        plain = registry.run(case.problem, *case.inputs(), backend=backend)
        results = plain if isinstance(plain, tuple) else (plain,)
        inputs, out = [hostile(one) for one in case.inputs()], tuple(hostile(np.zeros_like(one)) for one in results)
        for one in inputs:
            one.flags.writeable = False
        before = [one.tobytes() for one in inputs]
        registry.run(case.problem, *inputs, out=out, backend=backend)
        made["calls"] += 2
        assert [one.tobytes() for one in inputs] == before, f"{case} on {backend}: an input was changed"
        assert all(a.tobytes() == b.tobytes() for a, b in zip(out, results, strict=True)), f"{case} on {backend}"


def forks(random: Random) -> None:
    """Fork up to 300 ms after the begin of the first call; the child computes. In a new interpreter."""
    backend, delay = random.choice(("cpu", "metal:clang")), random.uniform(0, 0.3)
    made["calls"] += 1
    subprocess.run([sys.executable, __file__, "fork", backend, str(delay)], check=True, timeout=LIMIT / 2)


PARTS: dict[str, Callable[[Random], None]] = {
    "calls": calls, "texts": texts, "json": saved, "checkpoints": checkpoints, "arrays": arrays, "forks": forks,
}  # fmt: skip


@app.command(hidden=True)
def fork(backend: str, delay: float) -> None:
    """Fork ``delay`` seconds after the begin of the first call of this process."""
    import numpy as np

    import mpsref

    x = np.arange(64, dtype=np.float32).reshape(1, 4, 4, 4)
    wanted = mpsref.PoolingAverage(2).forward(x)
    thread = threading.Thread(target=mpsref.PoolingAverage(2).forward, args=(x,), kwargs={"backend": backend})
    thread.start()
    time.sleep(delay)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if np.allclose(mpsref.PoolingAverage(2).forward(x, backend=backend), wanted) else 2
        finally:
            os._exit(status)
    thread.join()
    end = time.monotonic() + LIMIT / 4
    while time.monotonic() < end:
        if (done := os.waitpid(child, os.WNOHANG))[0]:
            raise SystemExit(os.waitstatus_to_exitcode(done[1]) != 0)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise SystemExit(f"a child that was forked {delay * 1000:.0f} ms after the first call on {backend} did not end")


# --- the run ----------------------------------------------------------------------------------------------------------


@app.command()
def draw(
    part: Annotated[str, typer.Argument(help=f"One of {', '.join(PARTS)}.")],
    seed: Annotated[int, typer.Argument(help="The seed of the first draw.")],
    seconds: Annotated[float, typer.Option(help="Begin another draw, of the next seed, for so long.")] = 0.0,
) -> None:
    """Make draws of one part in this process; print the seed and the number of calls of each."""
    os.environ.setdefault("MPSREF_KNOWN", tempfile.gettempdir())
    end = time.monotonic() + seconds
    while True:
        illegal().SEED = seed
        made.clear()
        PARTS[part](Random(f"{seed} {part}"))
        print(f"done {seed} {made['calls']}", flush=True)
        seed += 1
        if time.monotonic() >= end:
            break


@app.command()
def run(
    seconds: Annotated[float, typer.Option(help="The time of all parts together.")] = 60.0,
    seed: Annotated[int | None, typer.Option(help="The first seed of each part; by default a new one.")] = None,
    part: Annotated[list[str] | None, typer.Option(help="Only this part; may be given several times.")] = None,
) -> None:
    """Make draws of all parts in turn until the time is over."""
    first, end = Random().randrange(2**31) if seed is None else seed, time.monotonic() + seconds
    print(f"seed {first}")
    following, total, findings = dict.fromkeys(part or PARTS, first), Counter[str](), 0
    while following and time.monotonic() < end:
        for name in list(following):
            left = end - time.monotonic()
            if left <= 0:
                break
            known, output = _turn(name, following[name], min(TURN, left / len(following)), left)
            for line in known:
                following[name], total[name] = int(line[1]) + 1, total[name] + int(line[2])
            if output is not None:
                findings += 1
                print(f"{output}\nfinding in {name}: {sys.executable} {__file__} draw {name} {following[name]}\n")
                following[name] += 1
    for name, number in following.items():
        print(f"{name}: {total[name]} calls in {number - first} draws")
    raise SystemExit(int(findings > 0))


def _turn(part: str, seed: int, seconds: float, left: float) -> tuple[list[list[str]], str | None]:
    """Run draws in a process; return the lines of those that are done, and the end of its output after a finding."""
    command = [sys.executable, __file__, "draw", part, str(seed), "--seconds", str(seconds)]
    limit = seconds + LIMIT
    with tempfile.TemporaryFile("w+") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        ended = True
        try:
            process.wait(min(limit, left))
        except subprocess.TimeoutExpired:
            ended = False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
        file.seek(0)
        lines = file.read().splitlines()
    known = [line.split() for line in lines if line.startswith("done ")]
    rest = "\n".join(line for line in lines if not line.startswith("done "))[-3000:]
    if ended and process.returncode == 0:
        return known, None
    if not ended:
        return known, f"{rest}\nno end within {limit:.0f} s" if limit <= left else None
    return known, f"{rest}\nexit status {process.returncode}"


if __name__ == "__main__":
    app()
