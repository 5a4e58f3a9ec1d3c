"""run.py, in a copy of the project whose path holds a space and Chinese characters, with pip as it is."""

import ast
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]

# A project that installs without any index: no dependencies, and the build backend lies in its folder.
PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """
import pathlib, zipfile

METADATA = "Metadata-Version: 2.1\\nName: qkv\\nVersion: 0.1\\n" + "".join(
    f"Provides-Extra: {extra}\\n" for extra in ("train", "dev", "bench"))
WHEEL = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"

def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    source = str(pathlib.Path(__file__).resolve().parent / "src")
    files = {"qkv.pth": source, "qkv-0.1.dist-info/METADATA": METADATA, "qkv-0.1.dist-info/WHEEL": WHEEL}
    files["qkv-0.1.dist-info/RECORD"] = "".join(f"{name},,\\n" for name in files)
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / "qkv-0.1-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return "qkv-0.1-py3-none-any.whl"
"""
# Stands where qkv and pytest would: says what it was called with, and waits or fails when asked to.
PROGRAM = """
import os, sys, time
try:
    print("called:", sys.argv[1:], "in", os.getcwd(), flush=True)
    if "wait" in sys.argv:
        time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.5)
    print("ended in order", flush=True)
if "fail" in sys.argv:
    sys.exit(7)
"""


run_script = SimpleNamespace(**runpy.run_path(str(ROOT / "run.py")))


