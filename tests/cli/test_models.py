"""`qkv models`."""

import dataclasses

from qkv.models.encoder_decoder import EncoderDecoderConfig
from qkv.models.registry import models


def test_json_lists_each_architecture_with_its_settings_and_their_defaults(qkv):
    rows = {row["name"]: row for row in qkv.json("models")["models"]}
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
