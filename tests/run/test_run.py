"""A trained run from its folder: the same answers as when it was trained, and errors that name the damaged file."""

import shutil

import pytest
import torch

import qkv
from qkv.errors import UserError
from qkv.run.run import build_model, load, resolve_device

SIZES = {"n_source": 9, "n_target": 12}


def test_a_run_is_loaded_ready_to_use(finished_run):
    run = qkv.load(finished_run)
    assert run.folder == finished_run
    assert not any(module.training for module in run.model.modules())
    assert run.config["training"]["steps"] == 24
    assert set(run.metrics()) == {"wer", "per", "unfinished"}
    assert run.metrics() == run.events()[-1]["test"]


def test_what_is_predicted_does_not_change_by_saving_moving_or_asking_twice(finished_run, tmp_path, words):
    texts = ["baba", "cice", "muno", "de"]
    run = load(str(finished_run))
    predictions = run.predict(texts)
    moved = load(shutil.copytree(finished_run, tmp_path / "运行 1"))
    assert moved.predict(texts) == run.predict(texts) == predictions
    assert [p.text for p in predictions] == texts
    assert run.predict(texts, beam=2) == predictions  # the run's own
    assert [len(p.n_best) for p in run.predict(texts, beam=3, n_best=3)] == [3] * 4


def test_dropout_is_off_whatever_the_model_was_last_used_for(finished_run):
    run = load(finished_run)
    before = run.predict(["baba"])
    run.model.train()
    assert run.predict(["baba"]) == before


def test_one_text_instead_of_a_list_is_refused(finished_run):
    with pytest.raises(UserError, match=r"predict takes a list of texts: predict\(\[text\]\)"):
        load(finished_run).predict("baba")


def test_an_unfinished_run_has_no_metrics_but_can_be_used(run_copy):
    lines = (run_copy / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run_copy / "metrics.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    assert load(run_copy).metrics() == {}
    assert load(run_copy).predict(["baba"])


@pytest.mark.parametrize("name", ["config.toml", "model.safetensors", "tokenizer.json", "target_tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "rubbish", "binary"])
def test_a_damaged_run_folder_is_said_with_the_file(run_copy, name, damage):
    path = run_copy / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": content[: len(content) // 2], "rubbish": b"{]"}.get(damage, b"\xff\x00"))
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        load(run_copy)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "seq2seq"', 'name = "seq2sec"', r"unknown task 'seq2sec'. Did you mean 'seq2seq'\?"),
        ('name = "encoder_decoder"', 'name = "encoder"', "unknown model 'encoder'.* Known models: .*encoder_decoder"),
        ("d_model = 16", "d_model = 20", r"model.safetensors does not fit the model of .*config.toml"),
        ("d_model = 16", "d_model = 17", r"model: .*17.*2"),
        ("d_model = 16", "d_modell = 16", r"model has no setting 'd_modell'. Did you mean 'd_model'\?"),
        ("beam = 2", "beam = 0", "task: beam must be >= 1"),
        ("[task]", "[tusk]", r"config.toml has no \[task\] table"),
        ("[model]", "[muddle]", r"config.toml has no \[model\] table"),
    ],
)
def test_a_config_changed_by_hand_is_said(run_copy, old, new, message):
    path = run_copy / "config.toml"
    content = path.read_text(encoding="utf-8")
    assert content.count(old) == 1
    path.write_text(content.replace(old, new), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load(run_copy)


def test_vocabularies_of_another_run_do_not_fit(run_copy):
    shutil.copy(run_copy / "tokenizer.json", run_copy / "target_tokenizer.json")
    with pytest.raises(UserError, match=r"model.safetensors does not fit the model"):
        load(run_copy)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d_model": 250, "n_heads": 8}, r"model: .*250.*8.*(5|10)"),
        ({"d_model": 0}, "model: .*d_model.*0"),
        ({"d_model": -4, "n_heads": 2}, "model: .*d_model.*-4"),
        ({"n_heads": 0}, "model: .*n_heads.*0"),
        ({"n_layers": 0}, "model: .*n_layers.*0"),
        ({"n_layers": -1}, "model: .*n_layers.*-1"),
        ({"n_decoder_layers": -1}, "model: .*n_decoder_layers.*-1"),
        ({"d_ff": 0}, "model: .*d_ff.*0"),
        ({"dropout": 1.5}, "model: .*dropout.*1.5"),
        ({"dropout": -0.5}, "model: .*dropout.*-0.5"),
        ({"n_heads": 4, "n_kv_heads": 3}, "model: .*n_kv_heads.*3.*"),
        ({"tied": "all"}, r"model: tied = 'all' needs one vocabulary.* 9 .* 12"),
        ({"d_model": 12, "n_heads": 4, "positions": "rotary"}, "model: rotary positions need an even head width"),
        ({"positions": "sinus"}, r"model.positions: .*'sinusoidal'.*'sinus'"),
        ({"activation": "tanh"}, r"model.activation: .*'relu'"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_with_its_numbers(settings, message):
    with pytest.raises(UserError, match=message):
        build_model({"name": "encoder_decoder", **settings}, SIZES)


def test_a_model_is_built_from_its_table():
    model = build_model({"name": "encoder_decoder", "d_model": "8", "n_heads": 2, "d_ff": 8, "n_layers": 1}, SIZES)
    assert model.head.projection.weight.shape == (12, 8)
    with pytest.raises(UserError, match=r"unknown model 'encoder_decode'. Did you mean 'encoder_decoder'\?"):
        build_model({"name": "encoder_decode"}, SIZES)
    with pytest.raises(UserError, match="unknown model ''"):
        build_model({}, SIZES)


def test_devices_by_name():
    assert resolve_device("cpu") == torch.device("cpu")
    assert resolve_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(UserError, match=r"unknown device 'cpuu'. Did you mean 'cpu'\? Use auto, cpu, cuda"):
        resolve_device("cpuu")
    for name, there in (("cuda", torch.cuda.is_available()), ("mps", torch.backends.mps.is_available())):
        if not there:
            with pytest.raises(UserError, match=f"no usable {name} device: use --device auto or --device cpu"):
                resolve_device(name)
    for wrong in ("cuda:x", "cpu:", "cuda:99", ""):
        with pytest.raises(UserError, match="device"):
            resolve_device(wrong)
