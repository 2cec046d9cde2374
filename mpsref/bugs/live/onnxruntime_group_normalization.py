"""ONNX Runtime: GroupNormalization of a constant image is NaN, because its variance is rounded below 0."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

node = helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=1, epsilon=1e-5)
names = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "scale", "bias", "y")]
model = helper.make_model(
    helper.make_graph([node], "norm", names[:3], names[3:]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
image, one = np.full((1, 2, 3, 3), 10.1, np.float32), np.ones(2, np.float32)
y = session.run(None, {"x": image, "scale": one, "bias": 0 * one})[0]
print(f"{'fixed' if abs(y).max() < 0.01 else 'wrong'}: the largest result is {abs(y).max()}, it is about 0")
