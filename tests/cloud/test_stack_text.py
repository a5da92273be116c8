"""What aws/stack.yaml says: moto drops much of it, and AWS itself is out of reach of tests."""

import fnmatch
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

import rlzoo_plus.cloud
from rlzoo_plus.cloud.project import Project, output_of, project_tags
from rlzoo_plus.cloud.template import template_path
from rlzoo_plus.config import search_path

CLOUD = Path(rlzoo_plus.cloud.__file__).parent
# Of AWS: bytes of a template that is sent in the request, characters of a managed policy.
LARGEST_TEMPLATE, LARGEST_POLICY = 51_200, 6_144
TAGS = [
    {"Key": "Project", "Value": {"Ref": "Project"}},
    {"Key": "ManagedBy", "Value": "rlzoo-plus"},
]
# What Batch or a fleet makes; all else has the tags of the stack.
MACHINES = ("SpotMachines", "WideMachines", "OnDemandMachines", "GpuMachines")
QUEUES = ("SpotQueue", "WideQueue", "OnDemandQueue", "GpuQueue")


@pytest.fixture(scope="module")
def template():
    """Return the template as data, without the positions that the linter needs."""
    pytest.importorskip("cfnlint", reason="needs the extra dev")
    from cfnlint.decode import cfn_yaml

    return json.loads(json.dumps(cfn_yaml.load(str(template_path()))))


@pytest.fixture(scope="module")
def resources(template):
    return {name: made.get("Properties", {}) for name, made in template["Resources"].items()}


def _statements(resources, name):
    return {s["Sid"]: s for s in resources[name]["PolicyDocument"]["Statement"]}


def test_template_has_no_finding_of_cfn_lint():
    api = pytest.importorskip("cfnlint.api", reason="needs the extra dev")
    assert api.lint_file(template_path()) == []


def test_template_is_small_enough_to_be_sent_in_a_request():
    assert template_path().stat().st_size < LARGEST_TEMPLATE


def test_bucket_is_private_encrypted_and_outlives_the_stack(template, resources):
    bucket = resources["Bucket"]
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    rule = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    kept = template["Resources"]["Bucket"]
    assert (kept["DeletionPolicy"], kept["UpdateReplacePolicy"]) == (
        "RetainExceptOnCreate",
        "Retain",
    )


def test_bucket_refuses_requests_without_tls(resources):
    (statement,) = resources["BucketPolicy"]["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == (
        *("Deny", "*"),
        "s3:*",
    )
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert len(statement["Resource"]) == 2


def test_lifecycle_removes_checkpoints_and_unfinished_uploads_only(resources):
    rules = {rule["Id"]: rule for rule in resources["Bucket"]["LifecycleConfiguration"]["Rules"]}
    assert rules["checkpoints"]["Prefix"] == "state/"
    assert rules["checkpoints"]["ExpirationInDays"] == {"Ref": "CheckpointDays"}
    assert rules["probes"]["Prefix"] == "live/probes/"
    removing = [rule["Prefix"] for rule in rules.values() if "ExpirationInDays" in rule]
    assert sorted(removing) == ["live/probes/", "state/"]
    assert rules["unfinished-uploads"]["AbortIncompleteMultipartUpload"] == {
        "DaysAfterInitiation": 2
    }


def test_images_are_scanned_and_their_tags_never_move(resources):
    repository = resources["ImageRepository"]
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    kept = json.loads(repository["LifecyclePolicy"]["LifecyclePolicyText"])
    assert kept["rules"][0]["action"] == {"type": "expire"}


def test_nothing_comes_in_and_only_https_goes_out(resources):
    group = resources["SecurityGroup"]
    assert "SecurityGroupIngress" not in group
    assert [(rule["FromPort"], rule["ToPort"]) for rule in group["SecurityGroupEgress"]] == [
        (443, 443)
    ]


