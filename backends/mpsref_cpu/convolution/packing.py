"""Weights in the order of reading: for each block of channels, tap and term a vector of the channels."""

from __future__ import annotations

import numpy as np

from mpsref_cpu.compiling import compiled


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
                for lane in range(np.uintp(channels)):
                    packed[to + lane] = weights[of + lane * np.uintp(lane_step)]
                for lane in range(np.uintp(channels), np.uintp(lanes)):
                    packed[to + lane] = 0


@compiled
def unpack(begin, end, blocks, lanes, steps, counts, flipped, sums, weights):
    """Fill ``weights`` from the totals of all rows of ``sums``: the inverse of :func:`pack`."""
    taps, terms = counts
    lane_step, tap_step, term_step = steps
    for m in range(begin, end):
        first, at, channels = blocks[m]
        for t in range(taps):
            tap = first + (taps - 1 - t if flipped else t) * tap_step
            for lane in range(channels):
                to, of = np.uintp(tap + lane * lane_step), np.uintp(at + t * terms * lanes + lane)
                for k in range(np.uintp(terms)):
                    total = np.float32(0)
                    for split in range(sums.shape[0]):
                        total += sums[split, of + k * np.uintp(lanes)]
                    weights[to + k * np.uintp(term_step)] = total
