"""A process of a training by several that is not rank 0: it does what rank 0 orders."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.logger import Logger

from rlzoo_plus import accelerators
from rlzoo_plus.agents.devices import thread_policy
from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.artifacts.checkpoint import Checkpoint
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.own_code import import_packages
from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.shares import share_of
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.seeding import SeedStreams, seed_all
from rlzoo_plus.envs.single import scheduled
from rlzoo_plus.errors import RUN_ERROR, USER_ERROR, ConfigError, RunError
from rlzoo_plus.ranks.group import Group, Order
from rlzoo_plus.ranks.joint_updates import hash_of
from rlzoo_plus.ranks.rank_zero import END, FOLLOWED, READY, STOP, device_of, join
from rlzoo_plus.ranks.statistics_of_ranks import adopt, statistics_of
from rlzoo_plus.runs.printing import plain_console, set_up_logging
from rlzoo_plus.training.resume import agent_state
from rlzoo_plus.training.resume.snapshot import restore_all, state_of

log = logging.getLogger(__name__)
# What all ranks have alike, and a checkpoint therefore once.
_SHARED = ("parameters", "tensors")
# Until rank 0 has said what it stops for, where another rank has died.
_STOPPED_WITHIN_S = 60.0


class LeaderLostError(Exception):
    """The connection to another rank is closed."""


def serve(ticket: dict[str, Any]) -> int:
    """Take part in a training as the ticket says, the first line of the input; return an exit code.

    A second line says that the training is over; an input that ends without it, that rank 0 died.
    The output is a line when this rank is ready, and one with an error in JSON.
    """
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    watch = threading.Thread(target=_watch, args=(ticket,), daemon=True)
    watch.start()
    code, error = 0, None
    try:
        _take_part(ticket, answers)
    except LeaderLostError:
        # It tells why, and ends this process: the connections of a rank close before its pipes.
        watch.join(_STOPPED_WITHIN_S)
        return FOLLOWED
    except ConfigError as found:
        code, error = USER_ERROR, str(found)
    # The user's own code can raise anything.
    except Exception as found:
        log.debug("this rank was ended by", exc_info=True)
        text = f"{type(found).__name__}: {one_line(found)}"
        code, error = RUN_ERROR, str(found) if isinstance(found, RunError) else text
    if error is not None:
        with contextlib.suppress(OSError):
            answer = {"error": error, "is_users": code == USER_ERROR}
            answers.write(json.dumps(answer).encode())
    return code


def _watch(ticket: dict[str, Any]) -> None:
    """End this process when rank 0 says so, or has died."""
    said = os.read(0, len(STOP))
    if said == END:
        return
    if not said:
        shutil.rmtree(ticket["folder"], ignore_errors=True)
    if not said and ticket["rank"] == 1:
        print(
            f"error: rank 0 (process {ticket['leader']}) has died: all ranks end. Resume with: "
            f"rlzoo-plus resume {ticket['run_dir']}",
            file=sys.stderr,
            flush=True,
        )
    os._exit(FOLLOWED)


def _take_part(ticket: dict[str, Any], answers: Any) -> None:
    config = validate_config(ticket["config"])
    import_packages(config)
    accelerators.before_torch(config)
    set_up_logging("error", plain_console())
    config, rank = scheduled(config), int(ticket["rank"])
    device = device_of(config.device, rank, config.distributed)
    share = share_of(config).model_copy(update={"device": device})
    torch.set_num_threads(thread_policy(config)[0])
    seed_all(config.seed)
    seeds = SeedStreams.of(config)
    # The seeds of environments are those that one process would give all of them.
    first = seeds.train + rank * share.n_envs
    venv = make_train_env(share, first)
    try:
        own_seed = np.random.SeedSequence([seeds.agent, rank]).generate_state(1)[0]
        agent: Any = make_agent(share, venv, int(own_seed % 2**31))
        agent.env.seed(first)
        agent.set_logger(Logger(None, []))
        answers.write(READY)
        group = Group(
            Path(ticket["folder"]),
            rank,
            config.distributed,
            LeaderLostError,
            on_gpus=device != "cpu",
        )
        _, callback = agent._setup_learn(config.n_timesteps, None)
        join(agent, _Follower(group))
        _follow(agent, callback, group, config)
        group.close()
    finally:
        venv.close()


class _Follower:
    """The other ranks, as one that is not rank 0 has them."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def order(self, order: Order) -> None:
        """Nothing: rank 0 has ordered it."""

    def note_episodes(self, episodes: list[Any]) -> None:
        """Nothing: rank 0 has them."""


def _follow(agent: Any, callback: Any, group: Group, config: Any) -> None:
    """Do what rank 0 orders, until it orders the end."""
    while True:
        order, agent.num_timesteps = group.from_first(torch.zeros(2, dtype=torch.int64)).tolist()
        agent._update_current_progress_remaining(agent.num_timesteps, agent._total_timesteps)
        match Order(order):
            case Order.ADOPT:
                agent_state.restore_parameters(agent, group.scatter())
                adopt(statistics_of(agent), group)
            case Order.ROLLOUT:
                agent.collect_share(agent.env, callback, agent.rollout_buffer, agent.n_steps)
            case Order.CHECK:
                group.of_all(hash_of(agent))
            case Order.EXCHANGE:
                agent.exchange()
            case Order.UPDATE:
                agent.train()
                agent.logger.dump()
            case Order.SEND_STATE:
                group.gather(_state(agent))
            case Order.RESTORE:
                group.gather(_restore(agent, group.scatter(), config))
            case Order.END:
                return


def _state(agent: Any) -> dict[str, Any]:
    """Return what a checkpoint needs of this rank, beside what all have alike."""
    state = state_of(agent)
    own = {key: value for key, value in state["agent"].items() if key not in _SHARED}
    return {"agent": own, "envs": state["envs"]}


def _restore(agent: Any, given: dict[str, Any], config: Any) -> dict[str, Any]:
    """Restore this rank; return what differs, and why it does not fit."""
    answer: dict[str, Any] = {"problems": [], "misfit": None}
    try:
        state = given["state"]
        whole = {"buffer": None, **state, "agent": {**state["agent"], **given["shared"]}}
        checkpoint = Checkpoint(Path(), int(agent.num_timesteps), whole, {})
        answer["problems"] = restore_all(agent, checkpoint, {}, config)[0]
    # Any part of it may be another's, or forged.
    except Exception as error:
        answer["misfit"] = one_line(error)
    return answer
