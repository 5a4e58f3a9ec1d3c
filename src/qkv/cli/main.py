"""The command line: one small file a verb, imported when that verb runs, so that --help answers at once."""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from importlib import import_module
from typing import Any, NoReturn

import click

import qkv
from qkv.cli.options import NamedCommands
from qkv.errors import UserError

VERBS = {
    "demo": "Train a Transformer on real pairs in minutes and write a report page.",
    "train": "Train a model: on a data set of the catalogue, with any setting changed.",
    "predict": "Use a trained run on texts given here, in a file, or on standard input.",
    "eval": "Score a trained run on its test split or on a file, whole and in slices.",
    "export": "Write a trained run as ONNX graphs, checked against it.",
    "shapes": "Print the input and output shapes of every step of a model.",
    "models": "List the architectures and their settings.",
    "data": "List, fetch and describe data sets.",
    "env": "Print what this machine offers: versions, devices, speed, fonts, mirrors.",
}


TORCH_MEMORY = {"THP_MEM_ALLOC_ENABLE": "1", "LRU_CACHE_CAPACITY": "64"}
"""Read by torch when it starts, on a CPU: large pages for large tensors (a training step up to 15 % quicker where they
are off by default), and 64 compiled products kept instead of 1,024 (0.3 GB less, no time lost). The user's own win."""


WATCHED = "TORCHELASTIC_RUN_ID"
"""Set where torchrun has started this process among others."""


class Verbs(NamedCommands):
    """A group whose commands live in `qkv.cli.NAME` as `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def find(self, ctx: click.Context, name: str) -> click.Command | None:
        return import_module(f"qkv.cli.{name}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(qkv.__version__, prog_name="qkv")
def cli() -> None:
    """qkv: train attention models, look inside them, and check that they are right.

    Begin with `qkv demo`. Every command takes --help and --json.
    """


def main(argv: list[str] | None = None) -> None:
    """Runs a command; exits with 0, with 2 for the user's mistake, with 130 when interrupted."""
    arguments = sys.argv[1:] if argv is None else argv
    for name, value in TORCH_MEMORY.items():
        os.environ.setdefault(name, value)
    for stream in (sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")  # a console that lacks a sign must not end the work
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    logging.getLogger("qkv").setLevel(logging.INFO)
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # its retries are told in our own error, once
    try:
        code = cli.main(args=arguments, prog_name="qkv", standalone_mode=False)
        _leave(code if isinstance(code, int) else 0)
    except UserError as error:
        _fail(str(error), arguments)
    except ModuleNotFoundError as error:
        if (error.name or "qkv").split(".")[0] == "qkv":
            raise
        _fail(f'this command needs {error.name}: install the rest with pip install "qkv[all]"', arguments)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        ctx: click.Context | None = getattr(error, "ctx", None)
        message = error.format_message()
        end = "" if message.endswith((".", "?")) else "."
        _fail(f"{message}{end} See `{ctx.command_path} --help`" if ctx else message, arguments)
    except (KeyboardInterrupt, click.Abort) as stop:
        said = str(stop.__cause__ or stop)  # click wraps what interrupted it
        _fail(said or "stopped", arguments, label="", code=130)
    except Exception:
        if WATCHED not in os.environ:
            raise
        traceback.print_exc()
        _leave(1)


def _fail(message: str, arguments: list[str], label: str = "error: ", code: int = 2) -> NoReturn:
    rank = os.environ.get("RANK", "0")  # of several processes, all of which fail with the first
    click.echo(f"{label}{message}" if rank == "0" else f"process {rank}: {label}{message}", err=True)
    if "--json" in arguments and rank == "0":
        click.echo(json.dumps({"error": message}, ensure_ascii=False))
    _leave(code)


def _leave(code: int) -> NoReturn:
    if WATCHED in os.environ:
        # The threads that connect processes may wait for each other without end while the interpreter shuts down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