@pytest.mark.parametrize("name", ["HostTemplate", "MachineTemplate"])
def test_machines_have_imds_v2_encrypted_disks_and_tags(resources, name):
    data = resources[name]["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpTokens"] == "required"
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 2
    assert all(disk["Ebs"]["Encrypted"] for disk in data["BlockDeviceMappings"])
    assert all(disk["Ebs"]["DeleteOnTermination"] for disk in data["BlockDeviceMappings"])
    tagged = {spec["ResourceType"]: spec["Tags"] for spec in data["TagSpecifications"]}
    assert tagged["volume"] == TAGS
    assert tagged.get("instance", TAGS) == TAGS


def test_hosts_of_batch_tell_containers_of_a_notice_and_give_them_110_seconds(resources):
    data = resources["HostTemplate"]["LaunchTemplateData"]["UserData"]["Fn::Base64"]
    # AWS Batch accepts user data in MIME parts only.
    assert data.startswith("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=")
    assert "ECS_ENABLE_SPOT_INSTANCE_DRAINING=true >> /etc/ecs/ecs.config" in data
    assert "ECS_CONTAINER_STOP_TIMEOUT=110s >> /etc/ecs/ecs.config" in data


def test_machines_of_a_fleet_end_when_they_shut_down(resources):
    data = resources["MachineTemplate"]["LaunchTemplateData"]
    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"


@pytest.mark.parametrize("name", MACHINES)
def test_compute_environments_shrink_to_nothing_and_are_tagged(resources, name):
    machines = resources[name]["ComputeResources"]
    assert machines["MinvCpus"] == 0
    assert machines["MaxvCpus"] == {"Ref": "MaxVcpus"}
    assert machines["Tags"] == {"Project": {"Ref": "Project"}, "ManagedBy": "rlzoo-plus"}
    assert ("BidPercentage" in machines) == (machines["Type"] == "SPOT")


def test_only_the_wide_environment_mixes_families(resources):
    types = {name: resources[name]["ComputeResources"]["InstanceTypes"] for name in MACHINES}
    assert types["SpotMachines"] == types["OnDemandMachines"]
    for name, parameter in (("Spot", "Types"), ("Wide", "WideTypes"), ("Gpu", "GpuTypes")):
        assert types[f"{name}Machines"] == {"Fn::Split": [",", {"Ref": parameter}]}
    assert resources["OnDemandMachines"]["ComputeResources"]["Type"] == "EC2"


def test_no_family_is_allowed_whose_machines_are_of_any_size(template):
    parameters = template["Parameters"]
    for types, family in (("Types", "Family"), ("WideTypes", "Families")):
        kinds = parameters[types]["Default"].split(",")
        assert {kind.partition(".")[2] for kind in kinds} <= {"medium", "large", "xlarge"}
        families = [kind.partition(".")[0] for kind in kinds]
        assert ",".join(dict.fromkeys(families)) == parameters[family]["Default"]
    assert parameters["LargestVcpus"]["Default"] == 4


def test_policies_of_one_project_allow_nothing_of_another_whose_name_it_begins(resources):
    """A wildcard follows a character that no project's name has."""
    policies = {
        name: made["PolicyDocument"] for name, made in resources.items() if "PolicyDocument" in made
    }
    wild = re.findall(r"\$\{Project\}(.)\*?", json.dumps(policies))
    assert wild
    assert not set(wild) & set("abcdefghijklmnopqrstuvwxyz0123456789-*")
    named = template_path().read_text().count("job-definition/rlzoo-${Project}_*")
    assert named == 1


@pytest.mark.parametrize("name", QUEUES)
def test_jobs_that_no_machine_fits_are_cancelled_with_the_reason(resources, name):
    actions = resources[name]["JobStateTimeLimitActions"]
    assert {action["Reason"] for action in actions} == {
        "MISCONFIGURATION:JOB_RESOURCE_REQUIREMENT",
        "MISCONFIGURATION:COMPUTE_ENVIRONMENT_MAX_RESOURCE",
    }
    assert all(a["State"] == "RUNNABLE" and a["Action"] == "CANCEL" for a in actions)
    assert all(600 <= action["MaxTimeSeconds"] <= 86_400 for action in actions)


