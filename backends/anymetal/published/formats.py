"""The formats of ggml's quantized weights: their blocks, and the elements of these in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from published.collection import Array, Draw
from published.oracles import wide

Tables = Callable[[str], Array]
"""The points of a lattice, 4 or 8 bytes each, by the name of their table."""
ELEMENTS: Mapping[str, Any] = {"f32": np.float32, "f16": np.float16, "i32": np.int32}
BLOCKS = {
    "q4_0": (32, 18), "q8_0": (32, 34), "q4_K": (256, 144), "q6_K": (256, 210), "q4_1": (32, 20), "q5_0": (32, 22),
    "q5_1": (32, 24), "iq4_nl": (32, 18), "mxfp4": (32, 17), "q2_K": (256, 84), "q3_K": (256, 110), "q5_K": (256, 176),
    "tq2_0": (256, 66), "iq4_xs": (256, 136), "q1_0": (128, 18), "q2_0": (64, 18), "iq1_s": (256, 50),
    "iq1_m": (256, 56), "iq2_xxs": (256, 66), "iq2_xs": (256, 74), "iq2_s": (256, 82), "iq3_xxs": (256, 98),
    "iq3_s": (256, 110),
}  # fmt: skip
"""Elements and bytes of a block."""
SCALES = {"q4_K": [0, 2], "q5_K": [0, 2], "q4_1": [0, 2], "q5_1": [0, 2], "q6_K": [208], "q2_K": [80, 82]}
SCALES |= {"q3_K": [108], "tq2_0": [64], "mxfp4": [], "iq1_m": []}
"""Bytes at which numbers of a block's scales begin, for formats in which it is not the first only."""
NON_LINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)
MICRO = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def points(text: str, name: str) -> Array:
    """Return the points of a lattice: numbers of 4 or 8 bytes of a table in the text of a header."""
    found = re.search(rf"GGML_TABLE_BEGIN\((\w+), {name}, \w+\)(.*?)GGML_TABLE_END", text, re.DOTALL)
    if found is None:
        raise ValueError(f"there is no table {name}")
    kind = {"uint32_t": np.uint32, "uint64_t": np.uint64}[found[1]]
    return np.array([int(one, 0) for one in re.findall(r"0x\w+|\d+", found[2])], kind)


def halves(data: Array) -> Any:
    """Return two bytes of each block as a float16."""
    return np.ascontiguousarray(data).view(np.float16).astype(np.float64)


def q4_0(blocks: Array) -> Any:
    """Return the elements of blocks (..., 18): a scale, then 16 bytes with elements i and i + 16."""
    low, high = blocks[..., 2:] & 15, blocks[..., 2:] >> 4
    return halves(blocks[..., :2]) * (np.concatenate((low, high), -1).astype(np.float64) - 8)


def q8_0(blocks: Array) -> Any:
    """Return the elements of blocks (..., 34): a scale, then 32 signed bytes."""
    return halves(blocks[..., :2]) * blocks[..., 2:].view(np.int8)


def q4_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 144): two scales, 8 pairs of 6 bits, and 128 bytes of two elements."""
    packed, bits = blocks[..., 4:16].astype(np.int64), blocks[..., 16:].reshape(*blocks.shape[:-1], 4, 1, 32)
    first, second, third = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate((first & 63, third & 15 | first >> 6 << 4), -1)
    minima = np.concatenate((second & 63, third >> 4 | second >> 6 << 4), -1)
    elements = np.concatenate((bits & 15, bits >> 4), -2).reshape(*blocks.shape[:-1], 8, 32)
    scaled = (halves(blocks[..., :2]) * scales)[..., None] * elements
    return (scaled - (halves(blocks[..., 2:4]) * minima)[..., None]).reshape(*blocks.shape[:-1], 256)


def q6_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 210): low 4 bits, high 2 bits, 16 signed scales, and a scale of all."""
    low = blocks[..., :128].reshape(*blocks.shape[:-1], 2, 64)
    high = blocks[..., 128:192].reshape(*blocks.shape[:-1], 2, 1, 32)
    fours = np.concatenate((low & 15, low >> 4), -1).reshape(*low.shape[:-1], 4, 32)
    twos = high >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    elements = (fours | twos << 4).astype(np.float64) - 32
    scales = blocks[..., 192:208].view(np.int8).reshape(*blocks.shape[:-1], 16, 1).astype(np.float64)
    scaled = elements.reshape(*blocks.shape[:-1], 16, 16) * scales
    return scaled.reshape(*blocks.shape[:-1], 256) * halves(blocks[..., 208:])


