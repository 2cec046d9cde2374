"""The MSL front end of the runtimes ``clang`` and ``cuda``.

A source is preprocessed (:mod:`.toolchain`) and split into tokens (:mod:`.lexer`), in which its declarations
(:mod:`.syntax`) and its kernels (:mod:`.kernels`) are found. The rules of MSL are checked (:mod:`.strict`). Then the
tokens are rewritten (:mod:`.rewrites`) to C++ of clang's SYCL device mode, which has the address spaces of MSL, and
compiled after the headers in ``shim``, one kernel at a time (:mod:`.program`). A few lines of the headers depend on the
target: the macro ``ANYMETAL_CUDA`` is defined for NVIDIA GPUs, ``ANYMETAL_STRICT`` for the check. Compiled files are
cached on disk (:mod:`.cache`).
"""
