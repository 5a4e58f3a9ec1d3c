#!/usr/bin/env python3
"""Set qkv up and run it, with nothing but Python 3.11 or newer.

    python3 run.py demo  [options of `qkv demo`]     the main job: train on real pairs and show that it works
    python3 run.py test  [--slow] [pytest options]   the tests; --slow runs the long ones as well
    python3 run.py lint                              style, types, and which room may import which
    python3 run.py bench [names] [their options]     the measurements in bench/, all of them or those named
    python3 run.py docs                              run every command that README.md shows
    python3 run.py setup                             only install, for use and for development
    python3 run.py clean                             remove .venv and caches; trained models in runs/ stay

The first use makes `.venv` beside this file and installs into it, with your own pip configuration. On Linux without an
NVIDIA GPU, `--torch-index URL` installs torch from an index of CPU wheels. On Windows write `py` for `python3`.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

# Before the first definition, so that an older Python (3.6 and newer can parse this file) reaches it.
if sys.version_info < (3, 11):  # noqa: UP036
    found = "{}.{}".format(*sys.version_info[:2])
    sys.exit(
        f"qkv needs Python 3.11 or newer; this is Python {found} ({sys.executable}).\n"
        "Install a newer one (https://www.python.org/downloads/) and name it, for example: python3.11 run.py demo"
    )

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "qkv-installed.json"
EXTRAS = {
    "demo": {"train"},
    "test": {"train", "dev"},
    "lint": {"train", "dev"},
    "docs": {"train", "dev"},
    "bench": {"train", "bench"},
    "setup": {"train", "dev"},
}
SLOW = {"--slow": ["-m", "slow or not slow"]}
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class Failure(Exception):
    """What to tell the user before ending with exit code `code`."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


def say(message: str) -> None:
    if message:
        print(message, flush=True)


def venv_python() -> Path:
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def call(command: list[str | Path], cwd: Path | None = None) -> int:
    """Run a command to its end and return its exit code; a request to terminate is passed on.

    Ctrl-C reaches the command as well (same terminal): it gets the time to end by itself, to save a checkpoint say.
    """
    child = subprocess.Popen(command, cwd=cwd, env={**os.environ, "PIP_USER": "0"})
    previous = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    interrupted = False
    try:
        while True:
            try:
                code = child.wait()
                break
            except KeyboardInterrupt:
                interrupted = True
    finally:
        signal.signal(signal.SIGTERM, previous)
    if interrupted:
        raise KeyboardInterrupt
    return code if code >= 0 else 128 - code


def venv_works() -> bool:
    """Whether .venv holds a Python of a sufficient version, with pip (an interrupted set-up leaves half of it)."""
    probe = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        run = subprocess.run([venv_python(), "-c", probe], capture_output=True)
    except OSError:
        return False
    return run.returncode == 0


def make_venv() -> None:
    if venv_works():
        return
    say(f"{'Repairing' if VENV.exists() else 'Making'} {VENV}")
    if call([sys.executable, "-m", "venv", "--clear", VENV]) != 0 or not venv_works():
        raise Failure(
            f"Python could not make {VENV} (its own message is above).\n"
            "On Debian and Ubuntu, install the missing part: sudo apt install python3-venv\n"
            "Otherwise see that this folder can be written to and that the disk is not full, then run this again."
        )


