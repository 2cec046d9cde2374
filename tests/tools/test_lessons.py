"""Exercises: right and usual wrong answers, and functions that misbehave."""

import math
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from mpsref import lessons
from mpsref.errors import UnsupportedError
from mpsref.lessons import EXERCISES, answer, check

BY_NAME = {one.name: one for one in EXERCISES}

pytestmark = pytest.mark.usefixtures("first_tries")


# ------------------------------------------------------------------ solutions, as a learner would write them


def first_pixel(i, kernel, stride, offset):
    return offset + i * stride - kernel // 2


def output_size(length, stride, offset):
    return math.ceil((length - offset) / stride)


def pixels_inside(i, kernel, stride, offset, length):
    first = first_pixel(i, kernel, stride, offset)
    return [max(0, first), min(length, first + kernel)]


def windows(length, kernel, stride):
    return [slice(*pixels_inside(i, kernel, stride, 0, length)) for i in range(output_size(length, stride, 0))]


def average(x, kernel, stride, edge_mode):
    def one(pixels):
        return pixels.mean() if edge_mode == "clamp" else pixels.sum() / kernel**2

    return [[one(x[a, b]) for b in windows(x.shape[1], kernel, stride)] for a in windows(x.shape[0], kernel, stride)]


def average_gradient(g, height, width, kernel, stride, edge_mode):
    dx = np.zeros((height, width))
    for i, a in enumerate(windows(height, kernel, stride)):
        for j, b in enumerate(windows(width, kernel, stride)):
            dx[a, b] += g[i, j] / (dx[a, b].size if edge_mode == "clamp" else kernel**2)
    return dx


def maximum(x, kernel, stride):
    return [[x[a, b].max() for b in windows(x.shape[1], kernel, stride)] for a in windows(x.shape[0], kernel, stride)]


def maximum_gradient(g, x, kernel, stride):
    dx = np.zeros(x.shape)
    for i, a in enumerate(windows(x.shape[0], kernel, stride)):
        for j, b in enumerate(windows(x.shape[1], kernel, stride)):
            y, u = np.unravel_index(np.argmax(x[a, b]), x[a, b].shape)
            dx[a.start + y, b.start + u] += g[i, j]
    return dx


def padded(shape, kernel):
    """An image with zeros all around, and the slice of the image in it."""
    p = kernel
    return np.zeros((shape[0] + 2 * p, shape[1] + 2 * p)), (slice(p, p + shape[0]), slice(p, p + shape[1]))


def places(shape, size, kernel, stride):
    start = kernel - kernel // 2
    for a in range(size[0]):
        for b in range(size[1]):
            y, u = start + a * stride, start + b * stride
            yield a, b, (slice(y, y + kernel), slice(u, u + kernel))


def convolution(x, weights, stride):
    large, inside = padded(x.shape, len(weights))
    large[inside] = x
    y = np.zeros([math.ceil(n / stride) for n in x.shape])
    for a, b, place in places(x.shape, y.shape, len(weights), stride):
        y[a, b] = (large[place] * weights).sum()
    return y


def convolution_gradient_data(g, weights, height, width, stride):
    large, inside = padded((height, width), len(weights))
    for a, b, place in places((height, width), g.shape, len(weights), stride):
        large[place] += g[a, b] * weights
    return large[inside]


def convolution_gradient_weights(g, x, kernel, stride):
    large, inside = padded(x.shape, kernel)
    large[inside] = x
    return sum(g[a, b] * large[place] for a, b, place in places(x.shape, g.shape, kernel, stride))


def effective_offset(primary_offset, kernel_offset, stride):
    return stride * primary_offset + kernel_offset


def kernel_offset(kernel, offset):
    return (kernel % 2 == 0) - offset


def offset_of_padding(kernel, padding):
    return kernel // 2 - padding


def normalize(x, epsilon):
    return (x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + epsilon)


def normalize_gradient(g, x, epsilon):
    xhat = normalize(x, epsilon)
    r = 1 / np.sqrt(x.var((0, 1, 2)) + epsilon)
    return r * (g - g.mean((0, 1, 2)) - xhat * (g * xhat).mean((0, 1, 2)))


def merged_statistics(mean_a, variance_a, n_a, mean_b, variance_b, n_b):
    n = n_a + n_b
    mean = (n_a * mean_a + n_b * mean_b) / n
    squares = n_a * (variance_a + mean_a**2) + n_b * (variance_b + mean_b**2)
    return mean, squares / n - mean**2


def softmax(x):
    e = np.exp(x)
    return e / e.sum(-1, keepdims=True)


