"""The encoder and one decoding step of a model as ONNX graphs whose batch and lengths are free.

Letters: B batch, Ts source time, Tt target time so far, V target vocabulary, Hk heads of keys, d width of a head.
"""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import onnx
import torch
from torch import Tensor, nn
from torch.export import Dim

from qkv.data.symbols import PAD
from qkv.errors import UserError
from qkv.models.encoder_decoder import EncoderDecoder
from qkv.models.transformer import DecoderState
from qkv.nn.blocks import BlockState
from qkv.nn.positions import Embedding, Learned, Positions
from qkv.nn.state import KeyValues

OPSET = 18


@dataclass(frozen=True)
class Graphs:
    """`encoder`: source (B, Ts) to source_mask and memory_key_N, memory_value_N (B, Hk, Ts, d) of every layer.

    `step`: token (B,), those, and past_key_N, past_value_N (B, Hk, Tt, d) to logits (B, V) and present_*, one longer.
    """

    encoder: onnx.ModelProto
    step: onnx.ModelProto


def names(kind: str, layers: int) -> list[str]:
    """kind_key_0, kind_value_0, kind_key_1, ...: keys and values of all layers in the order of the graphs."""
    return [f"{kind}_{part}_{layer}" for layer in range(layers) for part in ("key", "value")]


def trace(model: EncoderDecoder) -> Graphs:
    """Both graphs of a model on the CPU, in eval mode. Raises UserError when torch cannot trace it."""
    model = copy.deepcopy(model)
    without_limits(model)
    layers = len(model.decoder.blocks)
    source = torch.tensor([[4, 5, 6, 7, 2], [4, 5, 2, 0, 0], [4, 2, 0, 0, 0]]).clamp(max=_vocabulary(model) - 1)
    encoder = _Encoder(model)
    mask, *memory = (part.detach() for part in encoder(source))
    past = [part.new_zeros(3, part.size(1), 4, part.size(3)) for part in memory]
    memory_names, past_names = names("memory", layers), names("past", layers)
    free = Dim.DYNAMIC
    kept = [{0: free, 2: free}] * len(memory)
    return Graphs(
        exported(encoder, (source,), [{0: free, 1: free}], ["source"], ["source_mask", *memory_names]),
        exported(
            _Step(model), (torch.tensor([1, 4, 5]).clamp(max=_vocabulary(model) - 1), mask, memory, past),
            [{0: free}, {0: free, 1: free}, kept, kept],
            ["token", "source_mask", *memory_names, *past_names], ["logits", *names("present", layers)],
        ),
    )  # fmt: skip


class _Encoder(nn.Module):
    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, source: Tensor) -> list[Tensor]:
        mask = source != PAD
        memory = self.model.encoder(source, mask)
        return [mask, *_flat([block.memory for block in self.model.decoder.start(memory).blocks])]


class _Step(nn.Module):
    def __init__(self, model: EncoderDecoder):
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, mask: Tensor, memory: list[Tensor], past: list[Tensor]) -> list[Tensor]:
        blocks = tuple(map(BlockState, _pairs(past), _pairs(memory)))
        so_far = past[0].size(2)
        pos = torch.arange(so_far)[None].expand(token.size(0), so_far)
        states, state = self.model.decoder.step(token[:, None], DecoderState(blocks, pos, None, mask))
        return [self.model.head(states).squeeze(1), *_flat([block.own for block in state.blocks])]


class _Table(Positions):
    """Learned positions without the look at the numbers: a graph cannot raise, so its caller has to check."""

    def __init__(self, table: nn.Embedding):
        super().__init__()
        self.table = table

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.table(pos)


def without_limits(model: nn.Module) -> None:
    """Changes learned positions of a model, in place, into such as a graph can hold."""
    for module in model.modules():
        if isinstance(module, Embedding) and isinstance(module.positions, Learned):
            module.positions = _Table(module.positions.table)


def _vocabulary(model: EncoderDecoder) -> int:
    return min(stack.embedding.tokens.num_embeddings for stack in (model.encoder, model.decoder))


def _flat(kept: Sequence[KeyValues | None]) -> list[Tensor]:
    return [part for pair in kept if pair is not None for part in (pair.keys, pair.values)]


def _pairs(flat: list[Tensor]) -> list[KeyValues]:
    return [KeyValues(keys, values) for keys, values in zip(flat[::2], flat[1::2], strict=True)]


def exported(module: nn.Module, example: tuple, shapes: list, inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
    """The graph of a module, without torch's notes. Raises UserError when torch cannot trace it."""
    try:
        # With gradients on, a cache is concatenated and never written into: only that can be a graph.
        with _quiet(), torch.enable_grad():
            program = torch.onnx.export(
                module.eval(), example, dynamo=True, dynamic_shapes=tuple(shapes), input_names=inputs,
                output_names=outputs, opset_version=OPSET, verbose=False,
            )  # fmt: skip
    except torch.onnx.errors.OnnxExporterError as error:
        if _interrupted(error):
            raise KeyboardInterrupt from None
        raise UserError(f"torch cannot turn this model into ONNX: {str(error.__cause__ or error)[:400]}") from error
    assert program is not None
    made = program.model_proto
    _tidy(made.graph)
    return made


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: torch's exporter wraps it as it does every other."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _tidy(graph: onnx.GraphProto) -> None:
    """Without torch's notes, and with axes named by what they are: torch numbers them, each layer's past apart."""
    del graph.value_info[:]
    for node in graph.node:
        del node.metadata_props[:]  # where in which file each node comes from: most of a small graph's size
    time = {
        "source": "source_time", "memory": "source_time", "past": "past_time", "present": "present_time",
        "tokens": "time", "segments": "time",
    }  # fmt: skip
    for value in (*graph.input, *graph.output):
        kind = value.name.split("_")[0]
        dims = value.type.tensor_type.shape.dim
        dims[0].dim_param = "batch"
        if kind in time:
            dims[2 if len(dims) == 4 else 1].dim_param = time[kind]
        elif len(dims) == 3:  # logits of each token
            dims[1].dim_param = "time"


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch's exporter says of itself: torchvision's absence, and its own use of an old name."""
    log = logging.getLogger("torch.onnx")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
            yield
    finally:
        log.setLevel(before)
