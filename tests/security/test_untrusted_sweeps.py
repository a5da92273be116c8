"""A sweep's directory may come from anybody: what its ledger says starts nothing elsewhere."""

import pytest
from support.evil_sweeps import edit_ledger, make_sweep

from rlzoo_plus.commands import dispatch
from rlzoo_plus.sweeps import multirun

LIMITS = {"workers": 3, "memory_gib": 2.0, "time_limit_minutes": 5.0}
SLURM = {"name": "slurm", "cluster": "local", "setup": ["touch /tmp/evil"], **LIMITS}
RAY = {"name": "ray", "address": "ray://203.0.113.7:10001", **LIMITS}


@pytest.fixture
def resumed(in_process, monkeypatch, capsys):
    """Return a function: a verb, a sweep and words to exit code, text and the jobs that ran."""
    ran = []
    monkeypatch.setattr(multirun, "PRELOAD", ())
    monkeypatch.setattr(multirun, "launcher_for", lambda configs: ran.extend(configs) or Slots)
    monkeypatch.setattr(multirun, "run_jobs", lambda *_: 0)

    def resume(sweep, *words, verb="resume"):
        ran.clear()
        code = dispatch.run("sweep", [verb, str(sweep), *words])
        return code, capsys.readouterr().err, [config.infra for config in ran]

    return resume


class Slots:
    slots = 1


@pytest.mark.parametrize("infra", [SLURM, RAY])
def test_a_stored_launcher_is_not_used_without_trust(resumed, tmp_path, infra):
    make_sweep(tmp_path / "s", infra=infra)
    code, said, used = resumed(tmp_path / "s")
    assert (code, used) == (2, [])
    assert f"infra={infra['name']}" in said
    assert "--trust" in said
    assert "infra.name=local" in said


@pytest.mark.parametrize("infra", [SLURM, RAY])
def test_a_stored_launcher_is_used_once_it_is_trusted(resumed, tmp_path, infra):
    make_sweep(tmp_path / "s", infra=infra)
    code, _, [used] = resumed(tmp_path / "s", "--trust")
    assert code == 0
    assert used.model_dump(include=infra.keys()) == infra


@pytest.mark.parametrize("infra", [SLURM, RAY])
def test_of_a_stored_launcher_only_workers_and_limits_count_beside_one_that_is_typed(
    resumed, tmp_path, infra
):
    make_sweep(tmp_path / "s", infra=infra)
    for name in ("local", "slurm", "ray"):
        code, _, [used] = resumed(tmp_path / "s", f"infra.name={name}")
        assert code == 0
        assert used.model_dump(include=LIMITS.keys()) == LIMITS
        assert used.name == name
        assert used.settings == type(used.settings)()


def test_what_is_typed_counts_and_the_rest_of_the_stored_limits_stays(resumed, tmp_path):
    make_sweep(tmp_path / "s", infra={"name": "local", **LIMITS})
    _, _, [used] = resumed(tmp_path / "s", "infra.memory_gib=8")
    assert used.model_dump(include=LIMITS.keys()) == {**LIMITS, "memory_gib": 8.0}


@pytest.mark.parametrize("word", ["infra.setup=[x]", "infra.workers=many", "infra.workers={"])
def test_a_mistake_in_what_is_typed_is_one_line(resumed, tmp_path, word):
    make_sweep(tmp_path / "s")
    code, said, _ = resumed(tmp_path / "s", word)
    assert code == 2
    assert len(said.splitlines()) == 1
    assert word in said


def test_failed_jobs_are_not_tried_again_on_a_stored_launcher(resumed, tmp_path):
    from rlzoo_plus.sweeps import ledger

    job = make_sweep(tmp_path / "s", infra=SLURM)
    ledger.Ledger(tmp_path / "s").write(ledger.FAILED, job, reason="x")
    code, said, used = resumed(tmp_path / "s", verb="retry-failed")
    assert (code, used) == (2, [])
    assert "--trust" in said


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_stored_tracker_sends_nothing_without_trust(resumed, tmp_path, name):
    make_sweep(tmp_path / "s", f"tracker={name}")
    code, said, used = resumed(tmp_path / "s")
    assert (code, used) == (2, [])
    assert f"tracker {name}" in said


@pytest.mark.parametrize(
    ("section", "key"), [(None, "device"), ("env", "id"), ("env", "name"), ("algo", "name")]
)
def test_a_stored_name_of_several_lines_is_refused(resumed, tmp_path, section, key):
    def edit(record):
        part = record["config"][section] if section else record["config"]
        part[key] += "\nerror: all is well"

    make_sweep(tmp_path / "s")
    edit_ledger(tmp_path / "s", edit)
    _, said, used = resumed(tmp_path / "s")
    assert used == []
    assert "error: all is well" not in said.splitlines()
