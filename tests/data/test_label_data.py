"""A person's own texts with labels: columns found, labels as names, splits without leaks, mistakes named."""

import json

import pytest

from qkv.data import label_data
from qkv.data.label_data import LabelConfig, texts_of
from qkv.data.label_report import label_report
from qkv.errors import UserError

NOUNS = """apple bread cloud dog egg fish grass house ice jar king lamp moon nest ox pen queen road sun tree"""
WORDS = NOUNS.split()


def texts(count, start=0):
    return [f"{WORDS[n % 20]} {WORDS[n // 20 % 20]} {WORDS[n // 400 % 20]}" for n in range(start, start + count)]


def write(folder, rows, name="data.csv", header="text,label"):
    path = folder / name
    path.write_text("\n".join([*([header] if header else []), *(",".join(row) for row in rows)]), encoding="utf-8")
    return str(path)


def labelled(count, labels=("good", "bad")):
    return [(text, labels[n % len(labels)]) for n, text in enumerate(texts(count))]


def test_labels_are_names_whatever_they_look_like(tmp_path):
    data = texts_of(LabelConfig(train=write(tmp_path, labelled(60, ("-1", "1", "2", "7")))))
    assert data.labels == ("-1", "1", "2", "7")
    assert data.task == "classification"
    every = [example for part in data.splits.values() for example in part]
    assert len(every) == 60
    assert {label for one in every for label in one.labels} == set(data.labels)


@pytest.mark.parametrize(
    ("header", "columns", "settings"),
    [
        ("text,label", "ab", {}),
        ("label,text", "ba", {}),
        ("标签,内容", "ba", {}),
        ("", "ba", {}),
        ("x,y,z", "zab", {"text": "y", "label": "z"}),
        ("x,y,z", "zab", {"text": 2, "label": "3"}),
    ],
)
def test_the_columns_are_found_by_name_by_content_or_as_said(tmp_path, header, columns, settings):
    rows = [tuple({"a": a, "b": b, "z": str(n)}[c] for c in columns) for n, (a, b) in enumerate(labelled(40))]
    data = texts_of(LabelConfig(train=write(tmp_path, rows, header=header), **settings))
    assert data.labels == ("bad", "good")
    assert {one.text for part in data.splits.values() for one in part} == set(texts(40))


def test_what_is_not_seen_is_taken_off_labels_and_the_rest_is_listed(tmp_path):
    spellings = ["spam", "spam ", "spam\u00a0", "\u200bspam", "Spam", "ｓｐａｍ", "ham", "ham\t"]
    rows = [(text, f'"{spellings[n % 8]}"') for n, text in enumerate(texts(48))]
    found = label_report(LabelConfig(train=write(tmp_path, rows)))
    assert found["labels"]["counts"] == {"spam": 24, "ham": 12, "Spam": 6, "ｓｐａｍ": 6}
    assert set(found["labels"]["look_alikes"]) == {"spam", "Spam", "ｓｐａｍ"}
    assert any("taken off labels in 24 rows: of 8 spellings 4 are left" in note for note in found["notes"])