def fingerprint() -> str:
    """Of what an install depends on; the folder too, since the installed commands name it."""
    parts = [(ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256(b"\0".join([*parts, os.fsencode(ROOT)])).hexdigest()


def read_stamp() -> dict:
    try:
        return json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def site_packages() -> list[Path]:
    return [*VENV.glob("lib/python*/site-packages"), *VENV.glob("Lib/site-packages")]


def torch_installed() -> bool:
    return any(any(folder.glob("torch-*.dist-info")) for folder in site_packages())


def make_editable_path_relative() -> None:
    """Rewrite the .pth file of the editable install, which names src, as a path in ASCII.

    Python reads such files in the system's encoding (3.12 even in UTF-8 mode): with Chinese characters in this
    folder's path, no Python in .venv would start where that encoding is another than UTF-8.
    """
    source = ROOT / "src"
    for folder in site_packages():
        for file in folder.glob("*qkv*.pth"):
            if file.read_text(encoding="utf-8").strip() == str(source):
                file.write_text(os.path.relpath(source, folder) + "\n", encoding="ascii")


def cuda_notice(system: str, machine: str, gpu: bool) -> str:
    """What to say before torch is installed: something where its default wheel brings more than can be used."""
    if system != "Linux" or machine.lower() not in ("x86_64", "amd64") or gpu:
        return ""
    return (
        "No NVIDIA GPU found. On Linux x86_64 the default torch wheel brings several gigabytes of CUDA libraries that\n"
        "this machine cannot use. If pip starts to download packages named nvidia-..., stop it with Ctrl-C and add\n"
        f"    --torch-index {CPU_INDEX}\n"
        "(or a mirror of it) to this command, which installs the small CPU build. A pip configured with CPU wheels\n"
        "finds them by itself.\n"
    )


def pip_install(*arguments: str) -> None:
    pip = [venv_python(), "-m", "pip", "--disable-pip-version-check", "install", "-c", "constraints.txt"]
    if call([*pip, *arguments], cwd=ROOT) != 0:
        raise Failure(
            "Installing failed; pip's own message is above. What it usually is:\n"
            "  no connection, or a slow one: run the same command again, finished downloads are kept;\n"
            "  a mirror or a proxy is needed: python3 -m pip config set global.index-url URL (or HTTPS_PROXY);\n"
            "  the disk is full: the default torch for Linux takes about 6 GB, the CPU build (--torch-index) 1 GB;\n"
            "  an index given with --torch-index that lacks the torch version named in constraints.txt."
        )


def install(needed: set[str], torch_index: str | None = None) -> None:
    """Bring .venv to the state that `needed` asks for; nothing to do when the stamp says that it is there."""
    make_venv()
    stamp, key = read_stamp(), fingerprint()
    installed = set(stamp.get("extras", []))
    new_index = torch_index is not None and torch_index != stamp.get("torch_index")
    if stamp.get("key") == key and needed <= installed and not new_index:
        return
    STAMP.unlink(missing_ok=True)
    if torch_index is not None:
        # By itself and first: only torch comes from that index, and the rest then finds its torch already there.
        pip_install("--no-deps", *["--force-reinstall"] * new_index, "--index-url", torch_index, "torch")
    elif not torch_installed():
        gpu = shutil.which("nvidia-smi") is not None or Path("/proc/driver/nvidia").exists()
        say(cuda_notice(platform.system(), platform.machine(), gpu))
    extras = sorted(needed | installed)
    say(f"Installing qkv[{','.join(extras)}] into {VENV} (once; minutes, most of them for torch)")
    pip_install("-e", f".[{','.join(extras)}]")
    make_editable_path_relative()
    state = {"key": key, "extras": extras, "torch_index": torch_index or stamp.get("torch_index")}
    STAMP.write_text(json.dumps(state), encoding="utf-8")


def demo(arguments: list[str]) -> int:
    code = call([venv_python(), "-m", "qkv", "demo", *arguments])
    if code == 0:
        activate = r".venv\Scripts\activate" if os.name == "nt" else "source .venv/bin/activate"
        say(f"To use the command `qkv` in a terminal: go to {ROOT} and run `{activate}`")
    return code


def test(arguments: list[str]) -> int:
    options = [option for argument in arguments for option in SLOW.get(argument, [argument])]
    return call([venv_python(), "-m", "pytest", *options], cwd=ROOT)


def lint(arguments: list[str]) -> int:
    refuse_arguments("lint", arguments)
    python = venv_python()
    code_folders = [name for name in ("src", "tests", "bench", "run.py") if (ROOT / name).exists()]
    layers = "from importlinter.cli import lint_imports_command; lint_imports_command(['--no-logo'])"
    checks: dict[str, list[str | Path]] = {
        "ruff check": [python, "-m", "ruff", "check", *code_folders],
        "ruff format": [python, "-m", "ruff", "format", "--check", *code_folders],
        "pyright": [python, "-m", "pyright", "--pythonpath", python],
        "import-linter": [python, "-c", layers],
    }
    codes = {}
    for name, command in checks.items():
        start = time.monotonic()
        codes[name] = call(command, cwd=ROOT)
        say(f"--- {name}: {'FAILED' if codes[name] else 'ok'} in {time.monotonic() - start:.1f} s")
    return 1 if any(codes.values()) else 0


def bench(arguments: list[str]) -> int:
    return call([venv_python(), "-m", "bench", *arguments], cwd=ROOT)


def docs(arguments: list[str]) -> int:
    return test(["--slow", "tests/test_readme.py", *arguments])


def setup(arguments: list[str]) -> int:
    refuse_arguments("setup", arguments)
    say(f"Ready: {VENV}")
    return 0


def clean(arguments: list[str]) -> int:
    refuse_arguments("clean", arguments)
    names = (".venv", ".pytest_cache", ".ruff_cache", ".hypothesis", ".import_linter_cache", "build", "dist")
    caches = [path for part in ("src", "tests", "bench") for path in (ROOT / part).rglob("__pycache__")]
    for folder in filter(Path.is_dir, [*(ROOT / name for name in names), *caches]):
        shutil.rmtree(folder)
    say("Removed .venv, builds and caches. Trained models in runs/ are kept.")
    return 0


def refuse_arguments(name: str, arguments: list[str]) -> None:
    if arguments:
        raise Failure(f"{name} takes no arguments, and was given: {' '.join(arguments)}", 2)


COMMANDS = {function.__name__: function for function in (demo, test, lint, bench, docs, setup, clean)}


def take_torch_index(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Take `--torch-index URL` (or `=URL`) out of the arguments, wherever it stands; the rest is passed on."""
    usage = "python3 run.py COMMAND [--torch-index URL] [ARGUMENTS]"
    parser = argparse.ArgumentParser(prog="run.py", usage=usage, add_help=False, allow_abbrev=False)
    parser.add_argument("--torch-index", metavar="URL")
    found, rest = parser.parse_known_args(arguments)
    if found.torch_index == "":
        raise Failure(f"--torch-index needs the address of a package index, for example {CPU_INDEX}", 2)
    return found.torch_index, rest


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        say((__doc__ or "").strip())
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    try:
        if name not in COMMANDS:
            raise Failure(f"run.py: no command {name!r}. There are: {', '.join(COMMANDS)} (python3 run.py --help)", 2)
        index, rest = take_torch_index(rest)
        if name in EXTRAS:
            install(EXTRAS[name], index)
        return COMMANDS[name](rest)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        print("\nStopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        # A path in Chinese on a terminal of another code page is shown as well as it can be, not a crash.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(main(sys.argv[1:]))
