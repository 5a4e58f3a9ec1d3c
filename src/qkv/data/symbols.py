"""Symbols and their ids: a vocabulary that any reader of Hugging Face `tokenizers` files can open.

A side's lines become symbols in one of seven kinds: "characters" (code points, spaces too), "graphemes" (what a person
sees as one character), "spaces" (what stands between white space), "words" (in lower case; punctuation marks, Han
characters and kana each by itself), "inventory" (the longest of a list of symbols that fits), "bpe" and "unigram"
sub-words. The library's rule for graphemes is Unicode's before 15.1: a Devanagari conjunct is cut behind its virama.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from itertools import groupby
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from qkv.data import subwords
from qkv.data.segment import normalise
from qkv.errors import UserError, nearest

PAD, BOS, EOS, UNK = 0, 1, 2, 3
CONTROLS = (" <pad>", " <bos>", " <eos>", " <unk>")
"""Names by id. The blank in front keeps them apart from data: no symbol of any kind is longer than one character and
begins with a blank, so that "<pad>" in a file is a symbol like any other."""

KINDS = ("characters", "graphemes", "spaces", "words", "inventory", "bpe", "unigram")

_SHOWN = tuple(name.strip() for name in CONTROLS)
_SUBWORDS = subwords.KINDS
_LOOKS_LIKE_CONTROL = re.compile(r"</?\w+>|<\|\w+\|>|\[[A-Z]+\]|\[unused\d+\]|#\d+")
_HALVES = re.compile("[\ud800-\udfff]")

# Unicode's White_Space, at which `tokenizers` separates; str.split() also separates at U+001C to U+001F.
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WORDS = re.compile(f"[^{_SPACE}]+")

_ALONE = r"[\p{Han}\p{Hiragana}\p{Katakana}]"
_WORD = rf"{_ALONE}|(?:(?!{_ALONE})[\p{{L}}\p{{M}}\p{{N}}])+|[^\p{{L}}\p{{M}}\p{{N}}]"
"""Of kind "words": a character of these scripts, a run of other letters, marks and numbers, or a single sign."""


class Symbols:
    """A vocabulary of symbols, with ids from 0. Ids 0 to 3 are the control symbols PAD, BOS, EOS and UNK."""

    def __init__(self, tokenizer: Tokenizer, kind: str) -> None:
        """Use a tokenizer that `learn` or `load` made; call those."""
        self._tokenizer, self.kind = tokenizer, kind
        vocabulary = tokenizer.get_vocab()
        self._names = sorted(vocabulary, key=vocabulary.__getitem__)
        self._ids = {name: i for i, name in enumerate(self._names) if i >= len(CONTROLS)}

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        kind: str = "characters",
        *,
        size: int = 8000,
        inventory: Sequence[str] | None = None,
        name: str = "",
    ) -> Symbols:
        """The vocabulary of `texts`, the most frequent symbols first, equally frequent ones sorted.

        size       most ids of "bpe" and "unigram", control symbols included; few texts give fewer
        inventory  the symbols of kind "inventory"
        name       of the side, for messages

        Raises UserError for an unknown kind, a size without room for every character, an inventory that is empty or
        does not cover the texts (naming text and piece), and text that was decoded wrongly.
        """
        if kind not in KINDS:
            raise UserError(f"unknown kind of symbols {kind!r}.{nearest(kind, KINDS)} Kinds: {', '.join(KINDS)}")
        texts = map(_whole_text, texts)
        if kind in _SUBWORDS:
            return cls(subwords.train(texts, kind, size, CONTROLS, name), kind)
        known = _checked(inventory) if kind == "inventory" else ()
        empty = cls(_whole({control: i for i, control in enumerate(CONTROLS)}, kind, known), kind)
        counts: Counter[str] = Counter()
        uncovered: list[tuple[str, str]] = []
        for text in texts:
            symbols = empty.split(text)
            counts.update(symbols)
            if kind == "inventory" and (piece := _uncovered(symbols, known)):
                uncovered.append((text, piece))
        if uncovered:
            raise UserError(_not_covered(uncovered, empty, known, name))
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        vocabulary = {symbol: i for i, symbol in enumerate((*CONTROLS, *ranked))}
        return cls(_whole(vocabulary, kind, known), kind)

    def __len__(self) -> int:
        """The number of ids, control symbols included."""
        return len(self._names)

    def __contains__(self, symbol: str) -> bool:
        """Whether `symbol` is known as data; False for a control symbol."""
        return symbol in self._ids

    def split(self, text: str) -> list[str]:
        """The symbols of a line of text, known or not; of sub-words, the known ones and "<unk>"."""
        text = _HALVES.sub("\ufffd", text)
        if self.kind == "characters":
            return list(text)
        if self.kind == "spaces":
            return _WORDS.findall(text)
        if self.kind in _SUBWORDS:
            return [self._shown(i) for i in self._tokenizer.encode(text).ids]
        if self.kind == "words":
            text = self._tokenizer.normalizer.normalize_str(text)
        return [piece for piece, _ in self._tokenizer.pre_tokenizer.pre_tokenize_str(text)] if text else []

    def encode(self, text: str) -> list[int]:
        """The ids of a line of text; UNK for what is not in the vocabulary."""
        if self.kind in _SUBWORDS:
            return self._tokenizer.encode(_HALVES.sub("\ufffd", text)).ids
        known = self._ids.get
        return [known(symbol, UNK) for symbol in self.split(text)]

    def encode_text(self, text: str) -> tuple[list[int], list[str]]:
        """The ids of a line of text, and the symbols in it that are unknown, each once, in order of appearance.

        Half of a character pair, which no file in Unicode can hold, counts as U+FFFD. Of sub-words, the unknown symbols
        are characters.
        """
        if self.kind in _SUBWORDS:
            text = _HALVES.sub("\ufffd", text)
            found = self._tokenizer.encode(text)
            lost = [text[a:b] for i, (a, b) in zip(found.ids, found.offsets, strict=True) if i == UNK]
            return found.ids, list(dict.fromkeys(character for piece in lost for character in piece))
        symbols = self.split(text)
        unknown = dict.fromkeys(symbol for symbol in symbols if symbol not in self._ids)
        return [self._ids.get(symbol, UNK) for symbol in symbols], list(unknown)

    def decode(self, ids: Iterable[int], controls: bool = False) -> list[str]:
        """The symbols of ids. PAD, BOS and EOS are left out unless `controls`; UNK is always "<unk>".

        Raises ValueError for an id outside the vocabulary.
        """
        ids = list(ids)
        for i in ids:
            if not 0 <= i < len(self._names):
                raise ValueError(f"id {i} is not in the vocabulary, whose ids are 0 to {len(self._names) - 1}")
        return [self._shown(i) for i in ids if controls or i >= UNK]

    def join(self, symbols: Iterable[str]) -> str:
        """The symbols as a line of text: the inverse of `split`."""
        if self.kind in _SUBWORDS:
            return self._tokenizer.decoder.decode(list(symbols))
        return (" " if self.kind in ("spaces", "words") else "").join(symbols)

    def text(self, ids: Iterable[int]) -> str:
        """The line of text that ids stand for."""
        return self.join(self.decode(ids))

    def looks_like_control(self) -> list[str]:
        """Symbols of the data that look like another program's control symbols; here they are data."""
        return [name for name in self._ids if _LOOKS_LIKE_CONTROL.fullmatch(name)]

    def _shown(self, i: int) -> str:
        return _SHOWN[i] if i < len(_SHOWN) else self._names[i]

    def dumps(self) -> str:
        """What `save` writes."""
        return self._tokenizer.to_str(pretty=True) + "\n"

    @classmethod
    def loads(cls, text: str, name: str | Path = "") -> Symbols:
        """The vocabulary that `dumps` wrote; `name` is of its file, for messages. Raises UserError as `load` does."""
        return cls(*_parsed(text, name))

    def save(self, path: str | Path) -> None:
        """Write a `tokenizer.json` that `tokenizers.Tokenizer.from_file` opens, in one step or not at all."""
        path = Path(path)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            unfinished.write_text(self.dumps(), encoding="utf-8", newline="\n")
            unfinished.replace(path)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}.") from error
        finally:
            unfinished.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Symbols:
        """Read what `save` wrote. Raises UserError for a file that is missing, damaged or of another kind."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot read the vocabulary {path}: {error.strerror or error}.") from error
        except UnicodeDecodeError as error:
            raise UserError(f"the vocabulary {path} is damaged: {error}.") from error
        return cls.loads(text, path)


def _whole_text(text: str) -> str:
    if half := _HALVES.search(text):
        raise UserError(f"the text {text[:60]!r} has half of a character pair, {half[0]!r}: it was decoded wrongly")
    return text


def _checked(inventory: Sequence[str] | None) -> dict[str, None]:
    if not inventory:
        raise UserError("symbols of the kind inventory need the list of them: --data.symbols inventory:FILE")
    for symbol in inventory:
        if not symbol or symbol in CONTROLS:
            raise UserError(f"the inventory lists {symbol!r}, which cannot be a symbol of data")
    return dict.fromkeys(map(_whole_text, inventory))


def _uncovered(symbols: Sequence[str], known: Container[str]) -> str:
    """The first stretch of symbols that are not known, as text."""
    return next(("".join(run) for covered, run in groupby(symbols, known.__contains__) if not covered), "")


def _not_covered(uncovered: Sequence[tuple[str, str]], empty: Symbols, known: Container[str], name: str) -> str:
    text, piece = uncovered[0]
    codes = " ".join(f"U+{ord(character):04X}" for character in piece)
    others = [other for other in dict.fromkeys(piece for _, piece in uncovered) if other != piece]
    texts = [text for text, _ in uncovered]
    forms = [f for f in ("NFC", "NFD") if not any(_uncovered(empty.split(normalise(t, f)), known) for t in texts)]
    return (
        f"the inventory does not cover {len(uncovered):,} {name or 'text'}s: in {text[:60]!r} nothing fits at "
        f"{piece!r} ({codes})"
        + (f", elsewhere at {', '.join(map(repr, others[:10]))}{' ...' if len(others) > 10 else ''}" if others else "")
        + (f". --data.normalise {forms[0]} would make it fit" if forms else "")
        + ". Add the symbols to its file, or use another kind"
    )


def _whole(vocabulary: dict[str, int], kind: str, inventory: Iterable[str]) -> Tokenizer:
    """Whole symbols: a pattern cuts the text, and each piece has an id."""
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=CONTROLS[UNK]))
    if kind == "spaces":
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return tokenizer
    if kind == "words":
        tokenizer.normalizer = normalizers.Lowercase()
        cut = pre_tokenizers.Split(Regex(_WORD), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), cut])
        return tokenizer
    longest_first = sorted(inventory, key=lambda symbol: (-len(symbol), symbol))
    patterns = {
        "characters": r"[\s\S]",
        "graphemes": r"\X",
        "inventory": "|".join([*map(re.escape, longest_first), r"[\s\S]"]),
    }
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(patterns[kind]), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _parsed(text: str, path: str | Path) -> tuple[Tokenizer, str]:
    try:
        layout = json.loads(text)
        model, cutter = layout["model"]["type"], layout["pre_tokenizer"]["type"]
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # `tokenizers` raises plain Exception
        raise UserError(f"the vocabulary {path} is damaged: {error}.") from error
    kinds = {
        ("WordLevel", "Split"): "inventory",
        ("WordLevel", "WhitespaceSplit"): "spaces",
        ("WordLevel", "Sequence"): "words",
        ("BPE", "Metaspace"): "bpe",
        ("Unigram", "Metaspace"): "unigram",
    }
    kind = kinds.get((model, cutter))
    if cutter == "Split":
        pattern = layout["pre_tokenizer"]["pattern"].get("Regex")
        kind = {r"[\s\S]": "characters", r"\X": "graphemes"}.get(pattern, kind if pattern else None)
    vocabulary = tokenizer.get_vocab()
    whole = sorted(vocabulary.values()) == list(range(len(vocabulary)))
    expected = any(all(vocabulary.get(n) == i for i, n in enumerate(names)) for names in (CONTROLS, _SHOWN))
    if kind is None or not (whole and expected):
        raise UserError(
            f"the vocabulary {path} was not written by qkv: ids from 0 and {', '.join(_SHOWN)} first are expected."
        )
    return tokenizer, kind
