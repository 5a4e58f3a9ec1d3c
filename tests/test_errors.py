"""The hint for a mistyped name."""

import pytest

from qkv.errors import UserError, nearest


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cmudct", " Did you mean 'cmudict'?"),
        ("CMUdict", " Did you mean 'cmudict'?"),
        ("encoder-decoder", " Did you mean 'Encoder_Decoder'?"),
        ("zzz", ""),
        ("", ""),
    ],
)
def test_nearest_names_the_closest_known_name_or_nothing(name, hint):
    assert nearest(name, ["cmudict", "Encoder_Decoder", "gru"]) == hint


def test_nearest_with_nothing_known():
    assert nearest("cmudict", []) == ""


def test_user_error_is_an_ordinary_exception_with_its_message():
    with pytest.raises(Exception, match=r"^d_model 250$") as raised:
        raise UserError("d_model 250")
    assert not isinstance(raised.value, (ValueError, SystemExit))
