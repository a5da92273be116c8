"""What we add to an algorithm of Stable-Baselines3: a hook between iterations, and frozen parts.

The top of the `learn()` loop, before experience is collected, is the one point where an
algorithm's state is small and complete. Evaluation, checkpoints, stopping and resuming happen
there. SB3 offers no callback for it: its `on_rollout_start` comes after exploration noise has
been drawn.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import unwrap_vec_wrapper

from rlzoo_plus.envs.finite import (
    FiniteVecEnv,
    has_lost_a_loss,
    raise_if_diverged,
    require_finite,
)
from rlzoo_plus.envs.monitor import mean_of_episodes
from rlzoo_plus.errors import ConfigError, RunError, unknown_name

log = logging.getLogger(__name__)
# An extractor of its own for the policy or the value, and the target of a network.
_VARIANT = re.compile(r"^(?:pi|vf)_(?=features_extractor$)|_target$")
_NOT_NAMED = re.compile(r"\d+|weight|bias")


class StopTraining(Exception):  # noqa: N818 - a signal, not an error
    """End training at the top of an iteration.

    Attributes:
        reason: Why, for the user.
        interrupted: Whether the run was cut short from outside and can be continued.
    """

    def __init__(self, reason: str, *, interrupted: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.interrupted = reason, interrupted


class IterationHook:
    """What wraps an algorithm: evaluation, checkpoints, stopping and resuming act through it.

    Attributes:
        before_iteration: What to call at the top of the loop, in this order.
        resume_from: Environment steps that were taken before this process began.
        log_every: Iterations between two dumps of an on-policy algorithm's log.
        iterations: Iterations started so far; SB3 counts them in a variable that a resume loses.
        logged_at: Environment steps at the newest row of the log.
        has_episode: False as long as hindsight replay, which samples from whole episodes alone, has
            none.
        is_waiting: Whether it was said that updates begin later.
        longest: Returns the steps of the longest possible episode, None if there is no limit; None
            itself if it is not known.
        held: Frozen tensors that follow no gradient: targets, which follow another network, and
            running statistics.
    """

    before_iteration: Sequence[Callable[[], None]] = ()
    resume_from: int = 0
    log_every: int = 1
    iterations: int = 0
    logged_at: int = -1
    has_episode: bool = True
    is_waiting: bool = False
    longest: Callable[[], int | None] | None = None
    held: Sequence[torch.Tensor] = ()

    def learn(
        self, total_timesteps: int, callback: Any = None, log_interval: int = 1, **kwargs: Any
    ) -> Any:
        """Learn until `total_timesteps` are reached, those before a resume included.

        Raises:
            RunError: NaN or an infinite number came up: from an environment, or in the weights.
        """
        if isinstance(self, OnPolicyAlgorithm):
            self.log_every, log_interval = log_interval, 1
        try:
            learned = super().learn(  # type: ignore[misc]
                total_timesteps, callback, log_interval=log_interval, **kwargs
            )
            self._log_the_end()
            return learned
        except StopTraining as stop:
            # A run that is resumed logs at its usual steps.
            if not stop.interrupted:
                self._log_the_end()
            raise
        except (RunError, ConfigError):
            raise
        except Exception as error:
            raise_if_diverged(self, error)  # type: ignore[arg-type]
            raise

    def _setup_learn(self, *args: Any, **kwargs: Any) -> Any:
        finite = unwrap_vec_wrapper(self.env, FiniteVecEnv)  # type: ignore[attr-defined]
        if finite is not None:
            finite.n_steps = self.resume_from
        result = super()._setup_learn(*args, **kwargs)  # type: ignore[misc]
        if self.resume_from:
            # The loop ends at the total, whatever was counted before this process.
            self.num_timesteps = self._num_timesteps_at_start = self.resume_from
        return result

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> Any:
        """Act, then collect experience; on- and off-policy algorithms pass here."""
        # Not in a function of its own: every evaluation and checkpoint would be a frame deeper.
        for act in (self._check_losses, *self.before_iteration):
            act()
        self.iterations += 1
        return super().collect_rollouts(*args, **kwargs)  # type: ignore[misc]

    def _do_one_update(self, *args: Any, **kwargs: Any) -> Any:
        """Act, then update once; augmented random search passes here."""
        for act in (self._check_losses, *self.before_iteration):
            act()
        self.iterations += 1
        return super()._do_one_update(*args, **kwargs)  # type: ignore[misc]

    def train(self, *args: Any, **kwargs: Any) -> None:
        """Update the networks; what is frozen is afterwards as it was before.

        Raises:
            ConfigError: The replay buffer of hindsight replay is shorter than an episode.
        """
        if not self.has_episode and self._awaits_episode():
            return
        before = [tensor.clone() for tensor in self.held]
        try:
            super().train(*args, **kwargs)  # type: ignore[misc]
        except RuntimeError as error:
            lengths = getattr(getattr(self, "replay_buffer", None), "ep_length", None)
            if lengths is None or np.any(lengths):
                raise
            raise self._too_short() from error
        for tensor, value in zip(self.held, before, strict=True):
            # An average of a tensor and an equal one differs in the last bit.
            tensor.data.copy_(value)

    def _awaits_episode(self) -> bool:
        """Return whether hindsight replay has nothing to sample from."""
        buffer: Any = self.replay_buffer  # type: ignore[attr-defined]
        self.has_episode = bool(np.any(buffer.ep_length))
        if not self.has_episode and buffer.full:
            raise self._too_short()
        if not (self.has_episode or self.is_waiting):
            log.info("hindsight replay: updates begin with the end of the first episode")
            self.is_waiting = True
        return not self.has_episode

    def _too_short(self) -> ConfigError:
        buffer: Any = self.replay_buffer  # type: ignore[attr-defined]
        rows, n_envs = buffer.buffer_size, buffer.n_envs
        longest = None if self.longest is None else self.longest()
        fix = f"n_envs={n_envs} times the longest episode"
        if longest is not None:
            fix = f"{longest * n_envs} (n_envs={n_envs} times {longest} steps)"
        return ConfigError(
            f"algo.hyperparams.buffer_size={rows * n_envs} holds {rows} steps of each environment, "
            "less than an episode, and hindsight replay needs whole ones. Set it to at least "
            f"{fix}."
        )

    def dump_logs(self, *iteration: int) -> None:
        """Write the log; an on-policy algorithm passes its iteration, which is counted here."""
        if not iteration:
            self._write_log()
        elif self.iterations % self.log_every == 0:
            self._write_log(self.iterations)

    def _write_log(self, *iteration: int) -> None:
        for name, value in mean_of_episodes(self.ep_info_buffer or ()).items():  # type: ignore[attr-defined]
            self.logger.record(f"rollout/{name}", value)  # type: ignore[attr-defined]
        super().dump_logs(*iteration)  # type: ignore[misc]
        self.logged_at = self.num_timesteps

    def _log_the_end(self) -> None:
        """Log what came after the last row: a run can be shorter than `log.interval`."""
        has_log = hasattr(super(), "dump_logs")
        if has_log and self.iterations and self.logged_at != self.num_timesteps:
            self._write_log(*([self.iterations] if isinstance(self, OnPolicyAlgorithm) else []))

    def _check_losses(self) -> None:
        if has_lost_a_loss(self):  # type: ignore[arg-type]
            require_finite(self)  # type: ignore[arg-type]

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), *IterationHook.__annotations__]  # type: ignore[misc]


def with_iteration_hook(algorithm: type, *mixins: type) -> type:
    """Return a subclass of an algorithm with the hook and other mixins, under its own name."""
    bases = (IterationHook, *mixins, algorithm)
    own = {"__doc__": algorithm.__doc__, "__module__": __name__}
    return type(algorithm.__name__, bases, own)


def freeze(agent: Any, names: Sequence[str]) -> None:
    """Let parts of an agent's networks keep their weights.

    Args:
        agent: From `make_agent`.
        names: Each the name of a module or parameter, or of several in a row: `features_extractor`
            is that of the policy, of the critic and of its target, `actor.latent_pi.0` one layer.

    Raises:
        ConfigError: There is no such part, or what is left cannot be trained.
    """
    if hasattr(agent, "hessian_vector_product") or hasattr(agent, "n_delta"):
        raise ConfigError(
            f"freeze={list(names)}: {type(agent).__name__} changes all weights of its policy by "
            "one step. Leave freeze out, or choose an algorithm that follows gradients."
        )
    policy = agent.policy
    known = [name for name, _ in policy.named_parameters(remove_duplicate=False)]
    for name in names:
        if not any(_is_part(name, parameter) for parameter in known):
            parts = {part for parameter in known for part in parameter.split(".")}
            shown = {_VARIANT.sub("", part) for part in parts if not _NOT_NAMED.fullmatch(part)}
            raise ConfigError(unknown_name("part in freeze", name, shown))
    tensors = [
        *policy.named_parameters(remove_duplicate=False),
        *policy.named_buffers(remove_duplicate=False),
    ]
    frozen = {id(t): t for n, t in tensors if any(_is_part(name, n) for name in names)}
    # The parameters of each optimizer, with its name.
    learned = {
        id(tensor): name
        for name, part in agent.get_parameters().items()
        if "param_groups" in part
        for group in attrgetter(name)(agent).param_groups
        for tensor in group["params"]
    }
    for tensor in frozen.values():
        tensor.requires_grad_(False)
    for optimizer in dict.fromkeys(learned.values()):
        # The actor's gradient passes through the critic, so it alone may have nothing to learn.
        left = [key for key, name in learned.items() if name == optimizer and key not in frozen]
        if not left and not optimizer.startswith("actor"):
            raise ConfigError(
                f"freeze={list(names)} leaves {optimizer} nothing to learn. Freeze fewer parts."
            )
    agent.held = [tensor for key, tensor in frozen.items() if key not in learned]


def _is_part(name: str, parameter: str) -> bool:
    """Return whether the parts of a name follow each other in that of a parameter."""
    wanted, parts = name.split("."), parameter.split(".")
    return any(
        candidate[start : start + len(wanted)] == wanted
        for candidate in (parts, [_VARIANT.sub("", part) for part in parts])
        for start in range(len(parts))
    )
