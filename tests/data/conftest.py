"""A file for a test of what is read from files."""

import pytest


@pytest.fixture
def write(tmp_path):
    def make(name, text):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return make
