"""The check of a learner's function: in a process of its own, with a time limit, and with an answer in sentences."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import io
import multiprocessing
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import hypothesis
import numpy as np

from mpsref.arguments.text import shown
from mpsref.lessons.exercise import Arguments, Exercise, agrees, differing
from mpsref.lessons.exercises import EXERCISES
from mpsref.viz.page import HOST, PORT, explorer_address

CASES = 60
"""Number of cases that are tried."""

SECONDS = 20.0
"""Time limit of all cases together."""

CASE_SECONDS = 2.0
"""Time limit of a call."""

PRINTED = 400
"""Characters of what a function prints that are shown."""

MESSAGE = 2000
"""Characters of the message of an exception that are shown, which may be the errors of a compiler."""

UNFILLED = "returns None: fill in the function, and return the result."

_tries: dict[str, set[object]] = {}
"""The wrong functions so far by exercise: running the same one again gives no further hint."""


@dataclass(frozen=True, repr=False)
class Answer:
    """The answer to a function: text in a terminal, tables in a notebook."""

    passed: bool
    message: str
    """What is wrong, or how much was tried."""
    hint: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Of the smallest case that fails."""
    expected: Any = None
    got: Any = None
    """The result of the function, if it is one that can be compared."""
    printed: str = ""
    case: str = ""
    """The same case in the explorer, if it has one."""

    def __str__(self) -> str:
        lines = [self.message]
        if self.arguments:
            lines += ["", "The smallest case that fails:"]
            lines += [_text(name, value) for name, value in self.arguments.items()]
            lines.append(_text("expected", self.expected))
        if self.got is not None:
            lines.append(_text("your result", self.got))
            if (wrong := differing(self.got, self.expected)) is not None and wrong.ndim:
                lines.append(_text("wrong where True", wrong))
        if self.printed:
            lines += ["", f"It printed: {self.printed}"]
        if self.hint:
            lines += ["", f"Hint: {self.hint}"]
        if self.case:
            lines += ["", f"In the explorer: mpsref explore '{self.case}'"]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from xml.etree import ElementTree
        from xml.etree.ElementTree import Element

        from mpsref.viz.page import add

        root = Element("div")
        add(add(root, "p"), "strong", self.message)
        grids = {**self.arguments, "expected": self.expected} if self.arguments else {}
        marks = None
        if self.got is not None:
            grids["your result"], marks = self.got, differing(self.got, self.expected)
        row = add(root, "div", style="display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: start")
        for name, value in grids.items():
            _grid(row, name, value, marks if name == "your result" else None)
        for name, text in {"It printed": self.printed, "Hint": self.hint}.items():
            if text:
                add(root, "p", f"{name}: {text}")
        if self.case:
            address = f"http://{HOST}:{PORT}{explorer_address(self.case)}"
            link = add(add(root, "p"), "a", "Open the case in the explorer", href=address)
            link.tail = " (while the command mpsref explore runs)"
        return ElementTree.tostring(root, encoding="unicode", method="html")


def check(function: Callable[..., Any]) -> Answer:
    """Check a function of a lesson. A notebook shows the answer; a script prints it.

    Parameters
    ----------
    function : callable
        Its name selects the exercise, see ``mpsref.lessons.EXERCISES``. It is called in a process of its own.

    Returns
    -------
    Answer
        Whether it passed; else the smallest case that fails, and a hint that says more with each other try.

    Raises
    ------
    ValueError or TypeError
        If there is no exercise of this name, or the argument is not a function.

    Examples
    --------
    >>> def effective_offset(primary_offset, kernel_offset, stride):
    ...     return primary_offset + kernel_offset
    >>> check(effective_offset)                                 # doctest: +ELLIPSIS
    effective_offset is wrong: 1 of 1 numbers differ.
    <BLANKLINE>
    The smallest case that fails:
    primary_offset = 1
    ...
    Hint: The primary offset counts pixels of g; zero insertion makes each of them `stride` pixels wide.
    """
    if not callable(function):
        raise TypeError(
            f"check takes a function, not {shown(function)}; write check(name) without brackets after the name"
        )
    name = getattr(function, "__name__", "")
    exercise = {one.name: one for one in EXERCISES}.get(name)
    if exercise is None:
        names = ", ".join(one.name for one in EXERCISES)
        raise ValueError(f"no exercise is called {shown(name)}; the functions of the lessons are {names}")
    answer = _isolated(function, exercise)
    if answer.passed:
        _tries.pop(name, None)
    elif UNFILLED not in answer.message:
        tries = _tries.setdefault(name, set())
        tries.add((_written(getattr(function, "__code__", None)), str(answer)))
        hints = [answer.hint, exercise.idea, exercise.formula]
        if answer.got is not None and not answer.hint:  # no usual mistake
            hints = hints[1:]
        answer = replace(answer, hint=" ".join(filter(None, hints[: len(tries)])))
    caller = inspect.currentframe()
    if caller is not None and _is_script(caller.f_back):
        print(answer)
    return answer


