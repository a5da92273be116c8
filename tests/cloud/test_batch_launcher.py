"""`infra=aws_batch`: what is submitted to AWS Batch, what is refused, and what is told of jobs."""

import dataclasses
import fnmatch
import json
import random
from types import SimpleNamespace

import pytest
from support.aws import aws_account, deployed_project
from support.fake_batch import fake_batch

from rlzoo_plus.cloud import aws, batch, quota
from rlzoo_plus.cloud.image import WorkerImage
from rlzoo_plus.cloud.prices import load_prices
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.launches import Launches
from rlzoo_plus.store.lease import CANCELLED, FINISHED, RunLease, ask, list_leases
from rlzoo_plus.sweeps.launchers.launcher import make_launcher
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.testing.run_contract import ON_POLICY, short_config

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/rlzoo@sha256:" + 64 * "0"


@pytest.fixture(scope="module")
def account():
    """Yield an account with a project; its Batch keeps jobs as tests say."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "worker_image", lambda project, gpu: WorkerImage(IMAGE, (), ""))
        patch.setattr(quota, "vcpu_quota", lambda **kind: 64)
        parameters = {"GpuFamily": "g6", "GpuTypes": "g6.xlarge", "Families": "c7a,m7a"}
        parameters["WideTypes"] = "c7a.medium,c7a.large,c7a.xlarge,m7a.large,m7a.xlarge"
        with deployed_project(patch, **parameters) as project, fake_batch(patch) as fake:
            yield SimpleNamespace(project=project, fake=fake)


@pytest.fixture
def sweep(account, request):
    """Return a function: settings to the launcher of a sweep of this test's own."""
    account.fake.jobs.clear()
    name = f"t{abs(hash(request.node.nodeid)) % 10**8}"

    def make(threads=1, **settings):
        infra = InfraConfig(name="aws_batch", **settings)
        return make_launcher(infra, threads, (), sweep=name)

    return make


def _configs(count=3, *overrides):
    made = [short_config(*ON_POLICY, f"seed={seed}", *overrides) for seed in range(count)]
    jobs = [make_job(config.model_copy(update={"sweep": "./x"})) for config in made]
    return {job.key: job.config for job in jobs}


def _submitted():
    """Return all jobs that are no children, as Batch describes them."""
    found = aws.client("batch").describe_jobs(jobs=[])["jobs"]
    return [job for job in found if ":" not in job["jobId"]]


def _start(launcher, configs):
    launcher.prepare(configs)
    return launcher.start_machines([*configs])


