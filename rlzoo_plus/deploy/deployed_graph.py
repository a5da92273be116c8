"""A policy as a robot runs it: one observation of the bare environment in, one decision out.

Frame stack, wrappers and LSTM state are inputs and outputs that go round.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.deploy.c_source import frame_shape
from rlzoo_plus.deploy.drive_commands import Commands
from rlzoo_plus.deploy.wrapper_layers import Layer
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import PolicyGraph
from rlzoo_plus.export.signature import STATE_NAMES, Port, Signature

OUT = "_out"
ARRIVED = "arrived_action"
VALUE = "value"
_TURNS = "goes round: zeros at first, then the last output of this name with _out"
Arrays = dict[str, np.ndarray]


class DeployedGraph(PolicyGraph):
    """The policy with its wrappers, its frames, and the commands of the robot's drive.

    Attributes:
        starts: What goes round, at the start of an episode, by the name of the input.
        keys: Name of the input of each part of a dictionary observation.
    """

    def __init__(
        self,
        policy: Policy,
        policy_signature: Signature,
        frames: int,
        layers: list[Layer],
        commands: Commands | None,
        *,
        with_value: bool = False,
    ) -> None:
        """Take over a policy, or raise ConfigError if no graph can hold it.

        Args:
            policy: The policy.
            policy_signature: Its own signature.
            frames: How many observations it sees at a time.
            layers: The wrappers of its environment, the innermost first.
            commands: What its actions command, or None.
            with_value: Whether it also returns what the critic expects.
        """
        super().__init__(policy, policy_signature)
        self._critic = critic_of(self.network, policy_signature) if with_value else None
        self.frames, self.commands = frames, commands
        self.layers = nn.ModuleList(layers)
        self.policy_signature = policy_signature
        observations, self._stacks = self._observations()
        names = [port.name for port in observations]
        self.keys = dict(zip(policy_signature.keys, names, strict=False))
        # Wrappers see this part.
        seen = policy_signature.keys.index("observation") if self.keys and layers else 0
        self.seen, self.starts = seen, dict[str, np.ndarray]()
        for port, name in zip(observations, self._stacks, strict=True):
            if frames > 1:
                sizes = policy_signature.observations[observations.index(port)].sizes(1)
                self.starts[name] = np.zeros(sizes, port.dtype)
        for layer in layers:
            self.starts |= layer.starts
        if policy_signature.recurrent:
            ports = {port.name: port for port in policy_signature.inputs}
            self.starts |= {n: np.zeros(ports[n].sizes(1), np.float32) for n in STATE_NAMES}
        if commands is not None and commands.max_rate is not None:
            self.starts[ARRIVED] = np.zeros((1, commands.n_actions))
        observations[seen] = self._bare(observations[seen])
        self.signature = self._whole_signature(observations)

    def _observations(self) -> tuple[list[Port], list[str]]:
        """Return the observation's ports for one frame, and the name of each stack."""
        ports: list[Port] = []
        for port in self.policy_signature.observations:
            name = re.sub(r"\W", "_", port.name, flags=re.ASCII)
            while name in (taken.name for taken in ports):
                name += "_"
            shape = (1, *frame_shape(port, self.frames))
            ports.append(replace(port, name=name, shape=shape))
        return ports, [f"{port.name}_frames" for port in ports]

    def _bare(self, port: Port) -> Port:
        """Return the port of an observation before any wrapper has seen it."""
        value = np.zeros(port.sizes(1)[1:], port.dtype)
        for layer in reversed(self.layers):
            value, _ = layer.undo(value)  # type: ignore[operator]
        return replace(port, shape=(1, *value.shape))

    def _whole_signature(self, observations: list[Port]) -> Signature:
        own = self.policy_signature
        masks = [
            replace(port, shape=port.sizes(1)) for port in own.inputs if port.name == "action_masks"
        ]
        states = [
            Port(name, str(start.dtype), start.shape, _TURNS) for name, start in self.starts.items()
        ]
        action = own.outputs[0]
        outputs = [replace(action, shape=action.sizes(1))]
        if self.changes_actions:
            meaning = "the action after the wrappers, for the bare environment"
            outputs.append(replace(outputs[0], name="applied_action", meaning=meaning))
        if self.commands is not None:
            kinds = dict.fromkeys(self.commands.kinds)
            counts = [(kind, self.commands.kinds.count(kind)) for kind in kinds]
            outputs += [Port(k, "float32", (1, n), "commands, in units") for k, n in counts]
        if self._critic is not None:
            outputs.append(Port(VALUE, "float32", (1,), "what the critic expects to earn"))
        turned = [Port(p.name + OUT, p.dtype, p.shape, "the next input") for p in states]
        return replace(own, inputs=(*observations, *masks, *states), outputs=(*outputs, *turned))

    @property
    def changes_actions(self) -> bool:
        """Whether wrappers pass actions on changed."""
        return any(layer.changes_actions for layer in self.layers)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return the action, what comes of it, and what goes round."""
        own = self.policy_signature
        given = {p.name: value for p, value in zip(self.signature.inputs, inputs, strict=True)}
        turned: dict[str, Tensor] = {}
        policy_inputs: list[Tensor] = []
        for number, value in enumerate(inputs[: own.n_observations]):
            if number == self.seen:
                for layer in self.layers:
                    value, memory = layer.see(value, given)  # type: ignore[operator]
                    turned |= memory
            if self.frames > 1:
                name = self._stacks[number]
                stack, axis = given[name], 1 if value.ndim == 4 else value.ndim - 1
                width = value.shape[axis]
                kept = stack.narrow(axis, width, stack.shape[axis] - width)
                value = turned[name] = torch.cat([kept, value], axis)
            policy_inputs.append(value)
        if own.recurrent:
            start = torch.zeros(1, dtype=torch.bool)
            policy_inputs += [*(given[name] for name in STATE_NAMES), start]
        if own.maskable:
            policy_inputs.append(given["action_masks"])
        made: Any = self._decide(*policy_inputs)
        action, *state = made if own.recurrent else (made,)
        turned |= dict(zip(STATE_NAMES, state, strict=False))
        outputs, applied = [action], action
        for layer in reversed(self.layers):
            applied, memory = layer.act(applied, given)  # type: ignore[operator]
            turned |= memory
        if self.changes_actions:
            outputs.append(applied)
        if self.commands is not None:
            commands, arrived = self.commands(applied, given.get(ARRIVED))
            outputs += commands
            turned[ARRIVED] = arrived
        if self._critic is not None:
            outputs.append(self._value(policy_inputs, action).reshape(1))
        return (*outputs, *(turned[name] for name in self.starts))

    def _decide(self, *inputs: Tensor) -> Any:
        """Return what the policy alone makes of its own inputs."""
        return super().forward(*inputs)

    def _value(self, inputs: list[Tensor], action: Tensor) -> Tensor:
        """Return V, or Q of the action: the lowest of several critics, the mean of quantiles."""
        own, network = self.policy_signature, self.network
        parts = [part(value) for part, value in zip(self.inputs, inputs, strict=False)]
        seen: Any = dict(zip(own.keys, parts, strict=True)) if own.keys else parts[0]
        if self._critic == "predict_values":
            return network.predict_values(seen)  # type: ignore[no-any-return, operator]
        if self._critic == "critic":
            scaled = 2.0 * (action - self.low) / (self.high - self.low) - 1.0
            found: Any = network.critic(seen, scaled)  # type: ignore[operator]
            return torch.stack(found).amin() if isinstance(found, tuple) else found.mean()
        each: Any = getattr(network, str(self._critic))(seen)
        return each.reshape(-1, each.shape[-1]).mean(0).amax()  # type: ignore[no-any-return]

    def inputs_of(self, recorded: Mapping[str, np.ndarray], row: int) -> tuple[Arrays, Arrays]:
        """Return the inputs, and what goes round, for which the policy sees a recorded row."""
        own, state = self.policy_signature, {n: start.copy() for n, start in self.starts.items()}
        inputs: Arrays = {}
        for number, port in enumerate(own.observations):
            value = np.asarray(recorded[port.name][row], port.dtype)
            if self.frames > 1:
                axis = 0 if value.ndim == 3 else value.ndim - 1
                width = frame_shape(port, self.frames)[axis]
                # The oldest comes to the end, from where it is pushed out.
                state[self._stacks[number]] = np.roll(value, width, axis)[None]
                value = np.take(value, range(value.shape[axis] - width, value.shape[axis]), axis)
            if number == self.seen:
                for layer in reversed(self.layers):
                    value, memory = layer.undo(value)  # type: ignore[operator]
                    state |= memory
            inputs[self.signature.inputs[number].name] = value
        if own.maskable:
            inputs["action_masks"] = np.asarray(recorded["action_masks"][row])
        if own.recurrent and not recorded["episode_start"][row]:
            state |= {name: recorded[name][:, row : row + 1] for name in STATE_NAMES}
        return inputs, state


def critic_of(network: Any, signature: Signature) -> str:
    """Return the attribute of a policy's network that is its critic.

    Raises:
        ConfigError: It has none, or one that remembers the episode or sees more than the policy.
    """
    known = ("predict_values", "critic", "q_net", "quantile_net")
    if signature.recurrent or not any(hasattr(network, name) for name in known):
        raise ConfigError(
            f"--with-value: a {type(network).__name__} has no critic that a graph can hold. Leave "
            "it out."
        )
    if hidden := getattr(network, "critic_keys", ()):
        raise ConfigError(
            f"--with-value: the critic sees {', '.join(hidden)}, which the policy acts without "
            "(network.critic_observation). Leave it out."
        )
    return next(name for name in known if hasattr(network, name))
