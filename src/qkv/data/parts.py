"""Which files of a folder are the training, dev and test data: by their names, as data sets are published."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from qkv.data import hub
from qkv.errors import UserError

_TAGGED = (".conll", ".conllu", ".iob2", ".bio")
_FORMS = (".parquet", ".jsonl", ".ndjson", ".json", ".csv", ".tsv", *_TAGGED, ".xlsx", ".txt")
_PARTS = {"train": "train|training", "dev": "dev|valid|validation|val|eval", "test": "test|testing"}
_NOT_DATA = re.compile(r"readme|licen[cs]e|requirements|dataset_infos?|citation", re.IGNORECASE)
_SHARD = re.compile(r"-\d{5}-of-\d{5}")


def in_folder(name: str) -> dict[str, str]:
    """Part (train, dev, test) to file, of a folder on this machine or of hf:OWNER/NAME.

    Where files come in several forms, those of one form that have a training part are taken. A single file is all
    there is to train on. Raises UserError where the names do not tell, listing the files.
    """
    if hub.is_reference(name):
        files = hub.files_of(name)
        inside = {file: file.partition("@")[2].partition("/")[2] for file in files}
    else:
        files = sorted(str(path) for path in Path(name).rglob("*") if path.is_file())
        inside = {file: Path(file).relative_to(name).as_posix() for file in files}
    files = [file for file in files if _is_data(inside[file])]
    for form in _FORMS:
        some = [file for file in files if file.endswith(form)]
        found = {part: [file for file in some if _part(inside[file]) == part] for part in _PARTS}
        if not found["train"] and len(some) == 1:
            return {"train": some[0]}
        if found["train"]:
            return {part: _one(name, several, inside) for part, several in found.items() if several}
    shown = ", ".join(inside[file] for file in files[:10]) + (" ..." if len(files) > 10 else "")
    raise UserError(
        f"{name}: which file is the training data? None of these says so: {shown or 'there is no table or text'}. "
        "Give the file itself, or call it train"
    )


def _is_data(inside: str) -> bool:
    path = PurePosixPath(inside)
    hidden = any(part.startswith(".") for part in path.parts)
    return path.suffix in _FORMS and not hidden and not _NOT_DATA.match(path.name)


def _part(inside: str) -> str | None:
    """What the file's name says, else what the folder's says that it lies in."""
    for piece in reversed(PurePosixPath(inside).with_suffix("").parts):
        for part, names in _PARTS.items():
            if re.search(rf"(?:^|[^a-z])(?:{names})(?:[^a-z]|$)", piece, re.IGNORECASE):
                return part
    return None


def _one(name: str, several: Sequence[str], inside: dict[str, str]) -> str:
    """The one file, or the pattern of the shards that are one."""
    if len(several) == 1:
        return several[0]
    patterns = {_SHARD.sub("-*", file) for file in several}
    if hub.is_reference(name) and len(patterns) == 1 and several[0].endswith((".parquet", ".jsonl")):
        return patterns.pop()
    folders = defaultdict[str, list[str]](list)
    for file in several:
        folders[str(PurePosixPath(inside[file]).parent)].append(file)
    if len(folders) > 1:
        known = ", ".join(sorted(folders))
        raise UserError(f"{name} holds several data sets ({known}): say which, as {name}/{min(folders)}")
    shown = ", ".join(inside[file] for file in several[:10])
    raise UserError(f"{name} has several files for one part: {shown}. Give one of them")
