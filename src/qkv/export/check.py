"""An exported graph is run beside the model it was made from: how often they agree, and how quick each is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import onnxruntime
import torch

from qkv.data.batches import pad
from qkv.data.symbols import BOS, EOS, PAD
from qkv.generation.greedy import greedy
from qkv.models.encoder_decoder import EncoderDecoder

BATCH = 32
ALONE = 50
"""How many words are answered one at a time, to measure that."""

THREADS = 2
NEAR_TIE = 1e-4
"""Two logits nearer than this may change places by rounding alone."""

Answer = list[int]

S = TypeVar("S")
A = TypeVar("A")


@dataclass(frozen=True)
class Speed:
    """Words a second in batches of 32 and one at a time."""

    batches: float
    alone: float


@dataclass(frozen=True)
class Agreement:
    """Of `words`, how many get torch's very symbols; `near_ties` of the others turn on a gap below 1e-4."""

    words: int
    same: int
    near_ties: int

    @property
    def percent(self) -> float:
        return 100.0 * self.same / self.words


class Torch:
    """Greedy answers of the model itself; `sources` are ids that end in eos."""

    def __init__(self, model: EncoderDecoder, max_length: int):
        self.model, self.max_length = model, max_length

    def __call__(self, sources: Sequence[Sequence[int]]) -> list[Answer]:
        source, mask = pad(sources, PAD)
        inputs = {"source": source, "source_mask": mask}
        found = greedy(self.model, inputs, bos=BOS, eos=EOS, max_length=self.max_length)
        return [[*one.tokens, EOS] if one.finished else one.tokens for one in found]

    @torch.inference_mode()
    def is_near_tie(self, source: Sequence[int], one: Answer, other: Answer) -> bool:
        """Whether the two answers part at symbols that the model finds equally good, to within rounding."""
        same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        if same is None:
            return False
        inputs = {"source": torch.tensor([list(source)]), "target": torch.tensor([[BOS, *one[:same]]])}
        logits, _ = self.model.prefill(inputs)
        return abs(float(logits[0, one[same]] - logits[0, other[same]])) < NEAR_TIE


class Graph:
    """Greedy answers of greedy.onnx."""

    def __init__(self, path: Path):
        self.session = session(path)

    def __call__(self, sources: Sequence[Sequence[int]]) -> list[Answer]:
        source, _ = pad(sources, PAD)
        outputs: Any = self.session.run(None, {"source": source.numpy()})
        target, length, _ = outputs
        # One symbol more than `length` is eos, where there is one more.
        return [row[: end + 1].tolist() for row, end in zip(target, length, strict=True)]


def session(path: Path) -> onnxruntime.InferenceSession:
    """The graph ready to run."""
    return onnxruntime.InferenceSession(path, options(), providers=["CPUExecutionProvider"])


def options() -> onnxruntime.SessionOptions:
    """`THREADS` threads, and none of onnxruntime's remarks."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = THREADS
    made.log_severity_level = 3
    return made


def measured(answer: Callable[[Sequence[S]], Sequence[A]], sources: Sequence[S]) -> tuple[list[A], Speed]:
    """The answers, and how quickly they came."""
    answer(sources[:BATCH])  # the first run also makes room and plans
    begun, found = time.perf_counter(), list[A]()
    for start in range(0, len(sources), BATCH):
        found += answer(sources[start : start + BATCH])
    batches = len(sources) / (time.perf_counter() - begun)
    some, begun = sources[:ALONE], time.perf_counter()
    for source in some:
        answer([source])
    return found, Speed(round(batches, 1), round(len(some) / (time.perf_counter() - begun), 1))


def agreement(
    reference: Torch, sources: Sequence[Sequence[int]], said: Sequence[Answer], expected: Sequence[Answer]
) -> tuple[Agreement, list[int]]:
    """How often two lists of answers agree, and which differ by more than a near tie."""
    differ = [i for i, (one, other) in enumerate(zip(said, expected, strict=True)) if one != other]
    wrong = [i for i in differ if not reference.is_near_tie(sources[i], expected[i], said[i])]
    return Agreement(len(said), len(said) - len(differ), len(differ) - len(wrong)), wrong


@contextmanager
def torch_threads() -> Iterator[None]:
    """Torch on `THREADS` threads, for figures that can be compared."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)