def softmax_gradient(g, x):
    y = softmax(x)
    return y * (g - (g * y).sum(-1, keepdims=True))


def log_softmax_gradient(g, x):
    return g - softmax(x) * g.sum(-1, keepdims=True)


def cross_entropy_gradient(x, digits):
    dx = softmax(x)
    dx[np.arange(len(x)), digits] -= 1
    return dx


def relu_gradient(g, x):
    return g * (x > 0)


def row_sums(x):
    return x.sum(-1)


metal_average_gradient = average_gradient
metal_convolution_gradient_data = convolution_gradient_data
metal_convolution_gradient_weights = convolution_gradient_weights


@pytest.mark.parametrize("name", BY_NAME)
def test_solutions_are_right(name):
    found = answer._tried(globals()[name], BY_NAME[name], lambda text: None)
    assert found.passed, str(found)
    assert "60 cases" in found.message or "cases agree" in found.message


def test_there_are_enough_wrong_answers():
    assert sum(len(one.wrong) for one in EXERCISES) >= 40
    assert {one.lesson for one in EXERCISES} == set(range(1, 11))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(one.name, wrong) for one in EXERCISES for wrong in one.wrong],
    ids=lambda v: getattr(v, "cause", v),
)
def test_each_wrong_answer_gets_its_hint(name, wrong):
    """The first one in the whole check; others in its cases, without the search for a smaller one."""
    exercise = BY_NAME[name]
    with np.errstate(all="ignore"):
        if wrong is exercise.wrong[0]:
            found = answer._tried(wrong.function, exercise, lambda text: None)
            assert found.hint == wrong.cause
        else:
            tried = (answer._one(wrong.function, exercise, case) for case in answer._sample(exercise))
            found = next(one for one in tried if one is not None)
            assert answer.recognized(wrong.function, exercise) == wrong.cause
    assert not found.passed
    assert found.got is not None


# ------------------------------------------------------------------ the whole check, in a process of its own


def named(name):
    def rename(function):
        function.__name__ = name
        return function

    return rename


def test_hints_grow_and_begin_anew_after_success():
    """With each other try: not by the same code once more, nor by a function that is not yet filled in."""
    exercise = BY_NAME["offset_of_padding"]
    cells = [
        "def offset_of_padding(kernel, padding):\n    ...",
        "def offset_of_padding(kernel, padding):\n    return -padding",
        "def offset_of_padding(kernel, padding):\n    return 0 - padding",
        "def helper(p):\n    return -p\ndef offset_of_padding(kernel, padding):\n    return helper(padding)",
    ]
    hints = []
    for cell in cells:
        for times in range(2):
            names = {}
            exec(compile("\n" * times + cell, "<cell>", "exec"), names)
            hints.append(check(names["offset_of_padding"]).hint)
    cause = exercise.wrong[0].cause
    three = [cause, f"{cause} {exercise.idea}", f"{cause} {exercise.idea} {exercise.formula}"]
    assert hints == ["", "", *(hint for hint in three for _ in range(2))]
    assert check(offset_of_padding).passed
    exec(cells[1], names)
    assert check(names["offset_of_padding"]).hint == cause


def test_a_number_has_no_table_of_wrong_numbers():
    @named("offset_of_padding")
    def wrong(kernel, padding):
        return -padding

    assert "wrong where" not in str(check(wrong))
    found = check(named("maximum")(lambda x, kernel, stride: -np.array(maximum(x, kernel, stride))))
    assert "wrong where True =" in str(found)
    assert repr(found) == str(found)


def test_a_script_prints_its_answers(tmp_path):
    script = tmp_path / "lesson.py"
    script.write_text(
        "from mpsref.lessons import check\n"
        "def effective_offset(primary_offset, kernel_offset, stride):\n"
        "    return stride * primary_offset + kernel_offset\n"
        "check(effective_offset)\n"
    )
    printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert printed.startswith("effective_offset is right: ")
    assert printed.count("is right") == 1
    typed = subprocess.run(
        [sys.executable, "-c", script.read_text()], capture_output=True, text=True, check=True
    ).stdout
    assert typed == ""


def test_the_smallest_case_is_drawn():
    @named("average_gradient")
    def wrong(g, height, width, kernel, stride, edge_mode):
        return average_gradient(g, height, width, kernel, stride, "zero")

    found = check(wrong)
    assert found.arguments["height"] * found.arguments["width"] <= 2
    text, page = str(found), found._repr_html_()
    assert "The smallest case that fails:" in text
    assert "The window shrinks at the border" in text
    assert page.count("background: #f6b7b7") == int(answer.differing(found.got, found.expected).sum())
    assert found.case.startswith("PoolingAverage.gradient:")
    assert "127.0.0.1" in page
    assert check(average_gradient).passed


