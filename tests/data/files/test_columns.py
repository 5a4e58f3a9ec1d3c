"""Which columns are source and target."""

import pytest

from qkv.data.files.columns import choose
from qkv.data.files.table import Row, Table
from qkv.errors import UserError


def table(*columns, header=True):
    return Table("t.csv", "csv", list(columns), [Row(2, ("a",) * len(columns))], "", header=header)


@pytest.mark.parametrize(
    ("columns", "asked", "chosen"),
    [
        (("a", "b"), (None, None), (0, 1)),
        (("id", "text", "n", "label"), (None, None), (1, 3)),
        (("a", "b", "c"), ("c", "a"), (2, 0)),
        (("a", "b", "c"), (3, "1"), (2, 0)),
        (("\xa0Text", "label ", "x"), ("text", "label"), (0, 1)),
        (("a", "b", "", ""), (None, None), (0, 1)),
        (("a", "b"), ("b", None), (1, 0)),
        (("text", "label", "text"), ("3", "label"), (2, 1)),
        (("2", "1"), ("1", "2"), (1, 0)),
    ],
)
def test_columns_by_name_by_position_and_by_what_is_usual(columns, asked, chosen):
    found = choose(table(*columns), *asked)
    assert (found.source, found.target) == chosen


@pytest.mark.parametrize(
    ("columns", "asked", "message"),
    [
        (("a", "b", "c"), (None, None), "which columns are source and target.*--data.source"),
        (("text", "label", "text"), (None, None), "'text' stands twice, at positions 1, 3"),
        (("text", "label", "text"), ("text", "label"), "has 2 columns 'text', at 1 and 3"),
        (("word", "sound"), ("wrod", "sound"), "no column 'wrod'.*word"),
        (("a", "b"), (3, 1), "has 2 columns: --data.source 3 is none of them"),
        (("a", "b"), (1, 1), "source and target are both"),
        (("a", "b"), ("²", 1), "no column '²'"),
        (("a",), (None, None), "has one column"),
    ],
)
def test_choices_that_are_not_clear_are_refused(columns, asked, message):
    with pytest.raises(UserError, match=message):
        choose(table(*columns), *asked)


def test_a_name_found_only_when_cleaned_is_said():
    assert "taken for 'label'" in " ".join(choose(table("text", "label "), "text", "label").notes)
