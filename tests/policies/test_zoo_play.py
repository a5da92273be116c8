"""Command lines of rl_zoo3's `enjoy`, `record_video` and `plot_train`, and what they become."""

import pytest

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.zoo_play import translated_play, translated_plot

FLAGS = "--algo ppo --env CartPole-v1 -f logs/"


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    """Go to a folder with runs of ours, and with one of rl_zoo3."""
    for path in ("logs/ppo/CartPole-v1_1", "logs/ppo/CartPole-v1_2", "logs/a2c/ALE-Pong-v5_1"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "config.yaml").write_text("env:\n  id: any\n")
    for path, env in (("cartpole/ppo/2", "CartPole-v1"), ("cartpole/ppo/1", "CartPole-v1")):
        (tmp_path / "outputs" / path).mkdir(parents=True)
        (tmp_path / "outputs" / path / "config.yaml").write_text(f"env:\n  id: {env}\n  k: 1\n")
    (tmp_path / "zoo" / "sac" / "Pendulum-v1_1").mkdir(parents=True)
    (tmp_path / "zoo" / "sac" / "Pendulum-v1_1" / "best_model.zip").touch()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        (
            f"{FLAGS} -n 1000 --load-best --no-render --deterministic --seed 1",
            "logs/ppo/CartPole-v1_2 --seed 1 --which best --no-window",
        ),
        (f"{FLAGS} --exp-id 1", "logs/ppo/CartPole-v1_1 --which final"),
        (f"{FLAGS} --load-checkpoint 50 --trust", "logs/ppo/CartPole-v1_2 --trust --which 50"),
        ("--env ALE/Pong-v5 --algo a2c -f logs --which 7", "logs/a2c/ALE-Pong-v5_1 --which 7"),
        # The newest below outputs/, by the id of its environment or by its name.
        ("--env CartPole-v1 --algo ppo", "outputs/cartpole/ppo/2 --which final"),
        ("--env cartpole --load-best", "outputs/cartpole/ppo/2 --which best"),
        # Ours, with a habit.
        ("RUN --no-render --speed 2", "RUN --speed 2 --no-window"),
        ("RUN --load-best --deterministic", "RUN --which best"),
    ],
)
def test_flags_of_enjoy_name_a_run_and_its_policy(line, ours):
    assert " ".join(translated_play(line.split()).arguments) == ours


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        ("-a ppo -e CartPole-v1 -f logs -x time -y reward",
         "logs/ppo/CartPole-v1_1 logs/ppo/CartPole-v1_2 --x hours --metric rollout/ep_rew_mean"),
        ("-a sac -e Pendulum-v1 -f zoo/ --style talk", "--zoo zoo --style talk"),
    ],
)  # fmt: skip
def test_flags_of_plot_train_name_the_runs(line, ours):
    assert " ".join(translated_plot(line.split()).arguments) == ours


@pytest.mark.parametrize("line", ["", "RUN", "RUN --episodes 3 --seed 1 --trust", "--help"])
def test_other_command_lines_are_not_touched(line):
    assert translated_play(line.split()) is None
    assert translated_plot(line.split()) is None


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("--algo sac --env CartPole-v1", "no run of sac on CartPole-v1 below outputs"),
        (f"{FLAGS} --exp-id x", "with --exp-id x below logs"),
        ("--algo sac --env Pendulum-v1 -f zoo", "import-sb3 zoo/sac/Pendulum-v1_1/best_model.zip"),
        ("--algo ppo --env", "expected one argument"),
    ],
)
def test_a_run_that_is_not_there_or_not_ours_is_one_line_with_what_to_do(line, fix):
    with pytest.raises(ConfigError) as refused:
        translated_play(line.split())
    assert fix in str(refused.value)
    assert "\n" not in str(refused.value)


def test_what_is_left_out_is_said():
    notes = translated_play(f"{FLAGS} -n 1000 --num-threads 1 --deterministic".split()).notes
    assert [note.partition(":")[0] for note in notes] == [
        "--n-timesteps", "--num-threads", "--deterministic",
    ]  # fmt: skip
