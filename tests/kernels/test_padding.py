"""Padding policies of MPS: worked tables, inverses, errors, and what they equal in other frameworks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from mpsref import padding
from mpsref.errors import ShapeError, UnsupportedError
from mpsref.geometry import Window
from mpsref.padding import PaddingMethod as Method
from mpsref.padding import PaddingPolicy, method_inverse, policy_forward, policy_reverse

Y, X = 0, 1
VALID, SAME, FULL = Method.SizeValidOnly, Method.SizeSame, Method.SizeFull
TOP_LEFT, BOTTOM_RIGHT = Method.AddRemainderToTopLeft, Method.AddRemainderToBottomRight
TOP_RIGHT, BOTTOM_LEFT = Method.AddRemainderToTopRight, Method.AddRemainderToBottomLeft
ALIGN_TOP_LEFT, ALIGN_BOTTOM_RIGHT = Method.AlignTopLeft, Method.AlignBottomRight


def problems(lengths: range, kernels: range, strides: range, dilations: range) -> Iterator[tuple[int, Window]]:
    for length, k, s, d in itertools.product(lengths, kernels, strides, dilations):
        yield length, Window(k, s, d)


def outputs_and_extra(length: int, w: Window) -> tuple[int, int]:
    """The number of outputs of SizeSame, and the pixels read beyond those present."""
    outputs = -(-length // w.stride)
    return outputs, (outputs - 1) * w.stride + w.extent - length


# --- the bits ---------------------------------------------------------------------------------------------------------


def test_values_of_the_bits() -> None:
    values = {name: member.value for name, member in Method.__members__.items()}
    assert values == {
        "AlignCentered": 0,
        "AlignTopLeft": 1,
        "AlignBottomRight": 2,
        "AddRemainderToTopLeft": 0,
        "AddRemainderToTopRight": 4,
        "AddRemainderToBottomLeft": 8,
        "AddRemainderToBottomRight": 12,
        "SizeValidOnly": 0,
        "SizeSame": 0x10,
        "SizeFull": 0x20,
        "CustomWhitelistForNodeFusion": 0x2000,
        "CustomAllowForNodeFusion": 0x2000,
        "Custom": 0x4000,
        "ExcludeEdges": 0x8000,
    }


@pytest.mark.parametrize(
    ("method", "on_y", "on_x"),
    [(TOP_LEFT, 0, 0), (TOP_RIGHT, 0, 1), (BOTTOM_LEFT, 1, 0), (BOTTOM_RIGHT, 1, 1)],
)
def test_each_axis_has_its_own_remainder_bit(method: Method, on_y: int, on_x: int) -> None:
    w = Window(2)
    assert policy_forward(5, w, SAME | method, Y) == (5, on_y)
    assert policy_forward(5, w, SAME | method, X) == (5, on_x)
    assert padding.mps((5, 6), 2, policy=SAME | method) == ((on_y, on_x), (5, 6), "zero", (0, 0))
    assert policy_reverse(5, w, SAME | method, Y) == (5, on_y)
    assert policy_reverse(5, w, SAME | method, X) == (5, on_x)


@pytest.mark.parametrize("flag", [Method.ExcludeEdges, Method.CustomAllowForNodeFusion, Method.Custom])
def test_flags_do_not_move_a_window(flag: Method) -> None:
    for length, w in problems(range(4, 8), range(1, 4), range(1, 4), range(1, 2)):
        for size in (VALID, SAME, FULL):
            assert policy_forward(length, w, size | flag, X) == policy_forward(length, w, size, X)


# --- forward ----------------------------------------------------------------------------------------------------------

# (L, K, s, d), then for Valid, Same and Full: O, extra, (o of centred top left, centred bottom right, AlignTopLeft,
# AlignBottomRight); None: no window fits.
POLICIES = [
    ((5, 1, 1, 1), (5, 0, (0, 0, 0, 0)), (5, 0, (0, 0, 0, 0)), (5, 0, (0, 0, 0, 0))),
    ((5, 2, 1, 1), (4, 0, (1, 1, 1, 1)), (5, 1, (0, 1, 0, 1)), (6, 2, (0, 0, -1, 1))),
    ((5, 3, 1, 1), (3, 0, (1, 1, 1, 1)), (5, 2, (0, 0, -1, 1)), (7, 4, (-1, -1, -3, 1))),
    ((5, 4, 1, 1), (2, 0, (2, 2, 2, 2)), (5, 3, (0, 1, -1, 2)), (8, 6, (-1, -1, -4, 2))),
    ((5, 5, 1, 1), (1, 0, (2, 2, 2, 2)), (5, 4, (0, 0, -2, 2)), (9, 8, (-2, -2, -6, 2))),
    ((5, 3, 1, 2), (1, 0, (2, 2, 2, 2)), (5, 4, (0, 0, -2, 2)), (9, 8, (-2, -2, -6, 2))),
    ((6, 2, 1, 3), (3, 0, (2, 2, 2, 2)), (6, 3, (0, 1, -1, 2)), (9, 6, (-1, -1, -4, 2))),
    ((6, 4, 1, 2), None, (6, 6, (0, 0, -3, 3)), (12, 12, (-3, -3, -9, 3))),
    ((4, 2, 2, 1), (2, 0, (1, 1, 1, 1)), (2, 0, (1, 1, 1, 1)), (3, 2, (0, 0, -1, 1))),
    ((5, 2, 2, 1), (2, -1, (1, 1, 2, 1)), (3, 1, (0, 1, 0, 1)), (3, 1, (0, 1, 0, 1))),
    ((5, 3, 2, 1), (2, 0, (1, 1, 1, 1)), (3, 2, (0, 0, -1, 1)), (4, 4, (-1, -1, -3, 1))),
    ((6, 3, 2, 1), (2, -1, (1, 1, 2, 1)), (3, 1, (0, 1, 0, 1)), (4, 3, (-1, 0, -2, 1))),
    ((7, 3, 2, 1), (3, 0, (1, 1, 1, 1)), (4, 2, (0, 0, -1, 1)), (5, 4, (-1, -1, -3, 1))),
    ((8, 3, 2, 1), (3, -1, (1, 1, 2, 1)), (4, 1, (0, 1, 0, 1)), (5, 3, (-1, 0, -2, 1))),
    ((8, 2, 3, 1), (3, 0, (1, 1, 1, 1)), (3, 0, (1, 1, 1, 1)), (3, 0, (1, 1, 1, 1))),
    ((8, 3, 3, 1), (2, -2, (1, 2, 3, 1)), (3, 1, (0, 1, 0, 1)), (4, 4, (-1, -1, -3, 1))),
    ((9, 3, 4, 1), (2, -2, (1, 2, 3, 1)), (3, 2, (0, 0, -1, 1)), (3, 2, (0, 0, -1, 1))),
    ((9, 2, 4, 1), (2, -3, (2, 2, 4, 1)), (3, 1, (0, 1, 0, 1)), (3, 1, (0, 1, 0, 1))),
    ((10, 3, 5, 1), (2, -2, (1, 2, 3, 1)), (2, -2, (1, 2, 3, 1)), (3, 3, (-1, 0, -2, 1))),
    ((10, 2, 5, 1), (2, -3, (2, 2, 4, 1)), (2, -3, (2, 2, 4, 1)), (3, 2, (0, 0, -1, 1))),
    ((10, 4, 3, 1), (3, 0, (2, 2, 2, 2)), (4, 3, (0, 1, -1, 2)), (5, 6, (-1, -1, -4, 2))),
    ((7, 4, 2, 1), (2, -1, (2, 2, 3, 2)), (4, 3, (0, 1, -1, 2)), (5, 5, (-1, 0, -3, 2))),
    ((8, 4, 2, 1), (3, 0, (2, 2, 2, 2)), (4, 2, (1, 1, 0, 2)), (6, 6, (-1, -1, -4, 2))),
    ((9, 3, 2, 2), (3, 0, (2, 2, 2, 2)), (5, 4, (0, 0, -2, 2)), (7, 8, (-2, -2, -6, 2))),
    ((12, 2, 3, 3), (3, -2, (2, 3, 4, 2)), (4, 1, (1, 2, 1, 2)), (5, 4, (0, 0, -2, 2))),
    ((224, 7, 2, 1), (109, -1, (3, 3, 4, 3)), (112, 5, (0, 1, -2, 3)), (115, 11, (-3, -2, -8, 3))),
    ((112, 3, 2, 1), (55, -1, (1, 1, 2, 1)), (56, 1, (0, 1, 0, 1)), (57, 3, (-1, 0, -2, 1))),
    ((7, 7, 7, 1), (1, 0, (3, 3, 3, 3)), (1, 0, (3, 3, 3, 3)), (2, 7, (-1, 0, -4, 3))),
    ((8, 1, 3, 1), (3, -1, (0, 0, 1, 0)), (3, -1, (0, 0, 1, 0)), (3, -1, (0, 0, 1, 0))),
]
COLUMNS = (TOP_LEFT, BOTTOM_RIGHT, ALIGN_TOP_LEFT, ALIGN_BOTTOM_RIGHT)

Cell = tuple[int, int, tuple[int, int, int, int]] | None


@pytest.mark.parametrize("axis", [Y, X])
@pytest.mark.parametrize(("problem", "valid", "same", "full"), POLICIES)
def test_worked_policies(problem: tuple[int, int, int, int], valid: Cell, same: Cell, full: Cell, axis: int) -> None:
    length, *numbers = problem
    w = Window(*numbers)
    for size, cell in ((VALID, valid), (SAME, same), (FULL, full)):
        for column, method in enumerate(COLUMNS):
            if cell is None:
                with pytest.raises(ShapeError, match=rf"{length}.*extent {w.extent}"):
                    policy_forward(length, w, size | method, axis)
                continue
            outputs, extra, offsets = cell
            assert policy_forward(length, w, size | method, axis) == (outputs, offsets[column])
            assert (outputs - 1) * w.stride + w.extent - length == extra


def test_policies_of_stride_1_by_what_their_windows_touch() -> None:
    """Valid: every window inside the image. Same: every centre inside. Full: every window that touches it."""
    for length, w in problems(range(1, 9), range(1, 6), range(1, 2), range(1, 4)):
        inside, touching = length - w.extent + 1, length + w.extent - 1
        if inside >= 1:
            assert policy_forward(length, w, VALID, X) == (inside, w.center)
        assert policy_forward(length, w, SAME | TOP_LEFT, X) == (length, 0)
        assert policy_forward(length, w, SAME | BOTTOM_RIGHT, X) == (length, w.even)
        assert policy_forward(length, w, FULL, X) == (touching, w.center - (w.extent - 1))


def test_centred_valid_skips_pixels_on_the_left() -> None:
    for length, w in problems(range(1, 20), range(1, 5), range(1, 8), range(1, 3)):
        if length < w.extent:
            continue
        rest = (length - w.extent) % w.stride
        outputs = (length - w.extent) // w.stride + 1
        assert policy_forward(length, w, VALID | BOTTOM_RIGHT, X) == (outputs, w.center + rest // 2)
        assert policy_forward(length, w, VALID | TOP_LEFT, X) == (outputs, w.center + max(rest - 1, 0) // 2)


def test_the_older_recommended_offsets_differ_only_where_an_odd_number_of_pixels_is_cropped() -> None:
    for length, w in problems(range(1, 20), range(1, 7), range(1, 9), range(1, 2)):
        rest = (length - 1) % w.stride
        older = (rest + 1) // 2 if w.kernel % 2 else rest // 2 + 1
        _, offset = policy_forward(length, w, SAME | BOTTOM_RIGHT, X)
        _, extra = outputs_and_extra(length, w)
        assert abs(offset - older) == (extra < 0 and extra % 2 == 1)


# --- reverse and inverse ----------------------------------------------------------------------------------------------


def test_reverse_policies_by_what_the_kernel_touches_of_the_zero_inserted_source() -> None:
    for length, w in problems(range(1, 7), range(1, 6), range(1, 4), range(1, 4)):
        inserted = (length - 1) * w.stride + 1
        starts = range(-w.extent - 3, inserted + w.extent + 3)
        wanted = {
            VALID: [a for a in starts if a >= 0 and a + w.extent <= inserted],
            SAME: [a for a in starts if 0 <= a + w.center < inserted],
            FULL: [a for a in starts if a + w.extent > 0 and a < inserted],
        }
        for size, positions in wanted.items():
            if positions:
                assert policy_reverse(length, w, size, X) == (len(positions), positions[0] + w.center)
            else:
                with pytest.raises(ShapeError):
                    policy_reverse(length, w, size, X)


def test_aligned_reverse_policies_put_all_padding_on_one_side() -> None:
    w = Window(4, stride=2)  # extent 4, centre 2; 3 (Same) or 6 (Full) pixels of padding
    assert policy_reverse(5, w, SAME | ALIGN_TOP_LEFT, X) == (9, -1)
    assert policy_reverse(5, w, SAME | ALIGN_BOTTOM_RIGHT, X) == (9, 2)
    assert policy_reverse(5, w, FULL | ALIGN_TOP_LEFT, X) == (12, -4)
    assert policy_reverse(5, w, FULL | ALIGN_BOTTOM_RIGHT, X) == (12, 2)
    assert policy_reverse(5, w, VALID | ALIGN_TOP_LEFT, X) == (6, 2)


@pytest.mark.parametrize(
    ("method", "inverse"),
    [
        (VALID, FULL | BOTTOM_RIGHT),
        (FULL, VALID | BOTTOM_RIGHT),
        (FULL | TOP_RIGHT, VALID | BOTTOM_LEFT),
        (VALID | BOTTOM_LEFT | ALIGN_TOP_LEFT, FULL | TOP_RIGHT),
        (FULL | ALIGN_BOTTOM_RIGHT, VALID | BOTTOM_RIGHT),
        (SAME, SAME | BOTTOM_RIGHT),
        (SAME | BOTTOM_RIGHT, SAME),
        (SAME | ALIGN_TOP_LEFT, SAME | ALIGN_BOTTOM_RIGHT | BOTTOM_RIGHT),
        (SAME | ALIGN_BOTTOM_RIGHT | TOP_RIGHT, SAME | ALIGN_TOP_LEFT | BOTTOM_LEFT),
        (SAME | Method.ExcludeEdges, SAME | BOTTOM_RIGHT | Method.ExcludeEdges),
    ],
)
def test_inverse(method: Method, inverse: Method) -> None:
    assert method_inverse(method) == inverse
    assert PaddingPolicy(method, "clamp").inverse() == PaddingPolicy(inverse, "clamp")


def restores(length: int, w: Window, method: Method, axis: int) -> bool:
    """Whether the inverse policy gives the source's size, with destination pixel = source pixel."""
    outputs, offset = policy_forward(length, w, method, axis)
    return policy_reverse(outputs, w, method_inverse(method), axis) == (length, w.even - offset)


