"""Families are discovered: modules of the package, entry points of other packages, and registered ones."""

from importlib import metadata
from pathlib import Path

import pytest

from mpsref.conformance import families, layers
from mpsref.conformance.family import Family, KernelTests
from mpsref.kernels import SoftMax
from mpsref.registry import Operation, Spec, operations

TESTS = KernelTests(lambda method: families.kernel_tests(SoftMax).problems(method), {"forward": (), "gradient": ()})


class Toy(Spec):
    """A kernel without operations, so that it is in no list of them."""


def test_every_kernel_of_mpsref_has_a_family():
    for operation in operations():
        assert operation.method in families.kernel_tests(operation.spec_type).properties


def test_a_kernel_without_a_family_is_named_with_the_next_step():
    with pytest.raises(ValueError, match=r"no family has tests of kernel 'Toy'.*'mpsref.families'.*register"):
        families.family_of(Toy)


def test_a_registered_family_is_found_but_not_by_other_processes(monkeypatch):
    monkeypatch.setattr(families, "_registered", {})
    toy = families.register(Family("toy", {Toy: TESTS}))
    assert families.load()[-1] is toy
    assert families.kernel_tests(Toy) is TESTS
    assert not families.is_discovered(Operation(Toy, "forward"))
    assert families.is_discovered(Operation(SoftMax, "forward"))


def test_an_entry_point_names_a_family(monkeypatch):
    point = metadata.EntryPoint("toy", "toy_package:FAMILY", families.ENTRY_POINT_GROUP)
    toy = Family("toy", {Toy: TESTS})
    monkeypatch.setattr(metadata, "entry_points", lambda group: [point] if group == "mpsref.families" else [])
    monkeypatch.setattr(metadata.EntryPoint, "load", lambda self: toy)
    families._discovered.cache_clear()
    try:
        assert families.family_of(Toy) is toy
        assert families.is_discovered(Operation(Toy, "forward"))
    finally:
        families._discovered.cache_clear()


def test_a_family_brings_a_file_of_layers(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(families, "_registered", {})
    file = tmp_path / "layers.toml"
    row = '{name = "toy_net.a", kernel = "SoftMax", source_shape = [2, 3, 4, 5], note = "A toy."}'
    file.write_text(f'layers = [{row}]\n[networks]\ntoy_net = "Toy network"\n', "utf-8")
    families.register(Family("toy", {SoftMax: TESTS}, layers=file))
    layer = layers.by_name("toy_net.a")
    assert (layer.spec, layer.source_shape, layer.note) == (SoftMax(), (2, 3, 4, 5), "A toy.")
    assert layer.network == layers.networks()["toy_net"] == "Toy network"


@pytest.mark.parametrize(
    ("network", "kernel", "message"),
    [
        (
            "new_net",
            "SoftMax",
            r"layers\.toml: layer 'new_net\.a' names the network 'new_net'; describe it .*new_net = ",
        ),
        (
            "toy_net",
            "Softmax",
            r"names the kernel 'Softmax': did you mean SoftMax\?; those of this family are SoftMax",
        ),
    ],
)
def test_a_row_of_an_unknown_network_or_kernel_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, network: str, kernel: str, message: str
) -> None:
    monkeypatch.setattr(families, "_registered", {})
    file = tmp_path / "layers.toml"
    row = f'{{name = "{network}.a", kernel = "{kernel}", source_shape = [2, 3, 4, 5]}}'
    file.write_text(f'layers = [{row}]\n[networks]\ntoy_net = "Toy network"\n', "utf-8")
    families.register(Family("toy", {SoftMax: TESTS}, layers=file))
    with pytest.raises(ValueError, match=message):
        layers.load()
