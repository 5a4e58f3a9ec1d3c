"""A folder appears whole or not at all."""

import pytest

from qkv.errors import UserError
from qkv.export import place


def test_an_export_is_replaced_only_when_the_next_one_is_whole(tmp_path):
    folder = tmp_path / "deep" / "out"
    with place.replacing(folder) as part:
        assert not folder.exists()
        (part / place.REPORT).write_text("1")
    with pytest.raises(ZeroDivisionError), place.replacing(folder) as part:
        (part / place.REPORT).write_text(str(1 / 0))
    assert (folder / place.REPORT).read_text() == "1"
    with place.replacing(folder) as part:
        (part / place.REPORT).write_text("3")
    assert (folder / place.REPORT).read_text() == "3"
    assert list(folder.parent.iterdir()) == [folder]


def test_a_disk_that_refuses_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*out: "), place.replacing(tmp_path / "file" / "out"):
        raise AssertionError("nothing can be written here")
    folder = tmp_path / "out"
    with pytest.raises(UserError, match="No space left"), place.replacing(folder):
        raise OSError(28, "No space left on device")
    assert not folder.exists()


def test_an_empty_folder_may_be_used_and_another_may_not(tmp_path):
    place.check(tmp_path)
    place.check(tmp_path / "new")
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path, tmp_path / "file"):
        with pytest.raises(UserError, match="exists and is not an export"):
            place.check(folder)
