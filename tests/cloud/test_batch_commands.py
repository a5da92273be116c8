"""`rlzoo-plus train -m infra=aws_batch`, and `sweep status|cancel|resume` of what it started."""

import json
from types import SimpleNamespace

import pytest
from support.aws import deployed_project
from support.fake_batch import fake_batch

from rlzoo_plus.cloud import batch, quota
from rlzoo_plus.cloud.image import WorkerImage
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.launches import Launches
from rlzoo_plus.store.lease import CANCELLED, FAILED, FINISHED, RunLease, list_leases
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.testing.run_contract import ON_POLICY, short_config


@pytest.fixture(scope="module")
def account():
    with pytest.MonkeyPatch.context() as patch:
        image = WorkerImage("localhost/worker:1", (), "")
        patch.setattr(batch, "worker_image", lambda project, gpu: image)
        patch.setattr(quota, "vcpu_quota", lambda **kind: 64)
        with deployed_project(patch) as project, fake_batch(patch) as fake:
            yield SimpleNamespace(project=project, fake=fake)


@pytest.fixture
def sweep(account, here, request):
    """Return a sweep of three runs in the project's bucket that was launched once."""
    account.fake.jobs.clear()
    name = f"s{abs(hash(request.node.nodeid)) % 10**8}"
    store = open_store(account.project.store)
    made = [short_config(*ON_POLICY, f"seed={seed}") for seed in range(3)]
    jobs = [make_job(c.model_copy(update={"sweep": f"./{name}"}), "train") for c in made]
    records = [{"event": "added", **job.record(), "max_usd": None} for job in jobs]
    Submissions(store, name).add(records, {"version": "1", "code": None})
    settings = {"name": "aws_batch", "project": "lab", "max_usd": None, "memory_gib": 3.0}
    settings["secrets"] = {"WANDB_API_KEY": "/rlzoo/lab/wandb"}
    url = f"{account.project.store}/{name}"
    made = SimpleNamespace(
        store=store,
        name=name,
        url=url,
        fake=account.fake,
        project=account.project,
        keys=[job.key for job in jobs],
        launches=Launches(store, name),
    )
    made.launches.add([], settings)
    return made


def _say(capsys, *words):
    code = run_verb("sweep", list(words))
    out, err = capsys.readouterr()
    return code, out + err


def _refused(capsys, *words):
    """Return the one line that refuses a command."""
    assert run_verb("sweep", list(words)) == 2
    out, err = capsys.readouterr()
    lines = (out + err).strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def _end(sweep, key, state, **details):
    lease = RunLease(sweep.store, f"{sweep.name}/{key}", f"w-{key}")
    assert lease.claim(list_leases(sweep.store, sweep.name))
    lease.beat(state, **details)


def _newest(sweep):
    return sweep.launches.read(sweep.launches.names()[-1])


def _shares(sweep):
    return [r["max_usd"] for r in Submissions(sweep.store, sweep.name).records().values()]


