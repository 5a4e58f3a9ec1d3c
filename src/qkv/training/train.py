"""From settings to a trained run: what is asked for, and whether its folder holds it already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from qkv.data import sources
from qkv.errors import UserError
from qkv.run import folder as files
from qkv.run.run import Run, load
from qkv.training import baseline, lock
from qkv.training.by_size import for_examples
from qkv.training.events import Listener, Progress, logger
from qkv.training.processes import joined
from qkv.training.settings import Settings, resolve
from qkv.training.trackers import tracker
from qkv.training.trainer import Trainer


def train(
    data: str | None = None,
    model: str | None = None,
    *,
    out: str | Path | None = None,
    config: str | Path | None = None,
    device: str = "auto",
    listeners: Sequence[Listener] | None = None,
    track: Sequence[str] = (),
    progress: Callable[[int, int], None] | None = None,
    allow_unk: bool = False,
    **settings: Any,
) -> Run:
    """Trains a model and returns its run; the files are in `out` (runs/DATA-MODEL by default).

    data         a name from the catalogue (`qkv data list`), or a file (`qkv data show FILE` explains how it is read)
    model        a name from the registry (`qkv models`)
    config       a TOML file with tables [data], [model], [task], [training], [keep], [memory]; the other arguments
                 override it
    settings     any setting by its own name (minutes=2, d_model=128) or by table (training={"lr": 1e-3})
    listeners    who hears of events (`qkv.training.events`); by default a progress line on stderr
    track        trackers by name besides: tensorboard, or FILE.py:CLASS
    allow_unk    train although over 5 % of the tokens of dev or test are unknown
    progress     called with (bytes done, bytes in all) while data are fetched

    The same call again resumes an unfinished run and returns a finished one. Started by torchrun, the processes train
    one run together. Raises UserError for settings that cannot be, for data that cannot be had, and when `out` holds
    another run.
    """
    wanted = resolve(config, data, model, settings)
    folder = Path(out) if out is not None else Path("runs") / f"{wanted.data_name}-{wanted.model['name']}"
    with joined(device) as together:
        trackers = [tracker(name) for name in track if together.first]
        stored = together.agreed(lambda: stored_run(folder, wanted))
        with together.first_before_others():
            found = sources.data_of(wanted.data, progress)
        wanted, notes = for_examples(wanted.with_data(found.fingerprint), len(found.train))
        if stored is not None:
            wanted = wanted.matching(stored, folder)
            if together.agreed(lambda: files.is_finished(folder)):
                run = load(folder, str(together.device))
                logger.info("%s is finished; nothing to train", folder)
                return run
        for note in [*(f"data: {one}" for one in found.notes), *notes] if stored is None else ():
            logger.info("%s", note)
        heard = [Progress()] if listeners is None else list(listeners)
        said = [*heard, *trackers]
        trainer = Trainer(wanted, folder, found, together, said, continued=stored is not None, allow_unk=allow_unk)
        beside = together.first and baseline.is_wanted(wanted)
        return trainer.run(before=(lambda: baseline.fit(wanted, folder, found)) if beside else None)


def stored_run(folder: Path, wanted: Settings) -> dict[str, Any] | None:
    """The config of the run in `folder`, None when there is none.

    Raises UserError when that run has other settings than `wanted`, and when the folder holds something else.
    """
    if (folder / files.CONFIG).is_file():
        stored = files.read_config(folder)
        wanted.matching(stored, folder, sized=False)
        return stored
    if folder.is_dir() and not all(
        p.name in (lock.NAME, baseline.FOLDER) or files.unfinished(p) for p in folder.iterdir()
    ):
        raise UserError(f"{folder} exists and is not a run: choose another --out, so that nothing there is overwritten")
    return None
