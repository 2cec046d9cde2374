"""Weights in the order of reading: for each block of channels, tap and term a vector of the channels."""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import compiled
from mpsref_cpu.simd.vectors import SQUARE, transpose


@compiled
def pack(begin, end, blocks, lanes, steps, counts, flipped, weights, packed):
    """Copy the weights of some blocks: for each tap and term a vector of their channels, zeros in lanes without one.

    ``counts`` is (taps, terms of a tap), ``steps`` are the distances of the weights of neighbouring (channels, taps,
    terms). ``flipped`` begins with the last tap. The first column of a block is the index of its first weight.
    """
    taps, terms = counts
    lane_step, tap_step, term_step = steps
    for m in range(begin, end):
        first, at, channels = blocks[m]
        for t in range(taps):
            tap = first + (taps - 1 - t if flipped else t) * tap_step
            for k in range(terms):
                to, of = np.uintp(at + (t * terms + k) * lanes), np.uintp(tap + k * term_step)
                if lane_step == 1:
                    for lane in range(np.uintp(channels)):
                        packed[to + lane] = weights[of + lane]
                for lane in range(np.uintp(channels), np.uintp(lanes)):
                    packed[to + lane] = 0
            for first_term in range(0, terms if lane_step != 1 else 0, SQUARE):  # then term_step is 1
                count = min(SQUARE, terms - first_term)
                squares = channels // SQUARE * SQUARE if count == SQUARE else 0
                to = np.uintp(at + (t * terms + first_term) * lanes)
                of = np.uintp(tap + first_term)
                for lane in range(0, squares, SQUARE):
                    start = of + np.uintp(lane * lane_step)
                    transpose(weights, start, np.uintp(lane_step), packed, to + np.uintp(lane), np.uintp(lanes))
                for lane in range(squares, channels):
                    start = of + np.uintp(lane * lane_step)
                    for k in range(np.uintp(count)):
                        packed[to + k * np.uintp(lanes) + np.uintp(lane)] = weights[start + k]


@compiled
def unpack(begin, end, blocks, lanes, steps, counts, flipped, sums, weights):
    """Fill ``weights`` from the totals of all rows of ``sums``: the inverse of :func:`pack`."""
    taps, terms = counts
    lane_step, tap_step, term_step = steps
    for m in range(begin, end):
        first, at, channels = blocks[m]
        for t in range(taps):
            tap = first + (taps - 1 - t if flipped else t) * tap_step
            for k in range(terms if lane_step == 1 else 0):
                to, of = np.uintp(tap + k * term_step), np.uintp(at + (t * terms + k) * lanes)
                for lane in range(np.uintp(channels)):
                    total = np.float32(0)
                    for split in range(sums.shape[0]):
                        total += sums[split, of + lane]
                    weights[to + lane] = total
            for first_term in range(0, terms if lane_step != 1 else 0, SQUARE):
                for lane in range(channels):
                    to = np.uintp(tap + first_term * term_step + lane * lane_step)
                    of = np.uintp(at + (t * terms + first_term) * lanes + lane)
                    for k in range(np.uintp(min(SQUARE, terms - first_term))):
                        total = np.float32(0)
                        for split in range(sums.shape[0]):
                            total += sums[split, of + k * np.uintp(lanes)]
                        weights[to + k * np.uintp(term_step)] = total
