"""`infra=ec2_spot`: the fleet that is asked for, what is refused, and what a sweep does with it."""

import base64
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

pytest.importorskip("moto", reason="needs the extra dev")

from support.aws import deployed_project
from support.fake_ec2 import start_fleet, with_modify_fleet

from rlzoo_plus.cloud import aws, fleet, quota
from rlzoo_plus.cloud.fleets import find_fleets, leave_fleet
from rlzoo_plus.cloud.image import WorkerImage
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.launches import Launches
from rlzoo_plus.store.lease import FINISHED, RunLease
from rlzoo_plus.sweeps.launchers.launcher import make_launcher
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.testing.run_contract import ON_POLICY, short_config

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/rlzoo-lab@sha256:" + 64 * "0"


@pytest.fixture(scope="module")
def project():
    """Yield a project that may use 32 vCPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet, "worker_image", lambda project: WorkerImage(IMAGE, (), ""))
        patch.setattr(quota, "vcpu_quota", lambda **kind: 64)
        with_modify_fleet(patch)
        with deployed_project(patch, MaxVcpus=32) as made:
            yield made


@pytest.fixture
def sweep(project, request):
    """Return a function: settings to the launcher of a sweep of this test's own."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**8}"

    def make(threads=1, **settings):
        infra = InfraConfig(name="ec2_spot", **settings)
        return make_launcher(infra, threads, (), sweep=name)

    yield make
    ids = [each.id for each in find_fleets(project.name)]
    if ids:
        aws.client("ec2").delete_fleets(FleetIds=ids, TerminateInstances=True)


def configs_of(count):
    config = short_config(*ON_POLICY)
    key = make_job(config.model_copy(update={"sweep": "./x"})).key
    return {f"{key.rpartition('/')[0]}/r-s{seed}": config for seed in range(count)}


def begin(launcher, count):
    """Do what the command does; return the lines of the start and the keys."""
    configs = configs_of(count)
    assert launcher.prepare(configs) == []
    keys = [*configs]
    launcher.submitter.submit([{"job": key} | launcher.more_of(key) for key in keys])
    return launcher.start_machines(keys), keys


def described(launcher):
    """Return the newest fleet of a sweep as AWS describes it, and what its machines are."""
    found = find_fleets(launcher.project.name, sweep=launcher.place)
    ec2 = aws.client("ec2")
    raw = next(f for f in ec2.describe_fleets()["Fleets"] if f["FleetId"] == found[-1].id)
    spec = raw["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]
    versions = ec2.describe_launch_template_versions(
        LaunchTemplateId=spec["LaunchTemplateId"], Versions=[spec["Version"]]
    )
    return raw, versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]


def script_of(data):
    return base64.b64decode(data["UserData"]).decode()


def end_runs(launcher, keys):
    for key in keys:
        lease = RunLease(launcher.submitter.store, f"{launcher.sweep}/{key}", "worker")
        assert lease.claim({})
        lease.beat(FINISHED)


