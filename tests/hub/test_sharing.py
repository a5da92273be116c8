"""Policies go to the Hub and come back: pushed, found, pulled, played, verified, resumed."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants
from support.hub import REPO, RUN, TOKEN

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.hub.card import card

pytestmark = pytest.mark.training


def test_a_package_holds_policies_and_episodes_and_no_pickle(pushed, files):
    assert {"best/tensors.safetensors", "final/policy.json", "config.yaml"} <= files.keys()
    assert {"episodes/episode-0002.npz", "episodes/evaluation.json"} <= files.keys()
    ends = {name.rpartition(".")[2] for name in files}
    assert ends == {"json", "jsonl", "yaml", "txt", "md", "csv", "npz", "safetensors", "png"}


def test_what_is_pushed_does_not_name_this_machine(pushed_once, files):
    text = b"".join(data for name, data in files.items() if not name.endswith((".npz", ".png")))
    for told in (str(pushed_once), str(Path.home()), TOKEN):
        assert told.encode() not in text
    provenance = json.loads(files["provenance.json"])
    assert "working_directory" not in provenance
    assert "diff" not in provenance["git"]
    assert "pid" not in json.loads(files["status.json"])


def test_the_card_has_metrics_as_the_hub_reads_them_and_the_command(files):
    _, metadata, body = files["README.md"].decode().split("---\n", 2)
    data, said = yaml.safe_load(metadata), json.loads(files["episodes/evaluation.json"])
    assert {"rlzoo-plus", "reinforcement-learning", "ppo", "cartpole_bullet"} <= set(data["tags"])
    (entry,) = data["model-index"]
    (result,) = entry["results"]
    assert result["dataset"]["name"] == "robots/CartPoleBalance-v0"
    value = f"{said['mean_return']:.2f} +/- {said['std_return']:.2f}"
    assert result["metrics"][0] == {"type": "mean_reward", "value": value, "name": "mean return"}
    assert "rlzoo_plus.train(algo=ppo" in body or "rlzoo_plus.train('algo=ppo'" in body
    assert f"rlzoo-plus verify hf://{REPO}" in body
    assert "bit for bit" in body


def test_a_card_escapes_what_a_run_says(pushed, say):
    assert say("hub", "pull", REPO, "--to", "run")[0] == 0
    run = rz.Run.open("run")
    env = run.config.env.model_copy(update={"name": "<script>x</script>|`a`"})
    config = run.config.model_copy(update={"env": env})
    Path("run/command.txt").write_text("```\n<img src=x>\n")
    record = {"mean_return": 1.0, "std_return": 0.0, "iqm_return": 1.0, "success_rate": None}
    record |= {"returns": [1.0], "episode_lengths": [1], "step": 1, "episodes": 1}
    text = card(REPO, config, RunDir(Path("run")), "best", record, [], has_state=False)
    body = text.split("---\n", 2)[2]
    assert "<script>" not in body
    assert body.count("```") % 2 == 0
    assert "\n```\n<img" not in body


def test_a_policy_is_found_by_algorithm_and_environment(pushed, say):
    code, out, _ = say("hub", "search", "algo=ppo", "env=cartpole_bullet", "--json")
    assert code == 0
    (found,) = json.loads(out)
    assert (found["repo"], found["algo"], found["downloads"]) == (REPO, "ppo", 7)
    assert "+/-" in found["mean_return"]
    assert "nothing found" in say("hub", "search", "algo=sac")[1]
    assert say("hub", "search", "color=red")[0] == 2


def test_a_url_is_played_and_verified_wherever_a_run_is_taken(pushed, say):
    code, out, err = say("evaluate", f"hf://{REPO}", "--episodes", "1", "--json")
    assert code == 0, err
    assert json.loads(out)["step"] == 64
    code, out, err = say("verify", f"hf://{REPO}@main")
    assert (code, err) == (0, "")
    assert "3 episodes are the same bit for bit" in out
    head = pushed.repos[REPO].head
    asked = len(pushed.requests)
    # A commit never changes: what is here is not asked for again.
    assert rz.load_policy(f"hf://{REPO}@{head}").step == 64
    assert len(pushed.requests) == asked
    code, _, err = say("resume", f"hf://{REPO}")
    assert code == 2
    assert f"hub pull {REPO} --state" in err


def test_a_pulled_run_resumes_as_the_one_that_was_pushed(pushed, pushed_once, say):
    code, out, err = say("hub", "pull", REPO, "--state")
    assert code == 0, err
    path = f"outputs/hub/{REPO}"
    assert out.startswith(f"{path}   ({REPO}@{pushed.repos[REPO].head})")
    assert "(from step 64)" in out
    for run in (path, "twin"):
        if run == "twin":
            shutil.copytree(pushed_once / RUN, run)
        assert say("resume", run, "n_timesteps=128")[0] == 0
    ours, theirs = (RunDir(Path(p)).read_result() for p in (path, "twin"))
    assert ours["num_timesteps"] == 128
    assert ours["final"] == theirs["final"]
    names = ("final/tensors.safetensors", "final/state.json")
    assert all((Path(path) / n).read_bytes() == (Path("twin") / n).read_bytes() for n in names)


def test_a_run_begins_from_a_policy_of_the_hub(pushed):
    run = rz.train(
        *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "eval.episodes=1"),
        *("algo.hyperparams.n_steps=64", "n_timesteps=64", "report.video=false"),
        run_dir="warm", init_from=f"hf://{REPO}", quiet=True,
    )  # fmt: skip
    assert run.config.init_from.endswith("cart-pole")
    assert pushed.repos[REPO].head in run.config.init_from


def test_a_second_push_replaces_the_first_and_leaves_the_files_of_others(
    pushed, pushed_once, without_onnx, say, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    before = {name: file.content for name, file in pushed.repos[REPO].commits[-1][1].items()}
    pushed.put(REPO, {**before, "notes.md": b"mine"})
    words = (pushed_once / RUN, REPO, "--episodes", "1", "--no-video")
    code, out, err = say("hub", "push", *words)
    assert code == 0, err
    assert "note: no ONNX file: left out by the test" in err
    names = pushed.names(REPO)
    assert {"notes.md", "episodes/episode-0000.json"} <= names
    assert "episodes/episode-0001.json" not in names
    assert not any(name.startswith("checkpoints/") for name in names)
    assert TOKEN not in out + err


def test_a_token_goes_to_the_hub_only_and_is_never_asked_for_on_the_command_line(
    pushed_once, without_onnx, hub, say, monkeypatch
):
    words = ("hub", "push", pushed_once / RUN, REPO)
    code, _, err = say(*words)
    assert code == 2
    assert "hf auth login" in err
    assert hub.requests == []
    wrong = "hf_" + "x" * 30
    monkeypatch.setenv("HF_TOKEN", wrong)
    code, out, err = say(*words, "--episodes", "1", "--no-video")
    assert code == 1
    assert "you may not write there" in err
    assert wrong not in out + err
    with pytest.raises(SystemExit):
        say(*words, "--token", TOKEN)


def test_a_token_does_not_go_to_the_host_that_has_the_large_files(pushed, say, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    pushed.repos[REPO].private = True
    try:
        code, _, err = say("hub", "pull", REPO, "--to", "mine")
    finally:
        pushed.repos[REPO].private = False
    assert code == 0, err
    with_token = {headers["host"] for *_, headers, _ in pushed.requests if TOKEN in str(headers)}
    assert with_token == {pushed.url.removeprefix("http://")}
    assert any(path.startswith("/far/") for _, path, *_ in pushed.requests)


def test_a_dry_run_sends_nothing(pushed_once, without_onnx, hub, say):
    words = ("--dry-run", "package", "--episodes", "1", "--no-video")
    code, out, err = say("hub", "push", pushed_once / RUN / "best", REPO, *words)
    assert code == 0, err
    assert "nothing was sent" in out
    assert hub.requests == []
    assert say("verify", "package")[0] == 0


@pytest.mark.slow
def test_a_whole_package_has_a_video_a_curve_and_onnx(pushed_once, hub, say):
    words = ("--dry-run", "package", "--episodes", "1")
    code, _, err = say("hub", "push", pushed_once / RUN, REPO, *words)
    assert (code, err) == (0, "")
    names = {path.name for path in Path("package").iterdir()}
    assert {"replay.mp4", "learning_curve.png", "policy.onnx"} <= names
    text = Path("package/README.md").read_text()
    assert "replay.mp4" in text
    assert "`policy.onnx`" in text


def test_without_a_network_one_line_says_so_and_names_the_copy(pushed, say, monkeypatch):
    head = pushed.repos[REPO].head
    assert say("evaluate", f"hf://{REPO}", "--episodes", "1")[0] == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, _, err = say("evaluate", f"hf://{REPO}", "--episodes", "1")
    assert code == 1
    assert err.count("\n") == 1
    assert "HF_HUB_OFFLINE is set" in err
    assert f"A copy from before is here: hf://{REPO}@{head}" in err
    assert say("evaluate", f"hf://{REPO}@{head}", "--episodes", "1")[0] == 0
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    # Nobody listens on the port that was just closed.
    monkeypatch.setenv("HF_ENDPOINT", "http://user:secret@127.0.0.1:9")
    code, _, err = say("hub", "pull", "some/body")
    assert code == 1
    assert err.count("\n") == 1
    assert "http://127.0.0.1:9 cannot be reached" in err
    assert "secret" not in err


@pytest.mark.parametrize(
    "name", ["a1", "a/b/c", "../b", "a/..", "a/b@", "a/b c", "-/x", "a/b@../m"]
)
def test_a_name_that_is_none_is_one_line(hub, say, name):
    code, _, err = say("hub", "pull", "--", name)
    assert code == 2
    assert "names no repository of the Hub" in err
    assert hub.requests == []


def test_what_is_not_there_is_said(pushed, say):
    code, _, err = say("hub", "pull", "nobody/nothing")
    assert code == 1
    assert "it does not exist, or you may not read it" in err
    code, _, err = say("evaluate", f"hf://{REPO}@v9")
    assert code == 1
    assert "it has no such revision" in err


def test_without_the_extra_its_name_is_said(here, say, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rlzoo_plus.hub")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for words in (("hub", "pull", "a/b"), ("evaluate", "hf://a/b")):
        code, _, err = say(*words)
        assert code == 2
        assert err == (
            "error: the Hub needs huggingface_hub. Install it: pip install 'rlzoo_plus[hub]'.\n"
        )