def _written(code: Any) -> object:
    """Return what a function computes, without its place in a file, for comparison."""
    if not isinstance(code, types.CodeType):
        return repr(code)
    return code.co_code, code.co_names, tuple(map(_written, code.co_consts))


def _is_script(frame: types.FrameType | None) -> bool:
    """Return whether a frame runs a file: what is typed, or in a notebook, shows the answer by itself."""
    main = vars(sys.modules["__main__"])
    return frame is not None and frame.f_globals is main and "__file__" in main


def _isolated(function: Callable[..., Any], exercise: Exercise) -> Answer:
    """Run the cases in a forked process, which a notebook survives; where there is no fork, in this one."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return _tried(function, exercise, lambda text: None)
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # notebooks have threads; the child uses none of them
        child = context.Process(target=_child, args=(function, exercise, sending), daemon=True)
        child.start()
    sending.close()
    running, answer, end = "", None, time.monotonic() + SECONDS
    limit = first_limit = CASE_SECONDS + SECONDS / 4  # the first case may import and compile
    try:
        while answer is None and receiving.poll(max(0.0, min(limit, end - time.monotonic()))):
            found = receiving.recv()
            if isinstance(found, Answer):
                answer = found
            else:
                running, limit = found, CASE_SECONDS if running else first_limit
    except (EOFError, OSError):
        child.join()
        code = child.exitcode
        return Answer(False, f"{exercise.name} ended its process (exit status {code}) when called with {running}.")
    finally:
        if answer is None:
            child.kill()
        child.join()
    if answer is None and time.monotonic() >= end:
        text = f"all cases of {exercise.name} together took more than {SECONDS:g} s, the last one {running}: "
        return Answer(False, text + "use fewer steps for each pixel.")
    if answer is None:
        text = f"{exercise.name} did not return in {limit:g} s when called with {running}: "
        text += "is there an endless loop?"
        return Answer(False, text)
    return answer


def _child(function: Callable[..., Any], exercise: Exercise, sending: Any) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        # Not RLIMIT_AS: a launch of anymetal reserves more address space than that.
        used = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (min(used, 16 << 30) if used > 0 else 16 << 30, used))
    sending.send(_tried(function, exercise, sending.send))


class _Head(io.TextIOBase):
    """Keeps the beginning of what is printed."""

    def __init__(self) -> None:
        self.text = ""
        self.size = 0

    def write(self, text: str) -> int:
        self.text += text[: max(0, PRINTED - len(self.text))]
        self.size += len(text)
        return len(text)

    def shown(self) -> str:
        return self.text + (f"... ({self.size} characters)" if self.size > len(self.text) else "")


class _WrongError(Exception):
    """Carries the answer of a case out of Hypothesis."""


def _tried(function: Callable[..., Any], exercise: Exercise, running: Callable[[str], None]) -> Answer:
    """Try the cases; return the answer of the smallest one that fails."""
    smallest: list[Answer] = []
    drawn: list[Arguments] = []

    def attempt(arguments: Arguments) -> None:
        if not smallest:
            drawn.append(arguments)
        running(_brief(arguments))
        answer = _one(function, exercise, arguments)
        if answer is not None:
            smallest[:] = [answer]
            raise _WrongError

    with contextlib.suppress(_WrongError, hypothesis.errors.Flaky):
        _each_case(exercise, attempt, hypothesis.Phase.generate, hypothesis.Phase.shrink)
    if not smallest:
        return Answer(True, f"{exercise.name} is right: {len(drawn)} cases agree with the definition.")
    answer = smallest[0]
    if answer.got is None:
        return answer
    return replace(answer, hint=recognized(function, exercise, running))


def _one(function: Callable[..., Any], exercise: Exercise, arguments: Arguments) -> Answer | None:
    """Return the answer of one case that fails; ``None`` if it passes."""
    expected = exercise.expected(**copy.deepcopy(dict(arguments)))
    given, head = copy.deepcopy(dict(arguments)), _Head()
    name, wrong = exercise.name, functools.partial(Answer, False, arguments=dict(arguments), expected=expected)
    try:
        with contextlib.redirect_stdout(head), contextlib.redirect_stderr(head), np.errstate(all="ignore"):
            got = function(**given)
    except BaseException as error:  # also SystemExit, which would end the notebook
        text = f"{name} raised {type(error).__name__}: {str(error)[:MESSAGE]}{_line(error, function)}"
        return wrong(text, printed=head.shown())
    for key, value in arguments.items():
        if isinstance(value, np.ndarray) and not np.array_equal(value, given[key]):
            return wrong(f"{name} changes its argument {key}; work on a copy.", printed=head.shown())
    if got is None:
        return wrong(f"{name} {UNFILLED}", printed=head.shown())
    places = differing(got, expected)
    if places is None:
        text = f"{name} returns {_kind(got)}; it must return {_kind(expected)}."
        return wrong(text, printed=head.shown())
    if not places.any():
        return None
    text = f"{name} is wrong: {int(places.sum())} of {places.size} numbers differ."
    numbers = np.asarray(got, np.float64)
    if np.isnan(numbers).any():
        text += " There are NaN among them."
    elif isinstance(expected, int) and numbers % 1:
        text += " It must be an integer: divide with //."
    return wrong(text, got=numbers, printed=head.shown(), case=exercise.case_string(arguments))


def _line(error: BaseException, function: Callable[..., Any]) -> str:
    """Return the last line of the file of a function that an exception passed."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    lines = [one for one in traceback.extract_tb(error.__traceback__) if one.filename == file and one.line]
    return f"\nAt line {lines[-1].lineno}: {lines[-1].line}" if lines else ""


