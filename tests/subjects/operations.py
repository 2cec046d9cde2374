"""Legal cases of each operation: a typical one, which the suite has drawn, and large ones."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

from mpsref.conformance import checker
from mpsref.conformance.case import Case, operations
from mpsref.operations import Operation

FILE = Path(__file__).with_name("typical.txt")
"""A case of each operation; ``python -m tests.subjects.operations`` draws those that it lacks or that are not legal."""


@cache
def typical(operation: Operation) -> Case:
    """Return that of a few random cases which reads the most arrays, with several elements in each."""
    lines = FILE.read_text("utf-8").splitlines()
    found = [line for line in lines if line.startswith(f"{operation}:")]
    assert found, f"{FILE.name} lacks {operation}: run python -m tests.subjects.operations"
    return Case.parse(found[0])


def drawn(operation: Operation) -> Case:
    """Draw the typical case of an operation."""

    def size(case: Case) -> tuple[int, int]:
        return len(case.problem.input_shapes), min(
            map(math.prod, [*case.problem.input_shapes.values(), *case.problem.result_shapes])
        )

    return max(checker.random_cases(operation, ("float32",), 8, 0), key=size)


LARGE = {
    "SoftMax": "n3h41w43c21 n1h700w1c1000,float16 n2h97w89c3 n1h3w1c100001 n5h11w13c64,float16 n1h2w2c2048",
    "LogSoftMax": "n3h41w43c21,float16 n1h700w1c1000 n1h3w1c100001,float16 n5h11w13c64 n1h2w2c2048,float16",
    "InstanceNormalization": "n3h64w64c24,eps0.001 n1h200w200c3,eps0.001,float16 n2h33w65c257,eps0.001",
    "GroupNormalization": "n2h33w65c24,g6,eps0.001 n1h90w91c9,g3,eps0.001,float16",
    "CrossChannelNormalization": "n3h20w17c24 n3h20w17c24,float16",
    "SpatialNormalization": "n3h50w37c5,k4x4,beta0.75 n3h50w37c5,k4x4,beta0.75,float16",
    "LocalContrastNormalization": "n3h50w37c5,k4x4,alpha1.0,delta1.0 n3h50w37c5,k4x4,alpha1.0,delta1.0,float16",
    "BatchNormalization": "n4h64w64c48 n2h9w9c700,float16 n3h40w41c5 n2h8w8c512 n1h5w7c3,float16",
    "Neuron": "n2h97w31c1,tanh n2h97w31c3,sigmoid,float16 n2h37w41c64,relu n1h37w41c300,gelu,float16 "
    "n2h97w31c3,prelu,data0.5_0.25_2.0 "
    f"n1h37w41c300,prelu,data{'_'.join(['0.5'] * 300)},float16",
    "Dropout": "n3h64w64c96,keep0.800000011920929,key3 n2h33w31c5,keep0.5,key1,float16",
    "Loss": "n2h96w96c24,meansquarederror n2h96w96c24,softmaxcrossentropy,classes24 n1h50w51c7,huber,mean,float16",
    "Arithmetic": "n2h60w130c33,multiply,ss0x0x1,yn2h1w1c33 n2h60w130c33,multiply,ss0x1x1,yn2h1w130c33 "
    "n2h60w130c33,multiply,ss1x1x0,yn2h60w130c1 n2h60w130c33,multiply,ss0x0x0,yn2h1w1c1,float16",
    "UpsamplingNearest": "n3h30w40c24,s4x4 n2h37w41c5,s2x3,float16",
    "UpsamplingBilinear": "n2h37w41c5,s2x3,aligned n2h37w41c8,s2x2,float16 n2h37w41c21,s2x4,aligned "
    "n1h30w40c24,s2x2,clamp",
    "Reduce": "n2h500w300c2,mean,spatial n2h100w300c2,sum,row,float16",
    "Adam": "v100007",
    "RMSProp": "v100007",
    "StochasticGradientDescent": "v100007,momentum0.9",
}
"""Cases with more channels, pixels and terms than the layers of the suite have, for all methods of a kernel."""


def large(operation: Operation) -> list[Case]:
    """Return the cases of :data:`LARGE`, without those whose parameters have no such method."""
    found = []
    for tail in LARGE.get(operation.spec_type.__name__, "").split():
        try:
            found.append(Case.parse(f"{operation}:{tail}"))
        except ValueError as error:
            if not re.search("only 'prelu' has parameters|has no gradient kernel", str(error)):
                raise
    return found


def write() -> None:
    """Write the file."""
    cases = []
    for operation in operations():
        try:
            cases.append(typical(operation))
        except (AssertionError, ValueError):
            cases.append(drawn(operation))
    FILE.write_text("".join(f"{case}\n" for case in cases), "utf-8")


if __name__ == "__main__":
    write()
