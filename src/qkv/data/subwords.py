"""Sub-words: byte-pair encoding (Sennrich et al. 2016) and unigram (Kudo 2018), both with nothing lost.

A line gets a blank in front, so that a word has the same pieces wherever it stands, and each blank becomes U+2581,
which then begins a word (Kudo and Richardson 2018, section 3.2). A U+2581 of the data is escaped, or it would come back
as a blank.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from qkv.errors import UserError

KINDS = ("bpe", "unigram")

_ROUNDS = 4

# One after the other. Behind U+2582 stands nothing but the second sign of an escape, so the way back is unambiguous.
_ESCAPES = (("\u2582", "\u2582\u2583"), ("\u2581", "\u2582\u2584"))


def train(texts: Iterable[str], kind: str, size: int, controls: Sequence[str], name: str = "") -> Tokenizer:
    """A tokenizer with at most `size` ids: the control names, every character of `texts`, and the best sub-words.

    The last of `controls` stands for unknown characters. Few texts give fewer sub-words than `size`; of a handful of
    lines, unigram may take the characters alone. Raises UserError when `size` has no room for the characters.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=controls[-1]) if kind == "bpe" else models.Unigram())
    there = [normalizers.Replace(plain, escaped) for plain, escaped in _ESCAPES]
    back = [decoders.Replace(escaped, plain) for plain, escaped in reversed(_ESCAPES)]
    tokenizer.normalizer = normalizers.Sequence([*there, normalizers.Prepend(" ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    # A decoder's "always" takes the first blank off again.
    tokenizer.decoder = decoders.Sequence([decoders.Metaspace(prepend_scheme="always"), decoders.Fuse(), *back])
    texts = list(texts)
    _check_size(texts, size, tokenizer, controls, name)
    shared: dict[str, Any] = {"vocab_size": size, "special_tokens": list(controls), "show_progress": False}
    unigram = trainers.UnigramTrainer(unk_token=controls[-1], **shared)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(**shared) if kind == "bpe" else unigram)
    # As added tokens the control symbols would be found in text; as pieces that hold a blank they never are.
    layout = json.loads(tokenizer.to_str())
    layout["added_tokens"] = []
    if kind == "unigram":
        layout["model"]["vocab"] = _settled(layout["model"], texts, size, tokenizer)
    return Tokenizer.from_str(json.dumps(layout))


def _settled(
    unigram: Mapping[str, Any], texts: Iterable[str], size: int, tokenizer: Tokenizer
) -> list[tuple[str, float]]:
    """The pieces with scores counted anew, at most `size`.

    The library sums in the order of a hash map, so that its scores, and by them its ids, differ from run to run, and it
    may keep a few pieces too many. Here each word takes its best pieces and the pieces are counted, a few times over.
    """
    cut, normal = tokenizer.pre_tokenizer.pre_tokenize_str, tokenizer.normalizer.normalize_str
    words = Counter(word for text in texts for word, _ in cut(normal(text)))
    names, unknown = [piece for piece, _ in unigram["vocab"]], unigram["unk_id"]
    fixed = [(name, 0.0) for name in names[: unknown + 1]]
    pieces = [(piece, -1.0) for piece in sorted(names[unknown + 1 :])]
    for _ in range(_ROUNDS):
        model = models.Unigram([*fixed, *pieces], unknown)
        counts = Counter[str]()
        for word in sorted(words):
            for token in model.tokenize(word):
                counts[token.value] += words[word]
        ranked = sorted((piece for piece, _ in pieces), key=lambda piece: (-counts[piece], piece))
        single = [piece for piece in ranked if len(piece) == 1]
        longer = [piece for piece in ranked if len(piece) > 1][: size - len(fixed) - len(single)]
        kept, total = {*single, *longer}, counts.total()
        pieces = [(piece, math.log(max(counts[piece], 0.5) / total)) for piece in ranked if piece in kept]
    return [*fixed, *pieces]


def _check_size(texts: Sequence[str], size: int, tokenizer: Tokenizer, controls: Sequence[str], name: str) -> None:
    characters = "".join(sorted(set[str]().union(*texts)))
    needed = len(controls) + len(set(tokenizer.normalizer.normalize_str(characters)))
    if size < needed:
        raise UserError(
            f"{size:,} sub-words are too few: the {name or 'text'}s have {len(characters):,} different characters, and "
            f"with the control symbols {needed:,} is the least. Give a larger number, or take another kind of symbols"
        )