class TestSubmitting:
    def test_a_sweep_is_one_array_whose_children_know_their_launch(self, sweep, account):
        launcher, configs = sweep(), _configs(3)
        before = len(_submitted())
        lines = _start(launcher, configs)

        job = _submitted()[before]
        launch = Launches(launcher.submitter.store, launcher.sweep).read(
            launcher.launches.names()[0]
        )
        assert launch.jobs == tuple(configs)
        assert job["jobName"] == f"{launcher.sweep}-{launch.name}"
        assert job["arrayProperties"]["size"] == 3
        assert job["jobQueue"].endswith(account.project.spot_queue.rpartition("/")[2])
        assert job["tags"]["Project"] == "lab"
        assert job["tags"]["Sweep"] == launcher.sweep
        words = job["container"]["command"]
        assert words[0] == f"{account.project.store}/{launcher.sweep}"
        assert words[words.index("--launch") + 1] == launch.name
        assert {"--spot", "--usd-per-hour"} <= set(words)
        assert "--trust" not in words
        assert lines == [
            "started an array job of 3 runs in AWS Batch, queue rlzoo-lab-spot, 24 hours at most: "
            f"{job['jobName']}"
        ]

    def test_one_run_is_a_job_of_its_own(self, sweep, account):
        before = len(_submitted())
        _start(sweep(), _configs(1))
        assert [job["jobId"] for job in _submitted()[before:]] == [account.fake.jobs[0].job_id]

    def test_more_runs_than_an_array_may_have_are_several(self, sweep, monkeypatch):
        monkeypatch.setattr(batch.BatchLauncher, "most_runs", 2)
        launcher, configs = sweep(), _configs(5)
        lines = _start(launcher, configs)
        launches = [launcher.launches.read(name).jobs for name in launcher.launches.names()]
        assert [len(jobs) for jobs in launches] == [2, 2, 1]
        assert [key for jobs in launches for key in jobs] == [*configs]
        assert len(lines) == 3

    def test_a_definition_is_registered_once_and_retries_only_lost_machines(self, sweep, account):
        settings = {"memory_gib": 3, "secrets": {"WANDB_API_KEY": "/rlzoo/lab/wandb"}}
        _start(sweep(threads=2, **settings), _configs(1))
        arn = _submitted()[-1]["jobDefinition"]
        _start(sweep(threads=2, **settings), _configs(2))
        assert _submitted()[-1]["jobDefinition"] == arn
        _start(sweep(threads=4), _configs(3))
        assert _submitted()[-1]["jobDefinition"] != arn

        found = aws.client("batch").describe_job_definitions(jobDefinitions=[arn])["jobDefinitions"]
        made = next(each for each in found if each["jobDefinitionArn"] == arn)
        container = made["containerProperties"]
        assert container["image"] == IMAGE
        assert container["jobRoleArn"] == account.project.worker_role
        assert {"type": "VCPU", "value": "2"} in container["resourceRequirements"]
        assert {"type": "MEMORY", "value": "3840"} in container["resourceRequirements"]
        assert container["secrets"] == [{"name": "WANDB_API_KEY", "valueFrom": "/rlzoo/lab/wandb"}]
        rules = made["retryStrategy"]["evaluateOnExit"]
        assert made["retryStrategy"]["attempts"] == 10
        assert [rule["action"].lower() for rule in rules] == 4 * ["retry"] + ["exit"]

    def test_the_same_command_starts_only_what_is_missing(self, sweep, account):
        launcher, configs = sweep(), _configs(4)
        _start(launcher, configs)
        again = sweep()
        assert _start(again, configs) == ["machines are started for all of these runs already"]
        for index, status in enumerate(("RUNNING", "FAILED", "SUCCEEDED", "RUNNABLE")):
            account.fake.set(index, status)
        _start(again, configs)
        newest = again.launches.read(again.launches.names()[-1])
        assert newest.jobs == tuple([*configs][1:3])
        assert len(again.launches.names()) == 2

    def test_runs_that_wait_for_spot_move_to_another_queue(self, sweep, account):
        configs = _configs(3)
        _start(sweep(), configs)
        account.fake.set(0, "RUNNING")
        launcher = sweep(spot=False)
        _start(launcher, configs)
        assert launcher.launches.read(launcher.launches.names()[-1]).jobs == tuple([*configs][1:])
        first = account.fake.jobs[:3]
        assert [job.status for job in first] == ["RUNNING", "FAILED", "FAILED"]
        again = sweep(spot=False)
        assert _start(again, configs) == ["machines are started for all of these runs already"]

    def test_nothing_but_the_settings_chooses_the_queue(self, sweep, account):
        project = account.project
        assert sweep(families=["c7a"]).queue == project.spot_queue
        assert sweep(families=["m7a", "c7a"]).queue == project.wide_queue
        assert sweep(spot=False).queue == project.on_demand_queue
        assert sweep(gpus=1).queue == project.gpu_queue

    def test_a_budget_is_dealt_out_and_bounds_an_attempt(self, sweep, account):
        launcher, configs = sweep(max_usd=0.3), _configs(3)
        keys = [*configs]
        lease = RunLease(launcher.submitter.store, launcher.submitter.run(keys[0]), "w")
        lease.claim(list_leases(launcher.submitter.store, launcher.sweep))
        lease.beat(FINISHED, spent={"usd": 0.1})
        left = {key: configs[key] for key in keys[1:]}
        _start(launcher, left)
        shares = [launcher.more_of(key)["max_usd"] for key in left]
        assert shares == pytest.approx([0.1, 0.1])
        assert sum(shares) + 0.1 <= 0.3 + 1e-9
        job = _submitted()[-1]
        words = job["container"]["command"]
        per_hour = float(words[words.index("--usd-per-hour") + 1])
        assert job["timeout"]["attemptDurationSeconds"] >= 3600 * 0.1 / per_hour

    def test_code_of_ones_own_is_trusted_where_ones_own_command_sends_it(self, sweep):
        config = _configs(1, "packages=[support.tiny_envs]")
        _start(sweep(), config)
        assert "--trust" in _submitted()[-1]["container"]["command"]

    def test_the_launch_keeps_what_starts_the_same_machines_again(self, sweep):
        launcher = sweep(threads=2, memory_gib=3.0, max_usd=1.0, secrets={"A": "/rlzoo/lab/a"})
        _start(launcher, _configs(2))
        stored = launcher.launches.read(launcher.launches.names()[0]).infra
        again = InfraConfig(**json.loads(json.dumps(stored)))
        assert (again.name, again.memory_gib, again.max_usd) == ("aws_batch", 3.0, 1.0)


