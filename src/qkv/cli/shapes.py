"""`qkv shapes`."""

from __future__ import annotations

from pathlib import Path

import click

from qkv.cli.options import PASS_SETTINGS, console, json_option, name_and_settings, print_json
from qkv.errors import UserError


@click.command(context_settings=PASS_SETTINGS)
@click.argument("model", default="encoder_decoder")
@click.option("--text", default="attention", show_default=True, help="What the model reads.")
@json_option
@click.pass_context
def command(ctx: click.Context, model: str, text: str, as_json: bool) -> None:
    """Print each module's input and output shapes for one batch, and q, k, v, scores, weights, heads inside attention.

    MODEL is a run folder, or the name of an architecture (`qkv models`), which is built untrained; its settings go by
    name, as in: qkv shapes encoder_decoder --d_model 64 --n_heads 8
    """
    from qkv.inspection.shapes import table, trace

    # An unknown option that stands first, as in `qkv shapes --d_model 64`, is what click takes for MODEL.
    found, settings = name_and_settings([model, *ctx.args])
    model = found or "encoder_decoder"
    if not text:
        raise UserError("--text is empty: there is nothing to read")
    if Path(model).exists():
        from qkv.experiments.run_report import steps_of
        from qkv.run.run import load

        if settings:
            raise UserError(f"{model} is a trained run: its settings cannot be changed here ({', '.join(settings)})")
        rows = steps_of(load(model, "cpu"), text)
    elif Path(model).name != model:
        raise UserError(f"there is no run folder {model}: give one that exists, or an architecture (`qkv models`)")
    else:
        network, inputs = _untrained(model, text, settings)
        rows = trace(network, inputs)
    if as_json:
        print_json({"model": model, "steps": [row.as_dict() for row in rows]})
    else:
        console().print(table(rows))


def _untrained(name: str, text: str, settings: dict[str, object]):
    import torch

    from qkv.models import registry
    from qkv.run.run import build_model

    torch.manual_seed(0)
    plain = {key.removeprefix("model."): value for key, value in settings.items()}
    entry = registry.find(name)
    source = torch.randint(4, 32, (1, len(text) + 1))
    mask = torch.ones_like(source).bool()
    if "next_token" in entry.builds:
        network = build_model({"name": name, **plain}, {"n_source": 32, "n_target": 43})
        target = torch.randint(4, 43, (1, len(text)))
        return network.eval(), {"source": source, "source_mask": mask, "target": target}
    if entry.fitted:
        raise UserError(f"{name} has no shapes before it is fitted: qkv shapes RUN shows those of a run")
    network = build_model({"name": name, **plain}, {"n_tokens": 32, "n_labels": 5}, entry.heads[-1])
    return network.eval(), {"tokens": source, "mask": mask}
