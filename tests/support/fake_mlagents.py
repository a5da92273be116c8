"""What a server of ours uses of mlagents_envs, with carts in its own process instead of a player.

Tests copy it to a folder as `mlagents_envs.py`, and grpc.py beside it: where neither is installed,
it stands for both. `base_env`, `environment` and the rest are this module itself.
"""

import random
import sys
import types
from collections import namedtuple

import numpy as np
from unity_cart import Carts

__version__ = "1.1.0"
__path__ = []
ActionSpec = namedtuple("ActionSpec", "continuous_size discrete_branches")
ObservationSpec = namedtuple("ObservationSpec", "shape name")
BehaviorSpec = namedtuple("BehaviorSpec", "observation_specs action_spec")
OPTIONS = {"--count": 3, "--length": 12, "--gap": 0, "--slow": 0, "--forgets": 0}


class Steps(types.SimpleNamespace):
    def __len__(self):
        return len(self.agent_id)


def steps_of(carts):
    """Return carts as decision or terminal steps."""
    numbers = np.array([cart.agent for cart in carts], np.int32)
    seen = np.array([cart.see() for cart in carts], np.float32).reshape(-1, 2)
    rewards = np.array([cart.reward for cart in carts], np.float32)
    return Steps(
        agent_id=numbers,
        obs=[seen[:, :1], seen[:, 1:]],
        reward=rewards,
        group_reward=np.zeros_like(rewards),
        interrupted=np.array([cart.cut for cart in carts], bool),
        action_mask=None,
    )


class ActionTuple:
    def __init__(self, continuous, discrete):
        assert continuous.dtype == np.float32
        assert discrete.dtype == np.int32
        self.continuous = continuous


class Channel:
    def set_configuration_parameters(self, **_):
        pass

    def set_float_parameter(self, name, value):
        pass


class UnityEnvironment:
    def __init__(self, seed, side_channels):
        words = self._options["args"]
        given = {key: int(value) for key, value in zip(words[::2], words[1::2])}  # noqa: B905
        count, length, gap, slow, forgets = {**OPTIONS, **given}.values()
        seed = random.SystemRandom().randrange(2**31) if forgets else seed
        self.carts, self.acts = Carts(count, seed, length, gap, slow), []
        self.behavior_specs = {}

    def reset(self):
        self.carts.reset()
        parts = [ObservationSpec((1,), "Place"), ObservationSpec((1,), "Speed")]
        self.behavior_specs["Cart?team=0"] = BehaviorSpec(parts, ActionSpec(1, ()))

    def set_actions(self, name, actions):
        assert len(actions.continuous) == len(self.carts.asking())
        self.acts = actions.continuous[:, 0].tolist()

    def step(self):
        self.carts.act(self.acts)
        self.acts = []

    def get_steps(self, name):
        return steps_of(self.carts.asking()), steps_of(self.carts.ended)

    def _close(self):
        pass


class RpcCommunicator:
    """Nothing calls it here."""


EngineConfigurationChannel = EnvironmentParametersChannel = Channel
UnityMessageProto = object
here = sys.modules[__name__]
env_utils = environment = rpc_communicator = base_env = here
for _name in (
    *("env_utils", "environment", "rpc_communicator", "base_env", "side_channel"),
    *("communicator_objects", "communicator_objects.unity_message_pb2"),
    *("side_channel.engine_configuration_channel", "side_channel.environment_parameters_channel"),
):
    sys.modules["mlagents_envs." + _name] = here