def endless(**arguments):
    while True:
        pass


def changing(x, kernel, stride):
    x[0, 0] = 9
    return maximum(x, kernel, stride)


def talking(x, kernel, stride):
    print("a" * 1_000_000)
    return np.zeros(1)


def leaving(**arguments):
    raise SystemExit(3)


def dying(**arguments):
    os._exit(7)


def hungry(x, kernel, stride):
    return np.zeros((1 << 40,)).sum()


def unsupported(x, kernel, stride):
    raise UnsupportedError("no compiler")


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (lambda **arguments: None, "maximum returns None: fill in the function"),
        (lambda x, kernel, stride: x.ravel()[:0], "returns an array of shape (0,); it must return an array of shape"),
        (lambda x, kernel, stride: "text", "returns an object of type str"),
        (lambda x, kernel, stride: [[1], [2, 3]], "returns lists of different lengths"),
        (lambda x, kernel, stride: np.full_like(maximum(x, kernel, stride), np.nan), "There are NaN among them"),
        (lambda x: x, "raised TypeError"),
        (lambda x, kernel, stride: 1 / 0, "raised ZeroDivisionError: division by zero\nAt line "),
        (changing, "changes its argument x; work on a copy"),
        (talking, "returns an array of shape (1,)"),
        (leaving, "raised SystemExit"),
        (dying, "ended its process (exit status 7) when called with"),
        (hungry, "raised"),
        (unsupported, "raised UnsupportedError: no compiler"),
    ],
)
def test_functions_that_misbehave_get_a_sentence(function, sentence, capfd):
    wrapped = named("maximum")(lambda **arguments: function(**arguments))
    found = check(wrapped)
    assert not found.passed
    assert sentence in found.message
    assert len(found.printed) < 500
    assert isinstance(str(found), str)
    assert "<div>" in found._repr_html_()
    out, _ = capfd.readouterr()
    assert len(out) < 1000


def test_an_endless_loop_ends(monkeypatch):
    monkeypatch.setattr(answer, "CASE_SECONDS", 0.3)
    monkeypatch.setattr(answer, "SECONDS", 3.0)
    begun = time.monotonic()
    found = check(named("maximum")(endless))
    assert "did not return in 1.05 s when called with x of shape" in found.message  # the first case may compile
    assert time.monotonic() - begun < 30


def slow_at_first(x, kernel, stride):
    if not hasattr(slow_at_first, "imported"):
        time.sleep(0.5)
    slow_at_first.imported = True
    return maximum(x, kernel, stride)


def test_the_first_case_may_import_and_compile(monkeypatch):
    monkeypatch.setattr(answer, "CASE_SECONDS", 0.3)
    assert check(named("maximum")(lambda **given: slow_at_first(**given))).passed


def test_an_unusual_mistake_gets_the_idea_at_once():
    exercise = BY_NAME["maximum"]
    assert check(named("maximum")(lambda x, kernel, stride: np.array(maximum(x, kernel, stride)) + 0.5)).hint == (
        exercise.idea
    )
    found = check(named("first_pixel")(lambda i, kernel, stride, offset: offset + i * stride - kernel / 2))
    assert "It must be an integer: divide with //." in found.message


def test_a_grid_of_one_thread_is_not_right():
    """One threadgroup, which has up to 1024 threads, is not enough for the longest vector."""
    wrong = named("relu_gradient")(lambda g, x: np.where((x > 0) & (np.arange(len(x)) < 1024), g, 0))
    assert not check(wrong).passed


def slow(x, kernel, stride):
    time.sleep(0.03)
    return maximum(x, kernel, stride)


def slow_and_wrong(x, kernel, stride):
    return np.zeros_like(slow(x, kernel, stride))


def test_a_slow_function_is_no_endless_loop(monkeypatch):
    monkeypatch.setattr(answer, "CASE_SECONDS", 1.0)
    assert "numbers differ" in check(named("maximum")(slow_and_wrong)).message
    monkeypatch.setattr(answer, "SECONDS", 0.8)
    assert "together took more than 0.8 s" in check(named("maximum")(slow)).message


def test_names_are_checked():
    with pytest.raises(ValueError, match="no exercise is called 'test_names_are_checked'; the"):
        check(test_names_are_checked)
    with pytest.raises(TypeError, match="check takes a function, not 3"):
        check(3)
    assert set(lessons.__all__) >= {"check", "EXERCISES"}
