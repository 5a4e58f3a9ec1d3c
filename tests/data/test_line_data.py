"""A person's own plain text, one text a line."""

import pytest

from qkv.data.line_data import LineConfig, texts_of
from qkv.errors import UserError


def write(folder, lines, name="lines.txt", encoding="utf-8"):
    path = folder / name
    path.write_bytes("\n".join(lines).encode(encoding))
    return str(path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "gb18030"])
def test_lines_are_texts_and_equal_ones_are_on_one_side(tmp_path, encoding):
    lines = [f"第{n % 100}行 有字" for n in range(200)]
    data = texts_of(LineConfig(train=write(tmp_path, [*lines, "", "  "], encoding=encoding)))
    assert data.task == "masked_lm"
    assert data.labels == ()
    sides = {}
    for part, several in data.splits.items():
        for one in several:
            sides.setdefault(one.text, set()).add(part)
    assert sorted(sides) == sorted(set(lines))
    assert {len(parts) for parts in sides.values()} == {1}
    assert sum(map(len, data.splits.values())) == 200
    assert any("2 blank lines ignored" in note for note in data.notes)


def test_given_parts_are_used_and_what_is_missing_is_cut_out_of_train(tmp_path):
    train, dev = write(tmp_path, [f"line {n}" for n in range(200)]), write(tmp_path, ["a", "b"], "dev.txt")
    data = texts_of(LineConfig(train=train, dev=dev))
    assert [one.text for one in data.dev] == ["a", "b"]
    assert len(data.train) + len(data.test) == 200
    assert len(data.test) > 3
    other = texts_of(LineConfig(train=train, dev=dev, normalise="NFC"))
    assert other.fingerprint != data.fingerprint


def test_lines_of_a_given_part_that_train_has_too_are_counted(tmp_path):
    train, dev = write(tmp_path, [f"line {n}" for n in range(200)]), write(tmp_path, ["line 5", "b"], "dev.txt")
    notes = texts_of(LineConfig(train=train, dev=dev, split="1,0,0.1")).notes
    assert [note for note in notes if "too good" in note] == [
        "1 of 2 dev lines are in train too: its figures are too good."
    ]


@pytest.mark.parametrize("settings", [{"header": "true"}, {"separator": ";"}, {"variants": "auto"}])
def test_settings_of_columns_are_refused(tmp_path, settings):
    with pytest.raises(UserError, match=f"no columns: --data.{next(iter(settings))} is for tables"):
        texts_of(LineConfig(train=write(tmp_path, ["a"] * 50), **settings))


@pytest.mark.parametrize(
    ("lines", "message"), [([], "empty|no text"), (["", " "], "no text"), (["one"], "too few lines for a")]
)
def test_what_cannot_be_is_said(tmp_path, lines, message):
    with pytest.raises(UserError, match=message):
        texts_of(LineConfig(train=write(tmp_path, lines)))
    with pytest.raises(UserError, match="missing"):
        texts_of(LineConfig(train=str(tmp_path / "missing.txt")))