def test_the_inverse_restores_the_source_for_stride_1() -> None:
    methods = [size | end for size in (VALID, SAME) for end in (*COLUMNS, TOP_RIGHT, BOTTOM_LEFT)]
    methods += [FULL | end for end in (TOP_LEFT, TOP_RIGHT, BOTTOM_LEFT, BOTTOM_RIGHT)]
    for length, w in problems(range(1, 9), range(1, 6), range(1, 2), range(1, 4)):
        for method, axis in itertools.product(methods, (Y, X)):
            if method & 0x30 != VALID or length >= w.extent:
                assert restores(length, w, method, axis), (length, w, method, axis)


def test_the_inverse_restores_the_source_for_larger_strides_only_where_nothing_is_lost() -> None:
    cases = list(problems(range(1, 16), range(1, 6), range(2, 5), range(1, 2)))
    restored = [(length, w) for length, w in cases if restores(length, w, SAME, X)]
    assert (len(restored), len(cases)) == (85, 225)
    assert restored == [(length, w) for length, w in cases if (length - 1) % w.stride == 0]


# --- what equals the policies elsewhere -------------------------------------------------------------------------------

EVERYTHING = (range(1, 21), range(1, 7), range(1, 9), range(1, 3))


def one_axis(placement: padding.Placement) -> tuple[int, int]:
    """(O, o) of a placement whose axes are alike."""
    (oy, ox), (height, width) = placement.offset, placement.output_size
    assert (oy, height) == (ox, width)
    return width, ox


