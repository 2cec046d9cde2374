"""The figure of a graph: every step occurs once, without overlaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from mpsref import cli
from mpsref.mps import graph
from mpsref.mps.graph import MPSNNImageNode, training_graph
from tests.mps.residual import network

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from mpsref.viz import graph_figure


def residual() -> graph.MPSNNGraph:
    net = network()
    return graph.MPSNNGraph(training_graph(net.loss).gradient_image(net.x))


def test_steps_have_different_positions() -> None:
    compiled = residual()
    positions = graph_figure._positions(compiled)
    assert len(positions) == len(compiled.program.steps) + 1
    assert len(set(positions.values())) == len(positions)
    for step in compiled.program.steps:
        for image in step.node.source_images:
            above, below = positions[image.producer or image][1], positions[step.node][1]
            assert above < below or step.kind != "forward", "what a forward step reads is above it"


def test_texts_and_arrows() -> None:
    compiled = residual()
    (axes,) = graph_figure.draw(compiled).axes
    texts = [text.get_text() for text in axes.texts if text.get_text()]
    labels = [compiled.program.labels[step.node] for step in compiled.program.steps]
    assert sorted(texts[: 1 + 2 * len(labels)]) == sorted(
        ["x", *labels, *(type(step.node).__name__.removesuffix("Node") for step in compiled.program.steps)]
    )
    arrows = [text for text in axes.texts if not text.get_text()]
    images = sum(len(step.node.source_images) for step in compiled.program.steps)
    states = sum(state.producer is not None for step in compiled.program.steps for state in step.node.source_states)
    assert len(arrows) == images + states


def test_a_graph_without_gradients(tmp_path: Path) -> None:
    relu = graph.MPSCNNNeuronReLUNode(MPSNNImageNode("x"), a=0)
    graph_figure.draw(graph.MPSNNGraph(relu.result_image), tmp_path / "graph.svg")
    assert "<svg" in (tmp_path / "graph.svg").read_text("utf-8")


def test_the_command(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.app, ["plot", "digits", "-o", str(tmp_path / "digits.png")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
