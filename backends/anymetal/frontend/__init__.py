"""The MSL front end of the runtimes ``clang`` and ``cuda``.

The rules of MSL are checked (:mod:`.strict`), kernels and their parameters are parsed (:mod:`.source`), and the source
is compiled as C++ after the headers in ``shim``. A few lines of these depend on the target: the macro ``MPSREF_CUDA``
is defined for NVIDIA GPUs, ``MPSREF_STRICT`` for the strict pass, and none for the CPU. Compiled files are cached on
disk (:mod:`.cache`).
"""
