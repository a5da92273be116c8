"""Somebody else's dataset: nothing is followed, unpickled or run, and sizes are bounded."""

import json
import os
import tracemalloc

import h5py
import numpy as np
import pytest
from gymnasium import spaces

from rlzoo_plus.commands import dispatch
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration, check_episode, require_fit
from rlzoo_plus.demonstrations.minari_format import read_dataset
from rlzoo_plus.demonstrations.overview import listing
from rlzoo_plus.errors import ConfigError

FILE, FACTS = "data/main_data.hdf5", "data/metadata.json"


def replaced(group, name, **how):
    del group[name]
    group.create_dataset(name, **how)


def huge_claim(episode, folder):
    replaced(episode, "rewards", shape=(10**12,), dtype="f8", chunks=(1000,))


def compressed_bomb(episode, folder):
    how = {"chunks": (2**20, 3), "compression": "gzip"}
    replaced(episode, "observations", shape=(2**26, 3), dtype="f8", **how)
    episode["observations"][: 2**20] = 0.0


def huge_chunks(episode, folder):
    replaced(
        episode, "rewards", shape=(15,), dtype="f8", chunks=(2**28,), maxshape=(None,),
        compression="gzip",
    )  # fmt: skip


def texts(episode, folder):
    replaced(episode, "actions", data=[b"x"] * 15, dtype=h5py.string_dtype())


def references(episode, folder):
    replaced(episode, "rewards", data=[episode.ref] * 15, dtype=h5py.ref_dtype)


def lists(episode, folder):
    replaced(episode, "actions", shape=(15,), dtype=h5py.vlen_dtype(np.uint8))


def opaque(episode, folder):
    replaced(episode, "actions", data=np.zeros(15, "V64"))


def records(episode, folder):
    replaced(episode, "actions", data=np.zeros(15, [("a", "f4"), ("b", "f4")]))


def external_link(episode, folder):
    with h5py.File(folder / "secret.hdf5", "w") as other:
        other["rewards"] = np.zeros(15)
    del episode["rewards"]
    episode["rewards"] = h5py.ExternalLink(str(folder / "secret.hdf5"), "/rewards")


def soft_link(episode, folder):
    del episode["rewards"]
    episode["rewards"] = h5py.SoftLink("/episode_1/rewards")


def external_data(episode, folder):
    (folder / "secret").write_bytes(b"x" * 120)
    replaced(
        episode, "rewards", shape=(15,), dtype="f8", external=[(str(folder / "secret"), 0, 120)]
    )


def virtual_data(episode, folder):
    with h5py.File(folder / "secret.hdf5", "w") as other:
        other["rewards"] = np.zeros(15)
    layout = h5py.VirtualLayout(shape=(15,), dtype="f8")
    layout[:] = h5py.VirtualSource(str(folder / "secret.hdf5"), "rewards", shape=(15,))
    del episode["rewards"]
    episode.create_virtual_dataset("rewards", layout)


def a_number(episode, folder):
    replaced(episode, "rewards", data=1.0)


def a_group(episode, folder):
    del episode["rewards"]
    episode.create_group("rewards")


def nothing(episode, folder):
    del episode["actions"]


def not_a_number(episode, folder):
    episode["actions"][3] = np.nan


def beyond_single_precision(episode, folder):
    rows = episode["observations"][:].astype("f8")
    rows[3, 0] = 1e39
    replaced(episode, "observations", data=rows)


def a_reward_beyond_single_precision(episode, folder):
    episode["rewards"][3] = 1e300


def an_infinite_reward(episode, folder):
    episode["rewards"][3] = np.inf


def too_short(episode, folder):
    episode["observations"].resize((4, 3))


def of_another_shape(episode, folder):
    replaced(episode, "actions", data=np.zeros((15, 7), "f4"))


def on_after_its_end(episode, folder):
    episode["terminations"][3] = True


def without_steps(episode, folder):
    for name in ("actions", "rewards", "terminations", "truncations"):
        episode[name].resize((0, *episode[name].shape[1:]))


HOSTILE = {
    huge_claim: "too large for this file",
    compressed_bomb: "too large for this file",
    huge_chunks: "too large for this file",
    texts: "not plain numbers",
    references: "not plain numbers",
    lists: "not plain numbers",
    opaque: "not plain numbers",
    records: "not plain numbers",
    external_link: "is a link to somewhere else",
    soft_link: "is a link to somewhere else",
    external_data: "has its numbers in other files",
    virtual_data: "has its numbers in other files",
    a_number: "is no array",
    a_group: "is no dataset",
    nothing: "actions is missing",
    not_a_number: "a number is not finite",
    beyond_single_precision: "a number is not finite",
    an_infinite_reward: "a reward is not finite",
    a_reward_beyond_single_precision: "a reward is not finite",
    too_short: "their shape is",
    of_another_shape: "their shape is",
    on_after_its_end: "goes on after its end",
    without_steps: "has no steps",
}


@pytest.mark.parametrize("spoil", HOSTILE, ids=lambda spoil: spoil.__name__)
def test_a_hostile_file_is_refused_in_a_line(spoil, reach, tmp_path):
    with h5py.File(reach / FILE, "a") as file:
        spoil(file["episode_0"], tmp_path)
    tracemalloc.start()
    with pytest.raises(ConfigError, match=HOSTILE[spoil]) as caught:
        read_dataset(reach)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(caught.value)
    assert most < 2**26