def write_torch_wheel(index: Path) -> None:
    """An index of wheels that holds one: torch 0.0.1+cpu, with nothing in it."""
    (index / "torch").mkdir(parents=True)
    info = "torch-0.0.1+cpu.dist-info"
    wheel = index / "torch" / "torch-0.0.1+cpu-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 0.0.1+cpu\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    (index / "torch" / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>', encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "我的 项目"
    (folder / "src" / "qkv").mkdir(parents=True)
    shutil.copy(ROOT / "run.py", folder)
    for name, text in {
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND,
        "constraints.txt": "torch==0.0.1\n",
        "src/qkv/__init__.py": "",
        "src/qkv/__main__.py": PROGRAM,
        "src/pytest.py": PROGRAM,
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_torch_wheel(folder / "wheels")
    return folder


def environment() -> dict[str, str]:
    """Without the settings of pip and Python on this machine: the project needs no index."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    return {**clean, "PIP_CONFIG_FILE": os.devnull}


def call(project: Path, *arguments: str, code: int = 0) -> str:
    run = subprocess.run(
        [sys.executable, project / "run.py", *arguments],
        capture_output=True,
        encoding="utf-8",
        env={**environment(), "PYTHONUTF8": "1"},
        cwd=project.parent,
    )
    assert run.returncode == code, run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    return run.stdout + run.stderr


@pytest.mark.slow
def test_demo_installs_once_and_passes_its_arguments_on(project):
    first = call(project, "demo", "--minutes", "1", "--out", "运行 1")
    assert "Making" in first
    assert "Installing qkv[train]" in first
    assert f"called: ['demo', '--minutes', '1', '--out', '运行 1'] in {project.parent}" in first
    assert "Installing" not in call(project, "demo")
    assert "Installing qkv[dev,train]" in call(project, "test")
    assert "Installing" not in call(project, "demo")
    call(project, "demo", "fail", code=7)


@pytest.mark.slow
def test_the_programs_start_under_any_encoding_of_the_system(project):
    call(project, "demo")
    (path_file,) = (project / ".venv").rglob("site-packages/qkv.pth")
    assert path_file.read_bytes().isascii()
    run = subprocess.run(
        [sys.executable, project / "run.py", "demo"],
        capture_output=True,
        env={**environment(), "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        cwd=project,
    )
    assert run.returncode == 0, run.stderr
    assert b"called: ['demo']" in run.stdout


@pytest.mark.slow
def test_tests_run_in_the_project_and_slow_ones_on_request(project):
    assert "called: ['-k', 'masks'] in " + str(project) in call(project, "test", "-k", "masks")
    assert "called: ['-m', 'slow or not slow', '-x']" in call(project, "test", "--slow", "-x")


@pytest.mark.slow
def test_a_changed_project_is_installed_again(project):
    call(project, "demo")
    (project / "constraints.txt").write_text("torch==0.0.1\n# changed\n", encoding="utf-8")
    assert "Installing" in call(project, "demo")


@pytest.mark.slow
def test_half_an_environment_is_repaired(project):
    call(project, "demo")
    (pip,) = (project / ".venv").rglob("site-packages/pip")
    shutil.rmtree(pip)
    repaired = call(project, "demo")
    assert "Repairing" in repaired
    assert "called: ['demo']" in repaired


@pytest.mark.slow
def test_torch_comes_from_the_index_that_is_named(project):
    index = (project / "wheels").as_uri()
    assert "torch-0.0.1+cpu" in call(project, "demo", "--torch-index", index)
    assert list((project / ".venv").rglob("torch-0.0.1+cpu.dist-info"))
    assert "Installing" not in call(project, "demo", f"--torch-index={index}")
    assert "Installing" not in call(project, "demo")


@pytest.mark.slow
def test_a_failed_install_says_what_to_do_and_is_not_taken_for_done(project):
    (project / "empty").mkdir()
    output = call(project, "demo", "--torch-index", (project / "empty").as_uri(), code=1)
    assert "Installing failed" in output
    assert "run the same command again" in output
    assert "Installing" in call(project, "demo")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals can't be sent to another console's processes there")
def test_signals_end_the_program_too(project):
    code, output, errors = interrupt(project, lambda process: os.killpg(process.pid, signal.SIGINT))
    assert (code, output) == (130, "ended in order\n")
    assert "Traceback" not in errors
    code, output, errors = interrupt(project, subprocess.Popen.terminate)
    assert (code, output, errors) == (128 + signal.SIGTERM, "", "")


def interrupt(project: Path, send) -> tuple[int, str, str]:
    """Start a demo that would take a minute, send a signal, and return exit code, output and errors."""
    call(project, "demo")
    # Tests started in the background may have inherited "ignore Ctrl-C", which a child would inherit in turn.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, project / "run.py", "demo", "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**environment(), "PYTHONUTF8": "1"},
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, previous)
    try:
        while "called:" not in process.stdout.readline():
            assert process.poll() is None
        send(process)
        # Returns when every process that holds the pipes has ended: the program, not only run.py.
        output, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, output, errors


@pytest.mark.slow
def test_clean_keeps_trained_models(project):
    call(project, "setup")
    (project / "runs").mkdir()
    call(project, "clean")
    assert not (project / ".venv").exists()
    assert (project / "runs").exists()


def test_only_the_standard_library_is_imported():
    tree = ast.parse((ROOT / "run.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_an_older_python_is_told_so():
    text = (ROOT / "run.py").read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))
    code = "import sys, runpy; sys.version_info = (3, 10, 1); runpy.run_path('run.py', run_name='__main__')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", cwd=ROOT)
    assert run.returncode == 1
    assert "needs Python 3.11 or newer; this is Python 3.10" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("arguments", "index", "rest"),
    [
        ([], None, []),
        (["--torch-index", "https://a/b", "--minutes", "1"], "https://a/b", ["--minutes", "1"]),
        (["tests/a.py", "-k", "b", "--torch", "c", "-h"], None, ["tests/a.py", "-k", "b", "--torch", "c", "-h"]),
        (["--minutes", "1", "--torch-index=https://a/b?c=d"], "https://a/b?c=d", ["--minutes", "1"]),
    ],
)
def test_the_index_of_torch_is_taken_out_of_the_arguments(arguments, index, rest):
    assert run_script.take_torch_index(arguments) == (index, rest)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--torch-index"], "--torch-index: expected one argument"),
        (["demo", "--torch-index", "--minutes", "1"], "--torch-index: expected one argument"),
        (["demo", "--torch-index="], "--torch-index needs"),
        (["demos"], "no command 'demos'. There are: demo, test"),
        (["clean", "all"], "clean takes no arguments"),
    ],
)
def test_bad_arguments_end_with_2_before_anything_is_made(arguments, said):
    run = subprocess.run([sys.executable, ROOT / "run.py", *arguments], capture_output=True, encoding="utf-8")
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr


def test_help_names_every_command(capsys):
    assert run_script.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"python3 run.py {name} " in text for name in run_script.COMMANDS)


@pytest.mark.parametrize(
    ("system", "machine", "gpu", "speaks"),
    [
        ("Linux", "x86_64", False, True),
        ("Linux", "x86_64", True, False),
        ("Linux", "aarch64", False, False),
        ("Windows", "AMD64", False, False),
    ],
)
def test_gigabytes_of_cuda_are_announced_where_they_are_useless(system, machine, gpu, speaks):
    notice = run_script.cuda_notice(system, machine, gpu)
    assert ("--torch-index" in notice) is speaks


@pytest.mark.skipif(shutil.which("make") is None, reason="no make on this system")
def test_every_target_of_make_calls_the_script():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split()
    assert set(targets) == set(run_script.COMMANDS)
    for target in targets:
        command = [shutil.which("make"), "-n", target, "PYTHON=python3", "TORCH_INDEX=https://a"]
        shown = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=ROOT, check=True).stdout
        assert f"python3 run.py {target}" in shown
        assert ("--torch-index https://a" in shown) is (target in run_script.EXTRAS)
