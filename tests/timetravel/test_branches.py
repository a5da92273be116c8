"""`branch`: a run that begins at a checkpoint of another goes on exactly, with what was changed."""

import json
import shutil
import signal
import subprocess

import numpy as np
import pytest
from support.processes import PLUS, environ_of_tests
from support.resuming import KillAfter

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.exp_manager import ExpManager

TRUST = "--trust"


def branch(answer, run, step, path, *changes):
    """Begin a branch and train it; return its run."""
    words = (f"{run.path}@{step}", f"run_dir={path}", TRUST, *changes)
    code, text = answer("branch", *words)
    assert code == 0, text
    return RunDir(path)


def weights_of(run):
    """Return the weights of a run's newest checkpoint."""
    return run.checkpoints().load_newest().state["agent"]["parameters"]["policy"]


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "sac", "td3"])
def test_without_a_change_a_branch_ends_as_its_parent(algo, trained, answer, tmp_path):
    noise = ("algo.action_noise={type: ou, std: 0.2}", "normalize=true") if algo == "td3" else ()
    parent = trained(algo, *noise)
    before = {p: p.read_bytes() for p in parent.path.rglob("*") if p.is_file()}
    found = branch(answer, parent, 96, tmp_path / "b")
    assert run_digests(found) == run_digests(parent)
    assert found.read_result()["inexact_because"] == []
    # Nothing was written to the parent.
    assert {p: p.read_bytes() for p in parent.path.rglob("*") if p.is_file()} == before
    about = found.read_provenance()["branch"]
    assert (about["step"], about["changed"]) == (96, {})
    assert about["parent"] == str(parent.path)


@pytest.mark.training
@pytest.mark.parametrize(
    ("algo", "change", "look"),
    [
        ("ppo", "algo.hyperparams.learning_rate=0.1", lambda a: a.lr_schedule(1.0) == 0.1),
        ("ppo", "algo.hyperparams.gamma=0.5", lambda a: a.gamma == a.rollout_buffer.gamma == 0.5),
        ("ppo", "algo.hyperparams.ent_coef=0.3", lambda a: a.ent_coef == 0.3),
        ("ppo", "algo.hyperparams.clip_range=0.7", lambda a: a.clip_range(1.0) == 0.7),
        ("ppo", "algo.hyperparams.n_epochs=5", lambda a: a.n_epochs == 5),
        ("sac", "algo.hyperparams.tau=0.5", lambda a: a.tau == 0.5),
        ("sac", "algo.hyperparams.train_freq=2", lambda a: a.train_freq.frequency == 2),
        ("sac", "algo.hyperparams.target_entropy=-3.0", lambda a: a.target_entropy == -3.0),
        (
            "td3",
            "algo.action_noise={type: normal, std: 0.4}",
            lambda a: a.action_noise._sigma[0] == 0.4,
        ),
    ],
)
def test_a_change_has_its_effect(algo, change, look, trained, tmp_path):
    from rlzoo_plus.timetravel.branching import plan_branch

    noise = ("algo.action_noise={type: normal, std: 0.2}",) if algo == "td3" else ()
    parent = trained(algo, *noise)
    made = plan_branch(f"{parent.path}@96", [change], trust=True)
    agent = Run.open(parent.path, trust=True).live_agent("96", made.config)
    assert look(agent.algorithm)
    assert agent.algorithm.num_timesteps == 96
    agent.close()


@pytest.mark.training
def test_a_fixed_entropy_coefficient_may_become_another_number(trained, tmp_path):
    parent = trained("sac", "algo.hyperparams.ent_coef=0.1")
    from rlzoo_plus.timetravel.branching import plan_branch

    made = plan_branch(f"{parent.path}@96", ["algo.hyperparams.ent_coef=0.7"], trust=True)
    agent = Run.open(parent.path, trust=True).live_agent("96", made.config)
    assert float(agent.algorithm.ent_coef_tensor) == pytest.approx(0.7)
    agent.close()


@pytest.mark.training
def test_a_changed_branch_is_exact_and_resumes_as_if_never_killed(trained, answer, tmp_path):
    parent = trained("ppo")
    change = "algo.hyperparams.learning_rate=0.01"
    whole = branch(answer, parent, 96, tmp_path / "whole", change)
    assert whole.read_result()["inexact_because"] == []
    assert not all(
        np.array_equal(value, weights_of(parent)[key]) for key, value in weights_of(whole).items()
    )
    from rlzoo_plus.timetravel.branching import plan_branch

    made = plan_branch(f"{parent.path}@96", [change, f"run_dir={tmp_path / 'killed'}"], trust=True)
    plan = made.begin("a test")
    with pytest.raises(KeyboardInterrupt):
        ExpManager(plan.config, plan.run_dir, KillAfter(2)).train()
    code, text = answer("resume", str(tmp_path / "killed"), TRUST)
    assert code == 0, text
    assert run_digests(RunDir(tmp_path / "killed")) == run_digests(whole)


