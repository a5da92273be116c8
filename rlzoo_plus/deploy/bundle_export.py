"""Writes the folder that a robot needs: LEAPP's files, what they lack, and what runs them."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.artifacts.atomic import finite, write_atomic
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.deploy.deploy_facts import RobotFacts, facts_of_robot
from rlzoo_plus.deploy.deployed_graph import OUT, DeployedGraph
from rlzoo_plus.deploy.drive_commands import Commands
from rlzoo_plus.deploy.leapp_files import leapp_files
from rlzoo_plus.deploy.wrapper_layers import WrapperChain, read_wrappers
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import write_onnx
from rlzoo_plus.export.parity import Parity, Recording, compare, record
from rlzoo_plus.export.signature import STATE_NAMES, Port, Signature, make_signature
from rlzoo_plus.export.writing import check_backend, facts_of

log = logging.getLogger(__name__)

FORMAT = 1
DESCRIPTION = "deploy.json"
MODEL = "policy.onnx"
RUNTIME = "runtime/policy.py"
N_EXAMPLES = 8
# Numbers in all examples; those of images would be too many.
_MOST_NUMBERS = 20_000
_SCORES = ("mean_return", "std_return", "iqm_return", "success_rate", "metrics")
_README = """# {name}

A policy of {environment}, trained with {algorithm}{step}. Written by rlzoo-plus {version}.

- `runtime/policy.py` runs it with Python 3.10 or later, numpy and onnxruntime:

      pip install numpy onnxruntime
      python runtime/policy.py          # repeats examples, and times decisions

      from policy import Policy         # with this folder's runtime/ in the path
      policy = Policy("FOLDER")
      action = policy.act(observation)  # {rate}
      policy.commands                   # {commands}
      policy.reset()                    # between episodes

- `{name}.yaml`, `{model}`{initial} are files of NVIDIA's LEAPP:
  `leapp.InferenceManager("{name}.yaml")` runs them.
- `deploy.json` says the rest: rate, names, units, limits, safe action, what it was trained with,
  and the hash of each file. Its own hash is what `rlzoo-plus deploy` printed:
  `Policy(folder, sha256=...)` accepts no other.

Normalization, frame stack, wrappers, LSTM state and the bounds of the action are inside
`{model}`. An observation goes in as the bare environment gives it: {observation}.
"""


_NO_KWARGS = "it was trained with env.kwargs, which a bundle does not hold: deploy its run"


@dataclass(frozen=True)
class Deployed:
    """A folder that was written."""

    folder: Path
    signature: Signature  # Inputs and outputs of its graph
    parity: Parity  # How its runtime compares with the policy
    bytes: int  # Of all files
    sha256: str  # Of deploy.json
    without_commands: str | None  # Why it has no commands for the joints
    without_shield: str | None  # Why a shield that its environment has, or may have, is left out


def write_deployed(
    policy: Policy,
    config: RunConfig,
    folder: Path,
    about: Mapping[str, Any],
    *,
    with_value: bool = False,
    lacks_kwargs: bool = False,
    with_runtime: bool = True,
) -> Deployed:
    """Write the folder, and compare what its runtime does with the policy.

    Args:
        policy: The policy.
        config: Its run.
        folder: The folder; one that was written so before is replaced.
        about: Step, run and the like.
        with_value: Let the graph return what the critic expects, too.
        lacks_kwargs: Whether it was trained with `env.kwargs` that `config` does not have, so that
            neither commands nor shield can be told.
        with_runtime: Write the file of Python that runs it, too.

    Raises:
        ConfigError: The policy or a wrapper cannot be in a graph, or the folder holds other files.
    """
    _refuse_other_files(folder)
    check_backend(config, "leapp")
    env, unknown = _environment(config)
    unknown = _NO_KWARGS if lacks_kwargs else unknown
    try:
        chain = WrapperChain() if env is None else read_wrappers(env)
        robot = facts_of_robot(env, config, chain, unknown)
        graph = _graph(policy, config, chain, robot, with_value=with_value)
        bounds = _bounds(graph, env)
    finally:
        if env is not None:
            env.close()
    recording = record(policy, make_signature(policy), config)
    model = write_onnx(graph, {}, batch=1)
    runtime = {RUNTIME: _runtime()} if with_runtime else {}
    parts = _files(graph, model, robot, policy, config, about, recording, bounds, runtime)
    files, description = parts
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        for name, data in {**files, DESCRIPTION: description}.items():
            write_atomic(temporary / name, data)
        parity = compare(policy, graph.policy_signature, _runner(temporary, graph), recording)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return Deployed(
        folder,
        graph.signature,
        parity,
        sum(len(data) for data in (*files.values(), description)),
        hashlib.sha256(description).hexdigest(),
        robot.without_commands,
        robot.shield.get("no_shield_because"),
    )


def _refuse_other_files(folder: Path) -> None:
    """Refuse a folder that would lose something of the user's."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ConfigError(f"{folder} is no folder. Name one that does not exist yet.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / DESCRIPTION).is_file():
        raise ConfigError(
            f"{folder} holds other files, and would be replaced. Name a folder that does not exist."
        )