def test_gpus_and_the_budget_exist_only_if_asked_for(template):
    made, parameters = template["Resources"], template["Parameters"]
    assert parameters["GpuFamily"]["Default"] == parameters["Email"]["Default"] == ""
    assert made["GpuMachines"]["Condition"] == made["GpuQueue"]["Condition"] == "HasGpus"
    assert made["Budget"]["Condition"] == "HasEmail"
    assert template["Outputs"]["GpuQueue"]["Condition"] == "HasGpus"


def test_no_policy_lets_anybody_delete_objects(template):
    text = template_path().read_text()
    assert "s3:Delete" not in text
    allowed = re.findall(r"\bs3:\w*\*", text)
    # Of the statement that denies.
    assert allowed == ["s3:*"]


def test_worker_may_read_what_was_submitted_and_write_runs_only(resources):
    found = _statements(resources, "WorkerAccess")
    assert set(found) == {"ListObjects", "ReadWhatWasSubmitted", "ReadAndWriteRuns"}
    written = [r["Fn::Sub"] for r in found["ReadAndWriteRuns"]["Resource"]]
    assert written == ["${Bucket.Arn}/runs/*", "${Bucket.Arn}/state/*", "${Bucket.Arn}/live/*"]
    assert found["ReadWhatWasSubmitted"]["Action"] == "s3:GetObject"
    assert resources["WorkerAccess"]["Roles"] == [{"Ref": "WorkerRole"}, {"Ref": "MachineRole"}]
    assert not {"Policies", "ManagedPolicyArns"} & set(resources["WorkerRole"])
    assert {"Ref": "WorkerRole"} not in resources["ContainerAccess"]["Roles"]


def test_secrets_are_those_below_the_path_of_the_project(resources):
    found = _statements(resources, "ContainerAccess")
    assert found["ReadSecrets"]["Action"] == "ssm:GetParameters"
    assert found["ReadSecrets"]["Resource"]["Fn::Sub"].endswith(":parameter/rlzoo/${Project}/*")
    condition = found["DecryptSecrets"]["Condition"]
    context = condition["StringLike"]["kms:EncryptionContext:PARAMETER_ARN"]["Fn::Sub"]
    assert context.endswith(":parameter/rlzoo/${Project}/*")


def test_machine_lowers_fleets_of_its_project_only_and_terminates_none(resources):
    found = _statements(resources, "FleetAccess")
    lowers = found["LowerFleetsOfTheProject"]
    assert sorted(lowers["Action"]) == ["ec2:DeleteFleets", "ec2:ModifyFleet"]
    assert set(lowers["Condition"]["StringEquals"]) == {
        f"aws:ResourceTag/{key}" for key in project_tags("lab")
    }
    assert sorted(found["SeeFleets"]["Action"]) == [
        "ec2:DescribeFleetInstances",
        "ec2:DescribeFleets",
    ]


def test_team_ends_only_what_has_the_tags_of_its_project(resources):
    found = _statements(resources, "UserPolicy")
    ends = found["EndWhatIsOfTheProject"]
    assert ends["Condition"]["StringEquals"] == {
        "aws:ResourceTag/Project": {"Ref": "Project"},
        "aws:ResourceTag/ManagedBy": "rlzoo-plus",
    }
    starts = found["StartMachinesOfTheTemplate"]["Condition"]["ArnEquals"]["ec2:LaunchTemplate"]
    assert starts["Fn::Sub"].endswith(":launch-template/${MachineTemplate}")
    roles = {role["Fn::GetAtt"][0] for role in found["GiveRolesToMachines"]["Resource"]}
    assert roles == {"WorkerRole", "ExecutionRole", "MachineRole"}


# What only `cloud deploy` and `cloud destroy` ask for; to ask who one is needs no permission.
OF_ADMINISTRATORS = {
    *("ce:UpdateCostAllocationTagsStatus", "cloudformation:CreateStack"),
    *("cloudformation:UpdateStack", "cloudformation:DeleteStack", "ec2:DescribeSubnets"),
    *("iam:GetRole", "iam:CreateServiceLinkedRole", "iam:ListEntitiesForPolicy"),
    *("iam:DetachUserPolicy", "iam:DetachGroupPolicy", "iam:DetachRolePolicy"),
    *("ec2:CreateDefaultVpc", "sts:GetCallerIdentity"),
}