def test_mixed_types_of_json_are_read_as_typed_and_said(tmp_path):
    path = tmp_path / "data.jsonl"
    labels = [1, "1", 2, "2", True, 1.0]
    rows = [{"text": text, "label": labels[n % 6]} for n, text in enumerate(texts(60))]
    rows += [{"text": "nothing", "label": None}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = label_report(LabelConfig(train=str(path)))
    assert found["labels"]["counts"] == {"1": 20, "2": 20, "true": 10, "1.0": 10}
    assert any("numbers" in note for note in found["notes"])
    assert {one["line"] for one in found["left_out"]} == {61}


def test_a_label_that_only_dev_has_is_refused_with_its_line(tmp_path):
    train = write(tmp_path, labelled(40))
    dev = write(tmp_path, [*labelled(3), ("late news", "goood")], "dev.csv")
    with pytest.raises(
        UserError, match=r"labels that data.csv never has: 'goood' \(dev.csv, line 5\).*'good'.*Labels: bad"
    ):
        texts_of(LabelConfig(train=train, dev=dev))


def test_labels_with_one_example_are_named_and_one_label_alone_is_refused(tmp_path):
    rows = [*labelled(40), ("one of its kind", "typo")]
    assert "Labels with one example: typo." in texts_of(LabelConfig(train=write(tmp_path, rows))).notes
    with pytest.raises(UserError, match="all labels are 'same', there is nothing to tell apart"):
        texts_of(LabelConfig(train=write(tmp_path, labelled(40, ("same",)))))


def test_many_different_numbers_are_asked_about(tmp_path):
    rows = [(text, f"{n / 7:.3f}") for n, text in enumerate(texts(100))]
    with pytest.raises(UserError, match=r"100 different numbers in 100 rows.*regression.*ranges"):
        texts_of(LabelConfig(train=write(tmp_path, rows)))


def test_equal_and_nearly_equal_texts_are_never_on_both_sides(tmp_path):
    rows = [
        (f"{text}{end}", "good" if n % 2 else "bad") for n, text in enumerate(texts(200)) for end in ("", "!", " 7")
    ]
    rows += rows[:50]
    data = texts_of(LabelConfig(train=write(tmp_path, rows)))
    sides = {}
    for part, several in data.splits.items():
        for one in several:
            sides.setdefault(label_data.splits.near_key(one.text), set()).add(part)
    assert {len(parts) for parts in sides.values()} == {1}
    assert sum(map(len, data.splits.values())) == 600
    assert any(note.startswith("50 rows say again") for note in data.notes)
    assert any("400 texts differ from another in case, signs or digits only" in note for note in data.notes)


def test_one_text_with_two_verdicts_is_counted_and_stays_together(tmp_path):
    data = texts_of(LabelConfig(train=write(tmp_path, [*labelled(60), (texts(1)[0], "bad")])))
    assert any("1 texts have different labels in different rows" in note for note in data.notes)
    sides = [part for part, several in data.splits.items() for one in several if one.text == texts(1)[0]]
    assert len(sides) == 2
    assert len(set(sides)) == 1


def test_groups_stay_on_one_side_and_time_runs_forward(tmp_path):
    rows = [(text, label, f"p{n % 10}", f"2024-{1 + n % 12:02}") for n, (text, label) in enumerate(labelled(120))]
    path = write(tmp_path, rows, header="text,label,person,month")
    grouped = texts_of(LabelConfig(train=path, group="person"))
    person = {text: who for text, _, who, _ in rows}
    sides = {part: {person[one.text] for one in several} for part, several in grouped.splits.items()}
    assert not sides["train"] & sides["test"]
    assert not sides["train"] & sides["dev"]
    timed = texts_of(LabelConfig(train=path, split="time:month"))
    month = {text: when for text, _, _, when in rows}
    newest = {part: sorted(month[one.text] for one in several) for part, several in timed.splits.items()}
    assert newest["train"][-1] <= newest["dev"][0] <= newest["dev"][-1] <= newest["test"][0]


def test_several_labels_and_pairs_of_texts(tmp_path):
    rows = [(a, b, "x|y" if n % 3 else "") for n, (a, b) in enumerate(zip(texts(60), texts(60, 60), strict=True))]
    path = write(tmp_path, rows, header="text,other,label")
    data = texts_of(LabelConfig(train=path, second="other", several="|"))
    assert data.several
    assert data.labels == ("x", "y")
    every = [one for part in data.splits.values() for one in part]
    assert {one.labels for one in every} == {(), ("x", "y")}
    assert all(one.second for one in every)


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ([("a b", "x"), ("c d", "y")], {}, "too few rows for a (dev|test) part"),
        (labelled(40), {"label": "lable"}, "no column 'lable'.*'label'"),
        (labelled(40), {"split": "time:when"}, "no column 'when'"),
        ([(f"{text} ,", "") for text in texts(5)], {}, "fields|label"),
    ],
)
def test_what_cannot_be_is_said(tmp_path, rows, settings, message):
    with pytest.raises(UserError, match=message):
        texts_of(LabelConfig(train=write(tmp_path, rows), **settings))


def test_a_text_of_300_000_characters_is_read_whole(tmp_path):
    rows = [*labelled(40), ("word " * 60_000, "good")]
    data = texts_of(LabelConfig(train=write(tmp_path, rows)))
    assert max(len(one.text) for part in data.splits.values() for one in part) == 299_999


def test_the_report_says_why_a_file_cannot_be_trained_on_and_still_shows_it(tmp_path):
    found = label_report(LabelConfig(train=write(tmp_path, [("a b", "x"), ("c d", "y")])))
    assert "too few rows" in found["problem"]
    assert found["labels"]["counts"] == {"x": 1, "y": 1}
    fine = label_report(LabelConfig(train=write(tmp_path, labelled(60)), normalise="NFC"))
    assert fine["problem"] == ""
    assert fine["command"].endswith("--task classification --data.normalise NFC --minutes 2")
