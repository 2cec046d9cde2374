"""Text and diagrams of a compiled graph: a table, Mermaid, Graphviz."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mpsref.arguments.arrays import Shape
from mpsref.mps.graph.compile import Program
from mpsref.mps.graph.nodes import MPSNNImageNode, Step

Shapes = Mapping[MPSNNImageNode, Shape]


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as left-aligned columns, two spaces apart.

    >>> print(columns([("a", "b"), ("long", "c")]))
    a     b
    long  c
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows)


def shape_text(shape: Shape | None) -> str:
    """Return a shape as ``2x8x8x3``; a question mark for an unknown one."""
    return "?" if shape is None else "x".join(map(str, shape))


def table(program: Program, shapes: Shapes) -> str:
    """Return a line for each step, then inputs, input states, results and exports."""
    rows = [("step", "kind", "class", "label", "reads", "reads state", "result", "shape")]
    for step in program.steps:
        image = step.node.result_image
        rows.append(
            (
                str(step.number),
                step.kind,
                type(step.node).__name__,
                program.labels[step.node],
                ", ".join(source.name for source in step.node.source_images),
                ", ".join(state.name for state in step.node.source_states),
                image.name if step.result_is_needed else "-",
                shape_text(shapes.get(image)),
            )
        )
    exports = [*program.exported_images, *program.result_states]
    lines = {
        "inputs": program.source_images,
        "input states": program.source_states,
        "results": program.result_images,
        "exports": exports,
    }
    footer = [f"{name}: {', '.join(symbol.name for symbol in symbols) or '-'}" for name, symbols in lines.items()]
    return "\n".join([columns(rows), *footer])


def _edges(program: Program, shapes: Shapes) -> Iterator[tuple[str, str, str | None]]:
    """Yield (from, to, label); the label is None for an image of unknown shape, its shape, or "state"."""
    names = {image: f"i{k}" for k, image in enumerate(program.source_images)}
    states = {state: f"s{k}" for k, state in enumerate(program.source_states)}
    steps = {step.node: f"n{step.number}" for step in program.steps}
    for step in program.steps:
        for image in step.node.source_images:
            shape = shapes.get(image)
            origin = names[image] if image.producer is None else steps[image.producer]
            yield origin, steps[step.node], None if shape is None else shape_text(shape)
        for state in step.node.source_states:
            yield states[state] if state.producer is None else steps[state.producer], steps[step.node], "state"


def _results(program: Program) -> Iterator[tuple[str, int]]:
    """Yield (step, number of the result), without pruned steps."""
    steps = {step.node: f"n{step.number}" for step in program.steps}
    for k, image in enumerate(program.result_images):
        if image.producer in steps:
            yield steps[image.producer], k


def mermaid(program: Program, shapes: Shapes) -> str:
    """Return the graph as Mermaid, for a Markdown page."""

    def quoted(text: str) -> str:
        return text.replace('"', "#quot;")

    brackets = {"forward": '["{}"]', "gradient": '[["{}"]]', "inserted": '(("{}"))'}
    lines = [f'i{k}(["{quoted(image.name)}"])' for k, image in enumerate(program.source_images)]
    lines += [f's{k}[/"{quoted(state.name)}"/]' for k, state in enumerate(program.source_states)]
    for step in program.steps:
        text = f"{quoted(program.labels[step.node])}<br/>{type(step.node).__name__}"
        lines.append(f"n{step.number}" + brackets[step.kind].format(text))
    for origin, to, what in _edges(program, shapes):
        arrow = "-->" if what is None else "-.->|state|" if what == "state" else f"-->|{what}|"
        lines.append(f"{origin} {arrow} {to}")
    lines += [f'{origin} ==> r{k}(["result {k}"])' for origin, k in _results(program)]
    return "\n".join(["flowchart TD", *(f"  {line}" for line in lines)])


def dot(program: Program, shapes: Shapes) -> str:
    """Return the graph in the language of Graphviz."""
    styles = {
        "forward": "shape=box",
        "gradient": 'shape=box, style=filled, fillcolor="lightgrey"',
        "inserted": "shape=circle",
    }
    lines = [f'i{k} [shape=oval, label="{_quoted(image.name)}"];' for k, image in enumerate(program.source_images)]
    lines += [
        f's{k} [shape=parallelogram, label="{_quoted(state.name)}"];' for k, state in enumerate(program.source_states)
    ]
    lines += [
        f'n{step.number} [{styles[step.kind]}, label="{_quoted(_caption(program, step))}"];' for step in program.steps
    ]
    results = list(_results(program))
    lines += [f'r{k} [shape=doubleoctagon, label="result {k}"];' for _, k in results]
    for origin, to, what in _edges(program, shapes):
        style = "" if what is None else ' [style=dotted, label="state"]' if what == "state" else f' [label="{what}"]'
        lines.append(f"{origin} -> {to}{style};")
    lines += [f"{origin} -> r{k};" for origin, k in results]
    return "\n".join(["digraph {", *(f"  {line}" for line in lines), "}"])


def _caption(program: Program, step: Step) -> str:
    return f"{program.labels[step.node]}\\n{type(step.node).__name__}"


def _quoted(text: str) -> str:
    return text.replace('"', '\\"')
