"""What is found in one configuration before anything is trained."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.libraries import ACTING, each
from support.training import make_config, tiny_config

from rlzoo_plus.doctor import check_jobs as module
from rlzoo_plus.doctor.building import agent_facts
from rlzoo_plus.doctor.check_jobs import Level, diagnose, error, shared, warning
from rlzoo_plus.sweeps.refusals import Refusals, Tried, refusals

ENVS = {
    "dqn": "cartpole",
    "qrdqn": "cartpole",
    "sac_discrete": "cartpole",
    "her": "tests/TinyGoal-v0",
    "maskable_ppo": "tests/TinyMasked-v0",
}


def shipped(algo, *overrides):
    env = ENVS.get(algo, "cartpole_bullet")
    chosen = [f"env={env}"]
    if "/" in env:
        chosen = [f"env.id={env}", "env.packages=[support.tiny_envs]"]
    return make_config(f"algo={algo}", *chosen, *overrides)


def texts(config, level):
    return [finding.text for finding in diagnose(config) if finding.level is level]


@pytest.mark.parametrize("algo", each(sorted(ACTING)))
def test_what_is_shipped_has_neither_error_nor_warning(algo):
    overrides = ("tuned=none", "n_timesteps=102400")
    assert diagnose(shipped(algo, *overrides)) == []


OFF = ("algo=sac", "env=cartpole_bullet", "tuned=none", "n_timesteps=10000")
ON = ("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_timesteps=20480")
HER = ("algo=her", "env=panda_reach", "tuned=none", "n_timesteps=10000")
DOUBTFUL = {
    "a batch that does not divide a rollout": (
        (*ON, "algo.hyperparams.batch_size=60"),
        "batch_size=60 does not divide one rollout",
    ),
    "a batch above the buffer": (
        (*OFF, "algo.hyperparams.buffer_size=200"),
        "batch_size=256 is above buffer_size=200",
    ),
    "a batch above the run": (
        (*OFF, "n_timesteps=150"),
        "batch_size=256 is above the whole run",
    ),
    "a batch far above learning_starts": (
        (*OFF, "algo.hyperparams.learning_starts=10"),
        "26 times learning_starts=10",
    ),
    "learning that never starts": (
        (*OFF, "algo.hyperparams.learning_starts=10000"),
        "nothing will be learned",
    ),
    "a buffer below learning_starts": (
        (*OFF, "algo.hyperparams.learning_starts=900", "algo.hyperparams.buffer_size=800"),
        "learning_starts=900 is above buffer_size=800",
    ),
    "evaluations beyond the end": ((*ON, "eval.every_steps=30000"), "evaluated at the end only"),
    "checkpoints beyond the end": (
        (*ON, "checkpoint.every_steps=30000"),
        "checkpoint.every_steps=30000 is above n_timesteps=20480",
    ),
    "milestones beyond the end": (
        (*ON, "checkpoint.milestone_steps=30000"),
        "checkpoint.milestone_steps=30000 is above",
    ),
    "milestones below a rollout": (
        (*ON, "checkpoint.milestone_steps=100"),
        "below one rollout of 2048 steps",
    ),
    "patience beyond the end": ((*ON, "stop.no_improvement_evals=10"), "can never end it"),
    "a lone environment in a process": ((*ON, "vec_env=subproc"), "only costs time"),
    "more threads than cores": ((*ON, "num_threads=1000"), "num_threads=1000 is above the"),
    "a limit below the buffer": (
        (*OFF, "n_timesteps=1e6", "infra.memory_gib=0.01"),
        "the job will be killed",
    ),
}


@pytest.mark.parametrize(("overrides", "part"), DOUBTFUL.values(), ids=list(DOUBTFUL))
def test_what_is_doubtful_gets_one_warning(overrides, part):
    # The last of two values wins, as nobody would type it.
    values = {override.partition("=")[0]: override for override in overrides}
    config = make_config(*values.values())
    found = texts(config, Level.WARNING)
    assert [text for text in found if part in text], found
    assert texts(config, Level.ERROR) == []


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (("n_timesteps=300",), "less than one episode"),
        (("eval.every_steps=500", "eval.episodes=20"), "may play 10,000 steps"),
    ],
)
def test_the_longest_episode_is_compared_with_the_run(overrides, part):
    config = make_config("algo=a2c", "env=cartpole", "tuned=none", *overrides)
    assert any(part in text for text in texts(config, Level.WARNING))


def test_an_environment_without_a_time_limit_is_a_warning():
    package = "env.packages=[support.tiny_envs]"
    usual = ("env.id=tests/TinyEndless-v0", package, "tuned=none", "n_timesteps=102400")
    found = texts(make_config("algo=ppo", *usual), Level.WARNING)
    text = next(text for text in found if text.startswith("env.id="))
    assert "has no time limit" in text
    assert "cut after 10,000 steps (eval.max_episode_steps)" in text
    assert "env.time_limit=1000" in text
    limited = texts(make_config("algo=ppo", *usual, "env.time_limit=100"), Level.WARNING)
    assert not any("time limit" in text for text in limited)
    whole = texts(make_config("algo=ars", *usual), Level.WARNING)
    assert any("nothing is ever learned or saved" in text for text in whole)


def test_hindsight_replay_is_told_when_no_episode_can_be_complete():
    pytest.importorskip("panda_gym")
    config = make_config(*HER, "n_envs=4", "algo.hyperparams.learning_starts=199")
    assert any("hindsight replay waits" in text for text in texts(config, Level.WARNING))
    small = make_config(*HER, "n_envs=4", "algo.hyperparams.buffer_size=199")
    assert any("ends with an error unless" in text for text in texts(small, Level.WARNING))
    assert texts(make_config(*HER), Level.WARNING) == []


REFUSED = {
    "what only the constructor refuses": (("network.n_critics=2",), "'n_critics'"),
    "arguments of a buffer": (
        ("algo.hyperparams.rollout_buffer_kwargs={a:1}",),
        "refuses its configuration",
    ),
    "a device": (("device=cuda:99",), "device=cuda:99"),
    "a callback": (("callbacks=[nowhere.Callback]",), "callbacks: nowhere.Callback"),
    "an argument of a callback": (("callbacks=[{gradients:{every:5}}]",), "'every_steps'"),
    "a limit for a debugger": (("infra=debug", "infra.memory_gib=1"), "infra=debug"),
}


@pytest.mark.parametrize(("overrides", "part"), REFUSED.values(), ids=list(REFUSED))
def test_what_training_would_refuse_late_is_an_error(overrides, part):
    (text,) = texts(tiny_config("ppo", "tests/TinyReach-v0", *overrides), Level.ERROR)
    assert part in text


@pytest.mark.parametrize("symmetry", ["augment", "loss"])
def test_a_symmetry_that_the_environment_does_not_have_is_an_error(symmetry):
    words = "algo=ppo", f"algo.symmetry={symmetry}"
    (text,) = texts(make_config(*words, "env=pendulum"), Level.ERROR)
    assert "the environment has no mirror" in text
    assert texts(make_config(*words, "env=cartpole_bullet"), Level.ERROR) == []


def test_an_algorithm_that_does_not_fit_is_an_error():
    (text,) = texts(make_config("algo=dqn", "env=cartpole_bullet"), Level.ERROR)
    assert "dqn cannot act in Box" in text


def test_a_value_that_composing_would_refuse_is_an_error():
    config = tiny_config()
    values = {**config.algo.hyperparams, "gama": 0.9}
    broken = config.model_copy(
        update={"algo": config.algo.model_copy(update={"hyperparams": values})}
    )
    (finding,) = diagnose(broken)
    assert finding.level is Level.ERROR
    assert "'algo.hyperparams.gamma'" in finding.text


def test_whatever_breaks_while_an_agent_is_built_is_an_error(monkeypatch):
    def break_it(*_):
        raise RuntimeError("no room for\nsuch a layer")

    monkeypatch.setattr("rlzoo_plus.doctor.building.make_agent", break_it)
    (text,) = texts(tiny_config("ppo", "tests/TinyReach-v0", "network.net_arch=[13]"), Level.ERROR)
    assert text == "ppo cannot be built: RuntimeError: no room for"


def test_a_device_of_another_machine_is_not_looked_for_here():
    config = tiny_config("ppo", "tests/TinyReach-v0", "device=cuda:99")
    elsewhere = config.infra.model_copy(update={"name": "slurm"})
    assert refusals([config.model_copy(update={"infra": elsewhere})]) == []


def test_an_environment_is_tried_once_for_all_that_share_it(monkeypatch):
    tried = []

    def refuse(configs):
        tried.extend(config.env.id for config in configs)
        return [Tried(["it is broken"]) for _ in configs]

    monkeypatch.setattr("rlzoo_plus.sweeps.refusals.try_environments", refuse)
    monkeypatch.setattr(module, "_refusals", Refusals())
    for gamma in (0.9, 0.95, 0.99):
        config = tiny_config("ppo", "tests/TinyReach-v0", f"algo.hyperparams.gamma={gamma}")
        assert texts(config, Level.ERROR) == ["it is broken"]
    assert tried == ["tests/TinyReach-v0"]


_PROBE = """
import sys
sys.path.insert(0, sys.argv[1])
from support.training import tiny_config
from rlzoo_plus.sweeps.refusals import refusals
print(refusals([tiny_config("ppo", "CartPole-v1"), tiny_config("dqn", "Pendulum-v1")]))
print("torch" in sys.modules)
"""


def test_torch_is_not_imported_to_refuse_an_environment(tmp_path):
    command = [sys.executable, "-c", _PROBE, str(Path(__file__).parents[1])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    reasons, has_torch = done.stdout.splitlines()
    assert "dqn cannot act" in reasons
    assert has_torch == "False"


# Three numbers now and three then, an action, a reward, an end, a time-out: all of four bytes.
@pytest.mark.parametrize(
    ("algo", "env", "overrides", "row_bytes"),
    [
        ("sac", "TinyReach", (), 40),
        ("sac", "TinyReach", ("n_envs=3",), 120),
        (
            "sac",
            "TinyReach",
            (
                "algo.hyperparams.optimize_memory_usage=true",
                "algo.hyperparams.replay_buffer_kwargs={handle_timeout_termination: false}",
            ),
            28,
        ),
        ("sac", "TinyImage", (), 2 * 36 * 36 * 3 + 16),
        # A number for each of three parts, twice; begin and length of the episode, and the info.
        ("her", "TinyGoal", (), 6 * 4 + 16 + 3 * 8),
        ("ppo", "TinyReach", (), 0),
    ],
)
def test_the_size_of_a_transition_is_that_of_the_library(algo, env, overrides, row_bytes):
    network = ("network.net_arch=null",) if env == "TinyImage" else ()
    facts = agent_facts(tiny_config(algo, f"tests/{env}-v0", *network, *overrides))
    assert facts.row_bytes == row_bytes


def test_a_replay_buffer_takes_no_more_than_the_run_fills():
    config = tiny_config("sac", "tests/TinyReach-v0", "algo.hyperparams.buffer_size=1000000")
    facts = agent_facts(config)
    assert facts.replay_bytes(config) == 64 * 40
    longer = config.model_copy(update={"n_timesteps": 5_000_000})
    assert facts.replay_bytes(longer) == 1_000_000 * 40


def test_a_finding_of_many_jobs_is_told_once_and_errors_come_first():
    doubt, mistake = warning("slow"), error("wrong")
    told = shared([("a", [doubt, doubt]), ("b", [doubt, mistake]), ("c", [])])
    assert list(told.items()) == [(mistake, ["b"]), (doubt, ["a", "b"])]


def test_an_algorithm_of_ones_own_may_ask_its_environments_while_it_is_built():
    config = tiny_config("ppo", "tests/TinyReach-v0", "algo.name=support.user_policies.Curious")
    assert agent_facts(config).weights_bytes > 0