def square(length: int, w: Window) -> dict[str, Any]:
    return {"input_size": length, "kernel_size": w.kernel, "strides": w.stride, "dilations": w.dilation}


def test_tensorflow_same_is_a_policy_iff_it_crops_at_most_one_pixel() -> None:
    for length, w in problems(*EVERYTHING):
        _, extra = outputs_and_extra(length, w)
        equal = policy_forward(length, w, SAME | BOTTOM_RIGHT, X) == one_axis(padding.tensorflow(**square(length, w)))
        assert equal == (extra >= -1)
        assert equal or w.stride > w.extent


def test_valid_is_a_policy() -> None:
    for length, w in problems(*EVERYTHING):
        if length >= w.extent:
            policy = policy_forward(length, w, VALID | ALIGN_BOTTOM_RIGHT, X)
            assert policy == one_axis(padding.tensorflow(**square(length, w), padding="VALID"))
            assert policy == one_axis(padding.pytorch(**square(length, w)))
            assert policy == one_axis(padding.onnx(**square(length, w), auto_pad="VALID"))


@pytest.mark.parametrize(("auto_pad", "remainder"), [("SAME_UPPER", BOTTOM_RIGHT), ("SAME_LOWER", TOP_LEFT)])
def test_onnx_auto_pad_is_a_policy(auto_pad: str, remainder: Method) -> None:
    for length, w in problems(*EVERYTHING):
        policy = policy_forward(length, w, SAME | remainder, X)
        assert policy == one_axis(padding.onnx(**square(length, w), auto_pad=auto_pad))


