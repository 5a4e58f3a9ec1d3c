"""Training tokens a second of a Transformer classifier: the house's against a plain torch.nn.TransformerEncoder.

Both read the same batches of zh-reviews, rows of like length together, padding masked.

Letters: B rows, T time, D d_model, C classes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bench import common
from qkv.data import catalogue
from qkv.models import registry
from qkv.nn.positions import sinusoid
from qkv.run.run import build_model, task_config
from qkv.tasks.registry import make
from qkv.training.config import TrainingConfig
from qkv.training.loop import Loop
from qkv.training.precision import Precision, choose_precision

MODEL = {"d_model": 256, "n_heads": 4, "d_ff": 1024, "n_layers": 4, "dropout": 0.1, "positions": "sinusoidal"}
FULL = {"data": "zh-reviews", "model": MODEL, "batch_tokens": 4096, "batches_a_round": 4, "rounds": 5, "seed": 0}
SMALL = {**MODEL, "d_model": 32, "n_heads": 2, "d_ff": 64, "n_layers": 1}
QUICK = {**FULL, "model": SMALL, "batch_tokens": 256, "batches_a_round": 2, "rounds": 1}
TORCH32, TORCH16 = "nn.TransformerEncoder float32", "nn.TransformerEncoder bfloat16 autocast"


class TorchClassifier(nn.Module):
    """`torch.nn.TransformerEncoder` as it comes, with what it leaves to its user: embeddings, positions, mean, output.

    Its padding mask is True where a key is to be ignored.
    """

    def __init__(self, sizes: Mapping[str, Any], n_tokens: int, n_labels: int):
        super().__init__()
        d_model = sizes["d_model"]
        self.tokens = nn.Embedding(n_tokens, d_model)
        nn.init.normal_(self.tokens.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoid(torch.arange(512), d_model), persistent=False)
        self.dropout = nn.Dropout(sizes["dropout"])
        layer = nn.TransformerEncoderLayer(
            d_model, sizes["n_heads"], sizes["d_ff"], sizes["dropout"], batch_first=True
        )  # fmt: skip
        self.encoder = nn.TransformerEncoder(layer, sizes["n_layers"])
        self.out = nn.Linear(d_model, n_labels)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits (B, C) from tokens (B, T) and their mask (True: real)."""
        x = self.dropout(self.tokens(tokens) * self.scale + self.positions[: tokens.size(1)])  # (B, T, D)
        states = self.encoder(x, src_key_padding_mask=~mask)
        real = mask[..., None]
        return self.out((states * real).sum(1) / real.sum(1))


class Race:
    """The same batches for every system, and a loop for each: only the model and the precision differ."""

    def __init__(self, settings: Mapping[str, Any]):
        self.settings = settings
        data = catalogue.load(settings["data"])
        self.task = make(task_config({"name": "classification"}), data, registry.find("transformer"))
        self.items = self.task.items(data.train)
        self.auto = choose_precision("auto", torch.device("cpu"))
        self.ours = f"qkv {self.auto.name}"
        sizes, known = settings["model"], self.task.sizes
        plain = {name: known[name] for name in ("n_tokens", "n_labels")}
        float32, bfloat16 = Precision(torch.float32, "as it comes"), Precision(torch.bfloat16, "autocast")
        table = {"name": "transformer", **sizes}
        self.loops = {
            self.ours: self._loop(lambda: build_model(table, known, self.task.head), self.auto),
            "qkv float32": self._loop(lambda: build_model(table, known, self.task.head), float32),
            TORCH32: self._loop(lambda: TorchClassifier(sizes, **plain), float32),
            TORCH16: self._loop(lambda: TorchClassifier(sizes, **plain), bfloat16),
        }
        wanted = settings["batches_a_round"] * settings["rounds"]
        self.batches = [group[0] for group in itertools.islice(self.loops[self.ours].groups(), wanted)]

    def _loop(self, make: Callable[[], nn.Module], precision: Precision) -> Loop:
        torch.manual_seed(self.settings["seed"])
        config = TrainingConfig(batch_tokens=self.settings["batch_tokens"], seed=self.settings["seed"])
        return Loop(make(), self.task, self.items, config, precision, steps=10_000)

    def tokens_per_second(self, system: str) -> Callable[[int], float]:
        """Real tokens of the round's batches over the time of their steps."""
        many, loop = self.settings["batches_a_round"], self.loops[system]

        def sample(number: int) -> float:
            batches = self.batches[number * many : (number + 1) * many]
            seconds = common.seconds(lambda: [loop.step([batch]) for batch in batches])
            return sum(batch.n_tokens for batch in batches) / seconds

        return sample

    def warm_up(self) -> None:
        """Every shape once: in bfloat16 the products of a new one are compiled first."""
        for loop in self.loops.values():
            for batch in self.batches:
                loop.step([batch])


def main() -> None:
    options = common.options(__doc__)
    settings = QUICK if options.quick else FULL
    race = Race(settings)
    measured = common.Measurements("classification", {**settings, "precision": race.auto.name}, options)
    systems = {system: race.tokens_per_second(system) for system in race.loops}
    measured.rounds("tokens/s", systems, settings["rounds"], race.warm_up)
    ratios = {other: measured.ratio("tokens/s", race.ours, other) for other in (TORCH32, TORCH16)}
    targets = [common.target(f"times {TORCH32}", ratios[TORCH32]["ratio"], 2.0)]
    measured.finish(
        precision_chosen=race.auto.name, precision_reason=race.auto.reason, ratios=ratios, targets=targets,
        parameters={system: sum(p.numel() for p in loop.model.parameters()) for system, loop in race.loops.items()},
    )  # fmt: skip
    rows = [
        [
            system, f"{measured.median('tokens/s', system):,.0f}",
            f"{measured.median('tokens/s', race.ours) / measured.median('tokens/s', system):.2f}",
        ]
        for system in race.loops
    ]  # fmt: skip
    columns = [f"training, {settings['data']}", "tokens/s", "qkv is times this"]
    notes = [*measured.target_notes(targets), *measured.notes()]
    common.show("Classification: tokens a second in training, medians", columns, rows, notes)


if __name__ == "__main__":
    main()
