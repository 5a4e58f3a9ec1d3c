"""What several verbs share: --json, settings by name on the command line, a bar for downloads."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from qkv.errors import UserError

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
device_option = click.option(
    "--device", default="auto", show_default=True, metavar="NAME", help="auto, cpu, cuda, cuda:N or mps."
)

# Settings are many and belong to the models: they pass through click as they are and are checked by name later.
PASS_SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True}


def settings_from(arguments: Sequence[str]) -> dict[str, Any]:
    """{"model.d_model": 128, ...} from ["--model.d_model", "128", "--lr=1e-3"]. UserError for anything else."""
    settings: dict[str, Any] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise UserError(f"unexpected argument {word!r}: settings are written --NAME VALUE")
        name, equals, value = word[2:].partition("=")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise UserError(f"--{name} needs a value: --{name} VALUE")
            value = rest.pop(0)
        settings[name.replace("-", "_")] = _literal(value)
    return settings


def _literal(text: str) -> Any:
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


@contextmanager
def download_bar() -> Iterator[Callable[[int, int], None]]:
    """A callback (bytes done, bytes in all) that draws a bar on stderr; nothing is drawn while nothing is fetched."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    with Progress(
        "fetching", BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task: list[Any] = []

        def advance(done: int, total: int) -> None:
            if not task:
                task.append(bar.add_task("fetching", total=total))
            bar.update(task[0], completed=done)

        yield advance
