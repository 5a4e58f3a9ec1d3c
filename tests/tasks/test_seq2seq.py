"""The task: what a model reads and should say, what that costs, and how answers are found and scored."""

import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad

from qkv.data.pairs import Example, Pairs, SymbolKind
from qkv.data.symbols import BOS, EOS, PAD, UNK
from qkv.errors import UserError
from qkv.models.encoder_decoder import EncoderDecoderConfig, build
from qkv.tasks.batch import Batch
from qkv.tasks.seq2seq import Seq2Seq, Seq2SeqConfig

LETTERS = "abcdef"


def example(word, *targets):
    return Example(word, targets or (" ".join(word.upper()),))


def some_pairs():
    draw = random.Random(0)
    words = sorted({"".join(draw.choices(LETTERS, k=draw.randint(1, 9))) for _ in range(70)})
    train = [example(word) for word in words[:50]]
    train[0] = example(train[0].source, "A B", "B A C")
    rest = [example(word) for word in words[50:]]
    return Pairs(train, rest, rest, "invented", SymbolKind(), SymbolKind("spaces"), [], "0")


def task_of(**changes):
    return Seq2Seq.of(Seq2SeqConfig(**changes), some_pairs())


@pytest.fixture
def task():
    return task_of(max_length=12)


@pytest.fixture
def model(task):
    config = EncoderDecoderConfig(d_model=32, n_heads=4, d_ff=64, n_layers=1)
    return build(config, **task.sizes).eval()


items = st.lists(
    st.tuples(st.lists(st.integers(4, 9), min_size=1, max_size=6), st.lists(st.integers(4, 9), max_size=6)),
    min_size=1, max_size=5,
)  # fmt: skip


@given(items)
def test_the_decoder_reads_bos_and_what_was_said_and_says_what_comes_next_to_eos(several):
    batch = task_of().collate(several)
    source, mask, shifted = (batch.inputs[name] for name in ("source", "source_mask", "target"))
    assert mask.dtype == torch.bool
    for row, (said, answer) in enumerate(several):
        assert source[row][mask[row]].tolist() == [*said, EOS]
        assert mask[row].tolist() == sorted(mask[row].tolist(), reverse=True)
        length = len(answer) + 1
        assert shifted[row, :length].tolist() == [BOS, *answer]
        assert batch.targets[row, :length].tolist() == [*answer, EOS]
        # At each position the input ends where the target begins: no position may see what it should say.
        assert shifted[row, 1:length].tolist() == batch.targets[row, : length - 1].tolist()
        for rest in (source[row][~mask[row]], shifted[row, length:], batch.targets[row, length:]):
            assert set(rest.tolist()) <= {PAD}
    assert batch.n_targets == sum(len(answer) + 1 for _, answer in several)
    assert batch.n_tokens == batch.n_targets + sum(len(said) + 1 for said, _ in several)


def reference_loss(logits, targets, smoothing):
    """Szegedy et al. 2016, section 7, in float64: the right symbol gets 1 - s and every symbol s / V."""
    logits, total = logits.double().numpy(), 0.0
    for row, answers in zip(logits, targets.tolist(), strict=True):
        for scores, answer in zip(row, answers, strict=True):
            if answer == PAD:
                continue
            log_probs = scores - math.log(np.exp(scores - scores.max()).sum()) - scores.max()
            total -= (1 - smoothing) * log_probs[answer] + smoothing * log_probs.mean()
    return total


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.6])
def test_the_loss_is_the_formula_summed_over_real_targets(smoothing):
    task = task_of(label_smoothing=smoothing)
    batch = task.collate([([4, 5], [4, 5, 6]), ([6], [7]), ([8, 8, 8], [])])
    logits = torch.randn(3, 4, len(task.target)) * 3
    wanted = reference_loss(logits, batch.targets, smoothing)
    assert float(task.loss(logits, batch)) == pytest.approx(wanted, rel=1e-6)


def test_pads_cost_nothing_and_pull_at_nothing(task):
    batch = task.collate([([4, 5], [4, 5, 6]), ([6], [7])])
    logits = torch.randn(2, 4, len(task.target), requires_grad=True)
    task.loss(logits, batch).backward()
    loss = float(task.loss(logits.detach(), batch))
    wider = Batch(batch.inputs, pad(batch.targets, (0, 3), value=PAD), batch.n_targets, batch.n_tokens)
    rubbish = torch.cat([logits.detach(), torch.randn(2, 3, len(task.target)) * 100], 1)
    assert float(task.loss(rubbish, wider)) == pytest.approx(loss, rel=1e-6)
    assert bool((logits.grad[1, 2:] == 0).all())
    assert bool((logits.grad[1, :2] != 0).any())


