"""A secret is read from the environment, and found in no file of a run, a sweep or a study."""

import sys

import pytest

VALUE = "Zx81-qwerty"
SOURCE = """
import gymnasium as gym
from support.tiny_envs import TinyReach

class Guarded(TinyReach):
    def __init__(self, api_token, url=""):
        super().__init__()
        if api_token != "Zx81-qwerty":
            raise ValueError(f"{api_token} is refused")
        self.api_token, self.url = api_token, url

if "Guarded-v0" not in gym.registry:
    gym.register("Guarded-v0", Guarded)
"""
RUN = [
    "env.id=Guarded-v0", "env.packages=[guarded_envs]", "algo=ppo", "n_timesteps=64",
    "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "network.net_arch=[8]",
    "eval.episodes=1", "device=cpu", "num_threads=1", "report.plot=false", "report.video=false",
]  # fmt: skip
REFERENCE = "env.kwargs.api_token=${oc.env:API_TOKEN}"
INSIDE = "env.kwargs.url=http://me:${oc.env:API_TOKEN}@host"


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """Work in a folder with an environment that takes a token."""
    (tmp_path / "guarded_envs.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("API_TOKEN", raising=False)
    yield tmp_path
    sys.modules.pop("guarded_envs", None)


def files_with(folder, text=VALUE):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if text.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    "word",
    [
        f"env.kwargs.api_token={VALUE}",
        f"env.kwargs={{api_token: {VALUE}}}",
        f"env.kwargs.inner={{api_key: '{VALUE}'}}",
        f"env.kwargs.url=http://user:{VALUE}@host",
        f"env.kwargs.auth={VALUE}",
        f"env.kwargs.pwd={VALUE}",
        "env.kwargs.password=123456",
        f"env.wrappers=[{{my.Wrapper: {{token: {VALUE}}}}}]",
        f"callbacks=[{{my.Callback: {{secrets: [{VALUE}]}}}}]",
        f"+tracker.kwargs.password={VALUE}",
        f"network.policy_kwargs.auth={{user: me, value: {VALUE}}}",
    ],
)
def test_a_secret_in_a_configuration_is_refused_and_not_repeated(answer, guarded, word):
    code, text = answer("train", *RUN, "tracker=wandb", word)
    assert code == 2, text
    assert "holds a secret" in text
    assert VALUE not in text
    assert not (guarded / "outputs").exists()


def test_a_secret_in_the_lines_of_a_launcher_is_refused(answer, guarded):
    words = ["infra=slurm", f"infra.setup=['export KEY={VALUE}']"]
    code, text = answer("train", "-m", *RUN, *words)
    assert code == 2
    assert "infra.setup holds a secret" in text
    assert "source ~/.secrets" in text
    assert VALUE not in text


def test_a_secret_that_the_shell_put_in_place_of_its_variable_is_refused(
    answer, guarded, monkeypatch
):
    monkeypatch.setenv("API_TOKEN", VALUE)
    code, text = answer("train", *RUN, f"env.kwargs.x={VALUE}")
    assert code == 2
    assert "${oc.env:X_SECRET}" in text
    assert VALUE not in text


def test_a_refused_secret_names_the_reference_that_is_taken(answer, guarded):
    _, text = answer("train", *RUN, f"env.kwargs.api_token={VALUE}")
    assert f"'{REFERENCE}'" in text


@pytest.mark.training
def test_a_run_with_a_reference_trains_and_resumes_and_writes_the_reference_only(
    answer, guarded, monkeypatch
):
    monkeypatch.setenv("API_TOKEN", VALUE)
    words = ["run_dir=run", "checkpoint.every_steps=32", REFERENCE, INSIDE]
    code, text = answer("train", *RUN, *words)
    assert code == 0, text
    assert files_with(guarded / "run") == []
    assert "${oc.env:API_TOKEN}" in (guarded / "run" / "config.yaml").read_text()
    assert "${oc.env:API_TOKEN}" in (guarded / "run" / "command.txt").read_text()
    assert files_with(guarded / "run" / "best", "API_TOKEN") == []
    code, text = answer("resume", "run", "n_timesteps=128", "--trust")
    assert code == 0, text
    assert files_with(guarded / "run") == []
    monkeypatch.delenv("API_TOKEN")
    code, text = answer("resume", "run", "n_timesteps=192", "--trust")
    assert code == 2
    assert "export API_TOKEN=..." in text


@pytest.mark.training
def test_what_an_environment_says_of_its_secret_is_blanked(answer, guarded, monkeypatch):
    monkeypatch.setenv("API_TOKEN", f"{VALUE}-of-old")
    code, text = answer("train", *RUN, "run_dir=run", REFERENCE)
    assert code == 2
    assert "*** is refused" in text
    assert f"{VALUE}-of-old" not in text


def test_a_variable_that_is_not_set_is_one_clear_line(answer, guarded):
    code, text = answer("train", *RUN, REFERENCE)
    assert code == 2
    assert "API_TOKEN" in text
    assert "Traceback" not in text


def test_a_reference_where_none_is_read_is_refused(answer, guarded, monkeypatch):
    monkeypatch.setenv("API_TOKEN", VALUE)
    code, text = answer("train", *RUN, "algo.hyperparams.api_token=${oc.env:API_TOKEN}")
    assert code == 2
    assert "env.kwargs, env.wrappers, callbacks and tracker.kwargs" in text


@pytest.mark.training
def test_a_run_of_someone_else_reads_no_variable_without_trust(answer, guarded, monkeypatch):
    monkeypatch.setenv("API_TOKEN", VALUE)
    code, text = answer("train", *RUN, "run_dir=run", REFERENCE)
    assert code == 0, text
    config = guarded / "run" / "config.yaml"
    config.write_text(
        config.read_text().replace("Guarded-v0", "Pendulum-v1").replace("- guarded_envs", "[]")
    )
    config.write_text(config.read_text().replace("packages:\n  []", "packages: []"))
    for verb in ("evaluate", "resume"):
        code, text = answer(verb, "run")
        assert code == 2
        assert "the variable API_TOKEN" in text


@pytest.mark.parametrize("word", [f"env.kwargs.api_token={VALUE}", "experiment=mine"])
def test_a_sweep_with_a_secret_is_refused_before_hydra_writes_it(answer, guarded, word):
    file = guarded / "own" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    text = f'# @package _global_\nenv: {{kwargs: {{inner: {{"api_key": {VALUE}}}}}}}\n'
    file.write_text(text)
    code, text = answer("train", "-m", "--config-dir", "own", *RUN, "seed=0,1", word)
    assert code == 2
    assert "holds a secret" in text
    assert VALUE not in text
    assert set(files_with(guarded)) == {file, guarded / "guarded_envs.py"}


@pytest.mark.training
def test_a_sweep_hands_the_reference_to_its_jobs_and_writes_nothing_else(
    answer, guarded, monkeypatch
):
    monkeypatch.setenv("API_TOKEN", VALUE)
    monkeypatch.setenv("PYTHONPATH", str(guarded))
    code, text = answer("train", "-m", *RUN, REFERENCE, "seed=0,1", "infra=debug", "sweep=s")
    assert code == 0, text
    assert files_with(guarded / "outputs") == []
    assert "${oc.env:API_TOKEN}" in (guarded / "outputs/sweeps/s/ledger.jsonl").read_text()
