"""`qkv demo`."""

from __future__ import annotations

from pathlib import Path

import click

from qkv.cli.options import console, device_option, download_bar, json_option, print_json


@click.command()
@click.option("--minutes", type=float, help="Training time.  [default: 2.5]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("runs/demo"),
    show_default=True,
    metavar="DIR",
    help="The run folder.",
)
@device_option
@json_option
def command(minutes: float | None, out: Path, device: str, as_json: bool) -> None:
    """Train a Transformer that reads English words and writes their pronunciation, and show that it is right.

    Fetches the CMU dictionary (1 MB), shows the shapes of every step before training, trains, scores words that were
    never seen beside a baseline, pronounces ten that are in no dictionary, and writes one offline page.
    """
    from rich.table import Table

    from qkv.experiments.demo import next_steps, run_demo

    with download_bar() as progress:
        demo = run_demo(out, minutes, device, console(stderr=as_json), progress)
    test = demo.run.metrics()
    if as_json:
        words = {p.text: p.output for p in demo.new_words}
        result = {"run": str(demo.run.folder), "report": str(demo.report), **test}
        print_json({**result, "baseline": demo.baseline, "new_words": words})
        return
    screen = console()
    scores = Table("test words never seen in training", "WER %", "PER %", box=None)
    scores.add_row("this Transformer", f"{test['wer']:.1f}", f"{test['per']:.1f}")
    scores.add_row("baseline", f"{demo.baseline['wer']:.1f}", f"{demo.baseline['per']:.1f}")
    screen.print(scores)
    screen.print(f"\n{demo.verdict}", highlight=False, soft_wrap=True)
    screen.print("\nWords that are in no dictionary:")
    for prediction in demo.new_words:
        screen.print(f"  {prediction.text:16} {prediction.output}", highlight=False)
    screen.print("\nThe report, one offline page: ", end="", highlight=False)
    screen.print(str(demo.report), style="bold", markup=False, highlight=False, soft_wrap=True)
    screen.print("\nWhat to try next:", highlight=False)
    for step in next_steps(demo.run.folder):
        screen.print(f"  {step.text}:\n    {step.command}", highlight=False, soft_wrap=True, markup=False)