def _mistake(launcher, configs=None):
    """Return the one line that refuses a command; nothing was started."""
    before = len(_submitted())
    with pytest.raises(ConfigError) as caught:
        launcher().prepare(configs or _configs(1))
    assert len(_submitted()) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestMistakes:
    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"families": ["p99"]}, ["infra.families=[p99]", "of c7a", "[c7a,m7a]", "deploy"]),
            ({"families": ["c7a", "m7a"], "spot": False}, ["Leave infra.families out"]),
            ({"gpus": 1, "spot": False}, ["one queue with GPUs", "infra.spot out"]),
            ({"vcpus": 4096}, ["4096 vCPUs does not fit", "Lower infra.vcpus"]),
            ({"vcpus": 8}, ["largest has 4", "Lower infra.vcpus", "--largest-vcpus 8"]),
            ({"secrets": {"KEY": "my secret"}}, ["infra.secrets.KEY must be the name"]),
            ({"secrets": {"KEY": "/rlzoo/other/key"}}, ["below /rlzoo/lab/"]),
            ({"secrets": {"MY-KEY": "/rlzoo/lab/key"}}, ["infra.secrets.MY-KEY"]),
        ],
    )
    def test_a_setting_that_no_machine_fits_is_one_line(self, sweep, settings, words):
        told = _mistake(lambda: sweep(**settings))
        assert all(word in told for word in words), told

    def test_a_value_of_a_secret_is_never_told(self, sweep):
        assert "hunter2" not in _mistake(lambda: sweep(secrets={"KEY": "hunter2"}))

    def test_a_quota_of_zero_is_one_line_with_the_page_that_raises_it(self, sweep, monkeypatch):
        monkeypatch.setattr(quota, "vcpu_quota", lambda **kind: 0)
        told = _mistake(sweep)
        assert "0 Spot vCPUs in us-east-1" in told
        assert "quotas/L-34B43A08" in told
        assert "infra.spot=false" in told

    def test_a_quota_that_may_not_be_read_is_a_note(self, sweep, monkeypatch):
        def refuse(**kind):
            raise aws.CloudError("cannot read the quota: AccessDenied.", "AccessDenied")

        monkeypatch.setattr(quota, "vcpu_quota", refuse)
        lines = _start(sweep(), _configs(1))
        assert any("cannot read the quota" in line for line in lines)

    def test_another_store_is_refused_with_that_of_the_project(self, account):
        infra = InfraConfig(name="aws_batch")
        launcher = make_launcher(infra, 1, (), store="s3://elsewhere/lab", sweep="x")
        with pytest.raises(ConfigError, match=rf"{account.project.store}\. Leave store"):
            launcher.prepare(_configs(1))

    def test_no_gpu_queue_is_one_line(self, sweep, account):
        launcher = sweep(gpus=1)
        launcher.project = dataclasses.replace(account.project, gpu_queue="")
        with pytest.raises(ConfigError, match=r"no machines with GPUs.*cloud deploy"):
            launcher.prepare(_configs(1))

    def test_a_study_is_told_what_is_for_sweeps(self, sweep):
        config = next(iter(_configs(1).values()))
        for settings in ({"max_usd": 1.0}, {"dry_run": True}):
            with pytest.raises(ConfigError, match="is for sweeps"):
                sweep(**settings).prepare_study(config)
        sweep().prepare_study(config)


