"""Answers texts with the model beside this file: python caller.py [--int8] TEXT ... (onnxruntime and numpy)."""

import json
import re
import sys
import unicodedata
from pathlib import Path

import numpy as np
import onnxruntime


def encode(folder, symbols, text):
    """The ids of a text, eos at the end; what the model has never seen is unk. ValueError: too long, or empty."""
    if symbols["normalise"] != "none":
        text = unicodedata.normalize(symbols["normalise"], text)
    if (source := symbols["source"])["pattern"] is None:
        from tokenizers import Tokenizer  # for graphemes and sub-words only

        ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    else:
        known = {symbol: i for i, symbol in enumerate(source["symbols"]) if i > symbols["unk"]}
        ids = [known.get(symbol, symbols["unk"]) for symbol in re.findall(source["pattern"], text)]
    limit = symbols["max_source"] or len(ids) + 1
    if not 0 < len(ids) < limit:
        raise ValueError(f"{text[:40]!r} has {len(ids)} symbols, and the model reads 1 to {limit - 1}")
    return [*ids, symbols["eos"]]


def decode(symbols, ids):
    """The text that ids of the target stand for."""
    target = symbols["target"]
    text = target["join"].join(target["symbols"][i] for i in ids if i >= symbols["unk"])
    return text.replace("▁", " ").removeprefix(" ") if target["subwords"] else text


def answers(folder, texts, int8=False, batch=32):
    """One answer for each text, in order."""
    symbols = json.loads((folder / "symbols.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(folder / ("greedy.int8.onnx" if int8 else "greedy.onnx"))
    rows = [encode(folder, symbols, text) for text in texts]
    for start in range(0, len(rows), batch):
        some = rows[start : start + batch]
        source = np.full((len(some), max(map(len, some))), symbols["pad"], np.int64)
        for row, ids in zip(source, some, strict=True):
            row[: len(ids)] = ids
        target, length = map(np.asarray, session.run(["target", "length"], {"source": source}))
        for row, end in zip(target, length, strict=True):
            yield decode(symbols, row[:end])


if __name__ == "__main__":
    given = [text for text in sys.argv[1:] if text != "--int8"]
    if not given or "--help" in given:
        sys.exit(__doc__)
    try:
        found = zip(given, answers(Path(__file__).parent, given, "--int8" in sys.argv), strict=True)
        sys.stdout.writelines(f"{text}\t{answer}\n" for text, answer in found)
    except ValueError as error:
        sys.exit(f"error: {error}")