def test_pytorch_half_padding_is_the_default_policy_iff_the_rest_is_small() -> None:
    for length, w in problems(*EVERYTHING):
        if w.extent % 2:
            placed = one_axis(padding.pytorch(**square(length, w), padding=(w.extent - 1) // 2))
            assert placed == (-(-length // w.stride), 0)
            equal = policy_forward(length, w, SAME | TOP_LEFT, X) == placed
            assert equal == ((length - 1) % w.stride <= (2 if w.extent == 1 else 1))


# --- whole policies and errors ----------------------------------------------------------------------------------------


def test_default_policies() -> None:
    average = padding.TENSORFLOW_AVERAGE_POOLING
    assert average == PaddingPolicy(Method(0x1C), "clamp")
    valid = padding.TENSORFLOW_AVERAGE_POOLING_VALID_ONLY
    assert len({average, valid, PaddingPolicy(Method(0x1C), "clamp")}) == 2, "policies are values"
    assert valid == PaddingPolicy(Method(0x2), "clamp")
    for length, w in problems(*EVERYTHING):
        if w.stride <= w.extent:
            assert padding.mps(**square(length, w), policy=average) == padding.tensorflow(**square(length, w))
        if length >= w.extent:
            placement = padding.mps(**square(length, w), policy=valid)
            assert placement == padding.tensorflow(**square(length, w), padding="VALID")


@pytest.mark.parametrize("method", [3, 3 | SAME, 0x30, 0x40, 0x400, 0x410])
def test_reserved_bits_are_refused_everywhere(method: Any) -> None:
    for call in (
        PaddingPolicy,
        method_inverse,
        lambda m: policy_forward(5, Window(3), m, X),
        lambda m: policy_reverse(5, Window(3), m, X),
        lambda m: padding.mps((5, 5), 3, policy=m),
    ):
        with pytest.raises(ValueError, match=rf"method is {method:#x}.*reserved: use"):
            call(method)


@pytest.mark.parametrize("method", [True, 16.0, "same", None])
def test_a_method_must_be_an_integer(method: Any) -> None:
    for call in (PaddingPolicy, method_inverse, lambda m: padding.mps((5, 5), 3, policy=m)):
        with pytest.raises(TypeError, match=r"method is .*; it must be an integer >= 0"):
            call(method)


def test_custom_policies_are_objects_of_their_own() -> None:
    with pytest.raises(ValueError, match=r"method is 0x4010 with the Custom bit"):
        PaddingPolicy(SAME | Method.Custom)
    with pytest.raises(UnsupportedError, match=r"method is 0x4010.*no inverse; configure"):
        method_inverse(SAME | Method.Custom)
