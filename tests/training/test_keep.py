"""Which model is kept: the best in the figure asked for, the running average where there is one, and when to stop."""

import logging
import signal

import pytest
import torch
from torch import nn

from qkv.data import catalogue
from qkv.errors import UserError
from qkv.run.run import load
from qkv.tasks.metrics import METRICS
from qkv.training.average import Average
from qkv.training.events import Listener
from qkv.training.processes import Interrupted
from qkv.training.state import Progressed
from qkv.training.train import train

NOISY = {"lr": 0.1, "schedule": "constant", "evaluations": 8, "clip": 0.0}  # a rate at which figures go up and down


class Listen(Listener):
    """Hears events; at one it may do something."""

    def __init__(self, act=None, step=0):
        self.act, self.step, self.heard = act, step, []

    def on(self, event):
        self.heard.append(event)
        if self.act and (event["event"], event["step"]) == ("train", self.step):
            self.act()


def evaluations(run):
    return {event["step"]: event["metrics"] for event in run.events() if event["event"] == "evaluation"}


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    """A file of sentence pairs, whose targets become sub-words and are scored by BLEU and chrF too."""
    nouns, places = ["cat", "dog", "bird", "child", "king"], ["mat", "tree", "roof", "river", "wall", "chair"]
    lines = [f"the {a} sat on the {b}\tle {a[::-1]} est sur le {b[::-1]}" for a in nouns for b in places]
    file = tmp_path_factory.mktemp("data") / "sentences.tsv"
    file.write_text("en\tfr\n" + "\n".join(lines) + "\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("name", ["wer", "per", "loss", "bleu", "chrf"])
def test_the_kept_model_is_the_best_in_the_metric_asked_for(words, sentences, tmp_path, name):
    settings = {**words.settings, **NOISY, "lr": 0.02, "steps": 160, "split": "0.6,0.3,0.1"}
    run = train(str(sentences), out=tmp_path, listeners=[], metric=name, **settings, symbols="bpe:60")
    found = {step: figures[name] for step, figures in evaluations(run).items()}
    best = (min if METRICS[name].lower_is_better else max)(found.values())
    assert len(set(found.values())) > 1
    assert found[run.events()[-1]["best_step"]] == best
    assert run.config["keep"]["metric"] == name


def test_without_one_the_metric_is_the_tasks_and_is_written_down(finished_run):
    assert load(finished_run).config["keep"] == {"metric": "per", "patience": 0, "ema": 0.0}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("wrr", "unknown metric 'wrr'. The nearest is 'wer'"),
        ("macro_f1", "keep.metric 'macro_f1': this data and task have no such figure"),
        ("bleu", "They have: wer, per, loss"),
    ],
)
def test_a_metric_that_is_not_there_is_refused_before_training(words, tmp_path, asked, said):
    with pytest.raises(UserError) as raised:
        train("words", out=tmp_path / "run", listeners=[], metric=asked, **words.settings)
    assert said.split(".")[0] in str(raised.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("lower", [True, False])
def test_judging_keeps_the_best_counts_the_evaluations_since_and_takes_the_later_of_equals(lower):
    done, sign = Progressed(), 1 if lower else -1
    for step, (value, kept, stale) in enumerate(
        [(5, True, 0), (6, False, 1), (5, True, 2), (4, True, 0), (9, False, 1)], 1
    ):
        done.step = step
        assert (done.judge(sign * value, lower), done.stale) == (kept, stale)
    assert (done.best, done.best_step) == (sign * 4, 4)


def test_patience_ends_training_early_and_says_why(words, tmp_path, caplog):
    settings = {**words.settings, **NOISY, "steps": 200, "evaluations": 50, "patience": 3}
    with caplog.at_level(logging.INFO, "qkv"):
        run = train("words", out=tmp_path, listeners=[], **settings)
    found = evaluations(run)
    last, best = max(found), min(figures["per"] for figures in found.values())
    assert last < 200
    assert "stopping early: no better dev per in 3 evaluations" in caplog.text
    assert [figures["per"] for figures in found.values()].index(best) == len(found) - 4
    assert [event["event"] for event in run.events()][-1] == "end"
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert train("words", out=tmp_path, listeners=[], **settings).metrics() == run.metrics()
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_the_average_is_the_one_of_the_formula():
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    average = Average(model, 0.9)
    wanted = [p.detach().clone().double() for p in model.parameters()]
    for step in range(1, 40):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        now = [p.detach().double() for p in model.parameters()]
        wanted = [decay * old + (1 - decay) * new for old, new in zip(wanted, now, strict=True)]
    for value, right in zip(average.values, wanted, strict=True):
        assert torch.allclose(value.double(), right, atol=1e-5)
    own = [p.detach().clone() for p in model.parameters()]
    with average.in_place():
        assert all(torch.equal(p, v) for p, v in zip(model.parameters(), average.values, strict=True))
    assert all(torch.equal(p, o) for p, o in zip(model.parameters(), own, strict=True))


def test_the_average_is_evaluated_and_kept_and_training_goes_on_from_the_weights(words, tmp_path, finished_run):
    plain = Listen()
    train("words", out=tmp_path / "plain", listeners=[plain], **words.settings)
    ear = Listen()
    run = train("words", out=tmp_path / "ema", listeners=[ear], ema=0.9, **words.settings)
    steps = [[e["loss"] for e in heard.heard if e["event"] == "train"] for heard in (plain, ear)]
    assert steps[0] == steps[1]  # averaging changes no step
    assert evaluations(run) != evaluations(load(tmp_path / "plain"))
    dev, found = catalogue.load("words").dev, evaluations(run)
    kept = run.task.evaluate(run.model, dev, beam=1)
    assert kept == pytest.approx({name: found[run.events()[-1]["best_step"]][name] for name in kept})


def test_a_stopped_run_goes_on_with_its_average(words, tmp_path):
    settings = {**words.settings, "ema": 0.95}
    whole = train("words", out=tmp_path / "whole", listeners=[], **settings)
    stop = Listen(lambda: signal.raise_signal(signal.SIGTERM), 13)
    with pytest.raises(Interrupted):
        train("words", out=tmp_path / "parts", listeners=[stop], **settings)
    parts = train("words", out=tmp_path / "parts", listeners=[], **settings)
    assert evaluations(parts) == evaluations(whole)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def test_computing_blocks_again_changes_no_number(words, tmp_path):
    settings = {**words.settings, "dropout": 0.1}
    plain = train("words", out=tmp_path / "plain", listeners=[], **settings)
    again = train("words", out=tmp_path / "again", listeners=[], gradient_checkpointing=True, **settings)
    numbers = [[(e["loss"], e["grad_norm"]) for e in run.events() if e["event"] == "train"] for run in (plain, again)]
    assert numbers[0] == numbers[1]
    assert again.metrics() == plain.metrics()


def test_computing_blocks_again_keeps_less(words):
    from qkv.models.encoder_decoder import EncoderDecoderConfig, build
    from qkv.training.memory import recompute

    def kept_bytes(recomputed):
        torch.manual_seed(0)
        model = build(EncoderDecoderConfig(32, 2, 64, 4), n_source=9, n_target=9)
        if recomputed:
            recompute(model)
        kept = {}

        def keep(tensor):
            kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(torch.ones(8, 20, dtype=torch.long), torch.ones(8, 20, dtype=torch.long))
        return sum(kept.values())

    assert kept_bytes(True) < 0.5 * kept_bytes(False)


@pytest.mark.parametrize(("name", "value"), [("patience", -1), ("ema", 1.0), ("ema", -0.1)])
def test_settings_that_cannot_be_are_refused(words, tmp_path, name, value):
    with pytest.raises(UserError, match=f"{name} must"):
        train("words", out=tmp_path / "run", listeners=[], **{**words.settings, name: value})


def test_memory_may_be_saved_from_one_call_to_the_next(words, tmp_path):
    stop = Listen(lambda: signal.raise_signal(signal.SIGINT), 5)
    with pytest.raises(Interrupted):
        train("words", out=tmp_path, listeners=[stop], **words.settings)
    run = train("words", out=tmp_path, listeners=[], gradient_checkpointing=True, **words.settings)
    assert len([event for event in run.events() if event["event"] == "train"]) == words.settings["steps"]
