"""Where a line is missing."""

import pytest

from qkv.data.files.gap import missing_line

TEXTS = ["x" * n for n in (3, 30, 5, 40, 4, 35, 6, 28, 3, 31)]


@pytest.mark.parametrize("place", range(1, 9))
def test_the_place_is_found_by_the_lengths(place):
    short = [text * 2 for text in TEXTS[:place] + TEXTS[place + 1 :]]
    for two in ((TEXTS, short), (short, TEXTS)):
        assert int(missing_line(*two).removeprefix("By the lengths of lines, one seems to be missing near line ")) in (
            place, place + 1, place + 2,
        )  # fmt: skip


def test_where_lengths_tell_nothing_no_place_is_made_up():
    assert missing_line(["abc"] * 9, ["de"] * 8) == "The lengths of the lines do not tell where"