@pytest.mark.training
def test_a_branch_in_a_changed_environment_forgets_the_best_evaluation(trained, answer, tmp_path):
    parent = trained("ppo")
    found = branch(answer, parent, 128, tmp_path / "b", "env.kwargs.scale=0.5")
    rows = (found.path / "evaluations.jsonl").read_text().splitlines()
    best = max((json.loads(row) for row in rows[-1:]), key=lambda row: row["mean_return"])
    assert found.read_result()["best"]["step"] == best["step"] == 192
    assert found.read_result()["inexact_because"] == []
    assert found.read_provenance()["branch"]["changed"]["env.kwargs.scale"] == ["not set", 0.5]


@pytest.mark.training
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("algo.name=a2c", "algo.name=a2c: cannot change"),
        ("env.id=CartPole-v1", "env.id=CartPole-v1: cannot change"),
        ("n_envs=3", "an episode of each environment"),
        ("seed=9", "it would have no effect"),
        ("network.net_arch=[4]", "may become wider"),
        ("network.activation=relu", "the checkpoint's networks"),
        ("normalize={observation: true}", "normalize"),
        ("env.frame_stack=2", "that environment and its wrappers"),
        ("algo.hyperparams.use_sde=true", "shapes what the checkpoint holds"),
        ("n_timesteps=64", "is the end of n_timesteps=64"),
        ("algo.hyperparams.nonsense=1", "nonsense"),
        ("nonsense", "must be KEY=VALUE"),
        ("init_from=trained/cartpole_bullet", "init"),
    ],
)
def test_what_cannot_change_is_refused_before_anything_is_written(
    change, said, trained, answer, tmp_path
):
    code, text = answer(
        "branch", f"{trained('ppo').path}@96", f"run_dir={tmp_path / 'b'}", TRUST, change
    )
    assert code == 2, text
    assert said in text
    assert "Traceback" not in text
    assert not (tmp_path / "b").exists()


@pytest.mark.training
@pytest.mark.parametrize(
    "change", ["buffer_size=100", "ent_coef=0.5", "optimize_memory_usage=true"]
)
def test_what_shaped_a_replay_buffer_or_is_learned_is_refused(change, trained, answer, tmp_path):
    words = (f"run_dir={tmp_path / 'b'}", TRUST, f"algo.hyperparams.{change}")
    code, text = answer("branch", f"{trained('sac').path}@96", *words)
    assert code == 2, text
    assert "cannot change in the middle of a run" in text


@pytest.mark.training
def test_an_unknown_step_lists_those_there_are(trained, answer):
    run = trained("ppo").path
    for step in ("95", "../96", "", "1" * 40, "-1"):
        code, text = answer("branch", f"{run}@{step}", TRUST)
        assert (code, "Traceback" in text) == (2, False), text
        assert "It has: 32, 64, 96" in text
    code, text = answer("branch", str(run), TRUST)
    assert (code, "must be RUN@STEP" in text) == (2, True)


@pytest.mark.training
def test_a_run_with_foreign_code_needs_trust(trained, answer, tmp_path):
    for verb, words in (("branch", ("@96",)), ("bisect", ("", "--when", "nan"))):
        code, text = answer(verb, f"{trained('ppo').path}{words[0]}", *words[1:])
        assert (code, "--trust" in text) == (2, True)


@pytest.mark.training
def test_a_damaged_checkpoint_and_a_link_are_refused(trained, answer, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained("ppo").path, copy)
    file = copy / "checkpoints" / f"{96:012d}" / "state.json"
    file.write_bytes(file.read_bytes()[:-1])
    code, text = answer("branch", f"{copy}@96", f"run_dir={tmp_path / 'b'}", TRUST)
    assert (code, "changed or cut short" in text) == (2, True), text
    (copy / "monitor" / "link.csv").symlink_to("/etc/hostname")
    code, text = answer("branch", f"{copy}@64", f"run_dir={tmp_path / 'b'}", TRUST)
    assert (code, "is a link" in text) == (2, True), text
    assert not (tmp_path / "b").exists()


@pytest.mark.training
def test_a_branch_cannot_replace_a_run(trained, answer, tmp_path):
    shutil.copytree(trained("ppo").path, tmp_path / "there")
    code, text = answer(
        "branch", f"{trained('ppo').path}@96", f"run_dir={tmp_path / 'there'}", TRUST
    )
    assert (code, "holds a run" in text) == (2, True), text


