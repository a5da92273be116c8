"""The settings of launchers: which keys each takes, and what is said where one is not there."""

import sys

import pytest
from support.training import make_config

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.infra.launcher import make_launcher


def stored(**infra):
    return {**make_config("algo=ppo").model_dump(mode="json"), "infra": infra}


def test_each_launcher_shows_only_its_own_keys():
    assert "partition" not in InfraConfig(name="local").model_dump()
    assert "address" not in InfraConfig(name="slurm").model_dump()
    assert InfraConfig(name="slurm", partition="gpu").model_dump()["partition"] == "gpu"


@pytest.mark.parametrize("name", ["local", "debug", "slurm", "ray"])
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
