"""Training tokens a second: the house's model and loop against torch.nn.Transformer, on the same batches.

Letters: B rows, Ts source time, Tt target time, D d_model, V target vocabulary.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from bench import common
from qkv.data import catalogue
from qkv.nn.positions import sinusoid
from qkv.run.run import build_model
from qkv.tasks.batch import Batch
from qkv.tasks.seq2seq import Seq2Seq, Seq2SeqConfig
from qkv.training.config import TrainingConfig
from qkv.training.loop import Loop
from qkv.training.precision import Precision, choose_precision

FULL = {
    "model": {"d_model": 256, "n_heads": 4, "d_ff": 1024, "n_layers": 3, "dropout": 0.1, "positions": "sinusoidal"},
    "batch_tokens": 4096, "batches_a_round": 4, "rounds": 5, "seed": 0,
}  # fmt: skip
QUICK = {
    "model": {"d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 1, "dropout": 0.1, "positions": "sinusoidal"},
    "batch_tokens": 256, "batches_a_round": 2, "rounds": 1, "seed": 0,
}  # fmt: skip
TORCH32, TORCH16 = "nn.Transformer float32", "nn.Transformer bfloat16 autocast"
NO_BFLOAT16 = "this machine has no bfloat16 arithmetic: targets 3.5x / 1.5x do not apply"
HAS_BFLOAT16 = 1.5
"""bfloat16 counts as arithmetic of the machine when its products are this many times as quick as float32's."""


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` as it comes, with what it leaves to its user: embeddings, positions, masks, output.

    Masks as its documentation says: padding masks are True where a key is to be ignored; the target's mask is
    `generate_square_subsequent_mask`. Targets are padded on the right, so that one hides their padding as well.
    """

    def __init__(self, sizes: Mapping[str, Any], n_source: int, n_target: int):
        super().__init__()
        d_model = sizes["d_model"]
        self.source = nn.Embedding(n_source, d_model)
        self.target = nn.Embedding(n_target, d_model)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoid(torch.arange(256), d_model), persistent=False)
        self.dropout = nn.Dropout(sizes["dropout"])
        self.transformer = nn.Transformer(
            d_model, sizes["n_heads"], sizes["n_layers"], sizes["n_layers"], sizes["d_ff"], sizes["dropout"],
            batch_first=True,
        )  # fmt: skip
        self.out = nn.Linear(d_model, n_target)
        self.out.weight = self.target.weight
        self.scale = math.sqrt(d_model)

    def forward(self, source: Tensor, source_mask: Tensor, target: Tensor) -> Tensor:
        """Logits (B, Tt, V) from source (B, Ts), its mask (True: real) and the shifted target (B, Tt)."""
        states = self.transformer(
            self._embedded(self.source, source),
            self._embedded(self.target, target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.size(1)),
            src_key_padding_mask=~source_mask,
            memory_key_padding_mask=~source_mask,
        )
        return self.out(states)

    def _embedded(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        return self.dropout(table(tokens) * self.scale + self.positions[: tokens.size(1)])


class Race:
    """The same batches for every system, and a loop for each: only the model and the precision differ."""

    def __init__(self, settings: Mapping[str, Any]):
        self.settings = settings
        pairs = catalogue.load("cmudict")
        self.task = Seq2Seq.of(Seq2SeqConfig(), pairs)
        self.items = self.task.items(pairs.train)
        self.config = TrainingConfig(batch_tokens=settings["batch_tokens"], seed=settings["seed"])
        self.auto = choose_precision("auto", torch.device("cpu"))
        self.ours = f"qkv {self.auto.name}"
        sizes, vocabularies = settings["model"], self.task.sizes
        plain = Precision(torch.float32, "as it comes")
        self.loops = {
            self.ours: self._loop(lambda: build_model({"name": "encoder_decoder", **sizes}, vocabularies), self.auto),
            TORCH32: self._loop(lambda: TorchTransformer(sizes, **vocabularies), plain),
            TORCH16: self._loop(
                lambda: TorchTransformer(sizes, **vocabularies), Precision(torch.bfloat16, "autocast")
            ),
        }  # fmt: skip
        self.first_only: set[str] = set()
        """Systems too slow here for more than the first batch of each round."""
        wanted = settings["batches_a_round"] * settings["rounds"]
        self.batches = [group[0] for group in itertools.islice(self.loops[self.ours].groups(), wanted)]

    def _loop(self, make: Callable[[], nn.Module], precision: Precision) -> Loop:
        torch.manual_seed(self.settings["seed"])
        return Loop(make(), self.task, self.items, self.config, precision, steps=10_000)

    def of_round(self, number: int) -> Sequence[Batch]:
        many = self.settings["batches_a_round"]
        return self.batches[number * many : (number + 1) * many]

    def tokens_per_second(self, system: str) -> Callable[[int], float]:
        """Real tokens, source and target, of the round's batches over the time of their steps."""

        def sample(number: int) -> float:
            batches, loop = self.of_round(number), self.loops[system]
            batches = batches[:1] if system in self.first_only else batches
            seconds = common.seconds(lambda: [loop.step([batch]) for batch in batches])
            return sum(batch.n_tokens for batch in batches) / seconds

        return sample

    def warm_up(self) -> None:
        for loop in self.loops.values():
            loop.step([self.batches[0]])

    def flops_per_token(self) -> float:
        """Operations of all products of one step, forward and backward, padding included, over real tokens."""
        loop, operations = self.loops[self.ours], 0
        batches = self.of_round(0)
        for batch in batches:
            with FlopCounterMode(display=False) as counter:
                self.task.loss(loop.model.train()(**batch.inputs), batch).backward()
            operations += counter.get_total_flops()
            loop.optimiser.zero_grad(set_to_none=True)
        return operations / sum(batch.n_tokens for batch in batches)


def matrix_rate(dtype: torch.dtype, sizes: Mapping[str, Any], rows: int) -> Callable[[int], float]:
    """Operations a second of the layers' own products, each shape as often as a decoder block has it.

    The product is `F.linear` of (rows, in) by (out, in), as in every layer's forward.
    """
    d_model, d_ff = sizes["d_model"], sizes["d_ff"]
    shapes = [(d_model, d_model)] * 8 + [(d_model, d_ff), (d_ff, d_model)]
    pairs = [(torch.randn(rows, i).to(dtype), torch.randn(o, i).to(dtype)) for i, o in shapes]
    operations = sum(2.0 * rows * i * o for i, o in shapes)

    def run() -> list[Tensor]:
        return [F.linear(x, weight) for x, weight in pairs]

    def sample(_: int) -> float:
        run()
        return operations / min(common.seconds(run) for _ in range(5))

    return sample


def main() -> None:
    options = common.options(__doc__)
    settings = QUICK if options.quick else FULL
    race = Race(settings)
    measured = common.Measurements("training", {**settings, "precision": race.auto.name}, options)
    rows = settings["batch_tokens"] // 2
    rates = {name: matrix_rate(getattr(torch, name), settings["model"], rows) for name in ("float32", "bfloat16")}
    measured.rounds("products", rates, 1)
    if not has_bfloat16(measured):
        race.first_only.add(TORCH16)
    measured.rounds(
        "tokens/s", {system: race.tokens_per_second(system) for system in race.loops}, settings["rounds"], race.warm_up
    )
    measured.rounds("products", rates, 3)
    finish(measured, race)


def has_bfloat16(measured: common.Measurements) -> bool:
    rates = [measured.median("products", name) for name in ("bfloat16", "float32")]
    return rates[0] >= HAS_BFLOAT16 * rates[1]


def finish(measured: common.Measurements, race: Race) -> None:
    ratios = {other: measured.ratio("tokens/s", race.ours, other) for other in (TORCH32, TORCH16)}
    flops = race.flops_per_token()
    rate = {name: measured.median("products", name) for name in ("float32", "bfloat16")}
    shares = {
        system: measured.median("tokens/s", system) * flops / rate[loop.precision.name]
        for system, loop in race.loops.items()
    }
    missing = "" if has_bfloat16(measured) else NO_BFLOAT16
    targets = [
        common.target(f"times {TORCH32}", ratios[TORCH32]["ratio"], 3.5, applies=missing),
        common.target(f"times {TORCH16}", ratios[TORCH16]["ratio"], 1.5, applies=missing),
        common.target("share of the matrix rate in bfloat16 (goal)", shares[race.ours], 0.6, applies=missing),
    ]
    parameters = {system: sum(p.numel() for p in loop.model.parameters()) for system, loop in race.loops.items()}
    measured.finish(
        precision_chosen=race.auto.name, precision_reason=race.auto.reason, ratios=ratios, targets=targets,
        bfloat16_arithmetic=not missing, parameters=parameters, mflop_per_token=round(flops / 1e6, 2),
        share_of_matrix_rate={system: round(share, 3) for system, share in shares.items()},
    )  # fmt: skip
    rows = [
        [
            system, f"{measured.median('tokens/s', system):,.0f}",
            f"{measured.median('tokens/s', race.ours) / measured.median('tokens/s', system):.2f}",
            f"{shares[system]:.0%}", f"{parameters[system] / 1e6:.2f} M",
        ]
        for system in race.loops
    ]  # fmt: skip
    products = ", ".join(f"{name} {value / 1e9:.0f}" for name, value in rate.items())
    notes = [
        *measured.target_notes(targets),
        *(f"{system}: only the first batch of each round, for time" for system in sorted(race.first_only)),
        f"the layers' products alone: {products} GFLOP/s; a token takes {flops / 1e6:.1f} MFLOP of products",
        *measured.notes(),
    ]  # fmt: skip
    columns = ["training, CMUdict", "tokens/s", "qkv is times this", "of the matrix rate", "parameters"]
    common.show("Training: source and target tokens a second, medians", columns, rows, notes)


if __name__ == "__main__":
    main()