class TestStarting:
    def test_a_sweep_is_a_fleet_that_aws_keeps_at_its_size_until_its_time_is_up(self, sweep):
        launcher = sweep(max_hours=2)
        lines, _ = begin(launcher, 6)
        raw, _ = described(launcher)
        assert raw["Type"] == "maintain"
        assert raw["TargetCapacitySpecification"] == {
            "TotalTargetCapacity": 2,
            "DefaultTargetCapacityType": "spot",
        }
        assert raw["ExcessCapacityTerminationPolicy"] == "no-termination"
        assert raw["SpotOptions"]["AllocationStrategy"] == "price-capacity-optimized"
        assert raw["TerminateInstancesWithExpiration"]
        left = raw["ValidUntil"] - datetime.now(UTC)
        assert timedelta(hours=1.9) < left <= timedelta(hours=2)
        tags = {tag["Key"]: tag["Value"] for tag in raw["Tags"]}
        assert tags["Project"] == launcher.project.name
        assert tags["Sweep"] == launcher.place
        assert [tags["Launch"]] == launcher.launches.names()
        assert lines == [
            f"started {raw['FleetId']}: 2 Spot machines of c7a.xlarge, 4 runs at once on each, for "
            "2 hours at most"
        ]

    def test_every_zone_is_a_place_to_find_machines(self, sweep):
        launcher = sweep(families=["c7a", "m7a"])
        begin(launcher, 2)
        overrides = described(launcher)[0]["LaunchTemplateConfigs"][0]["Overrides"]
        kinds = {"c7a.large", "m7a.large"}
        assert {(each["InstanceType"], each["SubnetId"]) for each in overrides} == {
            (kind, subnet) for kind in kinds for subnet in launcher.project.subnets
        }

    def test_a_machine_is_safe_and_ends_when_it_is_shut_down(self, sweep):
        launcher = sweep()
        begin(launcher, 1)
        data = described(launcher)[1]
        assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
        assert data["MetadataOptions"]["HttpTokens"] == "required"
        assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"]
        assert data["BlockDeviceMappings"][0]["Ebs"]["DeleteOnTermination"]
        assert data["IamInstanceProfile"]["Arn"] == launcher.project.instance_profile
        assert data["SecurityGroupIds"] == [launcher.project.security_group]
        for tags in (each["Tags"] for each in data["TagSpecifications"]):
            found = {tag["Key"]: tag["Value"] for tag in tags}
            assert found["Project"] == launcher.project.name
            assert found["ManagedBy"] == "rlzoo-plus"
            assert found["Sweep"] == launcher.place

    def test_its_script_runs_the_worker_of_the_launch_in_the_projects_image(self, sweep):
        launcher = sweep()
        begin(launcher, 2)
        script = script_of(described(launcher)[1])
        launch = launcher.launches.names()[0]
        # c7a.large has two vCPUs for two runs.
        worker = f"worker {launcher.place} --slots 2 --launch {launch} --spot"
        assert f"{worker} --usd-per-hour 0.051320 --no-wait\n" in script
        assert f"--entrypoint rlzoo-plus {IMAGE})" in script
        assert f"leave-fleet {launcher.place} --project lab --launch {launch}" in script

    def test_runs_of_several_vcpus_get_larger_machines(self, sweep):
        launcher = sweep(threads=2, slots=4)
        begin(launcher, 5)
        assert launcher.types == {"c7a.2xlarge": 8}
        assert find_fleets("lab", sweep=launcher.place)[0].target == 2

    def test_with_a_budget_no_slot_is_paid_for_without_a_run(self, sweep):
        launcher = sweep(max_usd=5)
        begin(launcher, 3)
        found = find_fleets("lab", sweep=launcher.place)[0]
        assert (found.slots, found.target) == (1, 3)

    def test_with_a_budget_each_run_counts_its_whole_machine(self, sweep):
        launcher = sweep(max_usd=5, slots=4)
        begin(launcher, 4)
        # The last of four runs on a c7a.xlarge holds all of it.
        assert "--usd-per-hour 0.205280 " in script_of(described(launcher)[1])

    def test_on_demand_machines_watch_for_no_notice(self, sweep):
        launcher = sweep(spot=False)
        lines, _ = begin(launcher, 1)
        raw, data = described(launcher)
        assert raw["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "on-demand"
        assert "--spot" not in script_of(data)
        assert "1 on-demand machine of c7a.medium" in lines[0]

    def test_an_ami_of_the_user_needs_no_image(self, sweep):
        image = aws.client("ec2").describe_images(Filters=[_X86])["Images"][0]
        launcher = sweep(ami=image["ImageId"])
        begin(launcher, 1)
        data = described(launcher)[1]
        assert data["ImageId"] == image["ImageId"]
        assert data["BlockDeviceMappings"][0]["DeviceName"] == image["RootDeviceName"]
        assert "docker" not in script_of(data)

    def test_secrets_go_by_the_name_of_a_parameter(self, sweep):
        launcher = sweep(secrets={"WANDB_API_KEY": "/rlzoo/lab/wandb"})
        begin(launcher, 1)
        assert "--names /rlzoo/lab/wandb" in script_of(described(launcher)[1])


class TestMachinesThatAreThere:
    def test_a_fleet_that_is_large_enough_needs_no_second(self, sweep):
        launcher = sweep()
        _, keys = begin(launcher, 3)
        lines = launcher.start_machines(keys)
        assert lines == ["machines are started for all of these runs already"]
        assert len(find_fleets("lab", sweep=launcher.place)) == 1

    def test_more_runs_get_the_machines_that_are_missing(self, sweep):
        launcher = sweep(slots=1)
        begin(launcher, 2)
        more = sweep(slots=1)
        begin(more, 5)
        assert [each.target for each in find_fleets("lab", sweep=more.place)] == [2, 3]

    def test_runs_that_have_ended_need_no_machines(self, sweep):
        launcher = sweep(slots=1)
        _, keys = begin(launcher, 3)
        leave_fleet("lab", launcher.launches.names()[0])
        assert launcher.covered() == set()
        end_runs(launcher, keys[:1])
        assert launcher.covered() == set(keys)

    def test_on_demand_machines_are_started_beside_spot_machines_that_do_not_come(self, sweep):
        begin(sweep(), 2)
        launcher = sweep(spot=False)
        begin(launcher, 2)
        found = find_fleets("lab", sweep=launcher.place)
        assert [each.spot for each in found] == [True, False]

    def test_the_project_has_no_more_machines_than_it_may(self, sweep):
        launcher = sweep(slots=8)
        lines, _ = begin(launcher, 50)
        assert find_fleets("lab", sweep=launcher.place)[0].target == 4
        assert "4 Spot machines of c7a.2xlarge, for which there is room, of 7" in lines[0]
        again, _ = begin(sweep(slots=8), 50)
        assert again == ["4 machines at work; the project has room for no more"]

    def test_cancelling_ends_no_machine_that_still_sends(self, sweep):
        launcher = sweep(slots=1)
        begin(launcher, 2)
        assert launcher.stop_machines() == [
            "no more machines are started; 2 machines end by themselves"
        ]
        assert find_fleets("lab", sweep=launcher.place) == []
        assert launcher.stop_machines() == []

    def test_a_status_says_how_many_machines_there_are(self, sweep):
        launcher = sweep(slots=1)
        _, keys = begin(launcher, 2)
        fleet_id = find_fleets("lab", sweep=launcher.place)[0].id
        assert launcher.explain(keys, launcher.place) == [f"{fleet_id}: 2 of 2 machines"]

    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ([], "AWS has given no reason yet"),
            (["There is no Spot capacity available"], "wait, add infra.families"),
            (["MaxSpotInstanceCountExceeded"], "the quota of vCPUs is used"),
        ],
    )
    def test_a_status_says_why_machines_are_missing(self, sweep, monkeypatch, said, expected):
        launcher = sweep(slots=1)
        _, keys = begin(launcher, 2)
        records = [
            {"Timestamp": datetime.now(UTC), "EventInformation": {"EventDescription": text}}
            for text in said
        ]
        history = {"HistoryRecords": records}
        ec2 = aws.client("ec2")
        monkeypatch.setattr(ec2, "describe_fleet_history", lambda **_: history, raising=False)
        whole = ec2.describe_fleets()
        for each in whole["Fleets"]:
            each["FulfilledCapacity"] = 1.0
        pages = SimpleNamespace(paginate=lambda: [whole])
        monkeypatch.setattr(ec2, "get_paginator", lambda _: pages)
        (line,) = launcher.explain(keys, launcher.place)
        assert ": 1 of 2 machines; " in line
        assert expected in line


