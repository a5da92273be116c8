"""Datasets in the format of Minari: what is written, Minari reads, and the other way around."""

import json

import numpy as np
import pytest
import support.tiny_envs as tiny
from support.demonstrations import demonstrate

from rlzoo_plus.demonstrations.dataset import require_fit
from rlzoo_plus.demonstrations.minari_format import read_dataset, read_facts, write_dataset
from rlzoo_plus.errors import ConfigError

minari = pytest.importorskip("minari")


def test_minari_reads_what_is_written(reach):
    ours = read_dataset(reach)
    theirs = minari.MinariDataset(reach / "data")
    assert theirs.total_episodes == len(ours.episodes)
    assert theirs.total_steps == ours.n_steps
    assert theirs.observation_space == ours.observation_space
    assert theirs.action_space == ours.action_space
    assert theirs.spec.dataset_id == "tiny/x-v0"
    for episode, own in zip(theirs.iterate_episodes(), ours.episodes, strict=True):
        assert np.array_equal(episode.observations, own.observations)
        assert np.array_equal(episode.actions, own.actions)
        assert np.array_equal(episode.rewards, own.rewards)
        assert episode.truncations[-1]
        assert not episode.terminations.any()
    seeds = [facts["seed"] for facts in theirs.storage.get_episode_metadata(range(6))]
    assert seeds == [episode.seed for episode in ours.episodes]


def test_minari_finds_it_by_its_name_below_its_root(reach, tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / "tiny").mkdir(parents=True)
    reach.rename(root / "tiny" / "x-v0")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    assert minari.load_dataset("tiny/x-v0").total_episodes == 6
    assert "tiny/x-v0" in minari.list_local_datasets()


@pytest.mark.parametrize("discrete", [False, True])
def test_what_minari_collects_is_read(discrete, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    own = demonstrate(tiny.TinyReach(discrete=discrete), 3)
    buffers = [
        minari.data_collector.EpisodeBuffer(
            observations=list(one.observations),
            actions=list(one.actions),
            rewards=list(one.rewards),
            terminations=[False] * one.n_steps,
            truncations=[False] * (one.n_steps - 1) + [True],
            infos={"goal": np.zeros(one.n_steps + 1)},
        )
        for one in own.episodes
    ]
    minari.create_dataset_from_buffers(
        "tiny/theirs-v0",
        buffers,
        observation_space=own.observation_space,
        action_space=own.action_space,
        algorithm_name="random",
    )
    found = read_dataset(tmp_path / "tiny" / "theirs-v0")
    assert [one.episode_return for one in found.episodes] == [
        one.episode_return for one in own.episodes
    ]
    assert found.about["algorithm_name"] == "random"
    require_fit(found, own.observation_space, own.action_space)


def test_observations_of_several_parts_come_back_as_they_were(tmp_path):
    env = tiny.TinyDict(picture=False)
    key = next(iter(env.observation_space.spaces))
    data = demonstrate(env, 2, lambda _: env.action_space.sample())
    write_dataset(tmp_path / "dict", data)
    found = read_dataset(tmp_path / "dict")
    assert found.observation_space == env.observation_space
    for own, back in zip(data.episodes, found.episodes, strict=True):
        assert np.array_equal(own.observations[key], back.observations[key])
    assert (
        minari.MinariDataset(tmp_path / "dict" / "data").observation_space == data.observation_space
    )


def test_a_folder_with_files_is_not_written_to(reach):
    data = read_dataset(reach)
    with pytest.raises(ConfigError, match="holds files already"):
        write_dataset(reach, data)


def test_the_metadata_alone_tell_what_it_is(reach):
    (reach / "data" / "main_data.hdf5").unlink()
    facts = read_facts(reach)
    assert facts["total_episodes"] == 6
    assert facts["about"]["dataset_id"] == "tiny/x-v0"


def test_no_environment_is_made_of_a_specification(reach):
    file = reach / "data" / "metadata.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "env_spec": '{"id": "evil_package:Evil-v0"}'}))
    assert read_dataset(reach).n_steps
    del facts["observation_space"]
    file.write_text(json.dumps({**facts, "env_spec": '{"id": "evil_package:Evil-v0"}'}))
    with pytest.raises(ConfigError, match="does not say its observation_space"):
        read_dataset(reach)