class TestWithoutAProject:
    def test_without_credentials(self, monkeypatch):
        with aws_account(monkeypatch):
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.delenv(name)
            monkeypatch.setenv("RLZOO_PROJECT", "lab")
            aws.forget_clients()
            with pytest.raises(ConfigError, match=r"no credentials of AWS\. Set AWS_PROFILE"):
                make_launcher(InfraConfig(name="aws_batch"), 1, (), sweep="x")

    def test_without_a_stack(self, monkeypatch):
        with aws_account(monkeypatch):
            monkeypatch.setenv("RLZOO_PROJECT", "other")
            with pytest.raises(
                ConfigError, match=r"no project 'other' in region us-east-1\. Deploy"
            ):
                make_launcher(InfraConfig(name="aws_batch"), 1, (), sweep="x")


class TestExplaining:
    @pytest.fixture
    def begun(self, sweep, account):
        launcher, configs = sweep(), _configs(4)
        _start(launcher, configs)
        return launcher, [*configs], account.fake

    def test_jobs_that_run_or_wait_are_counted(self, begun):
        launcher, keys, fake = begun
        fake.set(0, "RUNNING")
        fake.set(1, "STARTING")
        assert launcher.explain(keys[2:], "S") == [
            "jobs in AWS Batch: 2 runnable, 1 starting, 1 running"
        ]

    @pytest.mark.parametrize(
        ("reason", "mend"),
        [
            (
                "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the request",
                "sweep resume S infra.spot=false",
            ),
            ("MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE - ...", "Lower infra.vcpus"),
            ("MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT - ...", "no machine of the project"),
            ("MISCONFIGURATION:SERVICE_ROLE_PERMISSIONS - ...", "cloud deploy"),
        ],
    )
    def test_the_reason_of_batch_is_told_with_a_mend(self, begun, reason, mend):
        launcher, keys, fake = begun
        fake.set(0, "RUNNABLE", reason)
        line = launcher.explain(keys, "S")[-1]
        assert line.startswith(reason)
        assert mend in line

    def test_runnable_for_long_without_a_reason_lists_what_it_may_be(self, begun):
        launcher, keys, fake = begun
        assert len(launcher.explain(keys, "S")) == 1
        for job in fake.jobs:
            job.job_created_at = job.job_created_at.replace(year=job.job_created_at.year - 1)
        line = launcher.explain(keys, "S")[-1]
        for word in ("quota", "way out to the internet", "role", "infra.spot=false"):
            assert word in line

    def test_a_job_whose_worker_never_wrote_is_told_with_its_reason(self, begun):
        launcher, keys, fake = begun
        for index in range(3):
            fake.set(index, "FAILED", "CannotPullContainerError: pull access denied")
        fake.set(3, "FAILED", "OutOfMemoryError: Container killed", 137)
        lines = launcher.explain(keys, "S")
        pulled, memory = (line for line in lines if "failed" in line)
        assert pulled.startswith("3 jobs have failed: CannotPullContainerError")
        assert "cloud build" in pulled
        assert "infra.memory_gib" in memory
        assert "4 runs that wait have no job" in lines[-1]

    def test_a_run_whose_worker_has_said_how_it_ended_is_not_told_twice(self, begun):
        launcher, keys, fake = begun
        fake.set(0, "FAILED", "Essential container in task exited", 1)
        assert not [line for line in launcher.explain(keys[1:], "S") if "failed" in line]

    def test_to_cancel_ends_the_jobs_that_have_not_begun(self, begun):
        launcher, keys, fake = begun
        fake.set(0, "RUNNING")
        assert launcher.stop_machines() == ["cancelled 3 jobs of AWS Batch that had not begun"]
        assert [job.status for job in fake.jobs] == ["RUNNING", *["FAILED"] * 3]
        assert launcher.stop_machines() == []
        ask(launcher.submitter.store, launcher.submitter.run(keys[1]), "stop", "x")
        assert launcher.submitter.live()[keys[1]].state == CANCELLED


def test_the_bid_of_the_project_bounds_what_an_hour_of_a_spot_machine_costs(account, sweep):
    full, launcher, on_demand = sweep().usd_per_hour, sweep(), sweep(spot=False)
    launcher.project = dataclasses.replace(account.project, bid_percentage=40)
    assert launcher.usd_per_hour == pytest.approx(0.4 * full)
    on_demand.project = launcher.project
    assert on_demand.usd_per_hour == pytest.approx(full)


