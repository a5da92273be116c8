"""A trained policy: acts on raw observations, normalisation included, without the simulator."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces

from rlzoo_plus.agents.allocation import AllocationLimit
from rlzoo_plus.agents.critic_observation import acting_part, acting_space
from rlzoo_plus.agents.factory import make_policy
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.bundle import Bundle, check_step, load_bundle, save_bundle
from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_YAML_BYTES,
    one_line,
    parse_yaml,
    printable,
    read_plain_file,
)
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.own_code import import_packages, own_code
from rlzoo_plus.config.schema import InfraConfig, RunConfig
from rlzoo_plus.config.trusted import how_to_trust, import_trusted, left_to_trust
from rlzoo_plus.envs.environment_version import environment_version, has_own_kwargs
from rlzoo_plus.envs.finite import require_finite
from rlzoo_plus.envs.normalization import Observation, ObservationNormalizer
from rlzoo_plus.envs.spaces import decode_space, encode_space
from rlzoo_plus.errors import ConfigError, RunError, unknown_name

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.policies import BasePolicy


class Policy:
    """The mapping from observations to actions that an agent has learned."""

    def __init__(
        self,
        network: BasePolicy,
        normalizer: ObservationNormalizer | None,
        *,
        maskable: bool,
        config: RunConfig | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a policy.

        Args:
            network: The policy's network.
            normalizer: Of its observations, None if they are taken as they are.
            maskable: Whether it takes action masks.
            config: The run that trained it, None for an agent in training.
            about: What was recorded with it, such as `step` and `mean_return`.
        """
        self.network, self.normalizer = network, normalizer
        self.maskable, self.config = maskable, config
        self.about = dict(about or {})

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """Space of the raw observations that it acts on; what its critic sees may be more."""
        return acting_space(self.network)

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Space of the actions that `predict` returns."""
        return self.network.action_space

    @property
    def step(self) -> int | None:
        """Environment steps it was trained for, None if they are not known."""
        step = self.about.get("step")
        return None if step is None else int(step)

    def __repr__(self) -> str:
        name = type(self.network).__name__
        if self.config is not None:
            name = printable(f"{self.config.algo.name} on {self.config.env.id}", 200)
        at = "" if self.step is None else f", step {self.step:,}"
        return f"<Policy {name}{at}: {self.observation_space} -> {self.action_space}>"

    @classmethod
    def of_agent(cls, agent: BaseAlgorithm) -> Policy:
        """Return the agent's policy of this moment; it shares the agent's networks."""
        normalizer = ObservationNormalizer.from_vec_normalize(agent.get_vec_normalize_env())
        parameters = inspect.signature(agent.policy.predict).parameters
        # Where a network holds the keys of its noise, acting with it must not change training.
        network = getattr(agent.policy, "with_own_noise", lambda: agent.policy)()
        return cls(network, normalizer, maskable="action_masks" in parameters)

    def of_group(self, name: str) -> Policy:
        """Return the policy of a group of `env.groups`, with its own observations and actions.

        Raises:
            ConfigError: There is no such group.
        """
        groups = getattr(self.network, "groups", None)
        if groups is None:
            raise ConfigError(f"group {name}: all agents have one policy. Leave it out.")
        if name not in groups:
            raise ConfigError(unknown_name("group", name, groups))
        normalizer = None if self.normalizer is None else self.normalizer.of(name)
        about = {**self.about, "group": name}
        return Policy(groups[name], normalizer, maskable=False, config=self.config, about=about)

    def predict(
        self,
        observation: Observation,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = True,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """Choose actions.

        Args:
            observation: Raw observations, one or a batch, shape (..., *observation_space.shape).
            state: What the last call returned, for recurrent policies.
            episode_start: Which of the batch begin an episode, shape (n,).
            deterministic: Act without exploration.
            action_masks: Allowed actions, for policies that were trained with masks.

        Returns:
            Actions within the action space's bounds, and the state for the next call.
        """
        observation = acting_part(self.network, observation)
        if self.normalizer is not None:
            observation = self.normalizer(observation)
        extra = {"action_masks": action_masks} if self.maskable else {}
        return self.network.predict(observation, state, episode_start, deterministic, **extra)


def save_policy(path: Path, agent: BaseAlgorithm, config: RunConfig, about: dict[str, Any]) -> None:
    """Write a bundle with the agent's policy and its normalisation statistics of this moment.

    The folder `path`, e.g. `best/`, is replaced in one step; `about` goes to the manifest.

    Raises:
        RunError: A weight is NaN or infinite, or the disk refuses; an earlier bundle stays.
    """
    require_finite(agent)
    save_weights(path, agent, config, about, *weights_of(agent))


def weights_of(agent: BaseAlgorithm) -> tuple[dict[str, Any], ObservationNormalizer | None]:
    """Return copies of the policy's parameters by name, and of its normalisation statistics."""
    state = agent.policy.state_dict().items()
    weights = {name: value.detach().cpu().numpy().copy() for name, value in state}
    return weights, ObservationNormalizer.from_vec_normalize(agent.get_vec_normalize_env())


