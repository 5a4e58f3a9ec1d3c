"""Symbols and their ids: a whole-symbol vocabulary that any reader of Hugging Face `tokenizers` files can open."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from qkv.errors import UserError

PAD, BOS, EOS, UNK = 0, 1, 2, 3
CONTROLS = ("<pad>", "<bos>", "<eos>", "<unk>")  # by id

# Unicode's White_Space, at which `tokenizers` separates; str.split() also separates at U+001C to U+001F.
_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_WORDS = re.compile(f"[^{_SPACE}]+")
_TYPED_CONTROL = f"(?<![^{_SPACE}])({'|'.join(CONTROLS)})(?![^{_SPACE}])"


class Symbols:  # being rewritten
    """A vocabulary of symbols, with ids from 0. Ids 0 to 3 are the control symbols PAD, BOS, EOS and UNK.

    `separation` says how a line of text becomes symbols: "characters" (each one, spaces too) or "spaces" (what
    stands between them). A control symbol has an id but is never read from text: a typed "<pad>" is unknown.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Use a tokenizer that `learn` or `load` made; call those."""
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab()
        self._names = sorted(vocabulary, key=vocabulary.__getitem__)
        self._ids = {name: i for i, name in enumerate(self._names) if i >= len(CONTROLS)}
        by_characters = isinstance(tokenizer.pre_tokenizer, pre_tokenizers.Split)
        self.separation: str = "characters" if by_characters else "spaces"

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
        """The vocabulary of all symbols in `sequences`, the most frequent first, equally frequent ones sorted.

        Raises UserError for a symbol that could not be read back from text: one equal to a control symbol, an
        empty one, one longer than a character with split="characters", one with a space with split="spaces".
        """
        split = kind
        sequences = (list(text) if kind == "characters" else _WORDS.findall(text) for text in texts)
        if split not in ("characters", "spaces"):
            raise UserError(f'symbols are separated by "characters" or "spaces", not by {split!r}.')
        counts: Counter[str] = Counter()
        for sequence in sequences:
            counts.update(sequence)
        for symbol in counts:
            _check(symbol, split)
        ranked = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
        vocabulary = {name: i for i, name in enumerate((*CONTROLS, *ranked))}
        return cls(_tokenizer(vocabulary, split))

    def __len__(self) -> int:
        """The number of ids, control symbols included."""
        return len(self._names)

    def __contains__(self, symbol: str) -> bool:
        """Whether `symbol` is known as data; False for a control symbol."""
        return symbol in self._ids

    def encode(self, text: str) -> list[int]:
        """The ids of symbols; UNK for a symbol that is not in the vocabulary."""
        known = self._ids.get
        return [known(symbol, UNK) for symbol in self.split(text)]

    def encode_text(self, text: str) -> tuple[list[int], list[str]]:
        """The ids of a line of text, and the symbols in it that are unknown, each once, in order of appearance."""
        symbols = self.split(text)
        unknown = dict.fromkeys(symbol for symbol in symbols if symbol not in self._ids)
        return self.encode(text), list(unknown)

    def split(self, text: str) -> list[str]:
        """The symbols of a line of text, known or not."""
        return list(text) if self.separation == "characters" else _WORDS.findall(text)

    def decode(self, ids: Iterable[int], controls: bool = False) -> list[str]:
        """The symbols of ids. PAD, BOS and EOS are left out unless `controls`; UNK is always "<unk>".

        Raises ValueError for an id outside the vocabulary.
        """
        ids = list(ids)
        for i in ids:
            if not 0 <= i < len(self._names):
                raise ValueError(f"id {i} is not in the vocabulary, whose ids are 0 to {len(self._names) - 1}")
        return [self._names[i] for i in ids if controls or i >= UNK]

    def text(self, ids: Iterable[int]) -> str:
        return self.join(self.decode(ids))

    def join(self, symbols: Iterable[str]) -> str:
        """The symbols as a line of text: the inverse of `split`."""
        return ("" if self.separation == "characters" else " ").join(symbols)

    def save(self, path: str | Path) -> None:
        """Write a `tokenizer.json` that `tokenizers.Tokenizer.from_file` opens, in one step or not at all."""
        path = Path(path)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            unfinished.write_text(self._tokenizer.to_str(pretty=True) + "\n", encoding="utf-8", newline="\n")
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
        return cls(_parsed(text, path))


def _check(symbol: str, split: str) -> None:
    if symbol in CONTROLS:
        raise UserError(f"the data contain the symbol {symbol!r}, which is reserved; rename it in the data.")
    if split == "characters" and len(symbol) != 1:
        raise UserError(f'the symbol {symbol!r} is not one character; separate the symbols by "spaces".')
    if split == "spaces" and not _WORDS.fullmatch(symbol):
        raise UserError(f"the symbol {symbol!r} is empty or has a space in it, so it can't be separated by spaces.")
    if any("\ud800" <= character <= "\udfff" for character in symbol):
        raise UserError(f"the symbol {symbol!r} is half of a character pair; the text was decoded wrongly.")


def _tokenizer(vocabulary: dict[str, int], split: str) -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=CONTROLS[UNK]))
    if split == "characters":
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
        tokenizer.decoder = decoders.Fuse()
    else:
        # The word-level model would find "<pad>" in a text; to this class it is an unknown word, so that the
        # saved file must say the same.
        tokenizer.normalizer = normalizers.Replace(Regex(_TYPED_CONTROL), CONTROLS[UNK])
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return tokenizer


def _parsed(text: str, path: str | Path) -> Tokenizer:
    try:
        layout = json.loads(text)
        kind = layout["model"]["type"], layout["pre_tokenizer"]["type"]
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # `tokenizers` raises plain Exception
        raise UserError(f"the vocabulary {path} is damaged: {error}.") from error
    vocabulary = tokenizer.get_vocab()
    whole = sorted(vocabulary.values()) == list(range(len(vocabulary)))
    expected = all(vocabulary.get(name) == i for i, name in enumerate(CONTROLS))
    if kind not in (("WordLevel", "Split"), ("WordLevel", "WhitespaceSplit")) or not (whole and expected):
        raise UserError(
            f"the vocabulary {path} was not written by qkv: whole symbols (WordLevel) with ids from 0 and "
            f"{', '.join(CONTROLS)} first are expected."
        )
    return tokenizer
