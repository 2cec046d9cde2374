"""The CUDA driver through the package ``cuda.core``: availability, errors, and forked processes."""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import Any, NoReturn

from ..environment import variable
from ..frontend import toolchain
from ..interface import LaunchError
from .ptx import OLDEST, libdevice

INSTEAD = 'runtime="clang" runs the same kernels on this machine\'s processor'
EXTRA = 'pip install "cuda-core>=1.2" "cuda-bindings>=12.9" "nvidia-nvvm>=13"'

LOST = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "accessed memory outside all of its buffers",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "accessed a vector at an address that is not a multiple of its size",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "used an address in a wrong address space",
    "CUDA_ERROR_INVALID_PC": "jumped to an illegal address",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "reached undefined behaviour",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "overran its stack",
    "CUDA_ERROR_ASSERT": "failed an assertion",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "exceeded the time limit of a GPU with a display",
    "CUDA_ERROR_LAUNCH_FAILED": "failed while it ran",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "encountered an uncorrectable memory error of the GPU",
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": "found its context destroyed",
}
"""Errors of the driver that invalidate the CUDA context, with a description of the cause."""

NO_RESOURCES = "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
NO_DEVICE = "CUDA_ERROR_NO_DEVICE"

_process = {"used": False, "forked": False}


def _after_fork() -> None:
    _process["forked"] = _process["used"]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def core() -> Any:
    """Import ``cuda.core``; raise :class:`LaunchError` in a process forked after the first use of the driver."""
    if _process["forked"]:
        raise LaunchError(
            "this process was forked from one that had used CUDA, which the driver does not support: "
            'start it with multiprocessing.get_context("spawn"), or fork before the first use'
        )
    module = sys.modules.get("cuda.core") or importlib.import_module("cuda.core")
    _process["used"] = True
    return module


def bindings() -> Any:
    """Import the functions of the driver, for features that ``cuda.core`` lacks."""
    return importlib.import_module("cuda.bindings.driver")


def current_index() -> int | None:
    """Return the index of the current device of this thread, or None."""
    functions = bindings()
    _, context = functions.cuCtxGetCurrent()
    if not int(context):
        return None
    _, index = functions.cuCtxGetDevice()
    return int(index)


def unavailable() -> str | None:
    """Return None if an NVIDIA GPU can be used, else a sentence with the missing component and a remedy."""
    reason = _no_card() or _too_old()
    if reason:
        return f"{reason}; {INSTEAD}"
    reason = toolchain.missing()
    if reason:
        return f"{reason}, or {EXTRA}"
    if libdevice() is None:
        named = variable("ANYMETAL_LIBDEVICE")
        if named:
            return f"ANYMETAL_LIBDEVICE={named!r} is not a file: name libdevice.10.bc or unset the variable"
        return (
            f"no libdevice.10.bc (NVIDIA's device functions) found: {EXTRA}, or set CUDA_HOME to an installed toolkit"
        )
    return None


def _no_card() -> str | None:
    if sys.platform != "linux":
        return f"the cuda runtime needs Linux, and this is {sys.platform}"
    try:
        devices = core().Device.get_all_devices()
    except ImportError as problem:
        return f"cannot import cuda.core ({problem}): {EXTRA}"
    except LaunchError as problem:
        return str(problem)
    except Exception as problem:
        if code_of(problem) == NO_DEVICE:
            return "the NVIDIA driver finds no device (nvidia-smi lists them, CUDA_VISIBLE_DEVICES may hide them)"
        return f"no working NVIDIA driver ({_first_line(problem)}): install one for Linux; nvidia-smi shows it"
    return None if devices else "the NVIDIA driver finds no device (CUDA_VISIBLE_DEVICES may hide them)"


def _too_old() -> str | None:
    device = core().Device(0)
    capability = tuple(device.compute_capability)
    if capability >= OLDEST:
        return None
    needed, found = (".".join(map(str, numbers)) for numbers in (OLDEST, capability))
    return f"{device.name} has compute capability {found}, and the cuda runtime needs {needed} (Volta, 2017)"


def driver_version() -> str:
    """Return the driver version, or the CUDA version of the driver if the former is unavailable."""
    try:
        first, *rest = core().system.get_kernel_mode_driver_version()
        return ".".join([str(first), *(f"{number:02}" for number in rest)])
    except Exception:  # NVML is absent in some containers
        return "for CUDA " + ".".join(map(str, core().system.get_user_mode_driver_version()))


def code_of(problem: BaseException) -> str | None:
    """Return the name ``CUDA_ERROR_...`` of an error of the driver; None for other exceptions."""
    found = re.match(r"CUDA_ERROR_\w+", str(problem))
    return found[0] if found else None


class Explained:
    """A context manager that raises errors of the driver as :class:`LaunchError`."""

    def __init__(self, context: Context, doing: str, *values: object) -> None:
        """Set the beginning of messages: ``doing`` with ``values``, as in ``doing.format(*values)``."""
        self._context, self._doing, self._values = context, doing, values

    def __enter__(self) -> None:
        self._context.check()

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, _: object) -> None:
        if isinstance(problem, Exception) and code_of(problem) is not None:
            self._context.fail(problem, self._doing.format(*self._values))


class Context:
    """The state of the CUDA context of a device in this process: running kernels, and whether it is lost."""

    def __init__(self) -> None:
        """Create the state of a context without launches."""
        self._running: dict[str, None] = {}
        self._lost = ""

    def check(self) -> None:
        """Raise if the context is lost, or if the process was forked after the first use of CUDA."""
        if self._lost:
            raise LaunchError(self._lost)
        if _process["forked"]:
            core()

    def launched(self, *kernels: str) -> None:
        """Record kernels, whose faults may be reported by later calls."""
        self._running.update(dict.fromkeys(kernels))

    def synchronized(self) -> None:
        """Record that all kernels have completed without error."""
        self._running.clear()

    def fail(self, problem: Exception, doing: str) -> NoReturn:
        """Raise an error of the driver as :class:`LaunchError`."""
        code = code_of(problem)
        if code not in LOST:
            raise LaunchError(f"{doing}: {_first_line(problem)}") from problem
        names = " or ".join(f"kernel `{name}`" for name in self._running) or "a kernel"
        which = "; with CUDA_LAUNCH_BLOCKING=1 the error has the name of the kernel" if len(self._running) > 1 else ""
        self._lost = (
            f"{names} {LOST[code]} ({code}). The CUDA context of this process is lost, and every later call fails: "
            f"start a new process{which}"
        )
        raise LaunchError(self._lost) from problem


def _first_line(problem: BaseException) -> str:
    return str(problem).strip().split("\n", 1)[0]
