"""tinygrad: comparisons with NaN by <= and >= are true."""

from tinygrad import Tensor

nan = Tensor([float("nan")])
found = bool((nan <= 1).item()), bool((nan >= 1).item())
print(f"{'wrong' if any(found) else 'fixed'}: NaN <= 1 is {found[0]}, NaN >= 1 is {found[1]}")
