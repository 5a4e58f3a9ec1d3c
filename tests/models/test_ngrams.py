"""Baselines that count: modules like any other once they are fitted."""

import copy

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch.testing import assert_close

from qkv.data.batches import pad
from qkv.errors import UserError
from qkv.models.ngrams import NGramsConfig, build_per_token, build_pooled
from qkv.tasks.batch import Batch

ROWS = [[1, 4, 5, 6], [1, 5, 6], [1, 7, 8, 4, 4], [1, 7, 9], [1, 5, 4], [1, 8, 8, 7]]


def fitted(**settings):
    model = build_pooled(NGramsConfig(**settings), 12, 2)
    tokens, mask = pad(ROWS)
    model.fit([Batch({"tokens": tokens, "mask": mask}, torch.tensor([0, 0, 1, 1, 0, 1]), 6, 20)])
    return model.eval()


@pytest.mark.parametrize(("left", "right"), [(0, 3), (2, 0), (3, 2)])
def test_padding_and_neighbours_change_nothing(left, right):
    model = fitted()
    tokens = torch.randint(4, 12, (len(ROWS), left + 5 + right))
    mask = torch.zeros_like(tokens).bool()
    for row, ids in enumerate(ROWS):
        tokens[row, left : left + len(ids)] = torch.tensor(ids)
        mask[row, left : left + len(ids)] = True
    together = model(tokens, mask)
    for row, ids in enumerate(ROWS):
        assert_close(together[row], model(torch.tensor([ids]))[0])


def test_it_is_saved_and_loaded_into_a_new_module_whatever_its_sizes(tmp_path):
    model, other = fitted(), build_pooled(NGramsConfig(), 12, 2)
    save_model(model, str(tmp_path / "m.safetensors"))
    missing, unexpected = load_model(other, str(tmp_path / "m.safetensors"))
    assert not missing
    assert not unexpected
    tokens, mask = pad(ROWS)
    assert torch.equal(other(tokens, mask), model(tokens, mask))
    twin = copy.deepcopy(model)
    twin.bias.data.add_(1.0)
    assert not torch.equal(twin(tokens, mask), model(tokens, mask))


def test_pairs_of_neighbours_and_rare_ones():
    model = fitted()
    known = set(model.codes.tolist())
    assert {5, 6, 7, 8, 9, 10} <= known  # one token: its id and one
    assert 5 * 13 + 6 in known  # 4 before 5
    assert 6 * 13 + 5 in known
    assert 2 * 13 + 5 not in known  # bos is no word
    assert len(fitted(min_count=2).codes) < len(known)
    assert len(fitted(n=1).codes) == 6


def test_a_text_of_unknown_words_only_gets_the_bias():
    model = fitted()
    found = model(torch.tensor([[1, 3, 3], [1, 0, 0]]), torch.tensor([[True] * 3, [True, False, False]]))
    assert_close(found, model.bias.expand(2, -1))


def test_what_cannot_be_is_refused():
    with pytest.raises(UserError, match=r"no n-gram stands in 9 texts: take a smaller model\.min_count"):
        fitted(min_count=9)
    with pytest.raises(ValueError, match="n 4"):
        NGramsConfig(n=4)
    with pytest.raises(ValueError, match="c 0"):
        NGramsConfig(c=0.0)
    with pytest.raises(ValueError, match="too much for a vocabulary of 3,000,000"):
        build_pooled(NGramsConfig(n=3), 3_000_000, 2)


def test_each_token_gets_its_most_frequent_tag_and_an_unseen_one_that_of_rare_tokens():
    model = build_per_token(NGramsConfig(), 10, 3)
    tokens = torch.tensor([[1, 4, 5, 4], [1, 4, 6, 7]])
    targets = torch.tensor([[-100, 0, 1, 0], [-100, 2, 1, -100]])
    model.fit([Batch({"tokens": tokens, "mask": tokens > 0}, targets, 5, 8)])
    best = model(torch.tensor([[4, 5, 6, 3, 7]])).argmax(-1)[0].tolist()
    assert best[:3] == [0, 1, 1]
    assert best[3] == 1  # unknown: 5 and 6 were seen once
    assert model(torch.tensor([[4]])).exp().sum().item() == pytest.approx(1.0)


def test_a_copy_of_a_fitted_model_says_the_same():
    model, (tokens, mask) = fitted(), pad(ROWS)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(tokens, mask), model(tokens, mask))
    twin.idf.mul_(2.0)
    assert_close(model(tokens, mask), fitted()(tokens, mask))


def test_a_token_of_the_vocabulary_that_training_never_asked_about_gets_the_tag_of_rare_tokens():
    model = build_per_token(NGramsConfig(), 10, 3)
    tokens, targets = torch.tensor([[4, 5, 6, 7]]), torch.tensor([[2, 1, 1, -100]])
    model.fit([Batch({"tokens": tokens, "mask": tokens > 0}, targets, 3, 4)])
    assert model(torch.tensor([[3, 7, 9]])).argmax(-1).tolist() == [[1, 1, 1]]
