"""What does not fit is refused by name, not by a broadcast or an error from inside a product."""

import pytest
import torch

from qkv.nn.attention import attend
from qkv.nn.masks import AttentionMask, as_mask, look_ahead_mask


def tensors(*shapes):
    return [torch.randn(shape) for shape in shapes]


# The shape annotations, which tests enforce, would refuse these first: the checks are for everybody else.
plain_attend = getattr(attend, "__wrapped__", attend)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 3, 8), (2, 3, 8), (2, 3, 8)), r"must have shapes \(B, H, T, d\)"),
        (((2, 1, 3, 8), (1, 1, 3, 8), (1, 1, 3, 8)), "one batch size"),
        (((2, 1, 3, 8), (2, 1, 3, 4), (2, 1, 3, 8)), "heads of one width, got 8 and 4"),
        (((2, 1, 3, 8), (2, 1, 3, 8), (2, 1, 4, 8)), "keys and values differ in length"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ValueError, match=message):
        plain_attend(*tensors(*shapes))


def test_a_mask_of_another_type_or_dtype_is_named():
    with pytest.raises(TypeError, match="not a list"):
        getattr(as_mask, "__wrapped__", as_mask)([True])
    with pytest.raises(ValueError, match=r"boolean mask in which True means 'may attend', got torch.float32"):
        as_mask(torch.ones(3, 3))
    with pytest.raises(ValueError, match="ambiguous"):
        as_mask(torch.ones(3, 3).bool())


def test_a_causal_mask_of_one_size_says_what_fits_any():
    with pytest.raises(ValueError, match=r"AttentionMask\(causal=True\) fits any lengths"):
        look_ahead_mask(3).to_dense(3, 5)
    assert AttentionMask(causal=True).to_dense(3, 5).shape == (1, 1, 3, 5)
    with pytest.raises(ValueError, match="seq_len must not be negative"):
        look_ahead_mask(-1)