def test_a_batch_costs_what_its_rows_cost_alone(task, model):
    several = task.items(some_pairs().train[:12])
    together = task.collate(several)
    alone = [task.collate([item]) for item in several]
    assert sum(batch.n_targets for batch in alone) == together.n_targets
    assert sum(batch.n_tokens for batch in alone) == together.n_tokens
    with torch.no_grad():
        wanted = sum(float(task.loss(model(**batch.inputs), batch)) for batch in alone)
        assert float(task.loss(model(**together.inputs), together)) == pytest.approx(wanted, rel=1e-5)


def test_half_precision_logits_are_summed_in_float32(task):
    batch = task.collate([([4, 5], [4, 5, 6])] * 8)
    logits = torch.randn(8, 4, len(task.target)).bfloat16()
    loss = task.loss(logits, batch)
    assert loss.dtype == torch.float32
    wanted = reference_loss(logits.float(), batch.targets, task.config.label_smoothing)
    assert float(loss) == pytest.approx(wanted, rel=1e-5)


def test_one_training_pair_for_every_right_target_and_lengths_with_their_control_symbols(task):
    pairs = some_pairs()
    several = task.items(pairs.train)
    assert len(several) == len(pairs.train) + 1
    assert several[0][0] == several[1][0]
    assert [len(several[0][1]), len(several[1][1])] == [2, 3]
    for item, (source, target) in zip(several, task.lengths(several), strict=True):
        batch = task.collate([item])
        assert (batch.inputs["source"].size(1), batch.inputs["target"].size(1)) == (source, target)


def test_vocabularies_are_of_the_training_split_only():
    pairs = some_pairs()
    strange = [example("xyz", "Q")]
    task = Seq2Seq.of(
        Seq2SeqConfig(), Pairs(pairs.train, strange, strange, "", SymbolKind(), SymbolKind("spaces"), [], "")
    )
    assert "x" not in task.source
    assert "Q" not in task.target
    assert list(task.items(strange)) == [([UNK] * 3, [UNK])]
    assert task.config.max_length == 2 * max(len(t.split()) for e in pairs.train for t in e.targets)
    assert task.sizes == {"n_source": 4 + len(LETTERS), "n_target": 4 + len(LETTERS)}


@pytest.mark.parametrize("beam", [1, 3])
def test_an_answer_does_not_depend_on_what_else_is_asked(task, model, beam):
    words = [e.source for e in some_pairs().train][::5]
    alone = {word: task.predict(model, [word], beam=beam)[0] for word in words}
    random.shuffle(words)
    for budget in (40, 4096):
        ids = [task.source.encode(word) for word in words]
        found = task.decode(model, ids, beam=beam, batch_tokens=budget)
        for word, [best] in zip(words, found, strict=True):
            assert task.target.join(task.target.decode(best.tokens)) == alone[word].output
            assert best.score == pytest.approx(alone[word].score, abs=1e-5)
    assert [p.text for p in task.predict(model, words, beam=beam)] == words


def test_progress_counts_every_source_once(task, model):
    done = []
    task.decode(model, [[4] * (1 + n % 3) for n in range(20)], beam=1, batch_tokens=64, advance=done.append)
    assert sum(done) == 20
    assert len(done) > 1


def test_several_answers_come_best_first_and_the_first_is_the_output(task, model):
    [prediction] = task.predict(model, ["abc"], beam=4, n_best=3)
    assert len(prediction.n_best) == 3
    assert prediction.n_best[0] == (prediction.output, prediction.score)
    finished = [score for _, score in prediction.n_best] if prediction.finished else []
    assert finished == sorted(finished, reverse=True)
    assert len({output for output, _ in prediction.n_best}) == 3


