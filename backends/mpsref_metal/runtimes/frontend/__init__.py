"""MSL through clang: what the runtimes share that compile MSL themselves, for a processor and for an NVIDIA GPU.

A source is checked as Apple's compiler would check it (:mod:`.strict`), its kernels and their parameters are found
(:mod:`.source`), and it is compiled as C++ after the headers in ``shim``, which differ in a few lines by target: the
processor's code compiles without a macro, NVIDIA's with ``MPSREF_CUDA``, the strict pass with ``MPSREF_STRICT``. What
was compiled is kept on disk (:mod:`.cache`).
"""
