"""`qkv shapes`."""

import pytest

STAGES = ("q", "k", "v", "scores", "weights", "heads")


def shapes_of(steps, path):
    """The output shape of each row with this path, by name."""
    return {row["name"]: row["outputs"][0]["shape"] for row in steps if row["path"] == path and row["outputs"]}


def test_an_untrained_model_shows_every_step_with_its_numbers(qkv):
    found = qkv.json("shapes", "--text", "queue", "--d_model", "24", "--n_heads", "3", "--n_layers", "2")
    steps = found["steps"]
    assert found["model"] == "encoder_decoder"
    # 5 letters and eos as source; as many target symbols as letters.
    for kind, queries, keys in (("encoder.blocks.1.attention", 6, 6), ("decoder.blocks.1.cross_attention", 5, 6)):
        inside = {name: shape for name, shape in shapes_of(steps, kind).items() if name in STAGES}
        assert inside == {
            "q": [1, 3, queries, 8], "k": [1, 3, keys, 8], "v": [1, 3, keys, 8], "scores": [1, 3, queries, keys],
            "weights": [1, 3, queries, keys], "heads": [1, 3, queries, 8],
        }  # fmt: skip
    assert steps[0]["path"] == ""
    assert steps[0]["outputs"][0]["shape"][:2] == [1, 5]


def test_the_table_for_people_has_the_same_names(qkv):
    out, err = qkv("shapes", "encoder_decoder", "--d_model", "16", "--n_layers", "1", "--text", "ab")
    assert err == ""
    for word in (*STAGES, "cross_attention", "head", "EncoderDecoder"):
        assert word in out
    assert "(1, 4, 3, 4)" in out  # q of the encoder: 4 heads, 2 letters and eos, 16 / 4


def test_a_trained_run_shows_its_own_steps(qkv, finished_run):
    steps = qkv.json("shapes", finished_run, "--text", "baba")["steps"]
    assert shapes_of(steps, "encoder.blocks.0.attention")["scores"] == [1, 2, 5, 5]
    out, _ = qkv("shapes", finished_run, "--text", "baba")
    assert "(1, 2, 5, 5)" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--d_model", "250", "--n_heads", "8"], "model: "),
        (["--d_model", "8", "encoder"], "unknown model 'encoder'"),
        (["encoder"], "unknown model 'encoder'. Did you mean 'encoder_decoder'?"),
        (["--d_modle", "8"], "model has no setting 'd_modle'. Did you mean 'd_model'?"),
        (["--lr", "8"], "model has no setting 'lr'"),
        (["--text", ""], "--text is empty"),
        (["encoder_decoder", "attention"], "unexpected argument 'attention'"),
        (["--n_layers", "0"], "n_layers 0: must be 1 or more"),
    ],
)
def test_mistakes(qkv, arguments, message):
    assert message in qkv.refused("shapes", *arguments)


def test_heads_that_do_not_divide_the_width_are_answered_with_those_that_do(qkv):
    message = qkv.refused("shapes", "--d_model", "250", "--n_heads", "8")
    assert "250" in message
    assert "8" in message
    assert "5" in message
    assert "10" in message


def test_a_run_cannot_be_given_other_settings_and_must_be_a_run(qkv, finished_run, tmp_path):
    message = qkv.refused("shapes", finished_run, "--d_model", 8)
    assert "is a trained run: its settings cannot be changed here (d_model)" in message
    assert "is not a run folder: it has no config.toml" in qkv.refused("shapes", tmp_path)
    assert "--text is empty" in qkv.refused("shapes", finished_run, "--text", "")
