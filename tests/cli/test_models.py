"""`qkv models`."""

import dataclasses

from qkv.models.encoder_decoder import EncoderDecoderConfig
from qkv.models.registry import models
from qkv.tasks.seq2seq import Seq2SeqConfig
from qkv.training.config import TrainingConfig


def test_json_lists_each_architecture_with_its_settings_and_their_defaults(qkv):
    found = qkv.json("models")
    rows = {row["name"]: row for row in found["models"]}
    assert found["training"]["settings"] == dataclasses.asdict(TrainingConfig())
    assert found["tasks"]["seq2seq"]["settings"] == dataclasses.asdict(Seq2SeqConfig())
    assert set(found["tasks"]) == {"seq2seq", "classification", "tagging", "masked_lm"}
    assert set(rows) == set(models())
    row = rows["encoder_decoder"]
    assert row["settings"] == dataclasses.asdict(EncoderDecoderConfig())
    assert row["reads"] == ["tokens"]
    assert "next_token" in row["heads"]
    assert row["summary"]


def test_each_setting_is_shown_as_it_is_written_on_the_command_line(qkv):
    out, err = qkv("models")
    assert err == ""
    for name, entry in models().items():
        assert f"{name}: {entry.summary}" in out
        for field in dataclasses.fields(entry.config):
            assert f"--model.{field.name} " in out
    assert "heads of keys and values; 0: as many as n_heads" in out
    for table, config in (("task", Seq2SeqConfig), ("training", TrainingConfig)):
        for field in dataclasses.fields(config):
            assert f"--{table}.{field.name} " in out
