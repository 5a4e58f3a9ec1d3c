"""PER without tone and stress, BLEU and chrF by hand, recall of n-best lists, and which way a metric is better."""

import math
import sys

import pytest

from qkv.errors import UserError
from qkv.tasks.metrics import METRICS, Metric, error_rates, metric, recall_at, text_rates, without_marks


@pytest.mark.parametrize(
    ("symbols", "plain"),
    [
        (["K", "AE1", "T", "AH0"], ["K", "AE", "T", "AH"]),
        (["ˈkæt", "ˌ", "ˈ", "ə"], ["kæt", "ə"]),
        (["ma˥˩", "˨˩˦", "t͡ɕʰ"], ["ma", "t͡ɕʰ"]),
        (["ma⁵¹", "a⁻²"], ["ma", "a"]),
        (["á", "a\u0301", "ǚ", "ɛ\u0301\u0303", "ɔ\u030c"], ["a", "a", "ü", "ɛ\u0303", "ɔ"]),
        (["ń", "n\u0300", "š", "ç", "õ", "å"], ["ń", "n\u0300", "š", "ç", "õ", "å"]),
        (["aː\u0301", "ɚ̀", "Ā"], ["aː", "ɚ", "A"]),
        (["5", "2", "<unk>", "tʰ", "m1"], ["5", "2", "<unk>", "tʰ", "m"]),
        ([], []),
    ],
)
def test_tone_and_stress_are_taken_off_and_nothing_else(symbols, plain):
    assert without_marks(symbols) == plain


def test_plain_per_is_given_where_a_reference_has_marks():
    outputs = [["K", "AE0", "T"], ["D", "AO1", "K"]]
    references = [[["K", "AE1", "T"]], [["D", "AO1", "G"]]]
    assert error_rates(outputs, references) == {
        "wer": 100.0, "per": pytest.approx(100 * 2 / 6), "per_plain": pytest.approx(100 * 1 / 6)
    }  # fmt: skip
    assert error_rates([["AH1"]], [[["AH"]]]) == {"wer": 100.0, "per": 100.0}


def test_plain_per_drops_symbols_that_are_marks_alone():
    found = error_rates([["a", "˥"]], [[["ˈ", "a", "˩"], ["b", "c", "d", "e"]]])
    assert found == {"wer": 100.0, "per": pytest.approx(100 * 2 / 3), "per_plain": 0.0}


def test_bleu_by_hand():
    # the cat sat on | the mat: 5 of 6 words ("the" once in the reference), 3 of 5, 2 of 4 and 1 of 3 n-grams.
    found = text_rates(["the cat sat on the mat"], [["the cat sat on a mat"]])
    assert found["bleu"] == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_bleu_of_an_output_that_is_too_short():
    found = text_rates(["a b c d"], [["a b c d e"]])
    assert found["bleu"] == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_chrf_by_hand():
    # abc against ab: 2 of 3 letters and 1 of 2 pairs are right, all that is wanted is there; recall weighs four times.
    precision, recall = (2 / 3 + 1 / 2) / 2, 1.0
    expected = 100 * 5 * precision * recall / (4 * precision + recall)
    assert text_rates(["abc"], [["ab"]])["chrf"] == pytest.approx(expected) == pytest.approx(87.5)
    assert text_rates(["a c"], [["a b"]])["chrf"] == pytest.approx(25.0)


def test_each_output_may_have_its_own_number_of_references():
    perfect = text_rates(["a b c d", "e f g h"], [["a b c d"], ["x", "e f g h", "y"]])
    assert perfect == {"bleu": 100.0, "chrf": 100.0}
    worse = text_rates(["a b c d", "e f g h"], [["a b c d"], ["x", "y"]])
    assert worse["bleu"] < 60


def test_chinese_is_scored_by_characters():
    # 3 of 4 characters, 2 of 3 pairs, 1 of 2 threes, none of 1 four, for which the smoothing counts a half.
    found = text_rates(["我爱你们"], [["我爱你"]])
    assert found["bleu"] == pytest.approx(100 * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** 0.25)
    # One word and a sentence about it: still Latin, so words count.
    mixed = text_rates(["the word 好 means good"], [["the word 好 means good"]])
    assert mixed["bleu"] == 100.0


def test_empty_outputs_score_nothing_and_do_not_fail():
    assert text_rates(["", ""], [["a b"], ["c"]]) == {"bleu": 0.0, "chrf": 0.0}


@pytest.mark.parametrize("score", [text_rates, recall_at])
def test_what_cannot_be_scored_is_refused(score):
    with pytest.raises(ValueError, match="1 outputs and 2 sets of references"):
        score(["a"], [["a"], ["b"]])
    with pytest.raises(ValueError, match="at least one output"):
        score([], [])
    with pytest.raises(ValueError, match="at least one reference for each"):
        score(["a"], [[]])


def test_a_missing_sacrebleu_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(UserError, match=r'need sacrebleu\S*: pip install "qkv\[train\]"'):
        text_rates(["a"], [["a"]])


def test_recall_counts_the_references_among_the_first_answers():
    n_best = [[["A"], ["B"], ["C"]], [["X"], ["X"], ["Y", "Z"]], [[]]]
    references = [[["B"], ["A"], ["D"]], [["Y", "Z"], ["Y", "Z"]], [["Q"]]]  # five different ones
    assert recall_at(n_best, references) == {
        "recall@1": pytest.approx(20.0), "recall@2": pytest.approx(40.0), "recall@3": pytest.approx(60.0)
    }  # fmt: skip
    assert recall_at([[["A"], ["A"]]], [[("A",)]]) == {"recall@1": 100.0, "recall@2": 100.0}
    with pytest.raises(ValueError, match="at least one answer"):
        recall_at([[]], [[["A"]]])


def test_every_metric_says_which_way_is_better():
    lower = {"wer", "per", "per_plain", "loss", "unfinished", "perplexity", "ece", "unknown", "beyond_limit"}
    assert {name for name, one in METRICS.items() if one.lower_is_better} == lower
    entity = {"entity_f1", "entity_precision", "entity_recall"}
    assert set(METRICS) - lower - entity == {"bleu", "chrf", "accuracy", "macro_f1", "micro_f1", "majority"}
    assert all(name == one.name and one.title for name, one in METRICS.items())
    assert metric("wer") == Metric("wer", True, "%", "outputs that equal no reference")


@pytest.mark.parametrize(("typed", "near"), [("wrr", "wer"), ("BLUE", "bleu"), ("macro-f1", "macro_f1")])
def test_an_unknown_metric_is_refused_with_the_nearest(typed, near):
    with pytest.raises(UserError, match=f"unknown metric '{typed}'. Did you mean '{near}'.* Metrics: wer, per"):
        metric(typed)
