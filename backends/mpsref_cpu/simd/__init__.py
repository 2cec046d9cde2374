"""SIMD for compiled code: vectors, reductions over them, elementary functions.

The backend adds up in these orders, each for a reason of speed:

- windows of average and L2-norm pooling: term after term (:mod:`mpsref_cpu.simd.weighted_sums`);
- the channels of a pixel: vectors, then halves of the last vector (:mod:`mpsref_cpu.simd.reductions`);
- pixels of one channel, in batch, instance and group normalization: strips of several pixels, four strips at a time
  (:mod:`mpsref_cpu.normalization.strip_sums`);
- windows of normalization: the rows of a window, then along a row (:mod:`mpsref_cpu.normalization.window_sums`);
- whole axes, in float64, whose order does not matter to a float32 result (:mod:`mpsref_cpu.reduction.axis_reductions`);
- interpolated pixels, term after term, and rounded to the dtype of the result at once
  (:mod:`mpsref_cpu.resampling.interpolation`).
"""
