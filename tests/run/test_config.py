"""Tables of settings: what becomes a typed config, and what is refused with the right name beside it."""

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.errors import UserError
from qkv.run.config import merged, read_toml, typed


@dataclass(frozen=True)
class Small:
    d_model: int = 8
    lr: float = 0.1
    tied: bool = True
    norm: Literal["layer", "rms"] = "layer"

    def __post_init__(self):
        if self.d_model % 2:
            raise ValueError(f"d_model must be even, got {self.d_model}")


def test_a_table_becomes_the_config_with_defaults_for_what_is_missing():
    assert typed(Small, {}, "model") == Small()
    assert typed(Small, {"d_model": 4, "norm": "rms"}, "model") == Small(d_model=4, norm="rms")


def test_strings_of_a_command_line_become_numbers_and_truth_values():
    found = typed(Small, {"d_model": "12", "lr": "2e-3", "tied": "false"}, "model")
    assert found == Small(12, 0.002, False)
    assert [type(value) for value in vars(found).values()] == [int, float, bool, str]
    assert isinstance(typed(Small, {"lr": 1}, "model").lr, float)


@dataclass(frozen=True)
class Named:
    file: str = ""


@pytest.mark.parametrize(("given", "file"), [("a.csv", "a.csv"), (2024, "2024"), (0.9, "0.9")])
def test_a_number_is_a_text_where_one_is_expected(given, file):
    assert typed(Named, {"file": given}, "data") == Named(file)


@pytest.mark.parametrize("given", [True, None, ["a"]])
def test_what_is_no_text_and_no_number_is_refused(given):
    with pytest.raises(UserError, match=r"data.file: .*string"):
        typed(Named, {"file": given}, "data")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"d_modle": 4}, r"model has no setting 'd_modle'. Did you mean 'd_model'\? Settings: d_model, lr, tied, norm"),
        ({"zzzzzz": 4}, r"model has no setting 'zzzzzz'. Settings: d_model"),
        ({"d_model": "many"}, r"model.d_model: .*integer.*, got 'many'"),
        ({"d_model": 2.5}, r"model.d_model: .*integer.*, got 2.5"),
        ({"d_model": None}, r"model.d_model: .*, got None"),
        ({"norm": "batch"}, r"model.norm: .*'layer' or 'rms'.*, got 'batch'"),
        ({"tied": "perhaps"}, r"model.tied: .*, got 'perhaps'"),
        ({"d_model": 5}, r"model: d_model must be even, got 5$"),
        ({"d_model": "x", "lr": "y"}, r"model.d_model: .*'x'; model.lr: .*'y'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_key_and_what_would_be_right(table, message):
    with pytest.raises(UserError, match=message):
        typed(Small, table, "model")


def test_toml_is_read_with_or_without_byte_order_mark(tmp_path):
    for encoding in ("utf-8", "utf-8-sig"):
        path = tmp_path / "配置 1.toml"
        path.write_text('[model]\nname = "Größe"\n', encoding=encoding)
        assert read_toml(path) == {"model": {"name": "Größe"}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[model]\nd_model = 128\nlr = \n", r"mine.toml is not valid TOML: .*line 3"),
        (b"[model]\nd_model = 1\nd_model = 2\n", r"mine.toml is not valid TOML: .*line 3"),
        (b"d_model = 1\n\xff\n", r"mine.toml is not valid TOML: .*0xff"),
    ],
)
def test_a_file_that_is_not_toml_is_named_with_the_place(tmp_path, content, message):
    (tmp_path / "mine.toml").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_toml(tmp_path / "mine.toml")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*missing.toml: No such file"):
        read_toml(tmp_path / "missing.toml")
    with pytest.raises(UserError, match=r"cannot read .*"):
        read_toml(tmp_path)


keys = st.sampled_from("abc")
tables = st.recursive(st.integers(), lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=8).filter(
    lambda value: isinstance(value, dict)
)


@given(tables, tables)
def test_merging_puts_changes_in_place_key_by_key_and_leaves_both_as_they_were(base, changes):
    before = repr((base, changes))
    result = merged(base, changes)
    assert repr((base, changes)) == before
    assert list(result) == list(dict.fromkeys([*base, *changes]))
    for key, value in result.items():
        old, new = base.get(key), changes.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            assert value == merged(old, new)
        else:
            assert value == changes.get(key, old)
