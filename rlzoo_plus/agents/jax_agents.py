"""Agents of sbx, which compute with JAX, with the interfaces of those of Stable-Baselines3.

sbx saves agents with cloudpickle. Here networks, optimizers and random keys are plain arrays, named
by their place, which a checkpoint or a bundle holds as those of torch: reading one executes
nothing, and what it holds must fit the networks that are built from the configuration.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# One thread: sums are then the same on any number of cores.
_ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
if _ONE_THREAD not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {_ONE_THREAD}".strip()

import flax.linen as nn  # noqa: E402 - it reads the variable when it is first used
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
import torch  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402

jax.config.update("jax_platforms", "cpu")


def _start_with_one_thread() -> None:
    """Start JAX, which asks this variable alone how many threads to have."""
    before = os.environ.get("NPROC")
    os.environ["NPROC"] = "1"
    try:
        jax.devices()
    finally:
        if before is None:
            del os.environ["NPROC"]
        else:
            os.environ["NPROC"] = before


_start_with_one_thread()
# Versions that the numbers of these agents depend on.
PACKAGES = ("sbx-rl", "jax", "jaxlib", "flax", "optax", "tfp-nightly")
# By their names in `network`; the formulas are those of torch's modules.
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    **{"tanh": nn.tanh, "relu": nn.relu, "elu": nn.elu, "leaky_relu": nn.leaky_relu},
    **{"silu": nn.silu, "selu": nn.selu, "softplus": nn.softplus, "sigmoid": nn.sigmoid},
    **{"gelu": functools.partial(nn.gelu, approximate=False), "mish": jax.nn.mish},
    "identity": lambda x: x,
}
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    **{"adam": optax.adam, "adamw": optax.adamw, "radam": optax.radam, "nadam": optax.nadam},
    **{"sgd": optax.sgd, "rmsprop": optax.rmsprop},
}
# Fields of a network's state that it acts with; the others are its optimizer's.
_NETWORK = ("params", "target_params", "batch_stats")
_OPTIMIZER = ("step", "opt_state")
# Set by the optimizer's constructor, and the learning rate by each update.
_SETTINGS = ".hyperparams."


def arrays_of(tree: Any) -> dict[str, np.ndarray]:
    """Return copies of the leaves of nested data, as JAX computes with them, by their place."""
    return {name: np.array(jnp.asarray(leaf)) for name, leaf in _leaves(tree)}


def filled(tree: Any, arrays: Mapping[str, Any]) -> Any:
    """Return nested data with other numbers.

    Args:
        tree: What is replaced; it is left as it is.
        arrays: From `arrays_of` of such data; arrays or tensors.

    Raises:
        ValueError: Names, shapes or types are not those of the data.
    """
    given = {name: np.asarray(value) for name, value in arrays.items()}
    own = dict(_leaves(tree))
    if own.keys() != given.keys():
        name = sorted(own.keys() ^ given.keys())[0]
        raise ValueError(f"{name} is not on both sides")
    for name, leaf in own.items():
        if (given[name].shape, given[name].dtype) != (jnp.shape(leaf), _dtype_of(leaf)):
            raise ValueError(f"{name} is {given[name].dtype} of shape {given[name].shape}")
    values = [jnp.array(given[name]) for name in own]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(tree), values)


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    found, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in found]


def _fields(states: Mapping[str, TrainState], fields: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: {field: getattr(state, field) for field in fields if hasattr(state, field)}
        for name, state in states.items()
    }


def _states(owner: Any) -> dict[str, TrainState]:
    """Return the networks with their optimizers that are attributes of an object."""
    return {name: value for name, value in vars(owner).items() if isinstance(value, TrainState)}


def _replace(owner: Any, trees: Mapping[str, Any]) -> None:
    for name, fields in trees.items():
        setattr(owner, name, getattr(owner, name).replace(**fields))


class JaxPolicy:
    """Mixin for a policy of sbx: its networks are read and replaced as those of torch are."""

    def plan(self) -> None:
        """Give the networks their shapes without a number; `load_state_dict` brings these."""

        def count(call: Callable[..., Any], args: Any, kwargs: Any, _context: Any) -> Any:
            # What limits the tensors of an untrusted network counts its layers by it.
            torch.empty(())
            return call(*args, **kwargs)

        def build(key: Any) -> Any:
            # After the key: a schedule, and a rate or a norm that only training needs.
            rest = list(inspect.signature(self.build).parameters)[2:]  # type: ignore[attr-defined]
            return self.build(key, lambda _: 0.0, *[1.0 for _ in rest])  # type: ignore[attr-defined]

        # As torch's, noise follows the seed of the process.
        key = jax.random.PRNGKey(torch.initial_seed() % 2**31)
        with nn.intercept_methods(count):
            jax.eval_shape(build, key)
        for name, state in _states(self).items():
            shapes = _fields({name: state}, _NETWORK)[name]
            shapes = jax.tree_util.tree_map(_shape_of, shapes)
            setattr(self, name, state.replace(step=0, opt_state=(), **shapes))
        if hasattr(self, "key"):
            self.key = self.noise_key = key

    def with_own_noise(self) -> Any:
        """Return a policy with the same networks, whose random keys are its own from now on."""
        return copy.copy(self)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, torch.Tensor]:
        """Return copies of all that the networks hold, by name; of planned ones, only shapes."""
        found = {}
        for name, leaf in _leaves(_fields(_states(self), _NETWORK)):
            if isinstance(leaf, jax.ShapeDtypeStruct):
                kind = getattr(torch, str(leaf.dtype))
                found[name] = torch.empty(leaf.shape, dtype=kind, device="meta")
            else:
                found[name] = torch.from_numpy(np.array(jnp.asarray(leaf)))
        return found

    def load_state_dict(self, state: Mapping[str, torch.Tensor], *_: Any, **__: Any) -> None:
        """Replace all that the networks hold.

        Raises:
            ValueError: Names, shapes or types are not those of `state_dict`.
        """
        _replace(self, filled(_fields(_states(self), _NETWORK), state))

    def named_parameters(self, *_: Any, **__: Any) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield copies of what `state_dict` returns; they have no gradients."""
        yield from self.state_dict().items()