class TestMistakes:
    @pytest.mark.parametrize(
        ("settings", "expected"),
        [
            ({"families": ["zz9"]}, "has no machines of 'zz9' with x86 processors. Families have"),
            ({"families": ["c7g"]}, "has no machines of 'c7g' with x86 processors"),
            ({"gpus": 1}, "infra.gpus: infra=ec2_spot has none. Take infra=aws_batch."),
            ({"slots": 500}, "the largest machine of c7a has 192. Lower infra.slots."),
            ({"slots": 33}, "may use 32 at once. Lower infra.slots or infra.vcpus, or raise"),
            (
                {"secrets": {"A": "/x"}},
                "infra.secrets.A must be the name of a parameter",
            ),
            (
                {"families": ["c4"], "max_usd": 1},
                "no price of c4.large in us-east-1 is known. Give it: RLZOO_PRICES=FILE",
            ),
            ({"ami": "ami-00000000"}, "cannot look for infra.ami=ami-00000000: InvalidAMIID"),
        ],
    )
    def test_each_is_one_line_and_starts_nothing(self, sweep, settings, expected):
        launcher = sweep(**settings)
        with pytest.raises(ConfigError) as caught:
            launcher.prepare(configs_of(5))
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)
        assert find_fleets("lab") == []
        assert launcher.submitter.keys() == set()

    def test_a_quota_of_nothing(self, sweep, monkeypatch):
        monkeypatch.setattr(quota, "vcpu_quota", lambda **kind: 0)
        with pytest.raises(ConfigError, match="this account may use 0 Spot vCPUs in us-east-1"):
            sweep().prepare(configs_of(1))

    def test_a_project_that_is_full(self, sweep):
        start_fleet("lab", "s3://elsewhere/x", "000001-0a1b2c3d", 16)
        with pytest.raises(ConfigError, match="use the 32 vCPUs that it may use at once"):
            sweep().prepare(configs_of(1))

    def test_a_public_image_is_noted_with_what_it_costs(self, sweep, monkeypatch):
        public = WorkerImage("python:3.11", ("python3", "-c", "x", "{}"), "it takes minutes")
        monkeypatch.setattr(fleet, "worker_image", lambda project: public)
        launcher = sweep()
        lines, _ = begin(launcher, 1)
        assert lines[0] == "it takes minutes"
        assert "docker commit setup" in script_of(described(launcher)[1])

    def test_what_aws_refuses_at_the_start_is_one_line(self, sweep, monkeypatch):
        from botocore.exceptions import ClientError

        launcher = sweep()
        launcher.prepare(configs_of(1))
        said = {"Error": {"Code": "UnauthorizedOperation", "Message": "You are not authorized"}}

        def refuse(**_):
            raise ClientError(said, "CreateFleet")

        monkeypatch.setattr(aws.client("ec2"), "create_fleet", refuse)
        with pytest.raises(ConfigError, match="an administrator attaches the policy"):
            begin(launcher, 1)


def test_a_launch_keeps_no_ami(sweep, project):
    launcher = sweep()
    begin(launcher, 1)
    kept = Launches(launcher.submitter.store, launcher.sweep).read(launcher.launches.names()[0])
    assert kept.infra["name"] == "ec2_spot"
    assert "ami" not in kept.infra


_X86 = {"Name": "architecture", "Values": ["x86_64"]}