def nibbles(data: Array) -> Array:
    """Return the low and then the high 4 bits of bytes."""
    return np.concatenate((data & 15, data >> 4), -1)


def fields_of(data: Array, shifts: Sequence[int], mask: int) -> Array:
    """Return bits of bytes (..., n) as (..., shifts, n)."""
    return data[..., None, :] >> np.array(shifts, np.uint8)[:, None] & mask


def fives(blocks: Array, first: int) -> Any:
    """Return 32 numbers of 5 bits: 4 bytes of high bits, and 16 bytes of two numbers without it."""
    high = np.unpackbits(blocks[..., first : first + 4], axis=-1, bitorder="little")
    return nibbles(blocks[..., first + 4 :]).astype(np.float64) + 16.0 * high


def q5_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 176): those of q4_K with a bit more."""
    plain = np.concatenate((blocks[..., :16], blocks[..., 48:]), -1)
    bits = fields_of(blocks[..., 16:48], range(8), 1).reshape(*blocks.shape[:-1], 256)
    ones = np.concatenate((blocks[..., :2], 0 * blocks[..., 2:4], blocks[..., 4:16], 0 * blocks[..., 48:] + 17), -1)
    return q4_k(plain) + 16.0 * bits * q4_k(ones)


def q3_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 110): high bits, 2 bits, 16 scales of 6 bits, and a scale of all."""
    shape, packed = blocks.shape[:-1], blocks[..., 96:108]
    high = fields_of(packed[..., 8:], (0, 2, 4, 6), 3).reshape(*shape, 16)
    scales = (nibbles(packed[..., :8]) | high << 4).astype(np.float64) - 32
    low = fields_of(blocks[..., 32:96].reshape(*shape, 2, 32), (0, 2, 4, 6), 3).reshape(*shape, 256)
    bit = fields_of(blocks[..., :32], range(8), 1).reshape(*shape, 256)
    elements = (low.astype(np.float64) - 4.0 * (bit == 0)).reshape(*shape, 16, 16)
    return (halves(blocks[..., 108:])[..., None] * scales[..., None] * elements).reshape(*shape, 256)


