"""Separators and quotes: where a row begins and ends, and what its fields are."""

import pytest

from qkv.data.files.delimited import guess_separator, records
from qkv.errors import UserError


def read(text, separator, **options):
    return list(records(text, separator, "f", **options))


@pytest.mark.parametrize(
    "text",
    [
        'a\tx\n"well, he said\tother\nsize 20" pipe\torder\nb\ty\n',
        'a\tx\n"well, he said\tother\nsize 20"\torder\nb\ty\n',
        'a\tx\nthe 5" pipe\torder\n"\ty\n""\tz\n',
        '"one\tx\n"two\tx\n"three\tx\n',
    ],
)
def test_a_quote_in_a_tab_separated_file_glues_no_lines_together(text):
    doubtful = []
    found = read(text, "\t", strict=False, doubtful=doubtful)
    assert [row.line for row in found] == list(range(1, text.count("\n") + 1))
    assert [list(row.values) for row in found if row.values != ("", "z")] == [
        line.split("\t") for line in text.splitlines() if line != '""\tz'
    ]
    assert doubtful == ([2] if '20"\t' in text else [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a\tb\n"x\ty"\tc\n', [(1, ("a", "b")), (2, ("x\ty", "c"))]),
        ('a\tb\n"x\ny"\tc\nd\te\n', [(1, ("a", "b")), (2, ("x\ny", "c")), (4, ("d", "e"))]),
        ('a\tb\nc\t"x\ny"\nd\te\n', [(1, ("a", "b")), (2, ("c", "x\ny")), (4, ("d", "e"))]),
        ('a\tb\n"say ""hi"""\tc', [(1, ("a", "b")), (2, ('say "hi"', "c"))]),
        ('a\tb\nc\t"never closed\nd\te\n', [(1, ("a", "b")), (2, ("c", '"never closed')), (3, ("d", "e"))]),
    ],
)
def test_quotes_around_a_whole_field_hold_tabs_and_line_breaks(text, expected):
    assert read(text, "\t", strict=False) == expected


def test_cells_of_csv_hold_separators_line_breaks_and_quotes():
    text = 'text,label\n"two\nlines, one cell",a\n"say ""hi""",b\n"",c\n5" pipe,d\nlast,e'
    assert read(text, ",", first=3) == [
        (3, ("text", "label")), (4, ("two\nlines, one cell", "a")), (6, ('say "hi"', "b")), (7, ("", "c")),
        (8, ('5" pipe', "d")), (9, ("last", "e")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('a,b\n"c,d\ne,f\n', "line 2, column 1"),
        ('a,b\nc,"d\n', "line 2, column 2"),
        ('a,b\n"x\ny","d\n', "line 3, column 2"),
        ('a,b\n"c" d,e\n', "line 2, column 1"),
    ],
)
def test_a_quote_that_never_closes_in_csv_is_named_where_it_opens(text, place):
    with pytest.raises(UserError, match=f"f, {place}: a quote opens here and is not closed"):
        read(text, ",")


@pytest.mark.parametrize(
    ("text", "suffix", "separator"),
    [
        ("1;good, clean;3,5\n2;loud, narrow, cold, dear;1,5\n3;so;0,5\n", ".csv", ";"),
        ("x;3,5\ny;1,5\n", ".csv", ";"),
        ("a|b, c|d\ne|f|g\n", ".txt", "|"),
        ('"a, b",c\n"d; e; f",g\n', ".csv", ","),
        ("a, b, c\td\ne, f\tg\n", ".txt", "\t"),
        ("one word\nafter, the other\n", ".txt", None),
        ("a,b\n", ".tsv", "\t"),
    ],
)
def test_the_separator_is_the_one_that_every_row_agrees_on(text, suffix, separator):
    assert guess_separator(text, "f", suffix) == separator