def _environment(config: RunConfig) -> tuple[gym.Env | None, str | None]:
    """Return the bare environment, or why there is none."""
    if config.vec_env == "pettingzoo":
        return None, "its environment has several agents"
    try:
        return make_env(config.env), None
    # Any error of a foreign simulator: names and commands alone need it.
    except Exception as error:
        if config.env.wrappers:
            raise ConfigError(
                f"{config.env.id} cannot be made here ({one_line(error)}), and what its wrappers "
                "do cannot be told without it. Install what it needs."
            ) from error
        log.warning("%s cannot be made: rate, names and units are missing", config.env.id)
        return None, f"the environment cannot be made here: {one_line(error)}"


def _graph(
    policy: Policy, config: RunConfig, chain: WrapperChain, robot: RobotFacts, *, with_value: bool
) -> DeployedGraph:
    commands = None
    if robot.affine is not None:
        commands = Commands(robot.affine, robot.choices, robot.max_action_rate)
    signature = make_signature(policy)
    graph = DeployedGraph(
        *(policy, signature, config.env.frame_stack, chain.layers, commands),
        with_value=with_value,
    )
    graph.eval()
    return graph


def _files(
    graph: DeployedGraph,
    model: bytes,
    robot: RobotFacts,
    policy: Policy,
    config: RunConfig,
    about: Mapping[str, Any],
    recording: Recording,
    bounds: Mapping[str, Any],
    runtime: Mapping[str, bytes],
) -> tuple[dict[str, bytes], bytes]:
    """Return all files but deploy.json, and its content."""
    name = re.sub(r"\W", "_", config.env.name or config.env.id, flags=re.ASCII)
    facts = facts_of(policy, config, graph.signature, dict(about))
    onnx = import_module("onnx").load_from_string(model)
    # The file does not ask for inputs that the network does not read.
    asked = [port.name for port in onnx.graph.input]
    ports = {port.name: port for port in graph.signature.inputs}
    inputs, outputs = [ports[name] for name in asked], graph.signature.outputs
    names = _names(graph, robot)
    files = {MODEL: model, **runtime}
    files |= leapp_files(name, (MODEL, model), inputs, outputs, graph.starts, names)
    readme = _readme(name, graph, robot, facts, names)
    files["README.md"] = (readme if runtime else _without_runtime(readme)).encode()
    keys = {port: key for key, port in graph.keys.items()}
    described: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "rlzoo_plus": facts["rlzoo_plus"],
        "algorithm": config.algo.name,
        **about,
        "environment": {"id": config.env.id, "engine": robot.engine},
        "rate_hz": robot.rate_hz,
        "policy": {
            "file": MODEL,
            "inputs": [
                {
                    **_port(port, names),
                    **({"key": keys[port.name]} if port.name in keys else {}),
                    **bounds.get(port.name, {}),
                }
                for port in inputs
            ],
            "outputs": [_port(port, names) for port in outputs],
            "feedback": {f"{turned}{OUT}": turned for turned in graph.starts},
        },
        "action": {**facts["action"], "names": robot.action_names},
        "commands": {} if robot.affine is None else robot.affine.signals(),
        "no_commands_because": robot.without_commands,
        "joints": robot.joints,
        "safe_action": robot.safe_action,
        **robot.shield,
        "trained_with": {
            **robot.trained_with,
            "frame_stack": config.env.frame_stack,
            "wrappers": config.env.wrappers,
        },
        "normalization": facts["normalization"],
        "evaluation": {key: policy.about[key] for key in _SCORES if key in policy.about},
        "examples": _examples(graph, recording),
        "files": {
            file: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for file, data in files.items()
        },
    }
    text = json.dumps(finite(described), indent=2, allow_nan=False)
    return files, f"{text}\n".encode()


def _runtime() -> bytes:
    return (resources.files("rlzoo_plus.deploy") / "robot_runtime.py").read_bytes()


def _without_runtime(readme: str) -> str:
    """Return a README that says where to get the runtime, which is not in the folder."""
    return readme.replace(
        f"- `{RUNTIME}` runs it",
        f"- `{RUNTIME}` is not here: a registry holds no code. `rlzoo-plus deploy` writes this\n"
        "  folder with it. It runs the policy",
    )


def _names(graph: DeployedGraph, robot: RobotFacts) -> dict[str, list[str]]:
    """Return the names of the entries of inputs and outputs, where they are known."""
    found = {}
    observation = graph.signature.observations[graph.seen]
    if len(robot.observation_names) == np.prod(observation.sizes(1)):
        found[observation.name] = list(robot.observation_names)
    for port in graph.signature.outputs:
        if port.name in ("action", "applied_action") and robot.action_names:
            found[port.name] = robot.action_names
    if robot.affine is not None:
        found |= {kind: one["names"] for kind, one in robot.affine.signals().items()}
    return found


