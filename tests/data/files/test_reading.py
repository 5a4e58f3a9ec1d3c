"""What is said of files instead of being guessed."""

import pytest

from qkv.data.files.reading import FileConfig
from qkv.errors import UserError
from qkv.run.config import typed


def test_what_is_said_replaces_the_guess(tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes("text;a,b\né;c,d\n".encode("cp1252"))
    found = typed(FileConfig, {"encoding": "cp1252", "separator": "comma", "header": False}, "data").table(str(path))
    assert found.rows == [(1, ("text;a", "b")), (2, ("é;c", "d"))]
    assert (found.encoding, found.separator, found.header) == ("cp1252", ",", False)


@pytest.mark.parametrize(
    ("given", "header"),
    [(True, "true"), (False, "false"), ("true", "true"), ("false", "false"), ("True", "true"), ("auto", "auto")],
)
def test_whether_there_is_a_header_may_be_toml_or_a_word(given, header):
    assert typed(FileConfig, {"header": given}, "data").header == header


def test_what_cannot_be_is_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n")
    with pytest.raises(UserError, match=r"data\.header: .*'auto', 'true' or 'false'"):
        typed(FileConfig, {"header": "maybe"}, "data")
    with pytest.raises(UserError, match="separator 'semicolons'.*Did you mean 'semicolon'"):
        FileConfig(separator="semicolons").table(str(tmp_path / "t.csv"))