@pytest.mark.training
def test_a_branch_that_is_killed_while_it_is_copied_does_not_start_from_nothing(
    trained, answer, tmp_path, monkeypatch
):
    from rlzoo_plus.timetravel import branching

    def killed(*_, **__):
        raise SystemExit(9)

    # As of kill -9: nothing is cleaned up.
    monkeypatch.setattr(branching, "copy_checkpoint", killed)
    monkeypatch.setattr(branching.shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(RunDir, "discard", lambda _: None)
    made = branching.plan_branch(
        f"{trained('ppo').path}@96", [f"run_dir={tmp_path / 'b'}"], trust=True
    )
    with pytest.raises(SystemExit):
        made.begin("a test")
    code, text = answer("resume", str(tmp_path / "b"), TRUST)
    assert (code, "no checkpoint to resume from" in text) == (2, True), text


@pytest.mark.training
@pytest.mark.slow
def test_a_branch_that_is_killed_resumes_from_the_command_line(tmp_path):
    common = ("algo=ppo", "env=CartPole-v1", "tuned=none", "n_envs=1", "eval.every_steps=null")
    sizes = ("algo.hyperparams.n_steps=128", "report.plot=false", "report.video=false")
    words = (*common, *sizes, "checkpoint.every_steps=512", "run_dir=parent", "n_timesteps=1024")

    def plus(*arguments):
        done = subprocess.run(
            [*PLUS, *arguments], cwd=tmp_path, env=environ_of_tests(), capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    plus("train", *words)
    change = ("algo.hyperparams.learning_rate=0.001", "n_timesteps=6000")
    plus("branch", "parent@512", "run_dir=whole", *change)
    process = subprocess.Popen(
        [*PLUS, "branch", "parent@512", "run_dir=killed", *change], cwd=tmp_path,
        env=environ_of_tests(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    killed = RunDir(tmp_path / "killed")
    while process.poll() is None and len(killed.checkpoints().steps()) < 3:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    plus("resume", "killed")
    assert run_digests(killed) == run_digests(RunDir(tmp_path / "whole"))


NET_ARCHS = {
    "ppo": ("[8,6]", "[12,9]"),
    "sac": ("{actor: [8, 6], critic: [8, 6]}", "{actor: [8, 10], critic: [16, 6]}"),
    "td3": ("[8,6]", "[9,6]"),
    "crossq": ("[8,6]", "[12,12]"),
    "dqn": ("[8,6]", "[12,9]"),
}


@pytest.fixture
def grown(trained, answer, tmp_path):
    """Return a function: an algorithm to a run and a branch of it with wider layers."""

    def grow(algo):
        narrow, wide = NET_ARCHS[algo]
        discrete = ("env.kwargs.discrete=true",) if algo == "dqn" else ()
        parent = trained(algo, f"network.net_arch={narrow}", *discrete)
        found = branch(answer, parent, 96, tmp_path / "wide", f"network.net_arch={wide}")
        return parent, found

    return grow


@pytest.mark.training
@pytest.mark.parametrize("algo", NET_ARCHS)
def test_wider_networks_compute_the_same_and_learn_with_all_their_units(algo, grown):
    import torch

    parent, found = grown(algo)
    before, after = (Run.open(run.path, trust=True).live_agent("96") for run in (parent, found))
    seen = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    for deterministic in (True, False):
        acted = []
        for agent in (before, after):
            torch.manual_seed(0)
            acted.append(agent.algorithm.predict(seen, deterministic=deterministic)[0])
        assert np.allclose(*acted, atol=1e-5)
    weights = [weights_of(RunDir(run.path)) for run in (parent, found)]
    wider = [name for name in weights[0] if weights[0][name].shape != weights[1][name].shape]
    assert len(wider) >= 4
    loaded = after.algorithm.get_parameters()["policy"]
    moved = [
        name
        for name in wider
        if weights[1][name].ndim == 2
        and np.any(weights[1][name][:, -1] != loaded[name].numpy()[:, -1])
    ]
    assert moved
    result = found.read_result()
    assert result["inexact_because"] == []
    assert result["num_timesteps"] == 192
    for agent in (before, after):
        agent.close()
    Run.open(found.path, trust=True).policy("best").predict(seen[0])


@pytest.mark.training
def test_the_same_growth_ends_the_same(grown, answer, tmp_path):
    parent, found = grown("sac")
    again = branch(answer, parent, 96, tmp_path / "b", f"network.net_arch={NET_ARCHS['sac'][1]}")
    assert run_digests(found) == run_digests(again)


@pytest.mark.training
@pytest.mark.parametrize(
    ("algo", "settings", "change", "told"),
    [
        ("ppo", ["network.net_arch=[8,6]"], "[8,4]", "may become wider"),
        ("ppo", ["network.net_arch=[8,6]"], "[8,6,6]", "may become wider"),
        ("ppo", ["network.net_arch=[80,8]"], "null", "would become smaller"),
        ("ppo", ["network.net_arch=[8]"], "null", "not added or removed"),
        ("sac", ["network=layer_norm", "network.net_arch=[8,6]"], "[9,9]", "layer normalization"),
        ("ppo", ["algo.hyperparams.use_sde=true", "network.net_arch=[8,6]"], "[9,9]", "gSDE"),
    ],
)
def test_networks_that_would_compute_something_else_are_refused(
    algo, settings, change, told, trained, answer, tmp_path
):
    parent = trained(algo, *settings)
    words = (f"{parent.path}@96", f"run_dir={tmp_path / 'b'}", TRUST)
    code, text = answer("branch", *words, f"network.net_arch={change}")
    assert code == 2
    assert told in text
    assert "Traceback" not in text
    assert not (tmp_path / "b").exists()
