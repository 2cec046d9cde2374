"""Defects of released frameworks that mpsref found or confirmed, each with a script that shows it without mpsref."""

from __future__ import annotations

import importlib.metadata
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

LIVE = Path(__file__).with_name("live")

SECONDS = 300.0
"""Time limit of a script; the first call of ``torch.compile`` runs a C++ compiler."""


class Finding(NamedTuple):
    """A defect of a released framework."""

    script: str
    """Name of the script in ``mpsref/bugs/live``."""
    package: str
    """The package of the framework."""
    versions: tuple[str, ...]
    """The versions in which the script showed the defect."""
    text: str
    """The defect, in a sentence."""

    @property
    def path(self) -> Path:
        """The script."""
        return LIVE / f"{self.script}.py"

    def version(self) -> str | None:
        """Return the installed version of the framework without its local part, or ``None``."""
        try:
            return importlib.metadata.version(self.package).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            return None

    def show(self) -> str:
        """Run the script in a process of its own; return what it prints, or how it ended.

        The text begins with "wrong", "crashed", "fixed", "not affected" or "not installed".
        """
        version = self.version()
        if version is None:
            return f"not installed: {self.package}"
        try:
            done = subprocess.run(
                [sys.executable, str(self.path)], capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return f"crashed: no result after {SECONDS:g} s"
        if done.returncode < 0:
            return f"crashed: {signal.Signals(-done.returncode).name}"
        if done.returncode:
            raise RuntimeError(f"{self.path} failed with {self.package} {version}:\n{done.stderr}")
        return done.stdout.strip()


FINDINGS = (
    Finding(
        "torch_instance_norm",
        "torch",
        ("2.13.0", "2.15.0"),
        "The gradient of InstanceNorm2d is wrong if the batch is 1 and the source gradient is channels_last.",
    ),
    Finding(
        "torch_batch_norm_strided",
        "torch",
        ("2.13.0",),
        "The gradient of batch_norm in evaluation mode reads running statistics with strides as if they were "
        "contiguous, if the image is channels_last.",
    ),
    Finding(
        "torch_conv2d_one_channel",
        "torch",
        ("2.13.0", "2.15.0"),
        "float32 conv2d of one channel with NHWC strides puts results in wrong places if the output is one pixel wide "
        "and the horizontal stride is above 1 (oneDNN on AVX-512).",
    ),
    Finding(
        "torch_conv2d_crash",
        "torch",
        ("2.13.0",),
        "conv2d with a bias on channels_last images ends the process if windows lie in the padding and a kernel of "
        "one column has a dilation (oneDNN on AVX-512).",
    ),
    Finding(
        "torch_compile_avg_pool2d",
        "torch",
        ("2.13.0", "2.15.0"),
        "The compiled gradient of avg_pool2d with ceil_mode divides the last windows by the full kernel size.",
    ),
    Finding(
        "mlx_conv_transpose2d",
        "mlx",
        ("0.32.4",),
        "The gradient of conv_transpose2d with output_padding has a wrong shape.",
    ),
    Finding(
        "onnxruntime_average_pool",
        "onnxruntime",
        ("1.20.1",),
        "AveragePool of opset 18 with ceil_mode and count_include_pad counts cells after the padding.",
    ),
    Finding(
        "onnxruntime_group_normalization",
        "onnxruntime",
        ("1.31.1",),
        "GroupNormalization of a constant image is NaN: the variance is a difference of rounded numbers, below 0.",
    ),
    Finding(
        "onnxruntime_resize_box",
        "onnxruntime",
        ("1.31.1",),
        'Resize with "tf_crop_and_resize" returns the image itself if the result has its size, whatever the box.',
    ),
    Finding(
        "onnxruntime_max_pool_infinity",
        "onnxruntime",
        ("1.31.1",),
        "MaxPool of a window of minus infinities is -3.4e38, with padding, or if the window is the image.",
    ),
    Finding(
        "onnxruntime_reduce_max_nan",
        "onnxruntime",
        ("1.31.1",),
        "ReduceMax and ReduceMin of values with a NaN are NaN or not, depending on its place.",
    ),
    Finding(
        "jax_conv_negative_padding",
        "jax",
        ("0.10.2",),
        "A float32 convolution with negative padding before a row and zeros behind it reads the next row (CPU).",
    ),
)
"""The catalogue of live defects."""