def _dtype_of(leaf: Any) -> Any:
    """Return the type that JAX computes with; counters begin as numbers of Python."""
    return jax.dtypes.canonicalize_dtype(jnp.result_type(leaf))


def _shape_of(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jnp.shape(leaf), _dtype_of(leaf))


@functools.cache
def with_arrays(policy_class: type) -> type:
    """Return a subclass of a policy of sbx with the mixin `JaxPolicy`, under its own name."""
    return type(policy_class.__name__, (JaxPolicy, policy_class), {"__doc__": policy_class.__doc__})


class JaxAgent:
    """Mixin for an algorithm of sbx: its state is plain arrays, for checkpoints and back.

    Attributes:
        in_parameters: Attributes whose values `get_parameters` holds.
        numeric_packages: Packages that its numbers depend on.
    """

    in_parameters = ("key", "ent_coef_state")
    numeric_packages = PACKAGES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # SB3 would name a GPU, which torch could use.
        self.device = torch.device("cpu")

    def get_parameters(self) -> dict[str, Any]:
        """Return networks, optimizers and random keys, as arrays by name."""
        policy: JaxPolicy = self.policy  # type: ignore[attr-defined]
        return {
            "policy": policy.state_dict(),
            "entropy": arrays_of(_fields(_states(self), _NETWORK)),
            "optimizers": arrays_of(self._optimizers()),
            "keys": arrays_of(self._keys()),
            "schedule": self._adapted(),
        }

    def set_parameters(self, given: Any, exact_match: bool = True, device: Any = "auto") -> None:
        """Replace what `get_parameters` returns.

        Raises:
            ValueError: It does not fit the agent.
        """
        del exact_match, device
        policy: JaxPolicy = self.policy  # type: ignore[attr-defined]
        policy.load_state_dict(given["policy"])
        _replace(self, filled(_fields(_states(self), _NETWORK), given["entropy"]))
        self._set_optimizers(given["optimizers"])
        keys = filled(self._keys(), given["keys"])
        self.key = keys["agent"]
        for name, value in keys["policy"].items():
            setattr(policy, name, value)
        if given["schedule"].keys() != self._adapted().keys():
            raise ValueError("the adapted learning rate is not on both sides")
        for value in given["schedule"].values():
            if not isinstance(value, (float, np.floating)):
                raise ValueError("the adapted learning rate is not a number")
            self.adaptive_lr.current_adaptive_lr = value  # type: ignore[attr-defined]

    def take_over_optimizers(self, saved: Mapping[str, Any]) -> None:
        """Copy the averages of another agent's optimizers, and its weight of the entropy.

        Raises:
            ValueError: They do not fit the agent.
        """
        _replace(self, filled(_fields(_states(self), _NETWORK), saved["entropy"]))
        own = arrays_of(self._optimizers())
        kept = {name: value for name, value in own.items() if _SETTINGS in name}
        self._set_optimizers({**saved["optimizers"], **kept})

    def _optimizers(self) -> dict[str, Any]:
        owners = {"policy": self.policy, "agent": self}  # type: ignore[attr-defined]
        return {key: _fields(_states(owner), _OPTIMIZER) for key, owner in owners.items()}

    def _set_optimizers(self, arrays: Mapping[str, Any]) -> None:
        trees = filled(self._optimizers(), arrays)
        _replace(self.policy, trees["policy"])  # type: ignore[attr-defined]
        _replace(self, trees["agent"])

    def _keys(self) -> dict[str, Any]:
        policy = vars(self.policy)  # type: ignore[attr-defined]
        names = [name for name in ("key", "noise_key") if name in policy]
        return {"agent": self.key, "policy": {name: policy[name] for name in names}}

    def _adapted(self) -> dict[str, Any]:
        """Return the learning rate that PPO adapts with `target_kl`."""
        schedule = getattr(self, "adaptive_lr", None)
        return {} if schedule is None else {"learning_rate": schedule.current_adaptive_lr}
