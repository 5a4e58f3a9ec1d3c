"""Every command and Python example that README.md and the guide's pages show is run, with its times made short.

A comment above a fence says how:

    <!-- check: slow -->           only in the slow tier (so must be every fence that needs its results)
    <!-- check: install -->        shown, not run: the lines of pip, make and run.py are checked for what they name
    <!-- check: with ARGUMENTS --> `qkv demo` and `qkv train` are given these too (Python's qkv.train: `with beam=1`)
    <!-- check: slow with ... -->  both

The fences of a page are run in their order, in one folder that holds the recipes and nothing else.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README, CHINESE = ROOT / "README.md", ROOT / "README.zh-CN.md"
GUIDE = sorted((ROOT / "docs" / "en").glob("*.md"))
TWICE = [(README, CHINESE), *((page, ROOT / "docs" / "zh" / page.name) for page in GUIDE)]
"""English pages and their Chinese ones."""
FENCE = re.compile(
    r"^(?:<!-- check: (?P<check>.*?) -->\n+)?^```(?P<language>sh|python)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
SHORT = (r"(--minutes[ =])[\d.]+", r"(\bminutes=)[\d.]+")
SHELL_ONLY = {"|", "&", "&&", "||", ";", ">", ">>", "<"}
SHELL_COMMANDS = {"cd", "export", "source"}


@dataclass(frozen=True)
class Fence:
    language: str
    code: str
    line: int
    slow: bool
    install: bool
    extra: tuple[str, ...]

    def lines(self) -> list[str]:
        joined = self.code.replace("\\\n", " ")
        return [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def fences(path: Path) -> list[Fence]:
    text = path.read_text(encoding="utf-8")
    return [read_fence(match, text) for match in FENCE.finditer(text)]


def read_fence(match: re.Match[str], text: str) -> Fence:
    line = text.count("\n", 0, match.start("code"))
    words, _, extra = (match["check"] or "").partition("with ")
    flags = set(words.replace(",", " ").split())
    assert flags <= {"slow", "install"}, f"README line {line}: unknown check {flags}"
    return Fence(match["language"], match["code"], line, "slow" in flags, "install" in flags, tuple(shlex.split(extra)))


def shortened(code: str) -> str:
    for pattern in SHORT:
        code = re.sub(pattern, r"\g<1>0.05", code)
    return code


def command(line: str, fence: Fence) -> list[str]:
    """The words of a README line, as this Python runs them on any system."""
    words = shlex.split(shortened(line), comments=True)
    shell = SHELL_ONLY.intersection(words) | SHELL_COMMANDS.intersection(words[:1])
    assert not shell, f"README line {fence.line}: {shell} needs one particular shell; write commands that any runs"
    if words[0] in ("python", "python3"):
        return [sys.executable, *words[1:]]
    if words[0] == "torchrun":
        return [sys.executable, "-m", "torch.distributed.run", *words[1:], *fence.extra]
    assert words[0] == "qkv", f"README line {fence.line}: can't check {line!r}; mark the fence <!-- check: install -->"
    return [sys.executable, "-m", *words, *(fence.extra if words[1] in ("demo", "train") else ())]


def run_fences(page: Path, folder: Path, slow: bool) -> int:
    for recipes in filter(Path.exists, [ROOT / "recipes"]):
        shutil.copytree(recipes, folder / "recipes")
    runs = 0
    for fence in fences(page):
        if fence.install or (fence.slow and not slow):
            continue
        if fence.language == "python":
            given = "".join(f"{argument}, " for argument in fence.extra)
            code = shortened(fence.code).replace("qkv.train(", f"qkv.train({given}")
            commands = [[sys.executable, "-c", code]]
        else:
            commands = [command(line, fence) for line in fence.lines()]
        for words in commands:
            run_one(words, folder, fence)
            runs += 1
    return runs


def run_one(words: list[str], folder: Path, fence: Fence) -> None:
    environment = {**os.environ, "PYTHONUTF8": "1"}
    run = subprocess.run(words, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=600)
    shown = f"README line {fence.line}: {words} ended with {run.returncode}\n{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
    assert run.returncode == 0, shown
    assert "Traceback" not in run.stderr, shown


@pytest.mark.parametrize("page", [README, *GUIDE], ids=lambda page: page.stem)
def test_the_quick_commands_run(page, tmp_path):
    assert run_fences(page, tmp_path, slow=False) > 0


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, *GUIDE], ids=lambda page: page.stem)
def test_all_commands_run(page, tmp_path):
    assert run_fences(page, tmp_path, slow=True) > 0


def test_install_lines_name_what_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split()
    lines = [line.split("#")[0] for fence in fences(README) if fence.install for line in fence.lines()]
    assert lines
    for line in lines:
        assert set(re.findall(r"^make (\w+)", line)) <= set(targets), line
        assert set(re.findall(r"run\.py (\w+)", line)) <= set(targets), line
        named = [name.strip() for group in re.findall(r"\[([\w, ]+)\]", line) for name in group.split(",")]
        assert set(named) <= set(extras), line


@pytest.mark.parametrize(("english", "chinese"), TWICE, ids=lambda page: page.stem)
def test_both_languages_show_the_same_commands(english, chinese):
    assert [fence.lines() for fence in fences(chinese)] == [fence.lines() for fence in fences(english)]


def test_no_fence_escapes_the_check():
    for path in (path for pair in TWICE for path in pair):
        text = path.read_text(encoding="utf-8")
        opened = re.findall(r"^\s*(?:```|~~~)(?:sh|bash|shell|console|python|py)\b", text, re.MULTILINE)
        assert len(opened) == len(fences(path)), f"{path.name}: fence code with ```sh or ```python, not indented"