def q2_k(blocks: Array) -> Any:
    """Return the elements of blocks (..., 84): 16 pairs of a scale and a minimum of 4 bits, 2 bits, two scales."""
    shape, pairs = blocks.shape[:-1], blocks[..., :16, None].astype(np.float64)
    low = fields_of(blocks[..., 16:80].reshape(*shape, 2, 32), (0, 2, 4, 6), 3).reshape(*shape, 16, 16)
    scaled = halves(blocks[..., 80:82])[..., None] * (pairs % 16) * low
    return (scaled - halves(blocks[..., 82:84])[..., None] * (pairs // 16)).reshape(*shape, 256)


def iq4_xs(blocks: Array) -> Any:
    """Return the elements of blocks (..., 136): a scale, 8 scales of 6 bits, and indices of values of 4 bits."""
    shape = blocks.shape[:-1]
    high = fields_of(blocks[..., 2:4], (0, 2, 4, 6), 3).swapaxes(-1, -2).reshape(*shape, 8)
    low = fields_of(blocks[..., 4:8], (0, 4), 15).swapaxes(-1, -2).reshape(*shape, 8)
    scales = halves(blocks[..., :2]) * ((low | high << 4).astype(np.float64) - 32)
    values = NON_LINEAR[nibbles(blocks[..., 8:].reshape(*shape, 8, 16))]
    return (scales[..., None] * values).reshape(*shape, 256)


def words(data: Array, kind: Any) -> Any:
    """Return bytes as words of 16 or 32 bits."""
    return np.ascontiguousarray(data).view(kind).astype(np.int64)


def pairs(data: Array) -> Array:
    """Return the low and the high 4 bits of each byte, one after the other."""
    return np.stack((data & 15, data >> 4), -1).reshape(*data.shape[:-1], -1).astype(np.int64)


def signs(sevens: Array) -> Any:
    """Return bytes of signs: seven, and one that makes the number of negative ones even."""
    return (sevens | (np.bitwise_count(sevens) & 1).astype(np.int64) << 7).astype(np.uint8)


def lattice(table: Array, index: Array, scales: Any, bits: Array) -> Any:
    """Return 256 elements: points of a lattice by their indices, signs, and the scales of parts."""
    shape = index.shape[:-1]
    negative = np.unpackbits(bits.reshape(*shape, -1), axis=-1, bitorder="little")
    points = np.ascontiguousarray(table[index]).view(np.int8).reshape(*shape, 256).astype(np.float64)
    return points * (1.0 - 2.0 * negative) * np.repeat(scales, 256 // scales.shape[-1], -1)


def iq2_xxs(one: Array, table: Tables) -> Any:
    """Return the elements of blocks (..., 66): a scale, and for 32 elements 4 indices, 4 x 7 signs and a scale."""
    parts = one[..., 2:].reshape(*one.shape[:-1], 8, 8)
    about, index = words(parts[..., 4:], np.uint32), parts[..., :4].reshape(*one.shape[:-1], 32)
    scales = halves(one[..., :2]) * (0.5 + (about[..., 0] >> 28)) / 4
    return lattice(table("iq2xxs_grid"), index, scales, signs(about >> np.array([0, 7, 14, 21]) & 127))


def iq2_xs(one: Array, table: Tables) -> Any:
    """Return the elements of blocks (..., 74): a scale, 32 x 9 bits of an index and 7 signs, 16 scales."""
    each = words(one[..., 2:66], np.uint16)
    scales = halves(one[..., :2]) * (0.5 + pairs(one[..., 66:])) / 4
    return lattice(table("iq2xs_grid"), each & 511, scales, signs(each >> 9))


def iq2_s(one: Array, table: Tables) -> Any:
    """Return the elements of blocks (..., 82): a scale, indices, signs, 2 high bits of indices, 16 scales."""
    high = fields_of(one[..., 66:74], (0, 2, 4, 6), 3).swapaxes(-1, -2).reshape(*one.shape[:-1], 32)
    scales = halves(one[..., :2]) * (0.5 + pairs(one[..., 74:])) / 4
    return lattice(table("iq2s_grid"), one[..., 2:34] | high.astype(np.int64) << 8, scales, one[..., 34:66])


def iq3_xxs(one: Array, table: Tables) -> Any:
    """Return the elements of blocks (..., 98): a scale, 64 indices of 4 elements, and 8 x 4 x 7 signs and a scale."""
    about = words(one[..., 66:], np.uint32)[..., None]
    scales = halves(one[..., :2]) * (0.5 + (about[..., 0] >> 28)) / 2
    return lattice(table("iq3xxs_grid"), one[..., 2:66], scales, signs(about >> np.array([0, 7, 14, 21]) & 127))


def iq3_s(one: Array, table: Tables) -> Any:
    """Return the elements of blocks (..., 110): a scale, 64 indices, their high bits, signs, and 8 scales."""
    high = np.unpackbits(one[..., 66:74], axis=-1, bitorder="little").astype(np.int64)
    scales = halves(one[..., :2]) * (1 + 2 * pairs(one[..., 106:]))
    return lattice(table("iq3s_grid"), one[..., 2:66] | high << 8, scales, one[..., 74:106])


def ones(table: Tables, index: Array, scales: Any, shifts: Array) -> Any:
    """Return 256 elements of -1, 0 and 1, all of 8 shifted up or down by an eighth."""
    plain = lattice(table("iq1s_grid"), index, scales, np.zeros_like(index, np.uint8))
    shift = np.where(shifts, -0.125, 0.125).repeat(256 // shifts.shape[-1], -1)
    return plain + shift * np.repeat(scales, 256 // scales.shape[-1], -1)


def iq1_s(one: Array, table: Tables) -> Any:
    """Return the elements of blocks (..., 50): a scale, 32 indices, and 8 x 4 x 3 high bits, a scale and a shift."""
    about = words(one[..., 34:], np.uint16)
    high = (about[..., None] >> np.array([0, 3, 6, 9]) & 7).reshape(*one.shape[:-1], 32)
    scales = halves(one[..., :2]) * (2 * (about >> 12 & 7) + 1)
    return ones(table, one[..., 2:34] | high << 8, scales, about >> 15)


def iq1_m(one: Array, table: Tables) -> Any:
    """Return the elements of blocks (..., 56): 32 indices, 3 high bits and a shift, 16 scales, a scale in 4 parts."""
    high, about = pairs(one[..., 32:48]), words(one[..., 48:], np.uint16)
    whole = ((about >> 12) << np.array([0, 4, 8, 12])).sum(-1, keepdims=True).astype(np.uint16)
    parts = (about[..., None] >> np.array([0, 3, 6, 9]) & 7).reshape(*one.shape[:-1], 16)
    scales = wide(whole.view(np.float16)) * (2 * parts + 1)
    return ones(table, one[..., :32] | (high & 7) << 8, scales, high >> 3)


FORMATS: Mapping[str, Any] = {
    "q4_0": q4_0, "q8_0": q8_0, "q4_K": q4_k, "q6_K": q6_k, "q5_K": q5_k, "q3_K": q3_k, "q2_K": q2_k, "iq4_xs": iq4_xs,
    "q4_1": lambda one: halves(one[..., :2]) * nibbles(one[..., 4:]) + halves(one[..., 2:4]),
    "q5_0": lambda one: halves(one[..., :2]) * (fives(one, 2) - 16),
    "q5_1": lambda one: halves(one[..., :2]) * fives(one, 4) + halves(one[..., 2:4]),
    "iq4_nl": lambda one: halves(one[..., :2]) * NON_LINEAR[nibbles(one[..., 2:])],
    "mxfp4": lambda one: 2.0 ** (one[..., :1].astype(np.float64) - 127) * MICRO[nibbles(one[..., 1:])],
    "tq2_0": lambda one: halves(one[..., 64:]) * (
        fields_of(one[..., :64].reshape(*one.shape[:-1], 2, 32), (0, 2, 4, 6), 3).reshape(*one.shape[:-1], 256) - 1.0
    ),
    "q2_0": lambda one: halves(one[..., :2]) * (
        fields_of(one[..., 2:], (0, 2, 4, 6), 3).swapaxes(-1, -2).reshape(*one.shape[:-1], 64) - 1.0
    ),
    "q1_0": lambda one: halves(one[..., :2]) * (np.unpackbits(one[..., 2:], axis=-1, bitorder="little") * 2.0 - 1),
}  # fmt: skip
"""Functions of blocks."""
LATTICES: Mapping[str, Any] = {one.__name__: one for one in (iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s)}
"""Those of blocks and of the tables of points in ggml's header."""


def dequantized(x: Array, kind: str, table: Tables | None = None) -> Any:
    """Return rows of elements or of blocks in float64."""
    if kind in ELEMENTS:
        return wide(x)
    _, size = BLOCKS[kind]
    blocks = x.reshape(*x.shape[:-1], -1, size)
    found = LATTICES[kind](blocks, table) if kind in LATTICES else FORMATS[kind](blocks)
    return found.reshape(*x.shape[:-1], -1)


def weights(draw: Draw, kind: str, *shape: int) -> Array:
    """Draw rows of elements or of blocks, of any bytes with scales of ordinary size."""
    if kind in ELEMENTS:
        return draw.array(*shape, dtype=ELEMENTS[kind], kind="plain")
    per, size = BLOCKS[kind]
    random = np.random.default_rng(draw.number(0, 2**16))
    made = random.integers(0, 256, (*shape[:-1], shape[-1] // per, size), np.uint8)
    for first in SCALES.get(kind, [0]):
        scales = random.uniform(-0.05, 0.05, made.shape[:-1]).astype(np.float16)
        made[..., first : first + 2] = scales[..., None].view(np.uint8)
    if kind == "iq1_m":  # a scale of 0.01 in the four highest parts of words
        made[..., 49::2] = made[..., 49::2] & 15 | np.array([15, 1, 1, 2], np.uint8) << 4
    if kind == "mxfp4":
        made[..., 0] = random.integers(118, 128, made.shape[:-1])
    return made.reshape(*shape[:-1], -1)
