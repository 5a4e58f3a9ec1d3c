"""Where a line seems to be missing in one of two files that belong together."""

from __future__ import annotations

from collections.abc import Sequence


def missing_line(first: Sequence[str], second: Sequence[str]) -> str:
    """A sentence on the place from which the lengths of the lines fit better when one file is shifted."""
    longer, shorter = (first, second) if len(first) > len(second) else (second, first)
    ratio = (sum(map(len, longer)) + 1) / (sum(map(len, shorter)) + 1)

    def misfit(a: str, b: str) -> float:
        return abs(len(a) - ratio * len(b)) / (len(a) + ratio * len(b) + 1)

    shift = len(longer) - len(shorter)
    straight = [misfit(a, b) for a, b in zip(longer, shorter, strict=False)]
    shifted = [misfit(a, b) for a, b in zip(longer[shift:], shorter, strict=True)]
    cost, costs = sum(shifted), list[float]()
    for here, there in zip(straight, shifted, strict=True):
        costs.append(cost)
        cost += here - there
    costs.append(cost)
    place = min(range(len(costs)), key=costs.__getitem__)
    if costs[place] > 0.8 * min(sum(straight), sum(shifted)):
        return "The lengths of the lines do not tell where"
    several = "one seems" if shift == 1 else f"{shift:,} seem"
    return f"By the lengths of lines, {several} to be missing near line {place + 1}"