def _bounds(graph: DeployedGraph, env: gym.Env | None) -> dict[str, dict[str, list[float]]]:
    """Return the bounds of observations of the bare environment, flat, by the name of the input."""
    space = None if env is None else env.unwrapped.observation_space
    parts = dict.fromkeys(graph.keys.values(), None) or {graph.signature.inputs[0].name: space}
    if isinstance(space, gym.spaces.Dict):
        parts = {port: space.spaces.get(key) for key, port in graph.keys.items()}
    found: dict[str, dict[str, list[float]]] = {}
    for port in graph.signature.observations:
        part, shape = parts.get(port.name), port.sizes(1)[1:]
        # Bytes of images have no others.
        if isinstance(part, gym.spaces.Box) and port.dtype.startswith("float"):
            if part.shape == shape and (part.bounded_below | part.bounded_above).any():
                low, high = part.low.ravel(), part.high.ravel()
                found[port.name] = {"low": low.tolist(), "high": high.tolist()}
        elif isinstance(part, gym.spaces.Discrete) and not shape:
            found[port.name] = {"low": [int(part.start)], "high": [int(part.start + part.n) - 1]}
    return found


def _port(port: Port, names: Mapping[str, list[str]]) -> dict[str, Any]:
    named = {"names": names[port.name]} if port.name in names else {}
    return {**vars(port), "shape": list(port.sizes(1)), **named}


def _readme(
    name: str,
    graph: DeployedGraph,
    robot: RobotFacts,
    facts: Mapping[str, Any],
    names: Mapping[str, list[str]],
) -> str:
    rate = "as often as the environment was stepped"
    if robot.rate_hz is not None:
        rate = f"{robot.rate_hz:g} times a second"
    commands = f"empty: {robot.without_commands}"
    if robot.affine is not None:
        signals = robot.affine.signals().items()
        commands = ", ".join(f"{kind} [{one['unit']}]" for kind, one in signals)
    parts = []
    for port in graph.signature.observations:
        sizes = "x".join(map(str, port.sizes(1)[1:])) or "one number"
        entries = f" ({', '.join(names[port.name])})" if port.name in names else ""
        parts.append(f"`{port.name}`, {sizes} of {port.dtype}{entries}")
    step = "" if not facts.get("step") else f" for {facts['step']} steps"
    return _README.format(
        name=name,
        environment=facts["environment"],
        algorithm=facts["algorithm"],
        step=step,
        version=facts["rlzoo_plus"],
        rate=rate,
        commands=commands,
        model=MODEL,
        initial=f", `{name}_initial_values.safetensors`" if graph.starts else "",
        observation="; ".join(parts),
    )


def _examples(graph: DeployedGraph, recording: Recording) -> list[dict[str, Any]]:
    """Return observations from the start of an episode on, and what the graph decides, in torch."""
    given = graph.signature.inputs
    state, examples = graph.starts, []
    n_numbers = sum(int(np.prod(port.sizes(1))) for port in graph.signature.observations)
    for row in range(N_EXAMPLES if n_numbers * N_EXAMPLES <= _MOST_NUMBERS else 0):
        inputs, _ = graph.inputs_of(recording.inputs, row)
        arrays = {name: value[None] for name, value in inputs.items()} | state
        with torch.no_grad():
            made = graph(*(torch.from_numpy(np.ascontiguousarray(arrays[p.name])) for p in given))
        outputs = {p.name: v.numpy() for p, v in zip(graph.signature.outputs, made, strict=True)}
        state = {name: outputs[name + OUT] for name in graph.starts}
        observation: Any = inputs[graph.signature.observations[0].name].tolist()
        if graph.keys:
            observation = {key: inputs[port].tolist() for key, port in graph.keys.items()}
        example = {"observation": observation, "action": outputs["action"][0].tolist()}
        if "action_masks" in inputs:
            example["action_masks"] = inputs["action_masks"].tolist()
        examples.append(example)
    return examples


def _runner(folder: Path, graph: DeployedGraph) -> Any:
    """Return a function that runs the folder: what the policy takes, to what it gives."""
    runtime = import_module("rlzoo_plus.deploy.robot_runtime").Policy(folder)
    keys = {port: key for key, port in graph.keys.items()}
    states = STATE_NAMES if graph.policy_signature.recurrent else ()

    def one(recorded: Mapping[str, np.ndarray], row: int) -> list[np.ndarray]:
        inputs, runtime.state = graph.inputs_of(recorded, row)
        masks = inputs.pop("action_masks", None)
        observation: Any = {keys.get(name, name): value for name, value in inputs.items()}
        if not keys:
            (observation,) = inputs.values()
        action = np.asarray(runtime.act(observation, masks))
        return [action[None], *(runtime.state[name] for name in states)]

    def run(**recorded: np.ndarray) -> list[np.ndarray]:
        count = len(recorded["episode_start"])
        actions, *after = zip(*(one(recorded, row) for row in range(count)), strict=True)
        return [np.concatenate(actions), *(np.concatenate(part, axis=1) for part in after)]

    return run
