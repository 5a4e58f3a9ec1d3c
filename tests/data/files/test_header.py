"""Whether a first row names columns."""

import pytest

from qkv.data.files.delimited import Row
from qkv.data.files.header import looks_like_header


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ("text,kind|a b,x|c d,y", True),
        ("内容,类别|好,正|坏,负", True),
        ("\xa0Text,label ,2024|one,a,1|two,b,2", True),
        ("first thing,count|c,1|d,2", True),
        ("Satz,Klasse|a good day,pos|a bad day,neg|not bad,pos|so so,neg", True),
        ("the tap drips,water|no light,power|cold tea,water|fuse blew,power", False),
        ("a,1|b,2", False),
        # A usual name may be a word of a dictionary.
        ("word,w ɜ d|work,w ɜ k|worm,w ɜ m", False),
        ("title,noun|run,verb|tree,noun", False),
        ("a,ə|aback,ə b æ k|abbot,æ b ə t|able,eɪ b l", False),
        # With one column that is unlike the rest the row may yet be data: the only typo among four reports.
        ("misspelt,typo|a good day,pos|a bad day,neg|pos,neg|so so,pos", False),
    ],
)
def test_a_first_row_is_a_header_by_its_names_or_by_being_unlike_the_rest(rows, header):
    every = [Row(line, tuple(row.split(","))) for line, row in enumerate(rows.split("|"), 1)]
    found, why = looks_like_header(every)
    assert found == header
    assert "header" in why
