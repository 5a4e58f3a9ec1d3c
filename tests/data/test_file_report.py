"""What `qkv data show FILE` says of a person's own file."""

from qkv.data.file_report import file_report
from qkv.data.pair_data import PairConfig


def test_the_report_says_everything_before_training(write):
    file = write("r.tsv", "".join(f"ga{n}\tg a\n" for n in range(30)) + "ɡu\tɡ u\nnone\t\n" + "ga1\tg o\n" * 2)
    report = file_report(PairConfig(train=file, longest=3))
    assert report["usable"] == 33
    assert [(one["line"], one["reason"]) for one in report["left_out"]] == [(32, "target is empty")]
    assert (report["duplicates"], report["conflicts"]) == (1, 1)
    assert {one["symbol"] for one in report["rare"]["target"]} == {"ɡ", "u", "o"}
    [strange] = [one for one in report["rare"]["target"] if one["symbol"] == "ɡ"]
    assert strange["code_points"] == "U+0261 LATIN SMALL LETTER SCRIPT G"
    assert strange["look_alikes"] == ["g (U+0067 LATIN SMALL LETTER G)"]
    assert len(report["too_long"]) == 20
    assert report["command"].startswith("qkv train ")
    assert report["command"].endswith("--data.symbols characters,spaces --too-long drop --minutes 10")
    assert report["files"]["train"]["encoding"] == "utf-8"


def test_targets_that_are_labels_are_counted_with_their_look_alikes(write):
    rows = "text,label\n" + "".join(f"t{n},{'spam' if n % 2 else 'ham'}\n" for n in range(20)) + "x,Spam\n"
    labels = file_report(PairConfig(train=write("l.csv", rows)))["labels"]
    assert labels["counts"] == {"ham": 10, "spam": 10, "Spam": 1}
    assert any("spam" in other for other in labels["look_alikes"]["Spam"])


def test_labels_typed_by_three_people_are_three_labels_in_many_spellings(write):
    typed = ["eau", "Eau", "eau ", "\u00a0eau", "EAU", "ｅａｕ", "thé", "the\u0301", "Thé", "thé\u200b"]
    file = write("l.csv", "text,target\n" + "".join(f"t{n},{one}\n" for n, one in enumerate(typed)))
    report = file_report(PairConfig(train=file))
    labels = report["labels"]
    assert labels["counts"] == {"eau": 3, "thé": 2, "Eau": 1, "EAU": 1, "ｅａｕ": 1, "the\u0301": 1, "Thé": 1}
    assert set(labels["look_alikes"]) == set(labels["counts"])
    assert "thé (U+0074 U+0068 U+00E9)" in labels["look_alikes"]["the\u0301"]
    assert labels["composed"] == 1
    assert any("White space at the ends of cells taken off in 3 rows" in note for note in report["notes"])
    merged = file_report(PairConfig(train=file, normalise="NFC"))["labels"]
    assert (merged["counts"]["thé"], merged["composed"]) == (3, 0)


def test_labels_that_look_like_numbers_or_dates_are_kept_as_typed(write):
    labels = ["007", "07", "7", "7.0", "7e1", "70", "FALSE", "2020-02-03", "1/2"]
    file = write("n.csv", "text,label\n" + "".join(f"t{n},{labels[n % 9]}\n" for n in range(18)))
    report = file_report(PairConfig(train=file))
    assert report["labels"]["counts"] == dict.fromkeys(labels, 2)
    assert report["labels"]["look_alikes"] == {}


def test_a_column_is_of_labels_by_its_name_only_where_some_come_back(write):
    rows = "a,x\nb,y\nc,z\nd,v\n"
    for text, said in (
        ("text,label\n" + rows + "e,x\n", True),
        ("text,label\n" + rows, False),
        ("text,target\n" + rows + "e,x\n", False),
    ):
        assert (file_report(PairConfig(train=write("n.csv", text)))["labels"] is not None) == said


def test_settings_that_were_needed_to_read_a_file_are_in_the_command(write):
    file = write("c.txt", "".join(f"w{n}-[a{n}] or [b]\n" for n in range(9)))
    command = file_report(PairConfig(train=file, separator="-", header="false", variants="auto"))["command"]
    assert "--data.header false --data.separator - --data.variants auto --data.symbols" in command
