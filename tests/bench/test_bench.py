"""Every measurement runs from start to end in tiny sizes and writes what its README promises."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("attention", "training", "decoding", "startup")


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments], capture_output=True, encoding="utf-8", env=environment, cwd=ROOT
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run_writes_machine_versions_and_medians(name, tmp_path):
    run = bench(name, "--quick", "--out", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    assert result["quick"] is True
    assert result["machine"]["cores"] >= 1
    assert result["versions"]["torch"] != "not installed"
    medians = [system["median"] for group in result["medians"].values() for system in group.values()]
    assert medians
    assert all(median > 0 for median in medians)
    assert "--quick: these figures mean nothing" in run.stdout
    for package in result.get("not_installed", []):
        assert f"{package.split()[0]}" in run.stdout
        assert "not installed" in run.stdout


def test_an_unknown_name_is_refused_with_those_there_are():
    run = bench("decodnig")
    assert run.returncode == 2
    assert "no decodnig" in run.stderr
    assert all(name in run.stderr for name in NAMES)
