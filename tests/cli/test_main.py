"""What every verb has in common: help, exit codes, one JSON object, errors without tracebacks."""

import importlib
import io
import json

import pytest

import qkv as package
from qkv.cli import main as module
from qkv.cli.main import VERBS
from qkv.cli.options import download_bar, settings_from
from qkv.errors import UserError


def test_help_lists_every_verb_with_what_it_does(qkv):
    out, err = qkv("--help")
    assert err == ""
    for verb, summary in VERBS.items():
        assert verb in out
        assert summary.split(".")[0].split(",")[0] in " ".join(out.split())
    assert qkv("-h") == (out, "")


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_explains_itself_and_takes_json(qkv, verb):
    out, err = qkv(verb, "--help")
    assert err == ""
    assert out.startswith(f"Usage: qkv {verb} ")
    if verb == "data":
        for name in ("list", "get", "show"):
            assert "--json" in qkv(verb, name, "--help")[0]
    else:
        assert "--json" in out


def test_every_module_of_the_room_that_is_a_verb_is_listed():
    for verb in VERBS:
        command = importlib.import_module(f"qkv.cli.{verb}").command
        assert command.help, verb


def test_version(qkv):
    assert qkv("--version") == (f"qkv, version {package.__version__}\n", "")


def test_without_a_verb_help_is_shown_and_is_no_error_message(qkv):
    for arguments, name in (([], "train"), (["data"], "show")):
        out, err = qkv(*arguments, code=2)
        assert out == ""
        assert err.startswith("Usage: qkv")
        assert name in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command 'trian'. Did you mean 'train'? Commands: demo, train, predict, eval, export"),
        (["zzzzz"], "unknown command 'zzzzz'. Commands: demo, train"),
        (["data", "lst"], "unknown command 'lst'. Did you mean 'list'? Commands: get, list, show"),
        (["predict"], "Missing argument 'RUN'. See `qkv predict --help`"),
        (["models", "extra"], "Got unexpected extra argument (extra). See `qkv models --help`"),
        (["models", "--jsn"], "Did you mean '--json'? See `qkv models --help`"),
        (["demo", "--minutes", "few"], "'few' is not a valid float"),
    ],
)
def test_mistakes_end_with_code_2_and_a_hint(qkv, arguments, message):
    assert message in qkv.refused(*arguments)


def test_an_error_under_json_is_one_json_object_too(qkv):
    out, err = qkv("data", "get", "cmudikt", "--json", code=2)
    assert out.count("\n") == 1
    assert err == f"error: {json.loads(out)['error']}\n"
    assert "Did you mean 'cmudict'?" in err


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (UserError("too wide"), 2, "error: too wide"),
        (KeyboardInterrupt(), 130, "stopped"),
        (KeyboardInterrupt("saved; go on"), 130, "saved; go on"),
        (
            ModuleNotFoundError("No module named 'tokenizers'", name="tokenizers"),
            2,
            'error: this command needs tokenizers: install the rest with pip install "qkv[all]"',
        ),
    ],
)
def test_how_a_verb_that_stops_ends(qkv, monkeypatch, raised, code, said):
    def stop(**_):
        raise raised

    from qkv.cli import models

    monkeypatch.setattr(models.command, "callback", stop)
    out, err = qkv("models", code=code)
    assert (out, err.strip()) == ("", said)


def test_a_fault_of_the_program_is_not_hidden(monkeypatch):
    from qkv.cli import models

    monkeypatch.setattr(models.command, "callback", lambda **_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        module.main(["models"])


@pytest.mark.slow
def test_a_reader_that_leaves_early_is_no_error_message(words):
    process = words.start("data", "show", "words")
    process.stdout.close()
    err = process.stderr.read()
    process.wait(60)
    process.stderr.close()
    assert err == ""


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize("fetched", [100, 60])
def test_the_bar_of_a_download_is_there_only_while_bytes_arrive(monkeypatch, fetched):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with download_bar() as progress:
        assert screen.getvalue() == ""
        for done in range(20, fetched + 1, 20):
            progress(done, 100)
        shown = screen.getvalue()
    assert "fetching" in shown
    cursor_is_back = "\x1b[?25h"
    assert (cursor_is_back in shown) == (fetched == 100)
    assert cursor_is_back in screen.getvalue()


@pytest.mark.parametrize(
    ("arguments", "settings"),
    [
        ([], {}),
        (["--d_model", "128"], {"d_model": 128}),
        (["--model.d-model=128", "--lr", "1e-3"], {"model.d_model": 128, "lr": 0.001}),
        (["--stress", "true", "--pre_norm=false"], {"stress": True, "pre_norm": False}),
        (["--norm", "rms", "--name", "a b", "--x", '"12"', "--y="], {"norm": "rms", "name": "a b", "x": "12", "y": ""}),
        (["--clip", "-1"], {"clip": -1}),
    ],
)
def test_settings_of_a_command_line_are_numbers_truth_values_or_text(arguments, settings):
    assert settings_from(arguments) == settings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["128"], "unexpected argument '128': settings are written --NAME VALUE"),
        (["--d_model"], "--d_model needs a value: --d_model VALUE"),
        (["--d_model", "--lr", "1"], "--d_model needs a value"),
        (["-d", "1"], "unexpected argument '-d'"),
        (["--d_model", "1", "2"], "unexpected argument '2'"),
    ],
)
def test_settings_that_cannot_be_read_are_said(arguments, message):
    with pytest.raises(UserError, match=message):
        settings_from(arguments)
