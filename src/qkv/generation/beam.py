"""Beam search: the k most probable beginnings side by side, all rows and beams in one batch.

Letters: R rows still searched, W beams a row, V vocabulary, C candidates a row, N hypotheses kept a row, t symbols
so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from qkv.generation.protocol import Decodes, Hypothesis, State, check_beam, refuse_broken, start
from qkv.nn.state import select_rows

IMPOSSIBLE = float("-inf")


@torch.inference_mode()
def beam(
    model: Decodes[State],
    inputs: dict[str, Tensor],
    *,
    bos: int,
    eos: int,
    max_length: int,
    beam: int = 5,
    length_penalty: float = 1.0,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The `n_best` best hypotheses of each row that a search with `beam` beams finds, best score first.

    At each step the most probable continuations of a row's live beams are kept; one that ends in eos is finished and
    keeps its place, so that a row has `beam` hypotheses at most, live and finished together (Sutskever et al. 2014,
    section 3.2). With `beam=1` this is greedy search. Hypotheses are ranked by log_prob / length ** length_penalty
    (0: log_prob itself; 1: its mean; larger favours longer outputs), length being the generated symbols including
    eos. A row ends when no live beam can still beat the worst of its `n_best` finished hypotheses, whatever follows.

    Among equals the better beam comes first, then the smaller symbol, then what finished first. Hypotheses that
    `max_length` (eos counts) cut are `finished=False` and only fill up rows with fewer than `n_best` finished ones,
    behind those. A row has fewer than `n_best` only when no others of a probability above 0 were found.

    Raises UserError for settings that can't be, as `start` does, and when the model's scores are NaN.
    """
    check_beam(beam, n_best, length_penalty, max_length)
    logits, state = start(model, inputs, bos=bos, eos=eos, max_length=max_length)
    found: list[list[Hypothesis]] = [[] for _ in range(logits.size(0))]
    search = _Search(_Settings(beam, n_best, length_penalty, max_length, eos), logits.size(0), logits.device)
    while search.rows.numel():
        parents, left = search.advance(logits)
        for row, hypotheses in left:
            found[row] = hypotheses
        if search.rows.numel():
            logits, state = model.step(search.tokens[:, :, -1].flatten(), select_rows(state, parents))
    return found


@dataclass(frozen=True)
class _Settings:
    beam: int
    n_best: int
    alpha: float
    max_length: int
    eos: int


