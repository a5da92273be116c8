"""Fits a reward model to answers, with self-supervision: REED.

The choice between two clips is Bradley and Terry's model of the sums of their rewards (Christiano
et al. 2017, arXiv:1706.03741), whose raters make mistakes now and then. Beside it, what a network
makes of an observation and an action must predict what it makes of the next observation, as in
REED (Metcalf et al. 2024, arXiv:2402.17975): that is learned from all clips, answered or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.preferences.clips import Clip
from rlzoo_plus.preferences.preference_folder import EQUAL, LEFT, RIGHT, Preferences
from rlzoo_plus.preferences.reward_inputs import RewardInputs
from rlzoo_plus.preferences.reward_model import CUT, SLOPE, RewardModel

FEWEST = 10
_UNITS, _UPDATES, _BATCH, _TRANSITIONS = 64, 500, 32, 256
_LEARNING_RATE, _WEIGHT_DECAY = 1e-3, 1e-2
_HELD_OUT = 0.2
# Share of answers that are taken for mistakes: so none of them counts without a bound.
_MISTAKEN = 0.1
# Of an output before any fitting, as a tanh: to go on is better than to end, until answers differ.
_PRIOR = 0.5
# Probability that the right clip is better, by answer; a skipped pair says nothing.
_TARGETS = {LEFT: 0.0, RIGHT: 1.0, EQUAL: 0.5}
_Layer = tuple[Tensor, Tensor]


class Answer(NamedTuple):
    """An answered pair of clips."""

    left: Clip
    right: Clip
    given: str


def answers_of(preferences: Preferences) -> list[Answer]:
    """Return the pairs that were compared."""
    by_digest = {clips.digest: clips for clips in preferences.rounds}
    given = sorted(preferences.given.items())
    return [Answer(*by_digest[d].pair(n), a) for (d, n), a in given if a in _TARGETS]


def fit(preferences: Preferences, members: int, seed: int) -> RewardModel:
    """Return a reward model that explains the answers in a folder; a fifth of them is held out.

    Args:
        preferences: The folder.
        members: Size of the ensemble.
        seed: Decides the initial weights, the order, and which answers are held out.

    Raises:
        ConfigError: There are too few answers.
    """
    answers = answers_of(preferences)
    if len(answers) < FEWEST:
        raise ConfigError(
            f"{counted(len(answers), 'pair')} answered, and a reward model needs at least "
            f"{FEWEST}. Answer more."
        )
    order = np.random.default_rng([seed, 1]).permutation(len(answers)).tolist()
    n_held_out = round(_HELD_OUT * len(answers))
    held_out = [answers[k] for k in order[:n_held_out]]
    taught = [answers[k] for k in order[n_held_out:]]
    clips = [clip for one in preferences.rounds for clip in one.clips]
    model = fitted(preferences.rounds[0].inputs, clips, taught, members, seed)
    about = {"members": members, "seed": seed, "taught": len(taught)}
    return replace(model, about={**about, **accuracy(model, held_out)})


def accuracy(model: RewardModel, answers: list[Answer]) -> dict[str, Any]:
    """Return how often a model prefers the clip that an answer, and that the true return, does.

    Answers and returns that are equal do not count.
    """
    found: dict[str, list[bool]] = {"answers": [], "returns": []}
    for left, right, given in answers:
        sums = [float(model.members(clip.rows).mean(axis=0).sum()) for clip in (left, right)]
        is_right, difference = sums[1] > sums[0], right.rewards.sum() - left.rewards.sum()
        if given != EQUAL:
            found["answers"].append(is_right == (given == RIGHT))
        if difference:
            found["returns"].append(is_right == (difference > 0))
    told: dict[str, Any] = {}
    for name, hits in found.items():
        told[f"held_out_{name}"] = len(hits)
        told[f"accuracy_{name}"] = float(np.mean(hits)) if hits else None
    return told


def fitted(
    inputs: RewardInputs, clips: list[Clip], taught: list[Answer], members: int, seed: int
) -> RewardModel:
    """Return a reward model that explains answers, and predicts in clips."""
    seen = np.concatenate([clip.rows for clip in clips])
    mean, std = seen.mean(axis=0), seen.std(axis=0)
    std[std < 1e-6] = 1.0
    generator = torch.Generator().manual_seed(seed)
    networks = Networks(inputs, members, generator)
    networks.learn(_data_of(clips, taught, mean, std, inputs.observed), generator)
    layers = [(w.detach().numpy(), b.detach().numpy()) for w, b in networks.layers[:3]]
    model = RewardModel(inputs, mean, std, 1.0, layers, {})
    size = float(np.abs(model.members(seen).mean(axis=0)).mean())
    return replace(model, scale=1.0 / max(size, 1e-3))


class Networks:
    """The members of an ensemble, all in one.

    Attributes:
        layers: Those of a `RewardModel`, and last the one that predicts.
    """

    def __init__(self, inputs: RewardInputs, members: int, generator: torch.Generator) -> None:
        """Begin with random weights."""
        self.observed = inputs.observed
        actions = inputs.size - inputs.observed
        widths = (self.observed, _UNITS), (_UNITS + actions, _UNITS), (_UNITS, 1), (_UNITS, _UNITS)
        self.layers = [_initial(members, n_in, n_out, generator) for n_in, n_out in widths]
        self.layers[2][1].data.fill_(float(np.arctanh(_PRIOR)))

    def learn(self, data: Data, generator: torch.Generator) -> None:
        """Lower the loss of the answers and of the predictions."""
        parameters = [part for layer in self.layers for part in layer]
        optimizer = torch.optim.AdamW(parameters, _LEARNING_RATE, weight_decay=_WEIGHT_DECAY)
        for _ in range(_UPDATES):
            some = torch.randint(len(data.targets), (_BATCH,), generator=generator)
            loss = self.choices(data.pairs[some], data.exists[some], data.targets[some])
            if len(data.before):
                some = torch.randint(len(data.before), (_TRANSITIONS,), generator=generator)
                loss = loss + self.predictions(data.before[some], data.after[some])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    def choices(self, pairs: Tensor, exists: Tensor, targets: Tensor) -> Tensor:
        """Return the cross entropy of answers, see `Data`."""
        outputs = _linear(self._both(pairs.flatten(0, 2)), self.layers[2])[..., 0]
        sums = (torch.tanh(outputs).reshape(-1, *exists.shape) * exists).sum(dim=-1)
        chance = torch.sigmoid(sums[..., 1] - sums[..., 0])
        chance = _MISTAKEN + (1.0 - 2.0 * _MISTAKEN) * chance
        return functional.binary_cross_entropy(chance, targets.expand_as(chance))

    def predictions(self, before: Tensor, after: Tensor) -> Tensor:
        """Return how far from what follows the predictions are, from -1, exact, to 1."""
        predicted, wanted = _linear(self._both(before), self.layers[3]), self._seen(after).detach()
        return -functional.cosine_similarity(predicted, wanted, dim=-1).mean()

    def _seen(self, observations: Tensor) -> Tensor:
        return functional.leaky_relu(_linear(observations, self.layers[0]), SLOPE)

    def _both(self, rows: Tensor) -> Tensor:
        seen, action = self._seen(rows[:, : self.observed]), rows[:, self.observed :]
        both = torch.cat([seen, action.expand(len(seen), -1, -1)], dim=2)
        return functional.leaky_relu(_linear(both, self.layers[1]), SLOPE)


@dataclass(frozen=True)
class Data:
    """What is learned from, normalized."""

    pairs: Tensor  # Rows of the clips of each pair, shape (n_pairs, 2, n_steps, size)
    exists: Tensor  # 0 after the end of a clip, else 1, shape (n_pairs, 2, n_steps)
    targets: Tensor  # Probability that the right clip is better, shape (n_pairs,)
    before: Tensor  # Rows of all clips but each last one, shape (n_transitions, size)
    after: Tensor  # The observations that followed, shape (n_transitions, observed)


def _data_of(
    clips: list[Clip], taught: list[Answer], mean: np.ndarray, std: np.ndarray, observed: int
) -> Data:
    def normal(rows: list[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.clip((np.concatenate(rows) - mean) / std, -CUT, CUT))

    compared = [clip for one in taught for clip in (one.left, one.right)]
    rows = [normal([clip.rows]) for clip in compared]
    return Data(
        _by_pair(rows),
        _by_pair([torch.ones(len(one)) for one in rows]),
        torch.tensor([_TARGETS[one.given] for one in taught]),
        normal([clip.rows[:-1] for clip in clips]),
        normal([clip.rows[1:] for clip in clips])[:, :observed],
    )


def _by_pair(parts: list[Tensor]) -> Tensor:
    """Return what belongs to clips by pair, zero after their ends."""
    padded = pad_sequence(parts, batch_first=True)
    return padded.reshape(-1, 2, *padded.shape[1:])


def _initial(members: int, n_in: int, n_out: int, generator: torch.Generator) -> _Layer:
    """Return the weights of a layer, uniform as torch's linear layers have them."""
    shapes = (members, n_in, n_out), (members, 1, n_out)
    weight, bias = ((torch.rand(s, generator=generator) * 2 - 1) * n_in**-0.5 for s in shapes)
    return weight.requires_grad_(), bias.requires_grad_()


def _linear(inputs: Tensor, layer: _Layer) -> Tensor:
    return torch.matmul(inputs, layer[0]) + layer[1]
