"""What several verbs share: --json, settings by name on the command line, symbols named, a bar for downloads."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from qkv.errors import UserError, nearest

if TYPE_CHECKING:
    from rich.console import Console

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
device_option = click.option(
    "--device", default="auto", show_default=True, metavar="NAME", help="auto, cpu, cuda, cuda:N or mps."
)

# Settings are many and belong to the models: they pass through click as they are and are checked by name later.
PASS_SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True}


class NamedCommands(click.Group):
    """A group that answers an unknown command with the nearest and all known ones."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = self.list_commands(ctx)
        if cmd_name not in known:
            raise UserError(f"unknown command {cmd_name!r}.{nearest(cmd_name, known)} Commands: {', '.join(known)}")
        return self.find(ctx, cmd_name)

    def find(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of that name, which is known."""
        return super().get_command(ctx, name)


def settings_from(arguments: Sequence[str]) -> dict[str, Any]:
    """{"model.d_model": 128, ...} from ["--model.d_model", "128", "--lr=1e-3"]. UserError for anything else."""
    name, settings = name_and_settings(["", *arguments])
    assert not name
    return settings


def name_and_settings(arguments: Sequence[str]) -> tuple[str | None, dict[str, Any]]:
    """The one argument that is no setting, wherever it stands, and the settings. UserError for a second one."""
    found: str | None = None
    settings: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            if found is not None:
                raise UserError(f"unexpected argument {word!r}: settings are written --NAME VALUE")
            found = word
            continue
        name, equals, value = word[2:].partition("=")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise UserError(f"--{name} needs a value: --{name} VALUE")
            value = rest.pop(0)
        settings[name.replace("-", "_")] = _literal(value)
    return found, settings


def _literal(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def named_symbol(symbol: str) -> str:
    """A symbol as a person is told of it: in quotes, a single character with its code point."""
    return f"{symbol!r} (U+{ord(symbol):04X})" if len(symbol) == 1 else repr(symbol)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def console(stderr: bool = False) -> Console:
    """Standard output or standard error for rich, as wide as the terminal; 160 columns where it is none."""
    from rich.console import Console

    made = Console(stderr=stderr)
    return made if made.is_terminal else Console(stderr=stderr, width=160)


@contextmanager
def download_bar() -> Iterator[Callable[[int, int], None]]:
    """A callback (bytes done, bytes in all) that draws a bar on stderr, from the first byte to the last."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = "fetching", BarColumn(), DownloadColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def advance(done: int, total: int) -> None:
        if not bar.tasks:
            bar.add_task("fetching", total=total)
            bar.start()
        bar.update(bar.tasks[0].id, completed=done)
        if done >= total:
            bar.stop()

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()
