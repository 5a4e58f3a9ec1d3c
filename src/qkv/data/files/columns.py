"""Which columns are source and target: by name, by position, or by what is usual."""

from __future__ import annotations

from dataclasses import dataclass

from qkv.data.files.header import OUTER, SOURCES, TARGETS
from qkv.data.files.table import Table
from qkv.errors import UserError, nearest


@dataclass(frozen=True)
class Chosen:
    """Columns by place from 0, and what a person should be told about the choice."""

    source: int
    target: int
    notes: list[str]


def one(table: Table, name: str | int) -> int:
    """The place of one column, by name or position. Raises UserError as `choose` does."""
    return find(table, name, "source", [])


def choose(table: Table, source: str | int | None = None, target: str | int | None = None) -> Chosen:
    """The columns asked for, each by name or by position from 1; without a name the usual ones, or the only two.

    Raises UserError for a name that is unknown (with the nearest) or stands twice, and where a choice is not clear.
    """
    notes: list[str] = []
    asked = [
        None if one is None else find(table, one, side, notes) for one, side in ((source, "source"), (target, "target"))
    ]
    named = [i for i, name in enumerate(table.columns) if name.strip(OUTER)]
    left = [i for i in named if i not in asked]
    for place, usual in ((0, SOURCES), (1, TARGETS)):
        if asked[place] is None:
            fitting = [i for i in left if table.columns[i].strip(OUTER).casefold() in usual]
            if len(fitting) == 1:
                asked[place] = fitting[0]
                left.remove(fitting[0])
    for place in (0, 1):
        if asked[place] is None and len(left) == asked.count(None):
            asked[place] = left.pop(0)
    if asked[0] is None or asked[1] is None:
        raise UserError(_unclear(table))
    if asked[0] == asked[1]:
        raise UserError(f"{table.name}: source and target are both {_label(table, asked[0])}")
    if source is None or target is None:
        notes.append(f"Source: {_label(table, asked[0])}; target: {_label(table, asked[1])}.")
    return Chosen(asked[0], asked[1], notes)


def find(table: Table, wanted: str | int, side: str, notes: list[str]) -> int:
    """The place of the column --data.`side`, by name or position from 1; adds to `notes` how it was found.

    Raises UserError as `choose` does.
    """
    name = str(wanted)
    if name.isdecimal() and name not in table.columns:
        place = int(name)
        if not 1 <= place <= len(table.columns):
            raise UserError(f"{table.name} has {len(table.columns)} columns: --data.{side} {place} is none of them")
        return place - 1
    found = [i for i, column in enumerate(table.columns) if column == name]
    if not found:
        bare = name.strip(OUTER).casefold()
        found = [i for i, column in enumerate(table.columns) if column.strip(OUTER).casefold() == bare]
        if len(found) == 1:
            notes.append(f"The column {table.columns[found[0]]!r} is taken for {name!r}.")
    if not found:
        hint = nearest(name, table.columns)
        raise UserError(f"{table.name} has no column {name!r}.{hint} Columns: {', '.join(map(repr, table.columns))}")
    if len(found) > 1:
        places = " and ".join(str(i + 1) for i in found)
        raise UserError(f"{table.name} has {len(found)} columns {name!r}, at {places}: --data.{side} takes a position")
    return found[0]


def _unclear(table: Table) -> str:
    if len(table.columns) < 2:
        return (
            f"{table.name} has one column: a pair file has two, separated by a tab or a comma; for two text files give "
            "--data.source FILE --data.target FILE"
        )
    names = [column.strip(OUTER) for column in table.columns]
    twice = sorted({name for name in names if name and names.count(name) > 1})
    doubled = ""
    if twice:
        places = ", ".join(str(i + 1) for i, name in enumerate(names) if name == twice[0])
        doubled = f" ({twice[0]!r} stands twice, at positions {places}: take one by position)"
    listed = ", ".join(f"{i} {name!r}" for i, name in enumerate(table.columns, 1))
    return (
        f"{table.name}: which columns are source and target? It has {listed}{doubled}. Say so with --data.source NAME "
        "--data.target NAME (a name or a position)"
    )


def _label(table: Table, place: int) -> str:
    return f"column {place + 1} ({table.columns[place]!r})" if table.header else f"column {place + 1}"
