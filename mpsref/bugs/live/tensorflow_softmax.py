"""TensorFlow: softmax of values with a NaN or an infinity has zeros in the other channels."""

import tensorflow as tf

x = tf.constant([[1.0, float("nan")]])
found = tf.nn.softmax(x).numpy()[0, 0].item()
other = tf.exp(tf.nn.log_softmax(x)).numpy()[0, 0].item()
print(f"{'wrong' if found == 0 else 'fixed'}: softmax is {found} next to a NaN, log_softmax is {other}")