class TestResume:
    def test_it_starts_what_is_not_done_as_before_but_for_what_is_said(self, sweep, capsys):
        _end(sweep, sweep.keys[0], FINISHED)
        code, out = _say(capsys, "resume", sweep.url, "infra.spot=false")
        assert code == 0, out
        assert "started an array job of 2 runs in AWS Batch" in out
        newest = _newest(sweep)
        assert newest.jobs == tuple(sweep.keys[1:])
        assert (newest.infra["spot"], newest.infra["memory_gib"]) == (False, 3.0)
        assert newest.infra["secrets"] == {"WANDB_API_KEY": "/rlzoo/lab/wandb"}
        queue = sweep.fake.jobs[0].job_queue.name
        assert queue == sweep.project.on_demand_queue.rpartition("/")[2]

    def test_again_starts_nothing(self, sweep, capsys):
        _say(capsys, "resume", sweep.url)
        code, out = _say(capsys, "resume", sweep.url)
        assert (code, len(sweep.fake.jobs)) == (0, 3)
        assert "machines are started for all of these runs already" in out

    def test_a_larger_budget_is_dealt_to_those_that_are_not_finished(self, sweep, capsys):
        first, second, third = sweep.keys
        _end(sweep, first, FINISHED, spent={"usd": 0.02})
        _end(sweep, second, CANCELLED, spent={"usd": 0.04}, reason="budget: $0.04 are spent")
        code, out = _say(capsys, "resume", sweep.url, "infra.max_usd=0.26")
        assert code == 0, out
        assert _shares(sweep) == [None, pytest.approx(0.14), pytest.approx(0.1)]
        assert _newest(sweep).jobs == (second, third)
        assert "workers may take 1 cancelled run again" in out

    def test_a_spent_budget_starts_nothing(self, sweep, capsys):
        _end(sweep, sweep.keys[0], CANCELLED, spent={"usd": 0.3})
        assert "max_usd=0.3 is spent" in _refused(capsys, "resume", sweep.url, "infra.max_usd=0.3")
        assert not sweep.fake.jobs
        assert _shares(sweep) == [None] * 3

    def test_failed_runs_are_left_alone_until_they_are_asked_for(self, sweep, capsys):
        _end(sweep, sweep.keys[0], FAILED, reason="the gearbox broke")
        _say(capsys, "resume", sweep.url)
        assert _newest(sweep).jobs == tuple(sweep.keys[1:])
        code, out = _say(capsys, "retry-failed", sweep.url)
        assert code == 0, out
        assert _newest(sweep).jobs == tuple(sweep.keys[:1])

    @pytest.mark.parametrize(
        "stored",
        [{"name": "slurm"}, {"name": "os:system"}, {"name": "aws_batch", "wait_not": 1}, {}],
    )
    def test_a_launch_that_somebody_forged_is_one_line(self, sweep, capsys, stored):
        sweep.launches.add([], stored)
        assert "infra" in _refused(capsys, "resume", sweep.url)
        assert not sweep.fake.jobs

    def test_code_of_others_needs_trust(self, sweep, capsys):
        sweep.launches.add([], {"name": "aws_batch", "code": ["mine"]})
        assert "add --trust" in _refused(capsys, "resume", sweep.url)
        assert not sweep.fake.jobs
        assert _say(capsys, "resume", sweep.url, "--trust")[0] == 0
        assert "--trust" in sweep.fake.jobs[0].describe()["container"]["command"]


class TestStatus:
    def test_it_says_how_the_jobs_are_and_what_is_missing(self, sweep, capsys):
        code, out = _say(capsys, "status", sweep.url)
        assert code == 0
        assert "3 runs that wait have no job in AWS Batch" in " ".join(out.split())
        _say(capsys, "resume", sweep.url)
        sweep.fake.set(0, "RUNNING")
        sweep.fake.set(1, "RUNNABLE", "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - none")
        code, out = _say(capsys, "status", sweep.url)
        assert "jobs in AWS Batch: 2 runnable, 1 running" in out
        assert "Lower infra.vcpus" in " ".join(out.split())
        assert "start some: rlzoo-plus worker" not in out

    def test_it_goes_on_where_aws_refuses(self, sweep, capsys, monkeypatch):
        monkeypatch.setenv("RLZOO_PROJECT", "other")
        sweep.launches.add([], {"name": "aws_batch", "project": "other"})
        code, out = _say(capsys, "status", sweep.url)
        assert code == 0
        assert "nothing is known of its machines: there is no project 'other'" in " ".join(
            out.split()
        )
        code, out = _say(capsys, "status", sweep.url, "--json")
        assert (code, len(json.loads(out)["machines"])) == (0, 1)

    def test_nobody_is_asked_for_a_sweep_that_was_not_launched(self, sweep, capsys, monkeypatch):
        monkeypatch.setattr(
            "rlzoo_plus.cloud.project.find_stack", lambda name: pytest.fail("asked")
        )
        records = Submissions(sweep.store, sweep.name).read()[0].records
        other = f"{sweep.name}-by-hand"
        Submissions(sweep.store, other).add(records, {"version": "1", "code": None})
        code, out = _say(capsys, "status", f"{sweep.project.store}/{other}")
        assert (code, "start some: rlzoo-plus worker" in out) == (0, True)


def test_to_cancel_ends_jobs_that_have_not_begun_and_asks_the_others(sweep, capsys):
    _say(capsys, "resume", sweep.url)
    sweep.fake.set(0, "RUNNING")
    lease = RunLease(sweep.store, f"{sweep.name}/{sweep.keys[0]}", "w")
    assert lease.claim({})
    code, out = _say(capsys, "cancel", sweep.url)
    assert code == 0
    assert "cancelled 2 jobs of AWS Batch that had not begun" in out
    assert [job.status for job in sweep.fake.jobs] == ["RUNNING", "FAILED", "FAILED"]
    lease.beat()
    assert lease.request["ask"] == "stop"
