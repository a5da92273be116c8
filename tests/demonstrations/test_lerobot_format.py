"""LeRobot's format: what is written is what its own library expects, what is read is checked."""

import contextlib
import json
import os

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("pyarrow")
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import support.tiny_envs  # noqa: F401
from support.training import tiny_config, train_run

from rlzoo_plus.commands import dispatch
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration
from rlzoo_plus.demonstrations.lerobot_format import read_lerobot, write_lerobot
from rlzoo_plus.demonstrations.minari_format import read_dataset
from rlzoo_plus.errors import ConfigError

SEEN = spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTED = spaces.Box(-1, 1, (2,), np.float32)
GOALS = spaces.Dict({"observation": SEEN, "desired_goal": spaces.Box(-9, 9, (1,), np.float64)})
DATA, INFO = "data/chunk-000/file-000.parquet", "meta/info.json"


def episode(length, observation_space=SEEN, action_space=ACTED, seed=0):
    rng = np.random.default_rng(seed)

    def rows(space, count):
        if isinstance(space, spaces.Dict):
            return {key: rows(part, count) for key, part in space.spaces.items()}
        if isinstance(space, spaces.Discrete):
            return rng.integers(0, space.n, count)
        return rng.uniform(-1, 1, (count, *space.shape)).astype(space.dtype)

    seen = rows(observation_space, length + 1)
    return Demonstration(seen, rows(action_space, length), rng.normal(size=length), False)


def dataset(observation_space=SEEN, action_space=ACTED, lengths=(5, 2, 7)):
    made = [episode(n, observation_space, action_space, seed) for seed, n in enumerate(lengths)]
    return Dataset(observation_space, action_space, made, {"description": "a task"}, rate_hz=50)


@pytest.fixture
def written(tmp_path):
    write_lerobot(tmp_path / "demos", dataset())
    return tmp_path / "demos"


@pytest.mark.parametrize(
    ("seen", "acted"), [(SEEN, ACTED), (SEEN, spaces.Discrete(4)), (GOALS, ACTED)]
)
def test_all_but_the_last_step_of_each_episode_comes_back(tmp_path, seen, acted):
    given = dataset(seen, acted)
    write_lerobot(tmp_path / "demos", given)
    found = read_lerobot(tmp_path / "demos", seen, acted)
    for one, other in zip(given.episodes, found.episodes, strict=True):
        kept, read = one.observations, other.observations
        for key in seen.spaces if isinstance(seen, spaces.Dict) else (slice(None),):
            assert np.array_equal(kept[key][:-1], read[key])
        assert np.array_equal(one.actions[:-1], other.actions)
        assert np.allclose(one.rewards[:-1], other.rewards)
        assert not other.terminated


def test_an_episode_of_one_step_is_left_out(tmp_path):
    write_lerobot(tmp_path / "demos", dataset(lengths=(1, 3)))
    assert len(read_lerobot(tmp_path / "demos", SEEN, ACTED).episodes) == 1
    write_lerobot(tmp_path / "none", dataset(lengths=(1,)))
    with pytest.raises(ConfigError, match="no episode of two steps or more"):
        read_lerobot(tmp_path / "none", SEEN, ACTED)


