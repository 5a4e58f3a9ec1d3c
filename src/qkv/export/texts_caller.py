"""Labels texts, or tags their words, with the model beside this file: python caller.py [--int8] TEXT ...

Needs onnxruntime, numpy and tokenizers. A pair of texts is one argument with a tab between.
"""

import json
import sys
import unicodedata
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def spans(length, window, stride):
    """(start, end) of the windows over `length` tokens; the last is moved back to be as long as the others."""
    if length <= window:
        return [(0, length)]
    return [(start, start + window) for start in (*range(0, length - window, min(stride, window)), length - window)]


def word_spans(sizes, window, stride):
    """(start, end) of windows over words of so many sub-words each: `window` sub-words at most, or one longer word."""
    ends = np.concatenate([[0], np.cumsum(sizes)])

    def end_of(start):
        return max(int(np.searchsorted(ends, ends[start] + window, side="right")) - 1, start + 1)

    found = [(0, end_of(0))]
    while (last := found[-1])[1] < len(sizes):
        start = min(max(int(np.searchsorted(ends, ends[last[0]] + stride)), last[0] + 1), last[1])
        while end_of(start) <= last[1]:
            start += 1
        found.append((start, end_of(start)))
    return found


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class Model:
    """task.json says how texts are read and answers made; tokenizer.json cuts them; the graph gives the logits."""

    def __init__(self, folder, int8=False, options=None):
        self.task = json.loads((Path(folder) / "task.json").read_text(encoding="utf-8"))
        self.tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self.session = onnxruntime.InferenceSession(
            Path(folder) / ("model.int8.onnx" if int8 else "model.onnx"), options
        )

    def __call__(self, texts, batch=32):
        """(answer, its probability) of each text. ValueError: nothing in it to answer."""
        if self.task["normalise"] != "none":
            texts = [unicodedata.normalize(self.task["normalise"], text) for text in texts]
        answer = self.tags if self.task["task"] == "tagging" else self.labels
        return [one for start in range(0, len(texts), batch) for one in answer(texts[start : start + batch])]

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def logits(self, rows, firsts=(), batch=32):
        """Of rows of ids, 32 at a time, cut to their lengths; `firsts`: how many ids are of a pair's first text."""
        for start in range(0, len(rows), batch):
            some = rows[start : start + batch]
            tokens = np.full((len(some), max(map(len, some))), self.task["pad"], np.int64)
            for row, ids in zip(tokens, some, strict=True):
                row[: len(ids)] = ids
            feed = {"tokens": tokens}
            if "segments" in {one.name for one in self.session.get_inputs()}:
                places = np.arange(tokens.shape[1]) >= np.array(firsts[start : start + batch])[:, None]
                feed["segments"] = (places & (tokens != self.task["pad"])).astype(np.int64)
            yield from np.asarray(self.session.run(["logits"], feed)[0])

    def windows(self, sides):
        """The windows of a text or a pair, as (ids, how many are of the first text)."""
        task, bos, eos = self.task, [self.task["bos"]], [self.task["eos"]]
        first, *second = sides
        if not second:
            room = task["window"] - 1
            return [(bos + first[a:b], b - a + 1) for a, b in spans(len(first), room, task["stride"] or _most(room))]
        room, second = task["window"] - 3, second[0]
        for_second = min(len(second), max(room // 2, room - len(first)))
        rooms = max(room - for_second, 1), max(for_second, 1)
        cut = [spans(len(side), n, task["stride"] or _most(n)) for side, n in zip(sides, rooms, strict=True)]
        count, found = max(map(len, cut)), []
        for i in range(count):
            (a, b), (c, d) = (own[i * len(own) // count] for own in cut)
            found.append(([*bos, *first[a:b], *eos, *second[c:d], *eos], b - a + 2))
        return found

    def labels(self, texts):
        """The label, or the labels joined by " | ", and what they are held for."""
        task = self.task
        sides = [[self.ids(side) for side in (text.split("\t") if task["pairs"] else [text])] for text in texts]
        for text, found in zip(texts, sides, strict=True):
            if len(found) != 1 + task["pairs"] or not all(found):
                raise ValueError(f"{text[:40]!r}: {'FIRST<tab>SECOND' if task['pairs'] else 'a text'} is expected")
        pieces = [self.windows(found)[: 1 if task["pool"] == "first" else None] for found in sides]
        rows, firsts = zip(*[one for several in pieces for one in several], strict=True)
        scores = np.stack(list(self.logits(rows, firsts)))
        scores = scores if task["several"] else log_softmax(scores)
        ends = np.cumsum([len(several) for several in pieces])[:-1]
        for own in np.split(scores, ends):
            score = own.max(0) if task["pool"] == "max" else own.mean(0)
            if task["several"]:
                held = 1 / (1 + np.exp(-score / task["temperature"]))
                said = score >= np.log(task["threshold"] / (1 - task["threshold"]))
                names = [task["labels"][i] for i in np.flatnonzero(said)]
                yield " | ".join(names), float(np.where(said, held, 1 - held).prod())
            else:
                held = np.exp(log_softmax(score / task["temperature"]))
                yield task["labels"][int(score.argmax())], float(held[score.argmax()])

    def tags(self, texts):
        """A tag for each word, joined by blanks, and their mean probability. Near edges another window is asked."""
        for text in texts:
            pieces = [self.ids(word) or [self.task["unk"]] for word in text.split()]
            if not pieces:
                raise ValueError(f"{text[:40]!r}: words are expected")
            sizes, room = list(map(len, pieces)), self.task["window"] - 1
            cut = word_spans(sizes, room, self.task["stride"] or room // 2)
            rows = [[self.task["bos"], *(i for piece in pieces[a:b] for i in piece)] for a, b in cut]
            held, far = np.zeros((len(pieces), len(self.task["labels"]))), np.full(len(pieces), -1)
            for (a, b), logits in zip(cut, self.logits(rows), strict=True):
                begins = 1 + np.cumsum([0, *sizes[a : b - 1]])
                edge = np.minimum(np.arange(b - a) + (a == 0) * 10**9, np.arange(b - a)[::-1])
                better = edge > far[a:b]
                held[a:b][better] = log_softmax(logits[begins])[better]
                far[a:b][better] = edge[better]
            best = held.argmax(1) if self.task["rules"] is None else np.array(self.valid(held))
            yield " ".join(self.task["labels"][i] for i in best), float(np.exp(held[range(len(best)), best]).mean())

    def valid(self, held):
        """The most probable tags of those that may follow each other."""
        begins, follows, ends = (np.array(rule, bool) for rule in self.task["rules"])
        score, came = np.where(begins, held[0], -np.inf), []
        for row in held[1:]:
            ways = np.where(follows, score[:, None], -np.inf)
            came.append(ways.argmax(0))
            score = ways.max(0) + row
        score = np.where(ends, score, -np.inf)
        best = [int(score.argmax() if np.isfinite(score).any() else held[-1].argmax())]
        for back in reversed(came):
            best.append(int(back[best[-1]]))
        return best[::-1]


def _most(window):
    return max(window - window // 4, 1)


if __name__ == "__main__":
    given = [text for text in sys.argv[1:] if text != "--int8"]
    if not given or "--help" in given:
        sys.exit(__doc__)
    try:
        found = zip(given, Model(Path(__file__).parent, "--int8" in sys.argv)(given), strict=True)
        sys.stdout.writelines(f"{text}\t{answer}\t{held:.3f}\n" for text, (answer, held) in found)
    except ValueError as error:
        sys.exit(f"error: {error}")
