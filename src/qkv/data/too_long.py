"""Rows longer than a model should take: counted, said, and refused, dropped or cut as the person asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qkv.data.pair_file import Rows
from qkv.data.pairs import Example, SymbolKind
from qkv.data.symbols import Symbols
from qkv.errors import UserError

if TYPE_CHECKING:
    from qkv.data.pair_data import PairConfig


@dataclass(frozen=True)
class TooLong:
    """What is too long: more than `longest` symbols in a source or a target. Sub-words are counted as words here."""

    policy: str
    longest: int
    source: Symbols
    target: Symbols

    @classmethod
    def of(cls, config: PairConfig, source: SymbolKind, target: SymbolKind) -> TooLong:
        return cls(config.too_long, config.longest, _ruler(source), _ruler(target))

    def length(self, symbols: Symbols, text: str) -> int:
        """How long `text` is; for one that cannot be too long an upper bound, which needs no cutting."""
        return len(text) if len(text) <= self.longest else len(symbols.split(text))

    def rows(self, rows: Rows) -> list[tuple[int, int]]:
        """(line, symbols of the longer side) of the rows that are too long."""
        found = (
            (line, max(self.length(self.source, a), self.length(self.target, b)))
            for line, a, b in rows.rows
            if max(len(a), len(b)) > self.longest
        )
        return [(line, length) for line, length in found if length > self.longest]

    def refuse(self, every: Mapping[str, Rows]) -> None:
        """Raises UserError naming the lines, where the policy is to refuse and there are any."""
        found = [(rows.name, *one) for rows in every.values() for one in self.rows(rows)]
        if self.policy != "error" or not found:
            return
        named = "; ".join(f"{name}, line {line}: {length:,}" for name, line, length in found[:10])
        more = f"; and {len(found) - 10:,} more" if len(found) > 10 else ""
        raise UserError(
            f"{len(found):,} rows are longer than {self.longest} symbols ({named}{more}). --too-long drop leaves them "
            f"out, --too-long truncate cuts them, --data.longest {max(one[2] for one in found)} takes them whole"
        )

    def handle(self, splits: Mapping[str, list[Example]]) -> tuple[dict[str, list[Example]], list[str]]:
        """The splits without what is too long, or with it cut, and how many that were."""
        if self.policy == "error":
            return dict(splits), []
        change: Callable[[Example], Example | None] = self._cut if self.policy == "truncate" else self._whole
        changed = {part: [change(example) for example in several] for part, several in splits.items()}
        count = sum(
            new is not old for part, several in splits.items() for new, old in zip(changed[part], several, strict=True)
        )
        what = "cut" if self.policy == "truncate" else "left out"
        notes = [f"{count:,} sources had a side longer than {self.longest} symbols: {what}."] if count else []
        return {part: [e for e in several if e is not None] for part, several in changed.items()}, notes

    def _whole(self, example: Example) -> Example | None:
        longest = max(self.length(self.target, target) for target in example.targets)
        return example if max(longest, self.length(self.source, example.source)) <= self.longest else None

    def _cut(self, example: Example) -> Example:
        if self._whole(example) is not None:
            return example

        def cut(symbols: Symbols, text: str) -> str:
            return symbols.join(symbols.split(text)[: self.longest])

        targets = dict.fromkeys(cut(self.target, target) for target in example.targets)
        return Example(cut(self.source, example.source), tuple(targets))


def _ruler(kind: SymbolKind) -> Symbols:
    """Cuts a text as `kind` does, before its vocabulary is known."""
    whole = "spaces" if kind.kind in ("bpe", "unigram") else kind.kind
    return Symbols.learn([], whole, inventory=kind.inventory)
