"""Greedy decoding, words a second: the house's cached loop, the same without a cache, transformers and CTranslate2.

All read the same weights, the same words in the same batches, and must write the same symbols. Each lives in a process
of its own: CTranslate2's threads spin on for a while after their work, and nearly halve the rate of what shares theirs.
Letters: B rows of a batch, Ts source time.
"""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import qkv
from bench import common, peers
from qkv.data import catalogue
from qkv.data.batches import pad
from qkv.data.pairs import spread
from qkv.data.symbols import BOS, EOS, PAD
from qkv.errors import UserError
from qkv.generation.greedy import greedy
from qkv.models.encoder_decoder import EncoderDecoder
from qkv.run.run import build_model
from qkv.tasks.seq2seq import Seq2Seq, Seq2SeqConfig
from qkv.training.precision import choose_precision

FULL = {
    "model": {
        "d_model": 256, "n_heads": 4, "d_ff": 1024, "n_layers": 3, "pre_norm": False, "activation": "relu",
        "dropout": 0.0, "positions": "sinusoidal",
    },
    "training": {"steps": 150, "lr": 1e-3, "warmup": 50, "batch_tokens": 2048, "evaluations": 1, "seed": 0},
    "words": 10_000, "batch": 256, "single_words": 200, "max_length": 32, "rounds": 3,
}  # fmt: skip
QUICK = {
    "model": {
        "d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 1, "pre_norm": False, "activation": "relu", "dropout": 0.0,
        "positions": "sinusoidal",
    },
    "training": None, "words": 24, "batch": 8, "single_words": 2, "max_length": 6, "rounds": 1,
}  # fmt: skip
NO_BFLOAT16 = "does not apply: this machine has no bfloat16 arithmetic"
SAME = 0.98
"""Share of words on which the float32 systems must agree; the rest are near ties that rounding decides."""

Decode = Callable[[list[list[int]]], list[list[int]]]
"""Source ids of one batch, without eos, to target ids."""


