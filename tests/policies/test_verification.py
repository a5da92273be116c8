"""`verify`: recorded episodes are played again bit for bit, and nothing that was changed passes."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.training import tiny_config, train_run

import rlzoo_plus as rz
from rlzoo_plus.policies.episode import load_episode, save_episodes
from rlzoo_plus.policies.verification import episode_hash, record_evaluation

EPISODES = Path("run/episodes")
EVALUATION = EPISODES / "evaluation.json"

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config = tiny_config("ppo", "tests/TinyReach-v0")
    return train_run(tmp_path_factory.mktemp("run"), config)[0].path


@pytest.fixture
def recorded(trained, answer):
    """Leave a run with three recorded episodes in run/."""
    shutil.copytree(trained, "run")
    words = ("run", "--trust", "--episodes", "3", "--save-episodes", str(EPISODES))
    code, text = answer("evaluate", *words)
    assert code == 0, text


@pytest.fixture
def hashed(trained, in_process):
    """Leave a run with hashes of twelve episodes in run/."""
    shutil.copytree(trained, "run")
    run = rz.Run.open("run", trust=True)
    record_evaluation(run, EPISODES, 12, which="best", hashed=True)


@pytest.fixture
def verdict(answer):
    def verify(*arguments, run="run"):
        code, text = answer("verify", run, "--trust", *arguments)
        assert text.count("\n") == 1, text
        return code, text

    return verify


def edit(**changes):
    facts = json.loads(EVALUATION.read_text())
    EVALUATION.write_text(json.dumps({**facts, **changes}))
    return facts


def forge(number, **changes):
    """Change an episode, and every hash that would tell."""
    file = EPISODES / f"episode-{number:04d}.json"
    episode, about = load_episode(file)
    changes = {name: change(getattr(episode, name)) for name, change in changes.items()}
    (made,) = save_episodes(Path("forged"), [replace(episode, **changes)], about)
    hashes = json.loads(EVALUATION.read_text())["files"]
    for end in (".json", ".npz"):
        target = file.with_suffix(end)
        shutil.copy(made.with_suffix(end), target)
        hashes[target.name] = hashlib.sha256(target.read_bytes()).hexdigest()
    edit(files=hashes)


def elsewhere():
    facts = json.loads(EVALUATION.read_text())["fingerprint"]
    edit(fingerprint={**facts, "processor": "another one"})


def test_an_untouched_policy_is_verified_bit_for_bit(recorded, verdict):
    code, text = verdict()
    assert code == 0
    assert text.startswith("verified: best of run")
    assert "3 episodes are the same bit for bit, and all hashes match" in text
    code, text = verdict("--json")
    assert code == 0
    assert json.loads(text)["is_exact"] is True


def test_a_bundle_is_verified_with_the_episodes_beside_it(recorded, verdict):
    Path("shared").mkdir()
    shutil.copytree("run/best", "shared/best")
    shutil.copytree(EPISODES, "shared/episodes")
    assert verdict(run="shared")[0] == 0
    assert verdict("--episodes", str(EPISODES), run="shared/best")[0] == 0


def test_another_action_is_named_by_episode_and_step(recorded, verdict):
    def change(actions):
        actions = actions.copy()
        actions[2] += 0.125
        return actions

    forge(1, actions=change)
    code, text = verdict()
    assert code == 1
    assert "NOT verified" in text
    assert "episode 1, step 3: the action is another one" in text


def test_on_another_machine_the_mean_return_must_be_near(recorded, verdict):
    forge(0, digests=lambda digests: digests + np.uint64(1))
    elsewhere()
    code, text = verdict()
    assert code == 0
    assert "within 5%; not bit for bit, since processor was another one" in text
    facts = json.loads(EVALUATION.read_text())
    off = 10.0
    for number in range(3):
        forge(number, rewards=lambda rewards: rewards + np.float32(off / len(rewards)))
    returns = [value + off for value in facts["returns"]]
    edit(returns=returns, mean_return=float(np.mean(returns)), std_return=0.0)
    code, text = verdict()
    assert code == 1
    assert "the mean return is off by 10" in text
    assert verdict("--tolerance", "1000")[0] == 0


def test_the_version_of_an_engine_that_played_counts(recorded, verdict):
    forge(0, digests=lambda digests: digests + np.uint64(1))
    facts = json.loads(EVALUATION.read_text())["fingerprint"]
    edit(fingerprint={**facts, "mujoco": "0.1"})
    code, text = verdict()
    assert code == 0
    assert "since mujoco was 0.1, is" in text


def test_a_better_score_than_that_of_the_episodes_is_found(recorded, verdict):
    facts = json.loads(EVALUATION.read_text())
    edit(returns=[value + 1 for value in facts["returns"]], mean_return=facts["mean_return"] + 1)
    elsewhere()
    code, text = verdict()
    assert code == 1
    assert "the recorded returns are not those of the episodes" in text


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda: edit(policy="0" * 64), "its weights are not those"),
        (lambda: edit(seed=1), "its seeds are not those of the held-out episodes of set 1"),
        (lambda: forge(2, seed=lambda seed: seed + 1), "its seeds are not those"),
        (lambda: (EPISODES / "episode-0001.npz").write_bytes(b"x"), "its hash differs"),
        (lambda: (EPISODES / "episode-0003.json").write_text("{}"), "lists other files"),
    ],
)
def test_what_was_changed_is_not_verified(recorded, verdict, spoil, told):
    spoil()
    code, text = verdict()
    assert code == 1
    assert told in text


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda: EVALUATION.write_text("["), "is damaged"),
        (lambda: edit(format=2), "format"),
        (lambda: edit(returns=["1"]), "returns"),
        (lambda: edit(deterministic=False), "--stochastic"),
        (lambda: edit(overrides=["env.kwargs.x=${oc.env:HOME}"]), "variables"),
        (lambda: shutil.rmtree(EPISODES), "has no recorded episodes"),
    ],
)
def test_what_cannot_be_verified_is_one_line_and_exit_code_2(recorded, verdict, spoil, told):
    spoil()
    code, text = verdict()
    assert code == 2
    assert told in text


def test_hashes_of_episodes_are_verified_like_episodes(hashed, verdict):
    assert [path.name for path in EPISODES.iterdir()] == ["evaluation.json"]
    assert "12 episodes are the same bit for bit" in verdict()[1]
    code, text = verdict("--first", "4", "--json")
    found = json.loads(text)
    # As many as are played at a time.
    assert (code, found["n_episodes"], found["is_exact"]) == (0, 10, True)


def test_episodes_are_verified_as_many_at_a_time_as_they_were_played(hashed, answer, verdict):
    words = ("--episodes", "12", "--n-envs", "3", "--save-episodes", "saved")
    assert answer("evaluate", "run", "--trust", *words)[0] == 0
    code, text = verdict("--episodes", "saved", "--first", "4")
    assert code == 0
    assert "4 episodes are the same bit for bit" in text


def test_episodes_have_a_hash_each_that_any_change_changes(hashed, answer):
    hashes = json.loads(EVALUATION.read_text())["hashes"]
    assert len(set(hashes)) == 12
    words = ("run", "--trust", "--episodes", "12", "--save-episodes", "saved")
    assert answer("evaluate", *words)[0] == 0
    episode = load_episode(Path("saved/episode-0002.json"))[0]
    assert episode_hash(episode) == hashes[2]
    one = np.float32(1.0)
    changes = [
        *({"actions": episode.actions + one}, {"rewards": episode.rewards + one}),
        *({"digests": episode.digests + np.uint64(1)}, {"last_observation": np.zeros(1)}),
        *({"terms": {"more": episode.rewards}}, {"terminated": not episode.terminated}),
    ]
    assert hashes[2] not in {episode_hash(replace(episode, **change)) for change in changes}


def test_a_hash_of_another_episode_is_named_and_judged_by_the_score_elsewhere(hashed, verdict):
    hashes = json.loads(EVALUATION.read_text())["hashes"]
    edit(hashes=[*hashes[:10], "0" * 64, hashes[11]])
    code, text = verdict()
    assert code == 1
    assert "episode 10 is another one: the hash of its steps differs" in text
    assert verdict("--first", "10")[0] == 0
    elsewhere()
    code, text = verdict()
    assert code == 0
    assert "within 5%; not bit for bit, since processor was another one" in text


@pytest.mark.parametrize("name", ["hashes", "returns"])
def test_hashes_that_do_not_fit_the_returns_are_not_verified(hashed, verdict, name):
    facts = json.loads(EVALUATION.read_text())
    edit(**{name: facts[name][1:]})
    elsewhere()
    code, text = verdict()
    assert code == 1
    assert "do not fit each other" in text
