"""On which device and with how many threads an agent computes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.fit import is_image
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError
from robots.cores import usable_cores

if TYPE_CHECKING:
    from stable_baselines3.common.policies import BasePolicy
    from stable_baselines3.common.vec_env import VecEnv

log = logging.getLogger(__name__)
# Parameters of all networks times samples of an update, from which on a GPU is faster. SAC with a
# batch of 256 has 9e7 with layers of 256 units, where an H100 took as long as eight threads, and
# 1.4e9 with layers of 1,024, where it took 0.4 of the time. The CPU's updates were not recorded.
_PAYS_FROM = 3e8


def check_device(name: str) -> None:
    """Check that a device is there.

    Raises:
        ConfigError: torch does not see it.
    """
    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device=mps: torch sees no Apple GPU here. Use device=cpu.")
    if name.startswith("cuda"):
        index = int(name.partition(":")[2] or 0)
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise ConfigError(
                f"device={name}: torch sees {torch.cuda.device_count()} CUDA devices here. "
                "Use device=cpu, or install a CUDA build of torch."
            )


def choose_device(
    config: RunConfig,
    venv: VecEnv,
    algorithm: type,
    arguments: Mapping[str, Any],
    make_policy: Callable[[], BasePolicy],
) -> str:
    """Return the device of a run: with `auto` the GPU, if there is one and it is faster.

    Args:
        config: The run's configuration.
        venv: Its environments.
        algorithm: The algorithm's class.
        arguments: Arguments for its constructor.
        make_policy: Builds the policy on the CPU, to see how large it is.
    """
    if config.device != "auto" or not torch.cuda.is_available():
        return config.device
    if any(is_image(part) for part in parts_of(venv.observation_space).values()):
        return "cuda"
    size = sum(parameter.numel() for parameter in make_policy().parameters())
    parameters = inspect.signature(algorithm).parameters.items()
    values = {name: parameter.default for name, parameter in parameters} | dict(arguments)
    batch = values.get("batch_size") or values.get("n_steps", 1) * venv.num_envs
    if size * batch >= _PAYS_FROM:
        return "cuda"
    log.info(
        "device: auto is the CPU, faster than a GPU for %s parameters and batches of %s; "
        "device=cuda takes the GPU",
        f"{size:,}",
        f"{batch:,}",
    )
    return "cpu"


def thread_policy(config: RunConfig) -> tuple[int, str]:
    """Return the number of torch threads and the reason for it.

    On-policy updates on small batches are slower with a second thread; the larger gradient steps
    of an off-policy run are faster, as long as it has the machine to itself.
    """
    spec = get_algorithm(config.algo.name)
    if spec.backend == "jax":
        return 1, f"{spec.name} computes with JAX, which uses one whatever num_threads says"
    if config.num_threads != "auto":
        return int(config.num_threads), "as num_threads says"
    if spec.family is not Family.OFF_POLICY:
        return 1, f"{spec.name} is fastest with one; set num_threads to change it"
    # Not chosen by load: the number of threads changes the last bits of a result.
    why = f"all cores that a lone {spec.name} run may use; set num_threads=1 beside others"
    if config.asynchronous:
        return max(usable_cores() - 1, 1), f"{why}, less one that collects"
    return usable_cores(), why