def test_files_are_those_of_version_3(written):
    info = json.loads((written / INFO).read_text())
    assert (info["codebase_version"], info["fps"]) == ("v3.0", 50)
    assert (info["total_episodes"], info["total_frames"]) == (3, 14)
    table = pq.read_table(written / DATA)
    assert table.schema.field("observation.state").type == pa.list_(pa.float32(), 3)
    assert table["index"].to_pylist() == list(range(14))
    assert np.allclose(table["timestamp"].to_numpy()[:5], np.arange(5) / 50)
    assert info["features"].keys() == set(table.column_names)
    assert pq.ParquetFile(written / DATA).metadata.num_row_groups == 3
    episodes = pq.read_table(written / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [(one["dataset_from_index"], one["dataset_to_index"]) for one in episodes] == [
        *((0, 5), (5, 7), (7, 14))
    ]
    tasks = pd.read_parquet(written / "meta/tasks.parquet")
    assert tasks.index.tolist() == ["a task"]
    stats = json.loads((written / "meta/stats.json").read_text())["action"]
    actions = np.concatenate([one.actions for one in dataset().episodes]).astype(float)
    assert np.allclose(stats["mean"], actions.mean(0))
    assert np.allclose(stats["q90"], np.quantile(actions, 0.9, axis=0))


def test_pictures_are_refused_and_a_full_folder_is_left_alone(tmp_path):
    pictures = spaces.Box(0, 255, (8, 8, 3), np.uint8)
    with pytest.raises(ConfigError, match="no pictures"):
        write_lerobot(tmp_path / "a", dataset(pictures))
    assert not (tmp_path / "a" / INFO).exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("mine")
    with pytest.raises(ConfigError, match="holds files already"):
        write_lerobot(tmp_path / "b", dataset())


def change_info(folder, **changes):
    info = json.loads((folder / INFO).read_text())
    (folder / INFO).write_text(json.dumps(info | changes))


def change_data(folder, change):
    table = change(pq.read_table(folder / DATA))
    pq.write_table(table, folder / DATA)


def with_column(name, values):
    return lambda table: table.set_column(table.column_names.index(name), name, [values])


def test_another_version_and_another_task_are_told(written):
    for space, told in ((spaces.Box(-1, 1, (4,)), "has the shape"), (GOALS, "has no observation.")):
        with pytest.raises(ConfigError, match=told):
            read_lerobot(written, space, ACTED)
    change_info(written, codebase_version="v2.1")
    with pytest.raises(ConfigError, match="convert_dataset_v21_to_v30"):
        read_lerobot(written, SEEN, ACTED)


def test_actions_in_other_units_are_told(written):
    with pytest.raises(ConfigError, match="convert them to the task's units"):
        read_lerobot(written, SEEN, spaces.Box(-0.1, 0.1, (2,), np.float32))


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("next.reward", pa.array([np.nan] * 14), "a reward is not finite"),
        ("next.reward", pa.array([None] * 14, pa.float32()), "empty entries"),
        ("next.reward", pa.array(["1"] * 14), "not plain numbers"),
        ("next.reward", pa.array([[1.0], *[[1.0, 2.0]] * 13]), "several lengths"),
        ("action", pa.array([[1.0], [1.0, 0.0, 1.0], *[[1.0, 0.0]] * 12]), "several lengths"),
        ("action", pa.array([[1.0, np.inf]] * 14), "beyond|not finite"),
        ("frame_index", pa.array([0] * 14), "not counted from 0"),
        ("episode_index", pa.array([0, 1] * 7), "not one after the other"),
    ],
)
def test_damaged_columns_are_told(written, name, values, told):
    change_data(written, with_column(name, values))
    with pytest.raises(ConfigError, match=told):
        read_lerobot(written, SEEN, ACTED)


def test_damaged_files_are_told(written, tmp_path):
    whole = (written / DATA).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        broken = bytearray(whole)
        for at in rng.integers(0, len(broken), 20):
            broken[at] = rng.integers(256)
        (written / DATA).write_bytes(bytes(broken[: rng.integers(1, len(broken) + 1)]))
        # Whatever is wrong with it, there is no other error.
        with contextlib.suppress(ConfigError):
            read_lerobot(written, SEEN, ACTED)
    (written / DATA).unlink()
    os.symlink("/etc/passwd", written / DATA)
    with pytest.raises(ConfigError, match="no dataset of LeRobot"):
        read_lerobot(written, SEEN, ACTED)


def test_a_table_that_claims_too_much_is_refused(written, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.demonstrations.lerobot_format.MOST_STEPS", 13)
    with pytest.raises(ConfigError, match="claims more"):
        read_lerobot(written, SEEN, ACTED)


@pytest.mark.training
def test_collect_writes_and_reads_it(tmp_path, capsys):
    run_dir, _ = train_run(tmp_path / "ppo", tiny_config("ppo"))
    run, there, back = str(run_dir.path), str(tmp_path / "there"), str(tmp_path / "back")
    words = [run, "--which", "final", "--episodes", "2", "--format", "lerobot", "--out", there]
    assert dispatch.run("collect", [*words, "--trust"]) == 0
    assert dispatch.run("collect", [there, "--out", back, "--trust"]) == 2
    assert "--run RUN" in capsys.readouterr().err
    assert dispatch.run("collect", [there, "--run", run, "--out", back, "--trust"]) == 0
    read = read_dataset(tmp_path / "back")
    assert [one.n_steps + 1 for one in read.episodes] == pq.read_table(
        tmp_path / "there/meta/episodes/chunk-000/file-000.parquet"
    )["length"].to_pylist()
