"""A user's configuration files: found before shipped ones of the same name, and said so."""

import sys
from pathlib import Path

import pytest

from rlzoo_plus.config.hydra_app import run_hydra
from rlzoo_plus.config.overrides import prepare_overrides
from rlzoo_plus.config.search_path import conf_dir, config_dirs, group_options, own_dirs
from rlzoo_plus.runs.load import Resolver, load

FOLDERS = sorted(
    {path.parent.relative_to(conf_dir()).as_posix() for path in conf_dir().rglob("*.yaml")}
    - {".", "suites"}  # Those `benchmark` reads.
)
# The value that only the user's files give.
MARK = 471100
BOTH_FORMS = pytest.mark.parametrize(
    "form", ["--config-dir={}", "hydra.searchpath=[file://{}]", "hydra.searchpath=['{}']"]
)


def composed(*words):
    found = []
    run_hydra(found.append, [str(word) for word in words])
    return found[0].values


def shipped_names(folder):
    return [path.stem for path in sorted((conf_dir() / folder).glob("[!_]*.yaml"))]


def override(folder, name):
    group, _, below = folder.partition("/")
    return f"tuned={below}/{name}" if group == "tuned" and below else f"{folder}={name}"


def own_file(root, path, text=f"# @package _global_\nown_mark: {MARK}\n"):
    target = root / f"{path}.yaml"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    return target


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_file_of_the_users_own_wins_in_every_group(tmp_path, monkeypatch, folder):
    monkeypatch.setattr(sys, "argv", ["train"])
    name = shipped_names(folder)[0]
    word = override(folder, name)
    assert "own_mark" not in composed(word)
    own_file(tmp_path, f"{folder}/{name}")
    assert composed(word, f"--config-dir={tmp_path}")["own_mark"] == MARK


@BOTH_FORMS
def test_every_form_of_naming_a_directory_puts_it_first(tmp_path, form):
    own_file(tmp_path, "env/pendulum", "id: Acrobot-v1\nname: pendulum\n")
    assert composed("env=pendulum", form.format(tmp_path))["env"]["id"] == "Acrobot-v1"


def test_a_package_of_the_users_own_is_searched_first(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    own_file(tmp_path / "my_package" / "settings", "env/pendulum", "id: Acrobot-v1\n")
    words = ["env=pendulum", "hydra.searchpath=[pkg://my_package.settings]"]
    assert composed(*words)["env"]["id"] == "Acrobot-v1"
    assert own_dirs(words) == [tmp_path / "my_package" / "settings"]


def test_of_two_directories_the_first_wins(tmp_path):
    for seed in (1, 2):
        own_file(tmp_path / str(seed), "tuned/ppo/pendulum", f"# @package _global_\nseed: {seed}\n")
    words = [f"--config-dir={tmp_path / '1'}", f"hydra.searchpath=[file://{tmp_path / '2'}]"]
    assert composed("env=pendulum", *words)["seed"] == 1
    assert config_dirs(words) == [tmp_path / "1", tmp_path / "2", conf_dir()]


def test_files_that_others_build_on_can_be_replaced(tmp_path):
    own_file(tmp_path, "network/_reset")
    assert composed("network=small", f"--config-dir={tmp_path}")["own_mark"] == MARK


def notes_of(*words):
    found = []
    run_hydra(lambda cfg: found.extend(Resolver(list(words)).resolve(cfg)[1]), list(words))
    return found


def test_a_shipped_file_that_is_replaced_is_named_once(tmp_path):
    shipped = (conf_dir() / "env" / "pendulum.yaml").read_text()
    target = own_file(tmp_path, "env/pendulum", shipped)
    own_file(tmp_path, "env/acrobot", "not used")
    own_file(tmp_path, "tuned/ppo/my_arm")
    notes = [n for n in notes_of("env=pendulum", f"--config-dir={tmp_path}") if "in place" in n]
    assert notes == [f"{target} is used in place of the shipped conf/env/pendulum.yaml"]
    assert not any("in place" in note for note in notes_of("env=pendulum"))


def test_the_shipped_directory_itself_replaces_nothing():
    assert not any("in place" in n for n in notes_of("env=pendulum", f"--config-dir={conf_dir()}"))


def test_an_id_alone_chooses_the_file_of_the_users_own(tmp_path):
    own_file(tmp_path, "env/my_pole", "defaults: [pendulum]\nmax_return: -1.0\n")
    text = (conf_dir() / "env" / "pendulum.yaml").read_text()
    own_file(tmp_path, "env/zz_pendulum", text)
    assert load(["env.id=Pendulum-v1", f"--config-dir={tmp_path}"]).env.name == "zz_pendulum"


class Jobs:
    """Takes the place of a sweep: the values that its jobs were composed with."""

    def __init__(self):
        self.ids = []

    def begin(self, n_jobs):
        """Take how many there will be."""

    def refuse(self, error, overrides):
        raise error

    def run(self):
        return [None] * len(self.ids)


def test_a_broken_file_of_another_environment_is_not_in_the_way(tmp_path):
    own_file(tmp_path, "env/aaa_broken", "id: [\n")
    (word, *_) = prepare_overrides([f"--config-dir={tmp_path}", "env.id=CartPole-v1"])[1:]
    assert word == "env=cartpole"


def test_the_jobs_of_a_sweep_find_the_users_files_first(tmp_path):
    own_file(tmp_path, "env/pendulum", "id: Mine-v0\n")
    jobs = Jobs()
    words = ["-m", "env=glob(*pendulum)", "seed=1,2", f"--config-dir={tmp_path}"]
    run_hydra(lambda cfg: jobs.ids.append(cfg.values["env"]["id"]), words, jobs)
    assert jobs.ids.count("Mine-v0") == 2
    assert len(jobs.ids) > 2


def test_what_a_shell_completes_knows_the_users_files(answer, tmp_path, monkeypatch):
    own_file(tmp_path, "env/zz_arm", "id: Pendulum-v1\n")
    line = f"train --config-dir {tmp_path} env=zz_"
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    _, text = answer("train", "-sc", "query=bash")
    assert text.split() == ["env=zz_arm"]


def test_the_names_that_are_suggested_are_those_of_all_directories(tmp_path):
    own_file(tmp_path, "tracker/zz_mine")
    names = group_options("tracker", config_dirs([f"--config-dir={tmp_path}"]))
    assert "zz_mine" in names
    assert "wandb" in names


def test_other_programs_that_use_hydra_are_left_alone():
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        assert compose("config", ["env=pendulum"])["env"]["id"] == "Pendulum-v1"


def test_a_directory_that_is_not_there_adds_nothing():
    assert own_dirs(["--config-dir", "/nowhere", "--config-dir"]) == []
    assert Path("/nowhere") not in config_dirs(["hydra.searchpath=[/nowhere,pkg://no.such.one]"])
