"""Greedy search as one ONNX graph: the encoder, then a Loop around the decoding step.

Letters: B batch, Ts source time, S steps made, Hk heads of keys, d width of a head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx
from onnx import TensorProto, helper, numpy_helper, parser

from qkv.data.symbols import BOS, EOS, PAD
from qkv.export.trace import Graphs

# A row that has said eos says pads from then on, and gains nothing; the loop ends when all rows have.
_CHOOSE = f"""
choose (float[B, V] logits, bool[B] done, float[B] log_prob, int64[B] length)
    => (bool more, int64[B] said, bool[B] now_done, float[B] new_log_prob, int64[B] new_length) {{
    pad = Constant <value_int = {PAD}> ()
    eos = Constant <value_int = {EOS}> ()
    nothing = Constant <value_float = 0.0> ()
    last = Constant <value_ints = [1]> ()
    scores = LogSoftmax <axis = 1> (logits)
    best = ArgMax <axis = 1, keepdims = 0> (scores)
    gain = ReduceMax <keepdims = 0> (scores, last)
    said = Where (done, pad, best)
    counted = Where (done, nothing, gain)
    new_log_prob = Add (log_prob, counted)
    ends = Equal (best, eos)
    now_done = Or (done, ends)
    live = Not (now_done)
    one_more = Cast <to = {TensorProto.INT64}> (live)
    new_length = Add (length, one_more)
    most = ReduceMax <keepdims = 0> (one_more)
    more = Cast <to = {TensorProto.BOOL}> (most)
}}
"""


@dataclass
class _Parts:
    """Nodes and initializers that gather, each weight once however many graphs hold it."""

    weights: dict[bytes, onnx.TensorProto] = field(default_factory=dict)

    def take(self, graph: onnx.GraphProto, prefix: str, known: Mapping[str, str]) -> list[onnx.NodeProto]:
        """The graph's nodes, every value being called `prefix` + its name, or what `known` says."""
        names = {**known, **{weight.name: self._share(weight, prefix) for weight in graph.initializer}}

        def renamed(values: list[str]) -> list[str]:
            return [names.get(value, prefix + value) if value else "" for value in values]

        nodes: list[onnx.NodeProto] = []
        for old in graph.node:
            node = onnx.NodeProto()
            node.CopyFrom(old)
            node.name = prefix + (old.name or old.output[0])
            node.input[:], node.output[:] = renamed(list(old.input)), renamed(list(old.output))
            nodes.append(node)
        return nodes

    def _share(self, weight: onnx.TensorProto, prefix: str) -> str:
        array = numpy_helper.to_array(weight)
        shape = f"{weight.data_type} {array.shape} ".encode()
        kept = self.weights.get(digest := hashlib.sha256(shape + array.tobytes()).digest())
        if kept is None:
            kept = self.weights[digest] = onnx.TensorProto()
            kept.CopyFrom(weight)
            kept.name = prefix + weight.name
        return kept.name


def greedy_graph(graphs: Graphs, max_length: int) -> onnx.ModelProto:
    """source (B, Ts) int64, each row ending in eos and padded on the right, to target, length and log_prob.

    target (B, S) int64: the symbols said, eos included, then pads; S is at most `max_length`, and less when all rows
    ended before. length (B,) int64: symbols before eos. log_prob (B,) float: as `qkv.generation.greedy`'s.
    """
    parts = _Parts()
    encoder = parts.take(graphs.encoder.graph, "encoder/", {"source": "source"})
    past = [value for value in graphs.step.graph.input if value.name.startswith("past_")]
    body = _body(graphs, parts, past)
    begin, first = _begin(past)
    kept = [*(f"last/{value.name}" for value in past)]
    loop = helper.make_node(
        "Loop", ["max_length", "", *first], ["last/token", "last/done", "log_prob", "length", *kept, "said"],
        name="greedy", body=body,
    )  # fmt: skip
    turn = helper.make_node("Transpose", ["said"], ["target"], perm=[1, 0], name="rows_first")
    graph = helper.make_graph(
        [*encoder, *begin, loop, turn], "greedy",
        [helper.make_tensor_value_info("source", TensorProto.INT64, ["batch", "source_time"])],
        [
            helper.make_tensor_value_info("target", TensorProto.INT64, ["batch", "steps"]),
            helper.make_tensor_value_info("length", TensorProto.INT64, ["batch"]),
            helper.make_tensor_value_info("log_prob", TensorProto.FLOAT, ["batch"]),
        ],
        [*parts.weights.values(), helper.make_tensor("max_length", TensorProto.INT64, [], [max_length])],
    )  # fmt: skip
    domains = {entry.domain: entry for part in (graphs.encoder, graphs.step) for entry in part.opset_import}
    return helper.make_model(
        graph, opset_imports=list(domains.values()), ir_version=graphs.step.ir_version, producer_name="qkv"
    )


def _body(graphs: Graphs, parts: _Parts, past: list[onnx.ValueInfoProto]) -> onnx.GraphProto:
    """One turn of the loop: a step, and the choice of the next symbol. Weights and memory lie outside."""
    outside = [value.name for value in graphs.encoder.graph.output]
    step = parts.take(graphs.step.graph, "step/", {name: f"encoder/{name}" for name in outside})
    choose = parser.parse_graph(_CHOOSE)
    choice = parts.take(choose, "choose/", {"logits": "step/logits"})
    present = [value.name for value in graphs.step.graph.output if value.name != "logits"]
    int64, boolean, real = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
    carried = {"token": int64, "done": boolean, "log_prob": real, "length": int64}
    places = ["step/token", "choose/done", "choose/log_prob", "choose/length"]

    def of(name: str, kind: int, axes: int = 1) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, [None] * axes)

    said = helper.make_node("Identity", ["choose/said"], ["said_now"], name="say")
    return helper.make_graph(
        [*step, *choice, said], "turn",
        [
            of("turn", int64, 0), of("going", boolean, 0), *map(of, places, carried.values()),
            *(of(f"step/{value.name}", real, 4) for value in past),
        ],
        [
            of("choose/more", boolean, 0), of("choose/said", int64), of("choose/now_done", boolean),
            of("choose/new_log_prob", real), of("choose/new_length", int64),
            *(of(f"step/{name}", real, 4) for name in present), of("said_now", int64),
        ],
    )  # fmt: skip


def _begin(past: list[onnx.ValueInfoProto]) -> tuple[list[onnx.NodeProto], list[str]]:
    """The state before the first turn: bos, nobody done, no past; the nodes, and the names of their results."""
    heads, width = (past[0].type.tensor_type.shape.dim[axis].dim_value for axis in (1, 3))
    made = parser.parse_graph(f"""
begin (int64[B, T] source) => (int64[B] token, bool[B] done, float[B] log_prob, int64[B] length, float[B, H, N, D] past)
{{
    batch = Shape <start = 0, end = 1> (source)
    rest = Constant <value_ints = [{heads}, 0, {width}]> ()
    bos = Constant <value_int = {BOS}> ()
    zero = Constant <value_int = 0> ()
    nothing = Constant <value_float = 0.0> ()
    token = Expand (bos, batch)
    length = Expand (zero, batch)
    log_prob = Expand (nothing, batch)
    done = Cast <to = {TensorProto.BOOL}> (length)
    shape = Concat <axis = 0> (batch, rest)
    past = ConstantOfShape (shape)
}}
""")
    nodes = _Parts().take(made, "begin/", {"source": "source"})
    first = [f"begin/{value.name}" for value in made.output]
    return nodes, [*first[:-1], *(first[-1:] * len(past))]