class NoCache:
    """A model that keeps the memory and the symbols so far, and reads all of them again at every step."""

    training = False

    def __init__(self, model: EncoderDecoder):
        self.model = model

    def prefill(self, inputs: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        mask = inputs["source_mask"]
        memory = self.model.encoder(inputs["source"], mask)
        return self._read({"memory": memory, "mask": mask, "target": inputs["target"]})

    def step(self, tokens: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        return self._read({**state, "target": torch.cat([state["target"], tokens[:, None]], 1)})

    def _read(self, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        states = self.model.decoder(state["target"], state["memory"], state["mask"])
        return self.model.head(states[:, -1:])[:, 0], state


def trained(settings: Mapping[str, Any], task: Seq2Seq) -> tuple[EncoderDecoder, Seq2Seq]:
    """A post-norm model trained just so long that outputs end like words; kept in bench/.cache for the next time."""
    torch.manual_seed(0)
    if settings["training"] is None:
        return build_model({"name": "encoder_decoder", **settings["model"]}, task.sizes).eval(), task  # pyright: ignore[reportReturnType]
    chosen = {**settings["model"], **settings["training"], "beam": 1}
    folder = common.CACHE / f"decoding-{common.digest(chosen)}"
    run = qkv.train("cmudict", "encoder_decoder", out=folder, device="cpu", **chosen)
    return run.model, run.task  # pyright: ignore[reportReturnType]


def by_qkv(model: Any, max_length: int) -> Decode:
    def decode(sources: list[list[int]]) -> list[list[int]]:
        source, mask = pad([[*s, EOS] for s in sources], PAD)  # (B, Ts)
        found = greedy(model, {"source": source, "source_mask": mask}, bos=BOS, eos=EOS, max_length=max_length)
        return [one.tokens for one in found]

    return decode


def by_transformers(peer: Any, max_length: int) -> Decode:
    def decode(sources: list[list[int]]) -> list[list[int]]:
        source, mask = pad([[*s, EOS] for s in sources], PAD)
        outputs = peer.generate(source, attention_mask=mask.long(), max_new_tokens=max_length).tolist()
        return [list(itertools.takewhile(lambda symbol: symbol != EOS, output[1:])) for output in outputs]

    return decode


def by_ctranslate2(folder: Path, compute_type: str, task: Seq2Seq, max_length: int) -> Decode:
    import ctranslate2

    translator = ctranslate2.Translator(
        str(folder), device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=torch.get_num_threads()
    )
    (eos,) = task.source.decode([EOS], controls=True)
    ids = {symbol: i for i, symbol in enumerate(task.target.decode(range(len(task.target)), controls=True))}

    def decode(sources: list[list[int]]) -> list[list[int]]:
        symbols = [[*task.source.decode(s), eos] for s in sources]
        found = translator.translate_batch(symbols, beam_size=1, max_decoding_length=max_length, max_batch_size=0)
        return [[ids[symbol] for symbol in one.hypotheses[0]] for one in found]

    return decode


OURS, OURS16, NO_CACHE = "qkv float32", "qkv bfloat16", "qkv, prefix re-run"
THEIRS = "transformers float32"


def make(system: str, settings: Mapping[str, Any], lower: torch.dtype) -> Decode:
    """One system, from the trained weights that bench/.cache keeps."""
    model, task = trained(settings, Seq2Seq.of(Seq2SeqConfig(), catalogue.load("cmudict")))
    limit, kind = settings["max_length"], system.split()[-1]
    if system in (OURS, OURS16):
        return by_qkv(model.to(getattr(torch, kind)), limit)
    if system == NO_CACHE:
        return by_qkv(NoCache(model.to(lower)), limit)
    peer = peers.marian(model, settings["model"], **task.sizes)
    if system.startswith("transformers"):
        return by_transformers(peer.to(getattr(torch, kind)), limit)
    folder = peers.ctranslate2_folder(peer, task.source, task.target, common.CACHE / "ctranslate2")
    return by_ctranslate2(folder, kind, task, limit)


def names(lower: torch.dtype) -> tuple[list[str], list[str]]:
    """Every system that can run here, the house's own in its chosen precision first, and those not installed."""
    has_lower = lower != torch.float32
    found = [*([OURS16] if has_lower else []), OURS, NO_CACHE]
    if find_spec("transformers") is None:
        return found, ["transformers", "CTranslate2 (its converter needs transformers)"]
    found += [THEIRS, *(["transformers bfloat16"] if has_lower else [])]
    if find_spec("ctranslate2") is None:
        return found, ["CTranslate2"]
    return [*found, *(f"CTranslate2 {kind}" for kind in peers.compute_types())], []


_decode: Decode | None = None


def _begin(system: str, settings: Mapping[str, Any], lower: torch.dtype, threads: int) -> None:
    global _decode
    torch.set_num_threads(threads)
    _decode = make(system, settings, lower)


def _work(several: Sequence[list[list[int]]]) -> tuple[list[list[list[int]]], float]:
    assert _decode is not None
    outputs: list[list[list[int]]] = []
    return outputs, common.seconds(lambda: outputs.extend(map(_decode, several)))


class Elsewhere:
    """A system in a process of its own, which sleeps while another one works."""

    def __init__(self, system: str, settings: Mapping[str, Any], lower: torch.dtype):
        self._pool = ProcessPoolExecutor(
            1, multiprocessing.get_context("spawn"), _begin, (system, dict(settings), lower, torch.get_num_threads())
        )

    def __call__(self, several: Sequence[list[list[int]]]) -> tuple[list[list[list[int]]], float]:
        """The outputs of some batches, and the seconds that decoding them took there."""
        return self._pool.submit(_work, several).result()

    def close(self) -> None:
        self._pool.shutdown()


def check_same(found: Mapping[str, Elsewhere], batches: Sequence[list[list[int]]]) -> dict[str, float]:
    """Share of the words of some batches on which each system says what qkv in float32 says.

    Raises UserError when one in float32 differs on more than a few: then the systems do not do the same work.
    """
    sample = batches[:: max(1, len(batches) // 3)]
    said = {system: [output for batch in decode(sample)[0] for output in batch] for system, decode in found.items()}
    ours = said[OURS]
    same = {
        system: sum(a == b for a, b in zip(ours, outputs, strict=True)) / len(ours) for system, outputs in said.items()
    }
    for system, share in same.items():
        if system.endswith("float32") and share < SAME:
            raise UserError(f"{system} writes the same symbols as qkv for {share:.1%} of the words only")
    return same


def warm(found: Mapping[str, Elsewhere], several: Sequence[list[list[int]]]) -> None:
    """Every system once on a short, a middling and a long batch."""
    for decode in found.values():
        decode(several[:: max(1, len(several) // 3)])


def main() -> None:
    options = common.options(__doc__)
    settings = QUICK if options.quick else FULL
    pairs = catalogue.load("cmudict")
    _, task = trained(settings, Seq2Seq.of(Seq2SeqConfig(), pairs))
    every = [example for split in pairs.splits.values() for example in split]
    sources = [task.source.encode(example.source) for example in spread(every, settings["words"])]
    batch = settings["batch"]
    ordered = sorted(sources, key=len)
    batches = [ordered[i : i + batch] for i in range(0, len(ordered), batch)]
    alone = [[source] for source in sources[:: len(sources) // settings["single_words"]]][: settings["single_words"]]
    lower = choose_precision("auto", torch.device("cpu")).dtype
    systems, missing = names(lower)
    found = {system: Elsewhere(system, settings, lower) for system in systems}
    same = check_same(found, batches)
    measured = common.Measurements("decoding", settings, options)

    def words_per_second(decode: Elsewhere, several: Sequence[list[list[int]]]) -> Callable[[int], float]:
        words = sum(map(len, several))
        return lambda _: words / decode(several)[1]

    for group, several in (("batches", batches), ("one word at a time", alone)):
        contest = {system: words_per_second(decode, several) for system, decode in found.items()}
        measured.rounds(group, contest, settings["rounds"], partial(warm, found, several))
    outputs = [output for one in found[OURS](batches)[0] for output in one]
    for decode in found.values():
        decode.close()
    finish(measured, same, missing, outputs)


def finish(
    measured: common.Measurements, same: Mapping[str, float], missing: Sequence[str], outputs: list[list[int]]
) -> None:
    batched = measured.samples["batches"]
    ours = next(iter(batched))
    peers_of = {group: [s for s in contest if s != ours] for group, contest in measured.samples.items()}
    ratios = {group: {s: measured.ratio(group, ours, s) for s in others} for group, others in peers_of.items()}
    theirs = [s for s in batched if s.startswith("CTranslate2")]
    best = min(theirs, key=lambda s: ratios["batches"][s]["ratio"], default="")
    missing_arithmetic = "" if ours == OURS16 else NO_BFLOAT16
    limits = [
        (NO_CACHE, NO_CACHE, 2.5, ""),
        (THEIRS, THEIRS, 2.5, missing_arithmetic),
        (best, "CTranslate2 at its best", 1.5, missing_arithmetic),
    ]  # fmt: skip
    targets = [
        common.target(
            f"times {what}", ratios["batches"][system]["ratio"] if system in batched else None, wanted, applies=applies
        )
        for system, what, wanted, applies in limits
    ]
    symbols = sum(len(output) + 1 for output in outputs) / len(outputs)
    cut = sum(len(output) == measured.settings["max_length"] for output in outputs)
    measured.finish(
        unit="words/s", ours=ours, ratios=ratios, ctranslate2_best=best, targets=targets, not_installed=list(missing),
        same_outputs={system: round(share, 4) for system, share in same.items()},
        symbols_per_word=round(symbols, 2), cut_at_max_length=cut,
    )  # fmt: skip
    rows = [
        [
            system, f"{measured.median('batches', system):,.0f}",
            f"{measured.median('batches', ours) / measured.median('batches', system):.2f}",
            f"{measured.median('one word at a time', system):,.1f}",
            f"{measured.median('one word at a time', ours) / measured.median('one word at a time', system):.2f}",
            f"{same[system]:.1%}",
        ]
        for system in batched
    ] + [[system, "not installed", "", "", "", ""] for system in missing]  # fmt: skip
    size, limit = measured.settings["batch"], measured.settings["max_length"]
    per_batch, alone = f"words/s, {size} a batch", "words/s, one at a time"
    columns = ["greedy decoding", per_batch, "qkv is times", alone, "qkv is times", "same outputs"]
    notes = [
        *measured.target_notes(targets),
        f"{symbols:.1f} symbols a word with eos; {cut} of {len(outputs)} words cut at {limit}",
        *measured.notes(),
    ]  # fmt: skip
    common.show(f"Greedy decoding of {len(outputs):,} CMUdict words, medians", columns, rows, notes)


if __name__ == "__main__":
    main()
