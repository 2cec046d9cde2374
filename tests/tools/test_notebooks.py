"""The notebooks run as they are, every exercise has one, and their solutions pass in them."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mpsref.cli import app
from mpsref.lessons import EXERCISES
from mpsref.lessons.notebooks import copied, notebooks, paths

LESSONS = paths()

pytestmark = pytest.mark.usefixtures("first_tries")


def cells(path, kind="code"):
    found = json.loads(path.read_text("utf-8"))
    return ["".join(cell["source"]) for cell in found["cells"] if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", LESSONS.values(), ids=lambda path: path.stem)
def test_texts_have_no_control_characters(path):
    """Such as a form feed, the beginning of a formula whose backslash was lost."""
    for cell in cells(path, "markdown"):
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", cell)


def run(path, replaced=lambda code: code):
    """Run the code of a notebook in one namespace; return it, and the answers of the last lines."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    names, answers = {}, []
    for number, cell in enumerate(cells(path)):
        code = re.sub(r"^%.*$", "", replaced(cell), flags=re.MULTILINE)
        lines = code.rstrip().split("\n")
        last = lines.pop() if lines[-1].startswith("check(") else ""
        exec(compile("\n".join(lines), f"{path.name}, cell {number}", "exec"), names)
        if last:
            answers.append(eval(last, names))
    return names, answers


@pytest.mark.parametrize("number", [1, 8])  # building the documentation runs all
def test_a_notebook_runs_as_it_is(number):
    _, answers = run(LESSONS[number])
    mine = [one for one in EXERCISES if one.lesson == number]
    assert len(answers) == len(mine)
    for answer, exercise in zip(answers, mine, strict=True):
        assert not answer.passed
        if exercise.name == "row_sums":
            assert "raised LaunchError" in answer.message, "the missing barrier"
        elif exercise.name.startswith("metal_"):
            assert "numbers differ" in answer.message, "the kernel stores 0"
        else:
            assert answer.message == f"{exercise.name} returns None: fill in the function, and return the result."


def test_the_kernels_of_the_last_lesson_can_be_completed():
    kernel = """kernel void relu_gradient(device const float* g [[buffer(0)]], device const float* x [[buffer(1)]],
                          device float* dx [[buffer(2)]], constant uint& n [[buffer(3)]],
                          uint i [[thread_position_in_grid]]) {
    if (i < n) dx[i] = x[i] > 0 ? g[i] : 0;
}"""
    call = """dx = device.buffer(g.nbytes)
    device.kernel(relu_source).function("relu_gradient")(g.size, g, x, dx, np.uint32(g.size))
    return np.frombuffer(dx, np.float32).copy()"""
    barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);"

    def completed(code):
        code = code.replace("// your kernel", kernel)
        code = code.replace("...  # compile relu_source, run it, return the result as an array", call)
        code = code.replace("part[t] = x[group * 64 + t];", f"part[t] = x[group * 64 + t]; {barrier}")
        return code.replace("// is something missing here?", barrier)

    _, answers = run(LESSONS[8], completed)
    assert [answer.passed for answer in answers] == [True, True], str(answers)


IN_METAL = {
    "// add g[a * p.columns + b] / N": """for (int a = 0; a < p.rows; ++a)
        for (int b = 0; b < p.columns; ++b) {
            int t = j - first(p, a), u = k - first(p, b);
            if (t < 0 || t >= p.taps || u < 0 || u >= p.taps) continue;
            sum += g[a * p.columns + b] / (N(p, a, p.height) * N(p, b, p.width));
        }""",
    "// add w[t * p.taps + u]": """for (int a = 0; a < p.rows; ++a)
        for (int b = 0; b < p.columns; ++b)
            for (int t = 0; t < p.taps; ++t)
                for (int u = 0; u < p.taps; ++u)
                    if (pixel(p, a, t) == j && pixel(p, b, u) == k)
                        sum += w[t * p.taps + u] * g[a * p.columns + b];""",
    "// add g[a * p.columns + b] * x": """for (int a = 0; a < p.rows; ++a)
        for (int b = 0; b < p.columns; ++b) {
            int j = pixel(p, a, t), k = pixel(p, b, u);
            if (j >= 0 && j < p.height && k >= 0 && k < p.width) sum += g[a * p.columns + b] * x[j * p.width + k];
        }""",
}


@pytest.mark.slow
@pytest.mark.usefixtures("few_layers", "unshrunk")
@pytest.mark.parametrize("number", [9, 10])
def test_the_gradients_in_metal_can_be_completed(number):
    def completed(code):
        for comment, loops in IN_METAL.items():
            code = re.sub(re.escape(comment) + ".*", lambda _, loops=loops: loops, code)
        return code

    _, answers = run(LESSONS[number], completed)
    assert all(answer.passed for answer in answers), str(answers[-1])


@pytest.mark.parametrize("number", LESSONS)
def test_notebooks_are_clean_and_have_alternative_texts(number):
    found = json.loads(LESSONS[number].read_text("utf-8"))
    assert found["nbformat"] == 4
    assert len({cell["id"] for cell in found["cells"]}) == len(found["cells"])
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
            if "plot(" in "".join(cell["source"]):
                assert len(cell["metadata"]["mystnb"]["image"]["alt"]) > 20
    assert cells(LESSONS[number], "markdown")[0].startswith(f"# Lesson {number}: ")
    checks = [cell for cell in cells(LESSONS[number]) if cell.rstrip().split("\n")[-1].startswith("check(")]
    assert len(checks) == sum(one.lesson == number for one in EXERCISES)


def test_the_command_lists_and_copies(tmp_path):
    listed = CliRunner().invoke(app, ["lessons"]).output
    assert all(title[:20] in listed for title in notebooks().values())
    assert "merged_statistics" in listed
    CliRunner().invoke(app, ["lessons", "3", "--folder", str(tmp_path)])
    (copy,) = tmp_path.iterdir()
    assert cells(copy) == cells(LESSONS[3])
    again = CliRunner().invoke(app, ["lessons", "3", "--folder", str(tmp_path)])
    assert "exists; move it" in str(again.exception)


@pytest.mark.parametrize("number", LESSONS)
def test_a_copy_has_no_dead_links(number, tmp_path):
    copy = copied(number, tmp_path)
    found = 0
    for mine, original in zip(cells(copy, "markdown"), cells(LESSONS[number], "markdown"), strict=True):
        assert not re.search(r"\]\((?!https?:)", mine)
        named = re.findall(r" \(`(/[^`]*)`\)", mine)
        assert all(Path(path).is_file() for path in named)
        found += len(named)
        assert len(named) == original.count("](../")
    assert found
    assert json.loads(copy.read_text("utf-8"))["nbformat"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 4])
def test_a_notebook_shows_its_picture(number, tmp_path):
    """In a kernel of Jupyter that has not imported pyplot."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    notebook = nbformat.read(copied(number, tmp_path), as_version=4)
    nbclient.NotebookClient(notebook, timeout=120).execute()
    plots = [cell for cell in notebook.cells if cell.cell_type == "code" and "plot(" in cell.source]
    assert plots
    for cell in plots:
        (output,) = cell.outputs
        assert "<svg" in output["data"]["image/svg+xml"]