def save_weights(
    path: Path,
    agent: BaseAlgorithm,
    config: RunConfig,
    about: dict[str, Any],
    weights: dict[str, Any],
    normalizer: ObservationNormalizer | None,
) -> None:
    """Write a bundle, as `save_policy`, with weights and statistics of an earlier moment.

    Raises:
        RunError: The disk refuses; an earlier bundle stays.
    """
    bundle = Bundle(
        config=acting_config(config),
        spaces={
            "observation": encode_space(agent.observation_space),
            "action": encode_space(agent.action_space),
        },
        weights=weights,
        normalization=None if normalizer is None else normalizer.state(),
        about={
            "environment": environment_version(config.env),
            # Their values are not shared.
            "env_kwargs": has_own_kwargs(config.env),
            **about,
        },
    )
    try:
        save_bundle(path, bundle)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error}.") from error


def acting_config(config: RunConfig) -> dict[str, Any]:
    """Return a run's configuration without what a policy does not need to act.

    Bundles are shared, so the run's placement, its trackers and the arguments of its environment
    are left out.
    """
    acting: dict[str, Any] = dict.fromkeys(
        ("hpo", "tracker", "run_dir", "sweep", "store", "init_from")
    )
    acting |= {"callbacks": [], "freeze": [], "infra": InfraConfig(name="local")}
    acting |= {"record_updates": True, "fast": False, "profile": False}
    acting["teacher"] = config.teacher.model_copy(update={"run": None})
    acting["eval"] = config.eval.model_copy(update={"beside": "auto"})
    acting["env"] = config.env.model_copy(update={"kwargs": {}})
    return config.model_copy(update=acting).model_dump(mode="json")


def load_policy(path: str | Path, *, trust: bool = False) -> Policy:
    """Load a policy from a bundle; nothing in it is unpickled.

    Args:
        path: A bundle's folder, or a run directory, whose best policy is then taken.
        trust: Import the algorithm, network and packages that it names and this project does not
            ship; without it nothing is imported.

    Raises:
        ConfigError: There is no whole bundle, or it is for an algorithm not known here.
    """
    folder = Path(path)
    if (folder / "best").is_dir() and not (folder / "policy.json").exists():
        folder = folder / "best"
    try:
        bundle = load_bundle(folder)
    except DamagedFolderError as error:
        raise ConfigError(f"no usable policy: {error}.") from error
    return policy_from_bundle(bundle, trust=trust)


def policy_from_bundle(bundle: Bundle, *, trust: bool = False) -> Policy:
    """Build a policy from a bundle that was read and verified; see `load_policy` for `trust`.

    Raises:
        ConfigError: It describes no policy, or another than its weights are for.
    """
    try:
        config = RunConfig.model_validate(bundle.config)
        observation_space = decode_space(bundle.spaces["observation"])
        action_space = decode_space(bundle.spaces["action"])
        normalizer = ObservationNormalizer.from_state(bundle.normalization)
        if normalizer is not None:
            normalizer.check_fits(observation_space)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"the policy's description cannot be read: {one_line(error)}.") from error
    for name, values in bundle.weights.items():
        if np.asarray(values).dtype.kind == "f" and not np.isfinite(values).all():
            raise ConfigError(f"no usable policy: its weights {printable(name)} are not finite.")
    if trust:
        import_packages(config)
    elif names := left_to_trust(config, "act"):
        raise ConfigError(
            f"the policy needs code that is not ours: {printable(', '.join(names))}. If you know "
            "where it comes from, add --trust to the command, or load_policy(..., trust=True)."
            f"{how_to_trust(names, config)}"
        )
    elif own_code(config, "act"):
        import_trusted(config, "act")
    network = _build(config, observation_space, action_space, bundle.weights)
    maskable = get_algorithm(config.algo.name).maskable
    return Policy(network, normalizer, maskable=maskable, config=config, about=bundle.about)


def _build(
    config: RunConfig,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    weights: dict[str, Any],
) -> Any:
    if not all(isinstance(v, np.ndarray) for v in weights.values()):
        raise ConfigError("the weights do not fit the network: they are no arrays.")
    try:
        with AllocationLimit.of_weights(weights):
            network: Any = make_policy(config, observation_space, action_space)
            load_weights(network, weights)
            if config.algo.hyperparams.get("use_sde"):
                # Drawn when the network was built, from the deviation before training.
                network.reset_noise()
    except ConfigError as error:
        raise ConfigError(printable(error)) from error
    # Untrusted arguments reach constructors that check nothing, so any error can come.
    except Exception as error:
        raise ConfigError(f"the policy's network cannot be built: {one_line(error)}.") from error
    return network


