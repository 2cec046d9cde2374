"""ONNX Runtime: Resize ignores the box of "tf_crop_and_resize" if the result has the size of the image."""

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

box, sizes = np.array([0, 0, 0, 0, 1, 1, 1, 0.5], np.float32), np.array([1, 1, 1, 3])
node = helper.make_node(
    "Resize", ["x", "box", "", "sizes"], ["y"], mode="linear", coordinate_transformation_mode="tf_crop_and_resize"
)
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy")
constants = [numpy_helper.from_array(box, "box"), numpy_helper.from_array(sizes, "sizes")]
model = helper.make_model(
    helper.make_graph([node], "crop", [x], [y], constants), opset_imports=[helper.make_opsetid("", 19)], ir_version=9
)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
found = session.run(None, {"x": np.array([[[[1, 2, 3]]]], np.float32)})[0].ravel().tolist()
print(f"{'fixed' if found == [1, 1.5, 2] else 'wrong'}: the left half of [1, 2, 3] is {found}, it is [1, 1.5, 2]")
