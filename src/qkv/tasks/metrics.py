"""What outputs are scored by, each defined once: error rates, BLEU and chrF, recall of n-best lists."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, zip_longest

from rapidfuzz.distance import Levenshtein

from qkv.errors import UserError, nearest

_MARKS = re.compile("[ˈˌ˥˦˧˨˩⁰¹²³⁴⁵⁻]")
_TONES = "\u0300\u0301\u0302\u0304\u030c"
_TONED = re.compile("[aeiouyɑɐɒæɛɜəɘɤɞɪɨɯɵøœɶɔoʊʉʌʏıɚɝ]", re.IGNORECASE)
_DIGITS = re.compile("(?<=[A-Za-z])[0-9]+$")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")

_CAPITALS = {"wer", "per", "bleu", "f1", "ece"}


@dataclass(frozen=True)
class Metric:
    """One figure: which way is better, the unit it is printed with ("" for none), and its name for a person."""

    name: str
    lower_is_better: bool
    unit: str
    title: str

    @property
    def short(self) -> str:
        """The name as it is printed beside a figure: WER, chrf, macro F1."""
        words = [word.upper() if word in _CAPITALS else word for word in self.name.split("_")]
        return " ".join(words)


METRICS: dict[str, Metric] = {
    one.name: one
    for one in (
        Metric("wer", True, "%", "outputs that equal no reference"),
        Metric("per", True, "%", "wrong symbols"),
        Metric("per_plain", True, "%", "wrong symbols, tone and stress aside"),
        Metric("loss", True, "", "loss a symbol"),
        Metric("unfinished", True, "%", "outputs that reached the length limit"),
        Metric("bleu", False, "", "BLEU"),
        Metric("chrf", False, "", "chrF2"),
        Metric("accuracy", False, "%", "right answers"),
        Metric("entity_f1", False, "%", "F1 of whole entities, as conlleval counts"),
        Metric("entity_precision", False, "%", "entities said that are right"),
        Metric("entity_recall", False, "%", "entities there that were said"),
        Metric("perplexity", True, "", "perplexity of the tokens asked for"),
        Metric("macro_f1", False, "%", "F1, mean over the classes"),
        Metric("micro_f1", False, "%", "F1 of all labels together"),
        Metric("ece", True, "%", "calibration error: how far probabilities are from shares of right answers"),
        Metric("majority", False, "%", "right answers of who always says the most frequent label"),
        Metric("unknown", True, "%", "tokens that training has not seen"),
        Metric("beyond_limit", True, "%", "tokens beyond what one window holds"),
    )
}
"""By name. What is not listed has no known direction, and nothing may be chosen by it."""


def metric(name: str) -> Metric:
    """The metric of this name. Raises UserError for an unknown one, with the nearest name and all there are."""
    if name not in METRICS:
        raise UserError(f"unknown metric {name!r}.{nearest(name, METRICS)} Metrics: {', '.join(METRICS)}")
    return METRICS[name]


def error_rates(outputs: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> dict[str, float]:
    """Sequence and symbol errors in percent, each output against the nearest of its references.

    wer        outputs that equal no reference, per output (for words to phonemes: the word error rate)
    per        edits (insert, delete, replace) to the nearest reference, summed, per symbol of those references; between
               equally near references the longest counts
    per_plain  the same once `without_marks` has taken tone and stress off both sides; only where a reference has any

    Raises ValueError when the two differ in length, when there is nothing to score, or when an output has no reference.
    """
    _check(outputs, references)
    wrong, per = _errors(outputs, references)
    rates = {"wer": 100.0 * wrong / len(outputs), "per": per}
    plain = [[without_marks(one) for one in several] for several in references]
    if plain != [[list(one) for one in several] for several in references]:
        rates["per_plain"] = _errors([without_marks(output) for output in outputs], plain)[1]
    return rates


def _errors(outputs: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> tuple[int, float]:
    """How many outputs equal no reference, and edits in percent of the symbols."""
    wrong = edits = symbols = 0
    for output, several in zip(outputs, references, strict=True):
        distance, length = min((Levenshtein.distance(output, one), -len(one)) for one in several)
        wrong += distance > 0
        edits += distance
        symbols -= length
    return wrong, 100.0 * edits / max(symbols, 1)


def without_marks(symbols: Sequence[str]) -> list[str]:
    """Phones without tone and stress; a symbol of which nothing is left is dropped.

    Marks are ˈ ˌ, tone letters, superscript digits, digits behind a letter at the end of an ASCII symbol (AH0), and
    grave, acute, circumflex, macron and caron on a vowel. A digit alone stays: it may be a number.
    """
    return [bare for bare in map(_without_marks, symbols) if bare]


@lru_cache(maxsize=4096)
def _without_marks(symbol: str) -> str:
    if symbol.isascii():
        return _DIGITS.sub("", symbol)
    kept, base = list[str](), ""
    for character in unicodedata.normalize("NFD", _MARKS.sub("", symbol)):
        if unicodedata.category(character) not in ("Mn", "Lm"):
            base = character
        if not (character in _TONES and _TONED.fullmatch(base)):
            kept.append(character)
    form = "NFC" if unicodedata.is_normalized("NFC", symbol) else "NFD"
    return unicodedata.normalize(form, "".join(kept))


def text_rates(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """BLEU and chrF of lines of text, both from 0 to 100, as sacrebleu computes them (Post 2018).

    Their signatures are nrefs:N|case:mixed|eff:no|tok:13a|smooth:exp and nrefs:N|case:mixed|eff:yes|nc:6|nw:0|space:no,
    where N is "var" if outputs have differing numbers of references; tok:zh stands for 13a where most letters of the
    references are Han characters. For other scripts without blanks between words, such as Thai, go by chrF.

    Raises ValueError as `error_rates` does, and UserError when sacrebleu is not installed.
    """
    _check(outputs, references)
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise UserError(f'BLEU and chrF need {error.name}: pip install "qkv[train]"') from error
    # One line for each place in the lists; None where an output has fewer references.
    streams = [list(stream) for stream in zip_longest(*references)]
    bleu = BLEU(tokenize="zh" if _mostly_han(references) else "13a", force=True)
    scores = {"bleu": bleu.corpus_score(outputs, streams).score, "chrf": CHRF().corpus_score(outputs, streams).score}
    return {name: min(score, 100.0) for name, score in scores.items()}  # rounding gives 100.00000000000004


def _mostly_han(references: Sequence[Sequence[str]]) -> bool:
    letters = han = 0
    for several in references:
        for line in several:
            letters += sum(map(str.isalpha, line))
            han += len(_HAN.findall(line))
    return 2 * han > letters


def recall_at(
    n_best: Sequence[Sequence[Sequence[str]]], references: Sequence[Sequence[Sequence[str]]]
) -> dict[str, float]:
    """ "recall@k": percent of all references, each counted once, that stand among the first k answers.

    n_best has the answers to each input, best first; k runs from 1 to the longest of these lists. With several
    references for an input, recall@1 cannot reach 100. Raises ValueError as `error_rates` does, and when there is no
    answer at all.
    """
    _check(n_best, references)
    longest = max(map(len, n_best))
    if not longest:
        raise ValueError("recall needs at least one answer")
    found = [0] * longest
    for answers, several in zip(n_best, references, strict=True):
        missing = {tuple(one) for one in several}
        for rank, answer in enumerate(map(tuple, answers)):
            if answer in missing:
                found[rank] += 1
                missing.remove(answer)
    wanted = sum(len({tuple(one) for one in several}) for several in references)
    return {f"recall@{k}": 100.0 * count / wanted for k, count in enumerate(accumulate(found), 1)}


def _check(outputs: Sequence[object], references: Sequence[Sequence[object]]) -> None:
    if len(outputs) != len(references):
        raise ValueError(f"{len(outputs)} outputs and {len(references)} sets of references")
    if not outputs or any(not several for several in references):
        raise ValueError("scores need at least one output, and at least one reference for each")
