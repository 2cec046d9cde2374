"""ONNX Runtime: MaxPool of a window of minus infinities is the lowest finite number, with padding or as one window."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2])
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
model = helper.make_model(
    helper.make_graph([node], "pool", [x], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
found = float(session.run(None, {"x": np.full((1, 1, 2, 2), -np.inf, np.float32)})[0].max())
print(f"{'fixed' if found == -np.inf else 'wrong'}: the maximum of four -inf is {found:g}")
