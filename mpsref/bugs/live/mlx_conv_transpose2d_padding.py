"""MLX: conv_transpose2d with a padding of the kernel size or more returns other pixels."""

import mlx.core as mx

x, w = mx.array([1.0, 2.0, 3.0]).reshape(1, 1, 3, 1), mx.ones((1, 1, 1, 1))
whole = mx.conv_transpose2d(x, w, stride=(1, 2)).flatten().tolist()
found = mx.conv_transpose2d(x, w, stride=(1, 2), padding=(0, 1)).flatten().tolist()
print(f"{'fixed' if found == whole[1:-1] else 'wrong'}: without padding {whole}, with the padding 1 {found}")
