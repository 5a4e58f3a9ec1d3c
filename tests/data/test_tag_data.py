"""A person's own words with tags: read, split without leaks, mistakes named."""

import pytest

from qkv.data.tag_data import TagConfig, tag_report, texts_of
from qkv.errors import UserError

NAMES = ["Ana", "Bo", "Chen", "Dora", "Emil", "Fatou"]
PLACES = ["Lima", "Oslo", "Quito", "Riga", "Seoul", "Tunis"]


def sentences(ending=""):
    return [f"{a} B-PER\nleft O\n{b} B-LOC\n. O\n{ending}" for a in NAMES for b in PLACES]


def write(folder, blocks, name="a.conll", between="\n"):
    path = folder / name
    path.write_text(between.join(blocks), encoding="utf-8")
    return str(path)


def test_sentences_are_read_split_and_counted(tmp_path):
    data = texts_of(TagConfig(train=write(tmp_path, sentences() * 2)))
    assert data.task == "tagging"
    assert data.labels == ("B-LOC", "B-PER", "O")
    sides = {}
    for part, several in data.splits.items():
        for one in several:
            sides.setdefault(one.words, set()).add(part)
    assert len(sides) == 36
    assert {len(parts) for parts in sides.values()} == {1}
    assert sum(map(len, data.splits.values())) == 72
    assert "36 sentences stand more than once." in data.notes


def test_documents_stay_whole(tmp_path):
    blocks = [f"-DOCSTART- O\n\nw{d}a O\nx B-PER\n\nw{d}b O\ny O\n" for d in range(30)]
    data = texts_of(TagConfig(train=write(tmp_path, blocks)))
    sides = {}
    for part, several in data.splits.items():
        for one in several:
            sides.setdefault(one.words[0][:-1], set()).add(part)
    assert len(sides) == 30
    assert {len(parts) for parts in sides.values()} == {1}
    assert "Split by document." in data.notes


def test_a_zero_is_an_o_where_entities_are_marked_and_a_tag_elsewhere(tmp_path):
    blocks = sentences()
    blocks[3] = blocks[3].replace("left O", "left 0")
    data = texts_of(TagConfig(train=write(tmp_path, blocks)))
    assert "0" not in data.labels
    assert any("0 is read as O in line 17" in note for note in data.notes)
    plain = texts_of(TagConfig(train=write(tmp_path, [f"w{n} {n % 2}\nx 1\n" for n in range(30)])))
    assert plain.labels == ("0", "1")


def test_iob1_becomes_bio_and_is_said(tmp_path):
    old = [block.replace("B-", "I-") for block in sentences()]
    old[0] = "Ana I-PER\nBo B-PER\nLee I-PER\nleft O\nLima I-LOC\n"
    file = write(tmp_path, old)
    data = texts_of(TagConfig(train=file))
    assert data.labels == ("B-LOC", "B-PER", "I-PER", "O")
    assert any("72 entities begin with I- (its tags are IOB1): read as B-, lines 1, " in note for note in data.notes)
    found = {one.words: one.tags for several in data.splits.values() for one in several}
    assert found["Ana", "Bo", "Lee", "left", "Lima"] == ("B-PER", "B-PER", "I-PER", "O", "B-LOC")
    assert tag_report(TagConfig(train=file))["scheme"] == "IOB1"
    slips = sentences()
    slips[5] = slips[5].replace("B-PER", "I-PER")
    data = texts_of(TagConfig(train=write(tmp_path, slips)))
    assert any("1 entities begin with I- (I- without B-): read as B-, line " in note for note in data.notes)


def test_a_tag_that_only_dev_has_is_refused_with_its_line(tmp_path):
    train = write(tmp_path, sentences())
    dev = write(tmp_path, ["Ana B-PER\n\nOslo B-LOK\n"], "dev.conll")
    with pytest.raises(UserError, match=r"tags that a.conll never has: 'B-LOK' \(dev.conll, line 3\).*B-LOC"):
        texts_of(TagConfig(train=train, dev=dev))


def test_one_tag_and_too_few_sentences_are_refused(tmp_path):
    with pytest.raises(UserError, match="all tags are 'O', there is nothing to tell apart"):
        texts_of(TagConfig(train=write(tmp_path, [f"w{n} O\n" for n in range(40)])))
    with pytest.raises(UserError, match="too few sentences for a"):
        texts_of(TagConfig(train=write(tmp_path, sentences()[:1] * 5)))


def test_given_parts_are_used_as_they_are(tmp_path):
    files = {
        part: write(tmp_path, sentences()[n::3], f"{part}.conll") for n, part in enumerate(("train", "dev", "test"))
    }
    data = texts_of(TagConfig(**files))
    assert {part: len(several) for part, several in data.splits.items()} == {"train": 12, "dev": 12, "test": 12}
    assert "Given: train 12, dev 12, test 12 sentences." in data.notes


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (("B-PER", "I-PER", "O"), "BIO"),
        (("I-PER", "I-PER", "O"), "IOB1"),
        (("B-PER", "E-PER", "O"), "BIOES"),
        (("NN", "VB", "."), "plain"),
    ],
)
def test_the_report_counts_entities_in_every_scheme(tmp_path, tags, scheme):
    blocks = [f"a{n} {tags[0]}\nb {tags[1]}\nc {tags[2]}\n" for n in range(30)]
    found = tag_report(TagConfig(train=write(tmp_path, blocks)))
    assert (found["sentences"], found["words"], found["longest"], found["problem"]) == (30, 90, 3, "")
    assert found["scheme"] == scheme
    assert found["entities"] == ({} if scheme == "plain" else {"PER": 30})
    few = tag_report(TagConfig(train=write(tmp_path, blocks[:1])))
    assert "too few sentences" in few["problem"]
    assert few["sentences"] == 1
