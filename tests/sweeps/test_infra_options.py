"""The settings of launchers: which keys each takes, and what is said where one is not there."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from support.training import make_config

from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.launchers.launcher import make_launcher

LIMITS = ("workers", "memory_gib", "time_limit_minutes")


ROOT = Path(__file__).parents[2]


def stored(**infra):
    return {**make_config("algo=ppo").model_dump(mode="json"), "infra": infra}


def test_each_launcher_shows_only_its_own_keys():
    assert "partition" not in InfraConfig(name="local").model_dump()
    assert "address" not in InfraConfig(name="slurm").model_dump()
    assert InfraConfig(name="slurm", partition="gpu").model_dump()["partition"] == "gpu"


@pytest.mark.parametrize("name", ["local", "debug", "slurm", "ray", "workers"])
def test_what_is_stored_is_read_again(name):
    config = make_config(f"infra={name}")
    assert validate_config(config.model_dump(mode="json")) == config


def test_a_key_of_another_launcher_is_refused():
    with pytest.raises(ConfigError, match="partition is for infra=slurm"):
        validate_config(stored(name="local", partition="gpu"))


def test_an_unknown_key_is_answered_with_the_one_that_was_meant():
    with pytest.raises(ConfigError, match=r"Did you mean 'infra\.partition'"):
        validate_config(stored(name="slurm", partitoin="gpu"))


def test_an_unknown_cluster_is_refused():
    with pytest.raises(ConfigError, match=r"infra\.cluster=lsf: must be 'slurm' or 'local'"):
        validate_config(stored(name="slurm", cluster="lsf"))


def test_an_unknown_launcher_is_answered_with_the_one_that_was_meant():
    with pytest.raises(ConfigError, match="Did you mean 'slurm'"):
        make_launcher(InfraConfig(name="slrum"), 1, ())


@pytest.mark.parametrize(("name", "module"), [("slurm", "submitit"), ("ray", "ray")])
def test_a_missing_extra_is_named(name, module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"pip install 'rlzoo-plus\[{name}\]'"):
        make_launcher(InfraConfig(name=name), 1, ())


def test_without_slurms_commands_the_local_executor_is_named(monkeypatch, tmp_path):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"needs sbatch.*infra\.cluster=local"):
        make_launcher(InfraConfig(name="slurm"), 1, ())


def test_a_key_of_another_launcher_at_its_default_is_left_out():
    # As runs of earlier versions have stored it.
    config = validate_config(stored(name="local", partition=None, resubmit=0))
    assert set(config.infra.model_dump()) == {"name", *LIMITS}


def test_a_launcher_of_the_users_own_is_not_imported_from_what_is_stored():
    config = validate_config(stored(name="evil_package.Launcher", host="x"))
    assert config.infra.model_dump()["host"] == "x"


def test_workers_need_a_store_and_a_name_in_it():
    workers = InfraConfig(name="workers")
    with pytest.raises(ConfigError, match=r"infra=workers needs a store.*store=s3://bucket"):
        make_launcher(workers, 1, ())
    with pytest.raises(ConfigError, match="cannot be the name of a sweep in a store"):
        make_launcher(workers, 1, (), store="s3://bucket/lab", sweep="a/b")
    made = make_launcher(workers, 1, (), store="s3://bucket/lab/", sweep="mine")
    assert (made.place, made.slots, made.settings.wait) == ("s3://bucket/lab/mine", 16, True)


def test_code_for_workers_has_to_be_there(tmp_path):
    workers = InfraConfig(name="workers", code=[str(tmp_path / "robots")])
    with pytest.raises(ConfigError, match=r"infra\.code=.*robots: there is no such folder"):
        make_launcher(workers, 1, (), store=str(tmp_path))


MINE = """
from pydantic import BaseModel

class Mine:
    slots, shows_output = 3, False

    class Settings(BaseModel):
        host: str = "here"

    @classmethod
    def from_options(cls, options):
        made = cls()
        made.options = options
        return made

    def submit(self, spec): ...
    def wait(self, handles, timeout_s): ...
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Write a launcher of the user's own into the current folder."""
    (tmp_path / "my_cluster.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_launcher_of_the_users_own_gets_its_settings(mine):
    config = make_config("infra.name=my_cluster.Mine", "infra.host=there", "infra.workers=2")
    made = make_launcher(config.infra, 3, ("json",))
    assert (made.options.settings.host, made.options.workers) == ("there", 2)
    assert (made.options.threads_per_job, made.options.preload) == (3, ("json",))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["infra.hots=there"], r"'infra\.hots'\. Did you mean 'infra\.host'"),
        (["infra.host=3"], r"infra\.host=3: must be a valid string"),
        (["infra.name=my_cluster.BaseModel"], r"my_cluster\.BaseModel has no method from_options"),
    ],
)
def test_what_is_wrong_for_an_own_launcher_is_told_as_for_a_shipped_one(mine, words, text):
    with pytest.raises(ConfigError, match=text):
        make_config("infra.name=my_cluster.Mine", *words)


def _documented(page, heading):
    """Return the keys in the tables of a section, with the defaults that stand beside them."""
    section = (ROOT / "docs" / page).read_text().partition(f"\n## {heading}\n")[2]
    section = section.partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`infra\.\w+`(?:, )?)+) \| ([^|]*) \|", section, re.M)
    return {
        key: yaml.safe_load(default)
        for keys, default in rows
        for key in re.findall(r"`infra\.(\w+)`", keys)
    }


@pytest.mark.parametrize(
    ("page", "heading", "name"),
    [
        ("cloud.md", "Batch", "aws_batch"),
        ("cloud.md", "EC2", "ec2_spot"),
        ("launchers.md", "Workers", "workers"),
    ],
)
def test_the_documentation_has_each_key_with_its_default(page, heading, name):
    values = yaml.safe_load((ROOT / "conf" / "infra" / f"{name}.yaml").read_text())
    told = _documented(page, heading)
    if page == "cloud.md":
        # Other keys are those of workers, and of Batch, in other tables.
        told = {**_documented("launchers.md", "Workers"), **_documented(page, "Batch"), **told}
    assert told == {key: value for key, value in values.items() if key != "name"}


def test_the_documentation_of_workers_has_each_option():
    section = (ROOT / "docs" / "workers.md").read_text().partition("## How a run")[0]
    source = (ROOT / "rlzoo_plus" / "commands" / "worker.py").read_text()
    told = re.findall(r"^\| `(--[a-z-]+)", section, re.M)
    assert sorted(told) == sorted(set(re.findall(r'"(--[a-z-]+)"', source)))