@pytest.mark.parametrize(
    "settings", [{}, {"families": ["c7a", "m7a"]}, {"spot": False}, {"gpus": 1}]
)
def test_what_runs_count_is_never_below_what_their_machines_cost(account, sweep, settings):
    """Place runs on machines at random, as Batch may, and compare what is paid with the count."""
    launcher, draw = sweep(**settings), random.Random(14)
    allowed = _types_of(launcher.queue)
    usd = {kind: _whole_usd(kind) for kind in allowed}
    assert launcher.usd_per_hour >= max(usd.values())
    for _ in range(200):
        paid = counted = 0.0
        for kind, vcpus in draw.choices([*allowed.items()], k=5):
            hours = [draw.uniform(0.0, 10.0) for _ in range(draw.randint(1, vcpus))]
            # A machine is there as long as its last run.
            paid += max(hours) * usd[kind]
            counted += sum(hours) * launcher.usd_per_hour
        assert counted >= paid
    # The worst: all runs but one have ended, and that one holds the dearest machine.
    assert launcher.usd_per_hour * 10.0 >= 10.0 * max(usd.values())


def _types_of(queue):
    """Return the types that AWS may start for a queue, as its compute environment says."""
    described = aws.client("batch").describe_job_queues(jobQueues=[queue])["jobQueues"][0]
    names = [each["computeEnvironment"] for each in described["computeEnvironmentOrder"]]
    found = aws.client("batch").describe_compute_environments(computeEnvironments=names)
    kinds = found["computeEnvironments"][0]["computeResources"]["instanceTypes"]
    assert all("." in kind for kind in kinds), "a family is of any size"
    types = aws.client("ec2").describe_instance_types(InstanceTypes=kinds)["InstanceTypes"]
    return {each["InstanceType"]: each["VCpuInfo"]["DefaultVCpus"] for each in types}


def _whole_usd(kind):
    """Return the on-demand price of a machine by the table, without what launchers make of it."""
    prices, (family, _, size) = load_prices(), kind.partition(".")
    if family in prices.machines:
        return prices.machines[family][size].usd
    return prices.on_demand[family] * {"medium": 1, "large": 2, "xlarge": 4}[size]


def test_a_job_is_ended_after_a_day_unless_more_is_asked_for(sweep):
    for count, settings, hours in ((1, {}, 24), (2, {"max_hours": 100}, 100)):
        _start(sweep(**settings), _configs(count))
        assert _submitted()[-1]["timeout"] == {"attemptDurationSeconds": 3600 * hours}
    told = _mistake(lambda: sweep(time_limit_minutes=1500))
    assert told == (
        "infra.time_limit_minutes=1500 is longer than infra.max_hours=24, after which AWS Batch "
        "ends a job. Set infra.max_hours=26."
    )


def test_a_job_is_tried_again_exactly_if_its_machine_or_its_start_failed(sweep):
    """Apply the rules as AWS documents them: the first whose conditions all hold decides."""
    _start(sweep(), _configs(1))
    arn = _submitted()[-1]["jobDefinition"]
    (made,) = aws.client("batch").describe_job_definitions(jobDefinitions=[arn])["jobDefinitions"]
    rules = made["retryStrategy"]["evaluateOnExit"]
    assert len(rules) <= 5
    ended = "Essential container in task exited"
    attempts = {
        ("75", ended, ""): True,
        ("143", ended, ""): True,
        ("", "Host EC2 (instance i-0123) terminated.", ""): True,
        ("", "Task failed to start", "CannotPullContainerError: timeout"): True,
        ("1", ended, ""): False,
        ("137", ended, "OutOfMemoryError: Container killed due to memory usage"): False,
        ("2", ended, ""): False,
    }
    for (code, status_reason, reason), again in attempts.items():
        said = {"onExitCode": code, "onStatusReason": status_reason, "onReason": reason}
        fitting = (
            rule["action"].upper()
            for rule in rules
            if all(fnmatch.fnmatch(said[key], rule[key]) for key in said if key in rule)
        )
        # Without a rule that fits, Batch tries again.
        assert (next(fitting, "RETRY") == "RETRY") == again, said