def test_the_configured_beam_and_length_penalty_are_used_when_none_is_given(model):
    words = [e.source for e in some_pairs().train][:10]
    task = task_of(max_length=12, beam=3, length_penalty=0.2)
    by_default = task.predict(model, words)
    assert by_default == task.predict(model, words, beam=3, length_penalty=0.2)
    assert by_default != task.predict(model, words, beam=3, length_penalty=2.0)
    assert [p.score for p in by_default] != [p.score for p in task.predict(model, words, beam=1)]


def test_symbols_unseen_in_training_are_named_once_each_in_their_order(task, model):
    found = task.predict(model, ["abc", "azéza", "ABC"])
    assert [p.unknown for p in found] == [[], ["z", "é"], ["A", "B", "C"]]


def test_empty_text_is_refused_and_said_which(task, model):
    with pytest.raises(UserError, match="text 2 of 3 is empty"):
        task.predict(model, ["abc", "", "abc"])
    assert task.predict(model, []) == []


def test_greedy_answers_are_scored_as_those_of_a_beam(task, model):
    ids = [task.source.encode(e.source) for e in some_pairs().train[:8]]
    for alpha in (0.0, 0.7, 1.0):
        for [best] in task.decode(model, ids, beam=1, length_penalty=alpha):
            length = len(best.tokens) + best.finished
            assert best.score == pytest.approx(best.log_prob / length**alpha)


@pytest.mark.parametrize("settings", [{"beam": 2, "n_best": 3}, {"beam": 0}, {"beam": -1}, {"beam": 1, "n_best": 2}])
def test_searches_that_cannot_be_are_refused(task, model, settings):
    with pytest.raises(UserError, match="beam"):
        task.predict(model, ["abc"], **settings)


class Parrot(torch.nn.Module):
    """Says its source, symbol by symbol to eos, but nothing for the words in `wrong_on`."""

    def __init__(self, task, wrong_on=()):
        super().__init__()
        self.anchor = torch.nn.Parameter(torch.zeros(()))
        self.width, self.wrong = len(task.target), [task.source.encode(word) for word in wrong_on]

    def prefill(self, inputs):
        source = inputs["source"].clone()
        for row, ids in enumerate(source.tolist()):
            if [i for i in ids if i > UNK] in self.wrong:
                source[row, 0] = EOS
        return self.step(None, {"source": source, "place": torch.zeros(len(source), dtype=torch.long)})

    def step(self, tokens, state):
        source, place = state["source"], state["place"]
        say = source.gather(1, place.clamp(max=source.size(1) - 1)[:, None])[:, 0]
        logits = torch.nn.functional.one_hot(say, self.width).float() * 50
        return logits, {"source": source, "place": place + 1}


def same_ids_task(**changes):
    # Equal counts in equal order: the ids of "a" and "A" are equal, so that the parrot need not translate.
    words = ["".join(letter * (9 - n) for n, letter in enumerate(LETTERS)), "fade", "bead", "cab"]
    train = [example(word) for word in words]
    return Seq2Seq.of(
        Seq2SeqConfig(**changes), Pairs(train, train, train, "", SymbolKind(), SymbolKind("spaces"), [], "")
    )


@pytest.mark.parametrize("beam", [1, 2])
def test_evaluation_counts_sequences_symbols_and_unfinished_outputs(beam):
    task = same_ids_task(max_length=6)
    asked = [example("fade"), example("bead", "X", "B E A D"), example("cab"), example("abcdefa")]
    found = task.evaluate(Parrot(task, wrong_on=["cab"]).eval(), asked, beam=beam)
    # "cab" is said as nothing: 3 edits of 3; the last one is cut after 6 of 7 symbols.
    assert found == pytest.approx({"wer": 50.0, "per": 100 * 4 / (4 + 4 + 3 + 7), "unfinished": 25.0})


def test_saved_vocabularies_make_the_same_task(task, tmp_path):
    task.save(tmp_path)
    again = Seq2Seq.load(tmp_path, task.config)
    several = some_pairs().train
    assert list(again.items(several)) == list(task.items(several))
    assert again.sizes == task.sizes
    (tmp_path / "target_tokenizer.json").unlink()
    with pytest.raises(UserError, match="target_tokenizer.json"):
        Seq2Seq.load(tmp_path, task.config)


@pytest.mark.parametrize(
    "settings", [{"label_smoothing": 1.0}, {"label_smoothing": -0.1}, {"beam": 0}, {"max_length": -1}]
)
def test_settings_that_cannot_be_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Seq2SeqConfig(**settings)