def test_every_call_of_the_package_is_allowed_to_members(resources):
    calls = {call for file in CLOUD.glob("*.py") for call in _calls(file.read_text())}
    assert {"batch:SubmitJob", "ec2:CreateFleet", "ecr:DescribeImages"} <= calls
    patterns = _allowed(resources, "UserPolicy")
    denied = [c for c in calls if not any(fnmatch.fnmatchcase(c, p) for p in patterns)]
    assert set(denied) == OF_ADMINISTRATORS & calls


def test_every_command_of_aws_in_the_documentation_is_allowed_to_members(resources):
    pages = [file.read_text() for file in (CLOUD.parents[1] / "docs").glob("*.md")]
    pages += [file.read_text() for file in CLOUD.glob("*.py")]
    said = {
        found for page in pages for found in re.findall(r"\baws (ec2|ssm|batch) ([a-z-]+)", page)
    }
    assert ("ec2", "get-console-output") in said
    calls = {f"{service}:{verb.title().replace('-', '')}" for service, verb in said}
    patterns = _allowed(resources, "UserPolicy") | OF_ADMINISTRATORS
    assert [c for c in calls if not any(fnmatch.fnmatchcase(c, p) for p in patterns)] == []


def test_what_a_machine_asks_of_its_fleet_is_allowed_to_it():
    pytest.importorskip("boto3", reason="needs the extra aws")
    from rlzoo_plus.cloud import fleets

    source = inspect.getsource(fleets).partition("def why_waiting")[0]
    text = template_path().read_text().partition("FleetAccess:")[2].partition("MachineProfile:")[0]
    assert all(call in text for call in _calls(source))


def _allowed(resources, policy):
    actions = [s["Action"] for s in resources[policy]["PolicyDocument"]["Statement"]]
    return {action for each in actions for action in ([each] if isinstance(each, str) else each)}


def _calls(source):
    """Yield each call of AWS in Python code as its action in a policy: `ec2:DescribeFleets`."""
    import boto3
    from botocore import xform_name

    for service in sorted(set(re.findall(r'client\("([a-z0-9-]+)"\)', source))):
        model = boto3.client(service, region_name="us-east-1").meta.service_model
        for name in model.operation_names:
            if re.search(rf"""(\.|get_paginator\("){xform_name(name)}["(]""", source):
                yield f"{service.replace('-', '')}:{name}"


@pytest.mark.parametrize("name", ["WorkerAccess", "ContainerAccess", "FleetAccess", "UserPolicy"])
def test_policies_are_not_longer_than_aws_takes(resources, name):
    # Each reference is shorter than 60 characters.
    text = json.dumps(_filled(resources[name]["PolicyDocument"]))
    assert len(re.sub(r"\s", "", text)) < LARGEST_POLICY


def _filled(value):
    if isinstance(value, list):
        return [_filled(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and next(iter(value)) in ("Ref", "Fn::GetAtt", "Fn::If"):
        return "x" * 90
    if len(value) == 1 and "Fn::Sub" in value:
        return re.sub(r"\$\{[^}]*\}", "x" * 25, value["Fn::Sub"])
    return {key: _filled(item) for key, item in value.items()}


def test_outputs_are_all_that_a_project_is_read_from(template):
    read = {output_of(field.name) for field in fields(Project) if field.name != "name"}
    assert read <= set(template["Outputs"])


def test_template_is_in_the_wheel_and_found_beside_the_package():
    import tomllib

    root = template_path().parents[1]
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["aws"] == "rlzoo_plus/aws"


def test_template_of_an_installed_package_is_inside_it(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "rlzoo_plus"
    (package / "aws").mkdir(parents=True)
    (package / "aws" / "stack.yaml").write_text("Resources: {}")
    monkeypatch.setattr(search_path, "__file__", str(package / "config" / "search_path.py"))
    assert template_path() == package / "aws" / "stack.yaml"
