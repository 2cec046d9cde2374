"""SIMD for compiled code: vectors, reductions over them, elementary functions, float16."""
