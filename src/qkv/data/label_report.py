"""What `qkv data show FILE` says of texts with labels, and of words with tags, as plain values that fit JSON."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import asdict, fields
from typing import Any

from qkv.data.file_report import look_alikes
from qkv.data.label_data import LabelConfig, rows_of, texts_of
from qkv.data.texts import Texts, usual_symbols
from qkv.errors import UserError


def label_report(config: LabelConfig) -> dict[str, Any]:
    """What a person should know before training.

    Keys: files (name, form, encoding, separator, header, columns, rows), task, usable and left_out (line and reason),
    labels (counts, look_alikes, and how many fewer they would be in NFC, composed), length (of texts in characters),
    examples (of each part), symbols, notes, problem (why it cannot be trained on, "" where it can), fingerprint, shown,
    command (to paste). Raises UserError for files that cannot be read.
    """
    files = {"train": config.train, "dev": config.dev, "test": config.test}
    tables = {part: config.table(file) for part, file in files.items() if file}
    rows = {part: rows_of(config, table) for part, table in tables.items()}
    data, problem = _data(config)
    every = [example for one in rows.values() for example in one.examples]
    lengths = [length for one in rows.values() for length in one.lengths]
    notes = data.notes if data else [note for one in rows.values() for note in one.notes]
    return {
        "files": {part: {"name": one.name, "form": one.form, "encoding": one.encoding, "separator": one.separator,
                         "header": one.header, "columns": one.columns, "rows": len(one.rows)}
                  for part, one in tables.items()},
        "task": "classification",
        "usable": len(every),
        "left_out": [{"file": one.name, **asdict(left)} for one in rows.values() for left in one.left_out],
        "labels": look_alikes(Counter(label for one in every for label in one.labels)),
        "length": {"mean": sum(lengths) / len(lengths), "longest": max(lengths)},
        "examples": {part: len(several) for part, several in data.splits.items()} if data else {},
        "symbols": config.symbols if config.symbols != "auto" or data is None else usual_symbols(data),
        "notes": notes,
        "problem": problem,
        "fingerprint": data.fingerprint if data else "",
        "shown": [{"text": one.text, "second": one.second, "labels": list(one.labels)} for one in every[:5]],
        "command": _command(config),
    }  # fmt: skip


def _data(config: LabelConfig) -> tuple[Texts | None, str]:
    try:
        return texts_of(config), ""
    except UserError as error:
        return None, str(error)


def _command(config: LabelConfig) -> str:
    words = ["qkv", "train", config.train, "--task", "classification"]
    for field in fields(LabelConfig):
        value = getattr(config, field.name)
        if field.name != "train" and value != field.default:
            words += [f"--data.{field.name}", str(value)]
    return shlex.join([*words, "--minutes", "2"])
