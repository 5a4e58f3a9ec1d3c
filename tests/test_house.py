"""The rules of the house that a program can check: layers, sizes, imports, pins, what the wheel carries."""

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def trees(paths=SOURCES):
    for path in paths:
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def run_python(code: str) -> str:
    environment = {**os.environ, "PYTHONUTF8": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", env=environment, cwd=ROOT)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_a_room_imports_only_from_rooms_below_it():
    # In a process of its own: import-linter configures logging for the whole of it.
    run_python("from importlinter.cli import lint_imports_command as lint; lint(['--no-cache'])")


def test_no_file_is_longer_than_300_lines():
    files = [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py"), ROOT / "run.py"]
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert {path: lines for path, lines in lengths.items() if lines > 300} == {}
    assert {
        path: lines for path, lines in lengths.items() if "/models/" in path and "src" in path and lines > 200
    } == {}


def test_no_function_is_longer_than_a_screen():
    long = [
        f"{path}:{node.lineno} {node.name} ({node.end_lineno - node.lineno + 1} lines)"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= 50
    ]
    assert long == []


def test_softmax_over_scores_is_computed_in_nn_only():
    found = [
        f"{path}:{node.lineno}"
        for path, tree in trees()
        if not path.startswith("src/qkv/nn/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called_name(node) in ("softmax", "Softmax", "softmin")
    ]
    assert found == []


def called_name(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def test_nothing_is_left_unfinished():
    words = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "NotImplemented" + "Error")))
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{number}"
        for path in [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "bench").rglob("*.py")]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if words.search(line)
    ]
    assert found == []


HEAVY = ("torch", "numpy", "matplotlib", "transformers", "tokenizers", "pydantic", "jinja2")


HELP = """
import sys
from qkv.cli.main import main
sys.argv = ["qkv", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code
"""


@pytest.mark.parametrize("code", ["import qkv", HELP], ids=["import qkv", "qkv --help"])
def test_start_is_light(code):
    loaded = (
        run_python(code + "\nimport sys; print('loaded:', *sys.modules, sep='\\n')").partition("loaded:")[2].split()
    )
    assert "qkv" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_every_public_name_of_the_package_can_be_had():
    names = run_python("import qkv\nprint(*[name for name in qkv.__all__ if getattr(qkv, name) is not None])").split()
    assert {"train", "load"} <= set(names)


def applying(lines, extras=()):
    """The requirements among `lines` that hold on this system when these extras are asked for."""
    for requirement in map(Requirement, lines):
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in ("", *extras)):
            yield requirement


def test_constraints_pin_all_that_an_install_brings():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    pinned = {canonicalize_name(pin.partition("==")[0]) for pin in pins}
    extras = PROJECT["project"]["optional-dependencies"].values()
    waiting = list(applying([*PROJECT["project"]["dependencies"], *(line for extra in extras for line in extra)]))
    seen = {"qkv"}
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        # What a CUDA build of torch brings, torch pins itself.
        if name in seen or name.startswith(("nvidia-", "cuda-", "triton")):
            continue
        seen.add(name)
        try:
            waiting += applying(importlib.metadata.requires(name) or [], requirement.extras)
        except importlib.metadata.PackageNotFoundError:
            continue  # of an extra that is not installed here: its own name must be pinned all the same
    assert seen - {"qkv"} - pinned == set()
    assert [pin for pin in pins if not re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+", pin)] == []


@pytest.mark.slow
def test_the_wheel_carries_every_file_of_the_package(tmp_path):
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT], check=True
    )
    (wheel,) = tmp_path.glob("qkv-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        carried = {name for name in archive.namelist() if name.startswith("qkv/")}
    package = ROOT / "src" / "qkv"
    files = {f"qkv/{path.relative_to(package).as_posix()}" for path in package.rglob("*") if path.is_file()}
    assert carried == {name for name in files if "__pycache__" not in name}