def load_weights(network: BasePolicy, weights: dict[str, np.ndarray]) -> None:
    """Copy arrays into a network's parameters.

    Raises:
        ConfigError: Names, shapes or types are not the network's.
    """
    tensors = {k: torch.from_numpy(np.array(v)) for k, v in weights.items()}
    own = network.state_dict()
    problems = list(misfits(own, tensors).values()) or [
        f"{name} is of {tensor.dtype}"
        for name, tensor in tensors.items()
        if tensor.dtype != own[name].dtype
    ]
    if problems:
        raise ConfigError(f"the weights do not fit the network: {printable(problems[0])}.")
    network.load_state_dict(tensors)


def misfits(own: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """Return what of some weights does not fit a network: a text with both shapes, by name."""
    there, here = ({k: tuple(v.shape) for k, v in part.items()} for part in (given, own))
    return {
        name: f"{name}: {_shape(there.get(name))} there, {_shape(here.get(name))} here"
        for name in dict.fromkeys([*own, *given])
        if there.get(name) != here.get(name)
    }


def _shape(shape: tuple[int, ...] | None) -> str:
    return "none" if shape is None else "x".join(map(str, shape)) or "one number"


def with_old_names(weights: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Fill in the names of today that older versions wrote otherwise.

    In SB3 before 1.7 both features extractors were one, and the linear policy of ARS was at first
    a layer, not a list of layers.
    """
    result = dict(weights)
    for name in wanted:
        old = name.removeprefix("pi_").removeprefix("vf_")
        old = old.replace("action_net.0.", "action_net.")
        if name not in result and old != name and old in result:
            result[name] = result[old] if old in wanted else result.pop(old)
    return result


def load_run_policy(run: RunDir, which: str = "best", *, trust: bool = False) -> Policy:
    """Load a policy of a run: `best`, `final` or the step of a checkpoint.

    With `trust`, code that this project does not ship is imported.

    Raises:
        ConfigError: The run has no such policy, or it is damaged.
    """
    return policy_from_bundle(load_run_bundle(run, which), trust=trust)


def load_run_bundle(run: RunDir, which: str = "best", key: str = "--which ") -> Bundle:
    """Read a policy of a run as data, as `load_run_policy`; errors call the option `key`."""
    try:
        steps = run.checkpoints().steps()
    except (OSError, ValueError):
        # In an untrusted run, folders can have any name.
        steps = []
    names = [path.name for path in (run.best, run.final) if path.is_dir()]
    names += [str(step) for step in steps]
    available = f"It has: {', '.join(names)}." if names else "It has saved nothing yet."
    if not names and run.read_status().get("state") == FINISHED:
        # A study keeps only some; runs of a store come home without.
        available = (
            "Its policies are not here. If a worker trained it, they are in the store: "
            "`rlzoo-plus pull STORE/runs/SWEEP/...` brings them."
        )
    is_step = re.fullmatch(r"[0-9]{1,15}", which) is not None
    if which not in ("best", "final") and not is_step:
        raise ConfigError(
            f"{key}{which}: must be best, final or the step of a checkpoint. {available}"
        )
    path = run.best if which == "best" else run.final
    if is_step and int(which) not in steps:
        raise ConfigError(f"{run.path} has no checkpoint at step {int(which)}. {available}")
    if not is_step and not run.has_policy(which):
        why = "was never evaluated" if which == "best" else "has not ended"
        fix = f"Use {key}{names[0]}. {available}" if names else available
        raise ConfigError(f"{run.path} {why}, and has no {which} policy. {fix}")
    try:
        return _checkpoint_bundle(run, int(which)) if is_step else load_bundle(path)
    except ConfigError:
        raise
    except (DamagedFolderError, KeyError, TypeError, ValueError, OSError) as error:
        raise ConfigError(f"{which} is damaged: {one_line(error)}. {available}") from error


def _checkpoint_bundle(run: RunDir, step: int) -> Bundle:
    checkpoint = run.checkpoints().load(step)
    return Bundle(
        config=parse_yaml(read_plain_file(run.config_file, LARGEST_YAML_BYTES)),
        spaces=checkpoint.state["spaces"],
        weights=checkpoint.state["agent"]["parameters"]["policy"],
        normalization=checkpoint.state["normalizer"],
        about={"step": check_step(checkpoint.step)},
    )


def check_stack(config: RunConfig, policy: Policy) -> None:
    """Refuse a frame stack larger than the policy's observations, before it is allocated."""
    space = policy.observation_space
    parts = list(space.spaces.values()) if isinstance(space, spaces.Dict) else [space]
    longest = max((max(part.shape or (1,), default=1) for part in parts), default=1)
    if config.env.frame_stack > longest:
        raise ConfigError(
            f"env.frame_stack={config.env.frame_stack} is not what the policy was trained with: "
            f"its observations have {longest} at most."
        )
