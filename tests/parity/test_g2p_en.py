"""Real weights, real parity: the published GRU of g2p-en, read into the encoder-decoder without attention."""

import io
import zipfile

import numpy as np
import pytest
import torch

from qkv.data.fetch import Remote, fetch
from qkv.errors import UserError
from qkv.generation.greedy import greedy
from qkv.models.recurrent import RecurrentConfig
from qkv.models.recurrent_decoder import build_seq2seq

WHEEL = Remote(
    project="g2p-en",
    file="g2p_en-2.1.0-py3-none-any.whl",
    size=3_117_464,
    sha256="2a7aabf1fc7f270fcc3349881407988c9245173c2413debbe5432f4a4f31319f",
)
LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
VOWELS = ["AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW"]
CONSONANTS = [
    "B",
    "CH",
    "D",
    "DH",
    "F",
    "G",
    "HH",
    "JH",
    "K",
    "L",
    "M",
    "N",
    "NG",
    "P",
    "R",
    "S",
    "SH",
    "T",
    "TH",
    "V",
    "W",
    "Y",
    "Z",
    "ZH",
    "UW",
]
SOUNDS = ["<pad>", "<unk>", "<s>", "</s>", *sorted([*(f"{v}{n}" for v in VOWELS for n in "012"), *CONSONANTS])]
"""In the order of the published weights: UW stands there without stress too."""
WORDS = [
    "hello",
    "attention",
    "transformer",
    "knowledge",
    "phoenix",
    "queue",
    "abstraction",
    "zebra",
    "rhythm",
    "banana",
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def weights():
    try:
        path = fetch(WHEEL)
    except UserError as error:
        pytest.skip(f"cannot be fetched here: {str(error).splitlines()[0]}")
    with zipfile.ZipFile(path) as archive:
        kept = np.load(io.BytesIO(archive.read("g2p_en/checkpoint20.npz")), allow_pickle=False)
        return {name: kept[name] for name in kept.files}


@pytest.fixture(scope="module")
def model(weights):
    config = RecurrentConfig(
        d_model=256, d_hidden=256, dropout=0.0, bidirectional=False, attention="none", context="first"
    )
    made = build_seq2seq(config, len(LETTERS), len(SOUNDS), cell="gru").eval()
    state = {
        "encoder.embedding.tokens.weight": weights["enc_emb"] / 16,  # the house multiplies by sqrt(256)
        "decoder.embedding.tokens.weight": weights["dec_emb"] / 16,
        "head.projection.weight": weights["fc_w"],
        "head.projection.bias": weights["fc_b"],
    }
    for side, short in (("encoder", "enc"), ("decoder", "dec")):
        for kind in ("w", "b"):
            for way in ("ih", "hh"):
                name = f"{'weight' if kind == 'w' else 'bias'}_{way}_l0"
                state[f"{side}.layers.layers.0.{name}"] = weights[f"{short}_{kind}_{way}"]
    missing = made.load_state_dict({name: torch.from_numpy(value) for name, value in state.items()})
    assert not missing.missing_keys
    return made


def gru(x, h, w, u, b, d):
    (r, z, n), (rh, zh, nh) = np.split(w @ x + b, 3), np.split(u @ h + d, 3)
    r, z = 1 / (1 + np.exp(-(r + rh))), 1 / (1 + np.exp(-(z + zh)))
    return (1 - z) * np.tanh(n + r * nh) + z * h


def by_hand(weights, word):
    """Sounds and logits, by numpy: the encoder's last state begins the decoder, which writes greedily."""
    enc, dec = ([weights[f"{side}_{name}"] for name in ("w_ih", "w_hh", "b_ih", "b_hh")] for side in ("enc", "dec"))
    h = np.zeros(256)
    for letter in [*word, "</s>"]:
        h = gru(weights["enc_emb"][LETTERS.index(letter)], h, *enc)
    said, logits = ["<s>"], []
    while said[-1] != "</s>" and len(said) < 20:
        h = gru(weights["dec_emb"][SOUNDS.index(said[-1])], h, *dec)
        logits.append(weights["fc_w"] @ h + weights["fc_b"])
        said.append(SOUNDS[int(logits[-1].argmax())])
    return [sound for sound in said[1:] if sound != "</s>"], np.stack(logits)


@pytest.mark.parametrize("word", WORDS)
def test_it_says_what_the_published_weights_say(weights, model, word):
    expected, logits = by_hand(weights, word)
    source = torch.tensor([[LETTERS.index(letter) for letter in [*word, "</s>"]]])
    target = torch.tensor([[SOUNDS.index(sound) for sound in ["<s>", *expected]]])
    with torch.no_grad():
        found = model(source, target)[0].numpy()
    np.testing.assert_allclose(found[: len(logits)], logits, atol=1e-4, rtol=1e-4)
    [said] = greedy(model, {"source": source, "target": target[:, :1]}, bos=2, eos=3, max_length=20)
    assert [SOUNDS[i] for i in said.tokens] == expected


@pytest.mark.parametrize(
    ("word", "sounds"), [("transformer", "T R AE0 N S F AO1 R M ER0"), ("attention", "AH0 T EH1 N SH AH0 N")]
)
def test_words_sound_as_they_should(weights, word, sounds):
    assert by_hand(weights, word)[0] == sounds.split()


MORE_WORDS = [
    "mountain", "psychology", "laboratory", "vigorous", "strength", "choir", "yesterday",
    "umbrella", "fjord", "gazette", "cathedral", "measure", "judgement", "oyster", "shrimp", "thing",
    "although", "quixotic", "wharf", "embroidery"
]  # fmt: skip


@pytest.mark.parametrize("word", MORE_WORDS)
def test_it_says_what_the_published_weights_say_of_more_words(weights, model, word):
    test_it_says_what_the_published_weights_say(weights, model, word)


def test_hello_sounds_as_hello_whatever_the_stress(weights, model):
    source = torch.tensor([[LETTERS.index(letter) for letter in [*"hello", "</s>"]]])
    [said] = greedy(model, {"source": source, "target": torch.tensor([[2]])}, bos=2, eos=3, max_length=20)
    assert [SOUNDS[i].rstrip("012") for i in said.tokens] == ["HH", "EH", "L", "OW"]
    assert len(LETTERS) == len(weights["enc_emb"])
    assert len(SOUNDS) == len(weights["dec_emb"])