class _Search:
    """The live beams of the rows still searched, and the best finished hypotheses of each."""

    def __init__(self, settings: _Settings, n_rows: int, device: torch.device):
        self.settings = settings
        self.rows = torch.arange(n_rows, device=device)  # (R,) the caller's row of each row still searched
        self.room = torch.full_like(self.rows, settings.beam)  # (R,) places of the beam not taken by finished ones
        self.live = torch.zeros(n_rows, 1, device=device)  # (R, W) log-probabilities; IMPOSSIBLE: an empty place
        self.tokens = self.rows.new_empty(n_rows, 1, 0)  # (R, W, t)
        self.kept_score = torch.full((n_rows, settings.n_best), IMPOSSIBLE, device=device)  # (R, N)
        self.kept_log_prob = self.kept_score.clone()  # (R, N)
        self.kept_tokens = self.rows.new_empty(n_rows, settings.n_best, 0)  # (R, N, t), eos to the end

    def advance(self, logits: Tensor) -> tuple[Tensor, list[tuple[int, list[Hypothesis]]]]:
        """One symbol more for every live beam; rows that are done leave.

        Takes the logits (R * W, V). Returns, for each beam that goes on, the place of its parent among those R * W, and
        (the caller's row, its hypotheses) for the rows that left.
        """
        n_rows, width = self.live.shape
        log_probs = logits.float().log_softmax(1).view(n_rows, width, -1)  # (R, W, V)
        total = (self.live[:, :, None] + log_probs).flatten(1)  # (R, W * V)
        score, index = _best(total, min(self.settings.beam, total.size(1)))  # (R, C)
        refuse_broken(bool(score.isnan().any()))
        parent, symbol = index // log_probs.size(2), index % log_probs.size(2)
        self.tokens = torch.cat([_pick(self.tokens, parent), symbol[:, :, None]], 2)  # (R, C, t)
        chosen = (torch.arange(score.size(1), device=score.device) < self.room[:, None]) & (score > IMPOSSIBLE)
        ended = chosen & (symbol == self.settings.eos)
        self._keep(score.masked_fill(~ended, IMPOSSIBLE))
        self.room = self.room - ended.sum(1)
        self.live = score.masked_fill(~chosen | ended, IMPOSSIBLE)  # (R, C)
        done = self._done()
        left = self._leave(done.nonzero()[:, 0])
        parent = parent + width * torch.arange(n_rows, device=parent.device)[:, None]
        return self._stay((~done).nonzero()[:, 0], parent), left

    def _keep(self, ended: Tensor) -> None:
        """The best of those kept and of those that ended now, by score. ended (R, C) log-probabilities."""
        pool = torch.cat([self.kept_score, self._score(ended)], 1)  # (R, N + C)
        self.kept_score, order = _best(pool, self.settings.n_best)
        self.kept_log_prob = torch.cat([self.kept_log_prob, ended], 1).gather(1, order)
        earlier = pad(self.kept_tokens, (0, 1), value=self.settings.eos)
        self.kept_tokens = _pick(torch.cat([earlier, self.tokens], 1), order)

    def _done(self) -> Tensor:
        """(R,) True where no live beam can beat the worst kept hypothesis any more.

        A log-probability never rises, so a beam's best future score is its own one, over the length that suits it best.
        """
        length, alpha = self.tokens.size(2), self.settings.alpha
        if length == self.settings.max_length:
            return torch.ones_like(self.rows, dtype=torch.bool)
        best_length = self.settings.max_length if alpha > 0 else length + 1
        return self.kept_score[:, -1] >= self.live.amax(1) / best_length**alpha

    def _leave(self, leaving: Tensor) -> list[tuple[int, list[Hypothesis]]]:
        """The caller's row and the hypotheses of each row in `leaving`: the kept ones, then those that were cut."""
        kept = (self.kept_score, self.kept_log_prob, self.kept_tokens)
        # A row that leaves before max_length has N kept ones or no live ones: nothing is added to it.
        cut = (self._score(self.live), self.live, self.tokens)
        left: list[tuple[int, list[Hypothesis]]] = []
        for row, *columns in zip(*(part[leaving].tolist() for part in (self.rows, *kept, *cut)), strict=True):
            hypotheses = [
                Hypothesis(tokens[: tokens.index(self.settings.eos)], score, log_prob, finished=True)
                for score, log_prob, tokens in zip(*columns[:3], strict=True)
                if score > IMPOSSIBLE
            ]
            hypotheses += [
                Hypothesis(tokens, score, log_prob, finished=False)
                for score, log_prob, tokens in zip(*columns[3:], strict=True)
                if score > IMPOSSIBLE
            ]
            left.append((row, hypotheses[: self.settings.n_best]))
        return left

    def _stay(self, staying: Tensor, parent: Tensor) -> Tensor:
        """Drops the other rows and the empty places; returns the parents (R * W,) of what is left. parent (R, C)."""
        live, order = self.live[staying].sort(dim=1, descending=True, stable=True)
        width = int((live > IMPOSSIBLE).sum(1).max()) if len(staying) else 0
        order = order[:, :width]
        self.live, self.tokens = live[:, :width], _pick(self.tokens[staying], order)
        self.rows, self.room = self.rows[staying], self.room[staying]
        self.kept_score, self.kept_log_prob = self.kept_score[staying], self.kept_log_prob[staying]
        self.kept_tokens = self.kept_tokens[staying]
        return parent[staying].gather(1, order).flatten()

    def _score(self, log_prob: Tensor) -> Tensor:
        return log_prob / self.tokens.size(2) ** self.settings.alpha


def _pick(tokens: Tensor, order: Tensor) -> Tensor:
    """tokens (R, W, t) of the places `order` (R, C): (R, C, t)."""
    return tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.size(2)))


def _best(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row and their places, descending, equal ones in the order of their places.

    `topk` alone is several times faster than a stable sort of a vocabulary, but leaves the order of equals open.
    """
    top, index = values.topk(k, 1)
    if bool((((values >= top[:, -1:]) & (values > IMPOSSIBLE)).sum(1) > k).any()):  # equals at the edge
        top, index = values.sort(dim=1, descending=True, stable=True)
        return top[:, :k], index[:, :k]
    index, order = index.sort(1)
    top, order = top.gather(1, order).sort(dim=1, descending=True, stable=True)
    return top, index.gather(1, order)
