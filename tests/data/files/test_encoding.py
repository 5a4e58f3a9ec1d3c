"""Bytes to text by our own rule, and what ends a line."""

import pytest

from qkv.data.files.encoding import decode, lines, odd_characters, read
from qkv.errors import UserError

TEXT = "näve “quote”\r\nzwei €\r\n"


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        (TEXT.encode(), "utf-8"),
        (TEXT.encode("utf-8-sig"), "utf-8"),
        (TEXT.encode("utf-16"), "utf-16"),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), "utf-16"),
        (TEXT.encode("gb18030"), "gb18030"),
        ("好评，𠮷€\n".encode("gb18030"), "gb18030"),
    ],
)
def test_every_usual_encoding_is_found_and_said(raw, encoding):
    decoded = decode(raw, "f.txt")
    assert decoded.encoding == encoding
    assert decoded.text in (TEXT, "好评，𠮷€\n")
    assert bool(decoded.notes) == (encoding != "utf-8")


def test_bytes_that_nothing_explains_are_named_with_their_line():
    with pytest.raises(UserError, match=r"f\.txt, line 3: byte 0xFF is not UTF-8 \(nor is the whole file GB18030\)"):
        decode(b"one\ntwo\nthr\xff\n", "f.txt")
    with pytest.raises(UserError, match="unknown encoding 'utf-9'"):
        decode(b"a", "f.txt", "utf-9")
    with pytest.raises(UserError, match="unknown encoding 'hex'"):
        decode(b"a", "f.txt", "hex")
    assert decode("é".encode("latin-1"), "f.txt", "latin-1").text == "é"
    with pytest.raises(UserError, match=r"line 2: byte 0xE9 is not ASCII"):
        decode(b"a\n\xe9", "f.txt", "ascii")


def test_a_broken_byte_in_a_chinese_file_is_named_not_its_first_character():
    raw = "好，正\n".encode("gb18030") * 5 + b"\xff\n"
    with pytest.raises(UserError, match=r"line 6: byte 0xFF is not GB18030 \(nor is the file UTF-8: see line 1\)"):
        decode(raw, "f.txt")


def test_latin_letters_that_pass_for_chinese_are_doubted():
    decoded = decode("naïve cafés grün, müde".encode("latin-1"), "f.txt")
    assert decoded.encoding == "gb18030"
    assert "cp1252" in decoded.notes[-1]
    assert len(decode("iPhone很好，我喜欢用WiFi上网".encode("gb18030"), "f.txt").notes) == 1


@pytest.mark.parametrize(
    ("raw", "likely"),
    [("a\tb\n".encode("utf-16-le"), "utf-16-le"), ("a\tb\n".encode("utf-32"), "utf-32")],
)
def test_zero_bytes_between_letters_name_the_likely_encoding(raw, likely):
    with pytest.raises(UserError, match=f"line 1: zero bytes between the letters; try --data.encoding {likely}"):
        decode(raw, "f.txt")
    assert decode(raw, "f.txt", likely).text == "a\tb\n"


def test_a_cut_utf_16_file_is_an_error_at_its_last_line():
    raw = 'a\tb\r\n"c\nd"\te\r\nlast'.encode("utf-16")
    with pytest.raises(UserError, match=r"line 4 \(row 3: cells hold line breaks\).*the file was cut"):
        decode(raw[:-1], "f.txt")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\r\nb", ["a", "b"]),
        ("a\rb\r", ["a", "b"]),
        ("a\x85b\x85", ["a", "b"]),
        ("a\x85b\nc\n", ["a\x85b", "c"]),
        ("a\u2028b\vc\fd\u2029e\n\nf\n", ["a\u2028b\vc\fd\u2029e", "", "f"]),
        ("a\rb\n", ["a\rb"]),
    ],
)
def test_only_real_line_ends_end_a_line(text, expected):
    assert lines(text) == expected


def test_characters_that_others_take_for_line_ends_are_named():
    assert odd_characters(["plain", "lines"]) == []
    [first, second] = odd_characters(["a\u2028b", "c", "d\u2028e\x85"])
    assert first.startswith("U+2028 (LINE SEPARATOR) stands inside lines 1, 3;")
    assert second.startswith("U+0085 (NEXT LINE) stands inside line 3;")


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "words.tsv").write_bytes(b"")
    with pytest.raises(UserError, match="is empty"):
        read(tmp_path / "words.tsv")
    with pytest.raises(UserError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(UserError, match=r"there is no file .*word\.tsv.*words\.tsv"):
        read(tmp_path / "word.tsv")


@pytest.mark.parametrize(
    ("start", "what"),
    [(b"\x1f\x8b\x08", "compressed"), (b"\xd0\xcf\x11\xe0", r"save it as \.xlsx"), (b"%PDF-1", "a PDF")],
)
def test_files_that_are_no_tables_are_named_for_what_they_are(tmp_path, start, what):
    (tmp_path / "t.tsv").write_bytes(start + b"\0\xff")
    with pytest.raises(UserError, match=what):
        read(tmp_path / "t.tsv")
