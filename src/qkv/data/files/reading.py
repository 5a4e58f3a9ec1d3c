"""How a person's files are read, where the guess is wrong: the part of the settings that each of their files shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator

from qkv.data.files.table import Table, read_table


def _word(value: object) -> object:
    """TOML's true, which a command line gives too, as the word."""
    said = str(value).lower()
    return said if said in ("true", "false") else value


Guessed = Annotated[Literal["auto", "true", "false"], BeforeValidator(_word)]


@dataclass(frozen=True)
class FileConfig:
    """What is said of the files instead of being guessed.

    encoding    where it is not UTF-8, UTF-16 with a mark, or GB18030
    header      auto, true or false: whether the first row names the columns
    separator   of columns: a sign, or its name (tab, comma, semicolon, bar, blanks)
    variants    splits cells that hold several targets: auto (/a/, /b/ and [a] or [b]), or the text between them
    """

    encoding: str = ""
    header: Guessed = "auto"
    separator: str = ""
    variants: str = ""

    def table(self, path: str) -> Table:
        """The table in a file. Raises UserError as `read_table` does."""
        header = None if self.header == "auto" else self.header == "true"
        return read_table(path, encoding=self.encoding or None, header=header, separator=self.separator or None)
