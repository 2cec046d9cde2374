"""TensorFlow: max_pool2d of minus infinity is the lowest finite number."""

import tensorflow as tf

x = tf.constant(-float("inf"), shape=(1, 1, 1, 1))
found = tf.nn.max_pool2d(x, 1, 1, "VALID").numpy().item()
print(f"{'fixed' if found == -float('inf') else 'wrong'}: the maximum is {found}, it is -inf")
