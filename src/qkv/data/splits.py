"""Which examples are trained on and which are held out: by label, by group, by time, near-duplicates on one side."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

_NOT_LETTERS = re.compile(r"[\W\d_]+")

Places = dict[str, list[int]]
"""The rows of each part, "train", "dev" and "test", in the order of the data."""


def near_key(text: str) -> str:
    """What near-duplicates have in common: their letters, in one case. A text without letters is its own key."""
    return _NOT_LETTERS.sub("", text.casefold()) or text


def joined(*keys: Sequence[Hashable]) -> list[int]:
    """A number for each row: the same where rows share a key of any kind, directly or through other rows.

    Each of `keys` has one key a row; None joins nothing. Linear in the number of rows.
    """
    count = max((len(one) for one in keys), default=0)
    parent = list(range(count))

    def root(row: int) -> int:
        while parent[row] != row:
            parent[row] = parent[parent[row]]
            row = parent[row]
        return row

    for kind in keys:
        first: dict[Hashable, int] = {}
        for row, key in enumerate(kind):
            if key is None:
                continue
            a, b = root(row), root(first.setdefault(key, row))
            parent[max(a, b)] = min(a, b)
    return [root(row) for row in range(count)]


def stratified(
    groups: Sequence[int], labels: Sequence[str], texts: Sequence[str], shares: tuple[float, float, float]
) -> Places:
    """Each label in its share in every part, whole groups on one side, by a hash of the text.

    Of each label the groups are taken in the order of their hash: test first, then dev, the rest is train. A label with
    three groups or more has one in each part. A file that grows moves few of its old rows.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for row, group in enumerate(groups):
        members[group].append(row)
    by_label: dict[str, list[int]] = defaultdict(list)
    for group, rows in members.items():
        by_label[labels[rows[0]]].append(group)
    total = sum(shares)
    parts: dict[int, str] = {}
    for several in by_label.values():
        ordered = sorted(several, key=lambda group: _hash(min(texts[row] for row in members[group])))
        sizes = [len(members[group]) for group in ordered]
        wanted = {part: sum(sizes) * share / total for part, share in zip(("test", "dev"), shares[:0:-1], strict=True)}
        parts |= dict(zip(ordered, _dealt(sizes, wanted), strict=True))
    return _places(parts[group] for group in groups)


def _dealt(sizes: Sequence[int], wanted: dict[str, float]) -> list[str]:
    """The part of each group: "test" until its share is full, then "dev", then "train", which gets one at least."""
    left = {part: max(round(share), 1) if share and len(sizes) >= 3 else round(share) for part, share in wanted.items()}
    dealt: list[str] = []
    for size in sizes:
        part = next((name for name, room in left.items() if room > 0), "train")
        if len(dealt) == len(sizes) - 1 and "train" not in dealt:
            part = "train"
        dealt.append(part)
        if part != "train":
            left[part] -= size
    return dealt


def by_time(times: Sequence[str], shares: tuple[float, float, float]) -> Places:
    """The oldest rows are train, the newest test. Times are compared as numbers where all are, else as text."""
    keys: Sequence[float | str] = times
    try:
        keys = [float(time) for time in times]
    except ValueError:
        keys = times
    order = sorted(range(len(times)), key=lambda row: keys[row])
    total, count = sum(shares), len(times)
    ends = round(count * shares[0] / total), round(count * (shares[0] + shares[1]) / total)
    part = dict.fromkeys(order[: ends[0]], "train") | dict.fromkeys(order[ends[0] : ends[1]], "dev")
    return _places(part.get(row, "test") for row in range(count))


def by_hash(keys: Sequence[str], shares: tuple[float, float, float]) -> Places:
    """Rows with one key on one side, by a hash of the key: the same whatever else the data hold."""
    train, dev, _ = (share / sum(shares) for share in shares)

    def part(key: str) -> str:
        place = _hash(key)
        return "train" if place < train else "dev" if place < train + dev else "test"

    return _places(part(key) for key in keys)


def _places(parts: Iterable[str]) -> Places:
    places: Places = {"train": [], "dev": [], "test": []}
    for row, part in enumerate(parts):
        places[part].append(row)
    return places


def _hash(text: str) -> float:
    return int(hashlib.sha1(text.encode("utf-8", "surrogatepass")).hexdigest()[:13], 16) / 16**13