def recognized(
    function: Callable[..., Any], exercise: Exercise, running: Callable[[str], None] = lambda text: None
) -> str:
    """Return the cause of the usual wrong answer with the same results as a function; empty if there is none."""
    left = list(exercise.wrong)
    for arguments in _sample(exercise):
        running(_brief(arguments))
        try:
            with contextlib.redirect_stdout(_Head()), contextlib.redirect_stderr(_Head()), np.errstate(all="ignore"):
                got = function(**copy.deepcopy(dict(arguments)))
        except (Exception, SystemExit):
            return ""
        with np.errstate(all="ignore"):
            left = [one for one in left if agrees(one.function(**copy.deepcopy(dict(arguments))), got)]
    return left[0].cause if len(left) == 1 else ""


@functools.cache
def _sample(exercise: Exercise) -> list[Arguments]:
    """Return cases of an exercise, always the same."""
    found: list[Arguments] = []
    _each_case(exercise, lambda arguments: found.append(arguments), hypothesis.Phase.generate)
    return found


def _each_case(exercise: Exercise, run: Callable[[Arguments], None], *phases: hypothesis.Phase) -> None:
    """Call a function with each case of an exercise, always the same ones."""
    settings = hypothesis.settings(
        max_examples=CASES,
        database=None,
        deadline=None,
        derandomize=True,
        phases=phases,
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
    )
    settings(hypothesis.given(exercise.cases)(run))()


def _kind(value: Any) -> str:
    """Describe a result: its shape, or its type."""
    try:
        array = np.asarray(value)
    except ValueError:
        return "lists of different lengths"
    if array.dtype.kind not in "biuf":
        return f"an object of type {type(value).__name__}"
    return f"an array of shape {array.shape}" if array.ndim else "a number"


def _brief(arguments: Arguments) -> str:
    return ", ".join(
        f"{name} of shape {value.shape}" if isinstance(value, np.ndarray) else f"{name} = {value!r}"
        for name, value in arguments.items()
    )


def _text(name: str, value: Any) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        lines = np.array2string(value, precision=5, suppress_small=True, threshold=200).splitlines()
        return "\n".join([f"{name} =", *(f"    {line}" for line in lines)])
    return f"{name} = {value}"


def _grid(parent: Any, name: str, value: Any, wrong: Any) -> None:
    """Append an array as a table, with its wrong numbers marked."""
    from mpsref.viz.page import add

    table = add(parent, "table")
    add(table, "caption", name, style="text-align: left; font-weight: 600")
    array = np.asarray(value)
    rows = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
    marks = np.zeros(rows.shape, bool) if wrong is None else np.asarray(wrong).reshape(rows.shape)
    for line, bad in zip(rows[:20], marks, strict=False):
        cells = add(table, "tr")
        for number, is_wrong in zip(line[:20], bad, strict=False):
            style = {"style": "background: #f6b7b7; color: #000; font-weight: 700"} if is_wrong else {}
            add(cells, "td", f"{number:.5g}" if array.dtype.kind in "biuf" else str(number), **style)
