"""Command lines of rl_zoo3, and the overrides that they become."""

import pytest

from rlzoo_plus.config.zoo_flags import translated
from rlzoo_plus.errors import ConfigError


def overrides(*arguments):
    return translated(arguments).arguments


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        (
            "--algo ppo --env CartPole-v1 -n 10000 --eval-freq 5000 -params gamma:0.99 n_steps:512",
            "algo=ppo env.id=CartPole-v1 n_timesteps=10000 eval.every_steps=5000 "
            "algo.hyperparams.gamma=0.99 algo.hyperparams.n_steps=512",
        ),
        ("--algo=ppo_lstm --env pendulum", "algo=recurrent_ppo env=pendulum"),
        ("--n-timesteps -1 --num-threads -1 --save-freq -1 --log-interval -1", ""),
        ("--eval-freq -1", "eval.every_steps=null"),
        ("--eval-episodes 7 --n-eval-envs 2", "eval.episodes=7 eval.n_envs=2"),
        ("--seed 3 --vec-env subproc --device cpu", "vec_env=subproc device=cpu seed=3"),
        ("--verbose 0 -P --gym-packages a b", "log.level=warning packages=[a,b] log.progress=true"),
        (
            "-i agent.zip",
            "init_from='agent.zip' init.parts=[policy,optimizer,normalization]",
        ),
        ("-params n_envs:4 normalize:True", "n_envs=4 normalize=true"),
        ("-params learning_rate:lin_3e-4 seed=4", "algo.hyperparams.learning_rate=lin_3e-4 seed=4"),
        (
            "--algo td3 -params policy_kwargs:dict(net_arch=dict(pi=[64],qf=[32,16]))",
            "algo=td3 network.net_arch={pi: [64], qf: [32, 16]}",
        ),
        (
            "--algo td3 -params noise_type:normal noise_std:0.1",
            "algo=td3 algo.action_noise.type=normal algo.action_noise.std=0.1",
        ),
        ("--env-kwargs g:9.0 -c job", "-c job env.kwargs.g=9.0"),
        (
            "--track --wandb-project-name p --wandb-entity e -tags x y",
            "tracker=wandb tracker.project=p tracker.kwargs.entity=e tracker.kwargs.tags=[x, y]",
        ),
        (
            "-optimize --algo sac -n 5000 --n-trials 9 --max-total-trials 10 --n-jobs 2"
            " --sampler tpe --pruner halving --n-startup-trials 3 --n-evaluations 5 --study-name s",
            "-m algo=sac n_timesteps=5000 infra.workers=2 hpo.n_trials=10 hpo.sampler=tpe "
            "hpo.pruner=halving hpo=sac hpo.study=s hpo.n_timesteps=null "
            "hpo.sampler_options.n_startup_trials=3 eval.every_steps=1000",
        ),
        ("--study-name s --trial-id 3", "study=s trial=3"),
        ("-optimize -f logs", "-m hpo.study='logs/ppo/study_cartpole_bullet' hpo=ppo"),
    ],
)
def test_each_flag_becomes_its_key(line, ours):
    assert " ".join(overrides(*line.split())).replace("'", "") == ours.replace("'", "")


def test_a_log_folder_gives_the_next_number_as_in_rl_zoo3(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = ["-f", "logs", "--env", "ALE/Pong-v5", "--algo", "ppo_lstm"]
    assert overrides(*line)[-1] == "run_dir=logs/recurrent_ppo/ALE-Pong-v5_1"
    for name in ("ALE-Pong-v5_2", "ALE-Pong-v5-more_7", "ALE-Pong-v5_x"):
        (tmp_path / "logs" / "recurrent_ppo" / name).mkdir(parents=True)
    assert overrides(*line)[-1] == "run_dir=logs/recurrent_ppo/ALE-Pong-v5_3"
    assert overrides(*line, "-uuid")[-1].startswith("run_dir=logs/recurrent_ppo/ALE-Pong-v5_3_")


def test_a_negative_seed_is_drawn():
    (one,), (other,) = overrides("--seed", "-1"), overrides("--seed", "-1")
    assert one.startswith("seed=")
    assert int(one.removeprefix("seed=")) >= 0
    assert one != other


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("--conf-file my.yml", "import-zoo my.yml --out my_conf"),
        ("--sampler auto", "Use --sampler tpe"),
        ("--eval-env-kwargs a:1", "evaluate RUN env.kwargs.NAME=VALUE"),
        ("--trial-id 3", "--study-name NAME"),
        ("-optimize --n-evaluations 5", "eval.every_steps=N"),
        ("--log-interval -2", "log.level=error"),
        ("-params gamma", "gamma:0.99"),
        ("-params callback:x", "callbacks=[...]"),
        ("-params gamma:__import__('os')", "is code"),
        ("--algo nothing -params gamma:1", "nothing"),
        ("--algo ppo -n", "expected one argument"),
    ],
)
def test_a_flag_without_a_counterpart_is_one_line_with_what_to_use(line, fix):
    with pytest.raises(ConfigError) as refused:
        translated(line.split())
    assert fix in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("-uuid", "directory of its own"),
        ("-tb logs", "TensorBoard's files"),
        ("--save-replay-buffer", "holds the replay buffer"),
        ("--n-trials 5", "for -optimize"),
        ("--wandb-entity me", "without --track"),
    ],
)
def test_what_is_left_out_is_said(line, note):
    found = translated(line.split())
    assert found.arguments == []
    assert note in found.notes[0]


@pytest.mark.parametrize(
    "line", ["", "algo=ppo seed=3", "-m seed=1,2", "-i config", "--cfg job", "--env-id X --algo a"]
)
def test_other_command_lines_are_not_touched(line):
    assert translated(line.split()) is None


@pytest.mark.parametrize("verb", [["train"], ["doctor", "--no-probe"], ["inspect"]])
def test_the_translation_is_printed_and_used(answer, verb):
    code, text = answer(*verb, "--algo", "dqn", "--env", "Pendulum-v1", "-params", "gama:1")
    assert code == 2
    (line,) = [line for line in text.splitlines() if line.startswith("= ")]
    assert line.endswith(" algo=dqn env.id=Pendulum-v1 algo.hyperparams.gama=1")
    assert "'algo.hyperparams.gamma'" in text
