"""ONNX Runtime: ReduceMax and ReduceMin return NaN or not, depending on the place of a NaN."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

node = helper.make_node("ReduceMax", ["x"], ["y"])
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
model = helper.make_model(
    helper.make_graph([node], "reduce", [x], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
found = [float(session.run(None, {"x": np.array(row, np.float32)})[0].max()) for row in ([np.nan, 1], [1, np.nan])]
print(f"{'fixed' if np.isnan(found[0]) == np.isnan(found[1]) else 'wrong'}: of [nan, 1] and [1, nan] it is {found}")
