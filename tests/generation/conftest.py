"""A model small enough that every output can be listed, and two ways to say what a search must find."""

import itertools
import math

import pytest
import torch

from qkv.generation.protocol import Hypothesis

BOS, EOS = 1, 2


class Chain:
    """A random chain: each next symbol's log-probabilities depend on the source and on everything written so far.

    What was read is hashed into one number a row, so a row or a beam mixed up with another gives other outputs.
    `table` (histories, vocabulary) holds log-probabilities; `forbidden` is the share of impossible symbols in it.
    `widths` are the rows of each call.
    """

    def __init__(self, seed: int, vocabulary: int = 4, sharpness: float = 2.0, forbidden: float = 0.0):
        draw = torch.Generator().manual_seed(seed)
        logits = sharpness * torch.randn(997, vocabulary, generator=draw, dtype=torch.float64)
        never = torch.rand(997, vocabulary, generator=draw) < forbidden
        never[torch.arange(997), torch.randint(vocabulary, (997,), generator=draw)] = False
        self.table = logits.masked_fill(never, -math.inf).log_softmax(1)
        self.widths: list[int] = []

    def prefill(self, inputs):
        source, prompt = inputs["source"] * inputs["source_mask"], inputs["target"]
        weights = torch.arange(1, source.size(1) + 1)
        history = (source * weights).sum(1) % len(self.table)
        for column in prompt.unbind(1):
            history = self._read(history, column)
        return self._answer(history)

    def step(self, tokens, state):
        return self._answer(self._read(state["history"], tokens))

    def _read(self, history, tokens):
        return (history * 31 + tokens * 7 + 3) % len(self.table)

    def _answer(self, history):
        self.widths.append(len(history))
        # Logits are log-probabilities up to a constant: here another one for each row.
        return self.table[history].float() + history[:, None] % 5, {"history": history, "unused": (None, [history])}

    def log_probs(self, source, prompt, written):
        """Of the symbol after `written`, as a list of floats."""
        inputs = {
            "source": torch.tensor([source]),
            "source_mask": torch.ones(1, len(source), dtype=torch.bool),
            "target": torch.tensor([[*prompt, *written]]),
        }
        _, state = self.prefill(inputs)
        self.widths.pop()
        return self.table[state["history"]][0].tolist()


def batch(sources, prompts=None):
    """The inputs of a model: sources padded on the right, prompts of one length (bos alone by default)."""
    length = max(map(len, sources))
    return {
        "source": torch.tensor([[*source, *[9] * (length - len(source))] for source in sources]),
        "source_mask": torch.tensor([[i < len(source) for i in range(length)] for source in sources]),
        "target": torch.tensor(prompts or [[BOS]] * len(sources)),
    }


def exhaustive(model, source, *, max_length, alpha, n_best, prompt=(BOS,)):
    """The best hypotheses by looking at every output there is."""
    symbols = [symbol for symbol in range(model.table.size(1)) if symbol != EOS]
    finished, cut = [], []
    for length in range(max_length + 1):
        for written in itertools.product(symbols, repeat=length):
            log_prob = 0.0
            for place, symbol in enumerate(written):
                log_prob += model.log_probs(source, prompt, written[:place])[symbol]
            if length < max_length:
                total = log_prob + model.log_probs(source, prompt, written)[EOS]
                finished.append(Hypothesis(list(written), total / (length + 1) ** alpha, total, True))
            else:
                cut.append(Hypothesis(list(written), log_prob / max_length**alpha, log_prob, False))
    by_score = [sorted(some, key=lambda h: -h.score) for some in (finished, cut)]
    return [h for some in by_score for h in some if h.log_prob > -math.inf][:n_best]


def reference(model, source, *, max_length, alpha, n_best, width, prompt=(BOS,)):
    """Beam search on one row with lists, without stopping early: the meaning of the fast one."""
    live, finished = [((), 0.0)], []
    for length in range(1, max_length + 1):
        candidates = []
        for place, (written, log_prob) in enumerate(live):
            for symbol, more in enumerate(model.log_probs(source, prompt, written)):
                candidates.append((-(log_prob + more), place, symbol, written))
        live_next = []
        possible = [candidate for candidate in candidates if candidate[0] < math.inf]
        for negative, _, symbol, written in sorted(possible)[: width - len(finished)]:
            if symbol == EOS:
                finished.append(Hypothesis(list(written), -negative / length**alpha, -negative, True))
            else:
                live_next.append(((*written, symbol), -negative))
        live = live_next
    cut = [Hypothesis(list(written), p / max_length**alpha, p, False) for written, p in live]
    return (sorted(finished, key=lambda h: -h.score) + cut)[:n_best]


def same(found, wanted):
    """Equal tokens and ends in equal order; scores equal up to float32."""
    assert [(h.tokens, h.finished) for h in found] == [(h.tokens, h.finished) for h in wanted]
    assert [h.score for h in found] == pytest.approx([h.score for h in wanted], abs=1e-4, rel=1e-5)
    assert [h.log_prob for h in found] == pytest.approx([h.log_prob for h in wanted], abs=1e-4, rel=1e-5)


class Toys:
    """What the tests of this room share."""

    BOS, EOS, Chain = BOS, EOS, Chain
    batch = staticmethod(batch)
    exhaustive = staticmethod(exhaustive)
    reference = staticmethod(reference)
    same = staticmethod(same)


@pytest.fixture(scope="session")
def toys():
    return Toys
