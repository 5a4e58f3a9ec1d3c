"""A small file, written and read."""

import pytest

from qkv.data.files.table import read_table


@pytest.fixture
def table(tmp_path):
    """Writes `text` (or bytes) to a file of that name, and reads it with the options given."""

    def make(name, text, encoding="utf-8", **options):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return read_table(path, **options)

    return make
