"""tinygrad: interpolate with align_corners to one pixel is 0 / 0."""

from tinygrad import Tensor

found = Tensor([[[[3.0]]]]).interpolate((1, 1), mode="linear", align_corners=True).item()
print(f"{'fixed' if found == 3 else 'wrong'}: the only pixel is {found}, it is 3.0")