def test_an_unknown_filter_is_refused_before_it_is_looked_for(reach):
    with h5py.File(reach / FILE, "a") as file:
        group = file["episode_0"]
        del group["rewards"]
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_chunk((15,))
        plan.set_filter(32_015, h5py.h5z.FLAG_OPTIONAL)
        space = h5py.h5s.create_simple((15,))
        h5py.h5d.create(group.id, b"rewards", h5py.h5t.NATIVE_DOUBLE, space, plan)
    with pytest.raises(ConfigError, match="a filter that is not known"):
        read_dataset(reach)


def _space(**changes):
    box = {"type": "Box", "dtype": "float32", "shape": [3], "low": [-1] * 3, "high": [1] * 3}
    return json.dumps({**box, **changes})


def _inside(text):
    return '{"type": "Dict", "subspaces": {"a": ' + text + "}}"


def _deep():
    text = _space()
    for _ in range(150):
        text = _inside(text)
    return text


METADATA = {
    "no mapping": ([], "is not a mapping"),
    "another format": ({"data_format": "arrow"}, "only hdf5 is read"),
    "many episodes": ({"total_episodes": 10**12}, "its total_episodes is"),
    "a text for a number": ({"total_steps": "9"}, "its total_steps is"),
    "true for a number": ({"total_episodes": True}, "its total_episodes is"),
    "more episodes than there are": ({"total_episodes": 7}, "episode_6 is missing"),
    "a space that is no text": ({"action_space": {"type": "Box"}}, "does not say its action_space"),
    "an unknown kind": ({"action_space": '{"type": "Text"}'}, "'Text' are not read"),
    "a huge space": ({"observation_space": _space(shape=[10**9], low=0, high=1)}, "elements"),
    "an unknown type": ({"observation_space": _space(dtype="object")}, "no box is of type"),
    "a deep space": ({"observation_space": _deep()}, "nested too deeply"),
    "code": ({"observation_space": "__import__('os').system('false')"}, "no dataset"),
    "another shape": ({"observation_space": _space(shape=[4], low=0, high=1)}, "their shape is"),
    "other names": (
        {"observation_space": _inside(_space())},
        "is no group",
    ),
}


@pytest.mark.parametrize(("changes", "message"), METADATA.values(), ids=METADATA)
def test_hostile_metadata_are_refused_in_a_line(changes, message, reach):
    file = reach / FACTS
    facts = {**json.loads(file.read_text()), **changes} if isinstance(changes, dict) else changes
    file.write_text(json.dumps(facts))
    with pytest.raises(ConfigError, match=message) as caught:
        read_dataset(reach)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\x89HDF\r\n\x1a\n" + b"\xff" * 500, b"cos\nsystem\n."])
def test_what_is_no_hdf5_is_refused_in_a_line(content, reach):
    (reach / FILE).write_bytes(content)
    with pytest.raises(ConfigError, match="no dataset that can be read"):
        read_dataset(reach)


def test_damaged_bytes_never_end_in_anything_but_a_line(reach):
    whole = (reach / FILE).read_bytes()
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(150):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 20):
            data[at] = rng.integers(256)
        (reach / FILE).write_bytes(bytes(data))
        try:
            read_dataset(reach)
            outcomes.add("read")
        except ConfigError:
            outcomes.add("refused")
    assert "refused" in outcomes


@pytest.mark.parametrize("name", [FILE, FACTS])
def test_links_and_pipes_are_not_read(name, reach, tmp_path):
    file = reach / name
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="no dataset that can be read"):
        read_dataset(reach)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ConfigError, match="no dataset that can be read"):
        read_dataset(reach)


def test_terminal_codes_in_texts_are_shown_as_text(reach, capsys):
    file = reach / FACTS
    facts = json.loads(file.read_text())
    file.write_text(json.dumps({**facts, "algorithm_name": "\x1b[2J", "description": "a\nb"}))
    assert dispatch.run("datasets", ["show", str(reach)]) == 0
    assert dispatch.run("datasets", ["list", str(reach.parent)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "a\\nb" in out


def test_a_damaged_dataset_does_not_hide_the_others(reach, reach_discrete):
    (reach / FACTS).write_text("{")
    rows = {row["path"]: row for row in listing(reach.parent)}
    assert "error" in rows[str(reach)]
    assert rows[str(reach_discrete)]["episodes"] == 6


def test_demonstrations_of_another_task_are_refused(reach, reach_discrete):
    one, other = read_dataset(reach), read_dataset(reach_discrete)
    with pytest.raises(ConfigError, match="of another task: their action space"):
        require_fit(one, other.observation_space, other.action_space)


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(3, start=1), 0),
        (spaces.Discrete(3), 1.5),
        (spaces.MultiDiscrete([3, 2]), [1, 2]),
        (spaces.MultiDiscrete([3, 2]), [-1, 0]),
        (spaces.MultiDiscrete([3, 2]), [0.5, 0.5]),
        (spaces.MultiBinary(2), [0, 5]),
    ],
)
def test_a_choice_that_there_is_not_is_refused(space, wrong):
    good = [space.sample() for _ in range(3)]
    seen, rewards = np.zeros((4, 1), np.float32), np.zeros(3)
    for actions in (good, [*good[:2], wrong]):
        episode = Demonstration(seen, np.array(actions), rewards, terminated=True)
        dataset = Dataset(spaces.Box(-1, 1, (1,)), space, [episode])
        if actions is good:
            check_episode(dataset, 0)
        else:
            with pytest.raises(ValueError, match="a number is none of"):
                check_episode(dataset, 0)


def test_a_dataset_of_lerobot_is_named_with_what_converts_it(tmp_path, capsys):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text("{}")
    assert dispatch.run("datasets", ["check", str(tmp_path)]) == 2
    assert f"rlzoo-plus collect {tmp_path} --run RUN --out" in capsys.readouterr().err
