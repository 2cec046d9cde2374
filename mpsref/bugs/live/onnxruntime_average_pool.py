"""ONNX Runtime: AveragePool with ceil_mode and count_include_pad counts cells after the padding."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

node = helper.make_node(
    "AveragePool",
    ["x"],
    ["y"],
    kernel_shape=[3, 3],
    strides=[2, 2],
    pads=[1, 1, 1, 1],
    ceil_mode=1,
    count_include_pad=1,
)
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
graph = helper.make_graph([node], "pool", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
last = session.run(None, {"x": np.ones((1, 1, 6, 6), np.float32)})[0][0, 0, -1, -1]
right = 1 / 4  # one pixel of the image in a window of 2 x 2 within the padding
print(f"{'fixed' if abs(last - right) < 1e-6 else 'wrong'}: the last mean is {last:.4f}, it is {right:.4f}")
