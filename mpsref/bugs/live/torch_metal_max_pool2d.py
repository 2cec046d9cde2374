"""PyTorch (torch.compile for Apple GPUs): the kernel of the gradient of max_pool2d uses a variable without declaration.

Nothing is run: the script writes the program for an Apple GPU, which inductor does on every machine, and reads it.
"""

import re
from unittest import mock

import torch
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx


def gradient(g: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Of ``max_pool2d(x, 3, 1, 1)``, as ``torch.compile`` decomposes it."""
    indices = torch.ops.prims._low_memory_max_pool_offsets_to_indices(offsets, [3, 3], [7, 7], [1, 1], [1, 1], [1, 1])
    return torch.full((2, 49), 0.0, dtype=g.dtype, device=g.device).scatter_add(1, indices.view(2, 49), g.view(2, 49))


with mock.patch.object(torch._C, "_mps_get_core_count", create=True, return_value=8), FakeTensorMode() as mode:
    tensors = [torch.empty(1, 2, 7, 7, dtype=dtype, device="mps") for dtype in (torch.float32, torch.int8)]
    graph = make_fx(gradient)(*tensors)
    lowering = GraphLowering(graph, example_inputs=tensors)
    with V.set_graph_handler(lowering), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
        lowering.run(*tensors)
        program = lowering.codegen()[0].value

wrong = set()
for kernel in re.findall(r"kernel void .*?\n    }\n", program, re.DOTALL):
    wrong |= {*re.findall(r"\bx\d\b", kernel)} - {*re.findall(r"int (x\d) =", kernel)}
print(f"{'wrong' if wrong else 'fixed'}: variables without a declaration: {', '.join(sorted(wrong)) or 'none'}")
