"""JSON to strings as they were typed."""

import pytest

from qkv.errors import UserError


def test_values_are_strings_as_typed(table):
    values = ("1", '"1"', "1.0", "1e3", "true", "null", "NaN", '"null"')
    rows = "".join(f'{{"text": "a", "label": {value}}}\n' for value in values)
    found = table("v.jsonl", rows + '\n{"text": "f"}\n')
    assert [values[1] for _, values in found.rows] == ["1", "1", "1.0", "1e3", "true", "", "NaN", "null", ""]
    assert found.rows[-1].line == 10
    assert found.notes == ["Column label holds numbers and strings; all are read as strings, as typed."]


def test_an_array_over_many_lines_knows_where_each_object_begins(table):
    text = '\n[\r\n  {"text": "a",\r\n   "label": 1},\r\n  {"text": "b", "label": "1"}, {"text": "c"}\r\n]\r\n'
    found = table("a.json", text)
    assert found.rows == [(3, ("a", "1")), (5, ("b", "1")), (5, ("c", ""))]
    assert found.notes == ["Column label holds numbers and strings; all are read as strings, as typed."]


def test_a_list_makes_a_row_for_each_value_and_no_row_is_lost(table):
    text = (
        '{"word": "read", "ipa": ["rid", "red"]}\n{"word": "a", "ipa": "x"}\n{"word": "b", "ipa": []}\n{"word": "c"}\n'
    )
    found = table("l.jsonl", text)
    assert found.rows == [
        (1, ("read", "rid")), (1, ("read", "red")), (2, ("a", "x")), (3, ("b", "")), (4, ("c", "")),
    ]  # fmt: skip
    assert found.notes == ["Column ipa holds lists: each value makes a row, 5 from 4."]


def test_other_lists_and_objects_stay_as_their_text(table):
    found = table("m.jsonl", '{"text": "a", "meta": {"n": 1.0, "é": [null, true]}, "x": ["p", 2], "y": ["q"]}\n')
    assert found.rows == [(1, ("a", '{"n": 1.0, "é": [null, true]}', '["p", 2]', '["q"]'))]
    assert found.notes == ["Lists or objects in meta, x, y: kept as their JSON text."]


def test_json_is_known_by_its_content(table):
    assert table("plain.txt", '{"text": "a", "label": "x"}\n').form == "jsonl"
    assert table("plain.txt", "[a] or [b]\tc\n[d]\te\n").form == "tsv"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a": \n', r"bad\.jsonl, line 2, column 7: not JSON"),
        ('[{"a": 1},\n {"a": }]', "line 2, column 8: not JSON"),
        ('[{"a": 1}\n {"a": 2}]', "line 2, column 2: a comma or ] is expected"),
        ('[{"a": 1}]\n[{"a": 2}]', "line 2, column 1: more text behind the array"),
        ("[1, 2]\n", "line 1: an object is expected"),
        ('{"a": 1} {"a": 2}\n', "line 1, column 9: one object a line"),
        ('{"a": 1}\n"word"\n', "line 2: an object is expected"),
        ('{"a": 1}\n{"b": 1, "b": 2}\n', "line 2: the name 'b' stands twice"),
        ('{"a": "x"}\n{"a": "\\ud800"}\n', "line 2: half a character"),
        ('{"a": 1}\n{"a": ' + "[" * 100_000, "line 2: too many brackets"),
        ("[]", "has no rows"),
        ("\n\n", "has no rows"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(table, text, message):
    with pytest.raises(UserError, match=message):
        table("bad.jsonl", text)
