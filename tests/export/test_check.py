"""Agreement of answers, and near ties."""

import torch

from qkv.data.symbols import EOS
from qkv.export.check import Torch, agreement


def test_only_answers_that_part_at_equal_logits_are_near_ties(random_model):
    model = random_model(positions="none")
    with torch.no_grad():  # symbols 4 and 5 always equally good, 6 never
        model.head.projection.weight[5] = model.head.projection.weight[4]
        model.head.projection.bias[5] = model.head.projection.bias[4]
        model.head.projection.bias[6] = -50.0
    reference, source = Torch(model, 10), [7, 8, 9, EOS]
    assert reference.is_near_tie(source, [7, 4, 9, EOS], [7, 5, EOS])
    assert not reference.is_near_tie(source, [7, 4, 9, EOS], [7, 6, EOS])
    assert not reference.is_near_tie(source, [7, 4], [7, 4, EOS])
    expected = [[4, EOS], [4, EOS], [4, EOS], [7]]
    found, wrong = agreement(reference, [source] * 4, [[4, EOS], [5, EOS], [6, EOS], [7]], expected)
    assert (found.words, found.same, found.near_ties, found.percent) == (4, 2, 1, 50.0)
    assert wrong == [2]
