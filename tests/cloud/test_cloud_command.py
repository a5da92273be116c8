"""`rlzoo-plus cloud` on moto: deploy, use, status, destroy."""

import json
import sys

import pytest
from support.aws import NAME, aws_account, default_network, deployed_project, detach_policies

from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.project import project_tags, read_project

QUOTA = "rlzoo_plus.cloud.quota.vcpu_quota"
# One of those that moto has.
IMAGE = "ami-12c6146b"
DEPLOY = ("deploy", "--project", NAME, "--yes")


@pytest.fixture
def account(monkeypatch):
    """An empty account whose quota is 32 Spot vCPUs."""
    with aws_account(monkeypatch):
        monkeypatch.delenv("RLZOO_PROJECT", raising=False)
        monkeypatch.setattr(QUOTA, lambda *, spot, gpu=False: 32)
        yield


def _answer(monkeypatch, *answers):
    """Sit at a terminal and give answers; returns the questions that were asked."""
    left, asked = list(answers), []

    def reply(question):
        asked.append(question)
        return left.pop(0)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", reply)
    return asked


def _start_instance(project, tags, **more):
    spec = [{"Key": key, "Value": value} for key, value in tags.items()]
    started = aws.client("ec2").run_instances(
        ImageId=IMAGE,
        InstanceType="c7a.large",
        MinCount=1,
        MaxCount=1,
        SubnetId=project.subnets[0],
        TagSpecifications=[{"ResourceType": "instance", "Tags": spec}],
        **more,
    )
    return started["Instances"][0]["InstanceId"]


def test_deploy_makes_a_project_that_can_be_used_at_once(account, say):
    code, out, err = say("cloud", *DEPLOY)
    assert (code, err) == (0, "")
    project = read_project()
    assert (project.name, project.max_vcpus) == (NAME, 64)
    for word in (
        *("account 123456789012", "region us-east-1", "costs nothing while no job runs"),
        *("quota of Spot vCPUs: 32, fewer than 64", project.store, "UserPolicy", "Next: "),
    ):
        assert word in out
    assert "mail" not in out
    roles = aws.client("iam").list_roles()["Roles"]
    services = {role["Path"] for role in roles if role["Path"].startswith("/aws-service-role/")}
    for service in ("batch", "ecs", "spot", "ec2fleet"):
        assert f"/aws-service-role/{service}.amazonaws.com/" in services


def test_deploy_asks_at_a_terminal_and_takes_defaults_for_empty_answers(account, monkeypatch, say):
    asked = _answer(monkeypatch, "team", "8", "", "me@example.org", "y")
    code, out, _ = say("cloud", "deploy")
    assert code == 0
    words = ("project", "most vCPUs", "costs of a month", "who gets that mail", "Make project team")
    assert [question[: len(word)] for question, word in zip(asked, words, strict=True)] == [*words]
    assert (read_project().name, read_project().max_vcpus) == ("team", 8)
    assert "a mail to me@example.org at 80% of $50" in out
    assert "Bills do not know the tag Project yet" in out


@pytest.mark.parametrize("answer", ["n", "", "no"])
def test_deploy_makes_nothing_without_a_yes(account, monkeypatch, say, answer):
    _answer(monkeypatch, "64", "50", "", answer)
    code, _, err = say("cloud", "deploy", "--project", NAME)
    assert (code, err) == (2, "error: nothing was changed.\n")
    assert aws.client("cloudformation").describe_stacks()["Stacks"] == []


def test_deploy_asks_nothing_without_a_terminal(account, monkeypatch, say):
    monkeypatch.setattr("builtins.input", lambda _: pytest.fail("it asks"))
    assert "Add --project NAME" in say("cloud", "deploy")[2]
    assert "no terminal to ask at. Add --yes" in say("cloud", "deploy", "--project", NAME)[2]
    assert aws.client("cloudformation").describe_stacks()["Stacks"] == []


def test_a_first_deploy_that_broke_off_is_named_by_what_follows(account, monkeypatch, say):
    with monkeypatch.context() as patch:
        patch.setattr("rlzoo_plus.cloud.stack._follow", _break_off)
        assert say("cloud", *DEPLOY)[0] == 130
    assert f"project {NAME} in us-east-1: stack CREATE_COMPLETE" in say("cloud", "status")[1]
    assert say("cloud", "deploy", "--yes")[0] == 0
    # One that is in use stays so until another one is whole.
    with monkeypatch.context() as patch:
        patch.setattr("rlzoo_plus.cloud.stack._follow", _break_off)
        assert say("cloud", "deploy", "--project", "other", "--yes")[0] == 130
    assert read_project().name == NAME


def _break_off(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("state", "mend"),
    [
        ("CREATE_IN_PROGRESS", f"try again when `rlzoo-plus cloud status {NAME}` says"),
        ("ROLLBACK_COMPLETE", f"`rlzoo-plus cloud deploy --project {NAME}` mends it"),
        (None, f"Deploy it with `rlzoo-plus cloud deploy --project {NAME}`"),
    ],
)
def test_a_project_that_is_not_ready_is_told_with_a_command_that_leads_on(
    account, monkeypatch, say, state, mend
):
    stack = None if state is None else {"StackStatus": state}
    monkeypatch.setattr("rlzoo_plus.cloud.project.find_stack", lambda _: stack)
    code, _, err = say("cloud", "use", NAME)
    assert (code, mend in err) == (2, True), err


def test_deploy_says_how_large_machines_and_queues_are(account, say):
    code, out, _ = say("cloud", *DEPLOY, "--largest-vcpus", "8", "--gpu-family", "g6")
    assert code == 0
    assert "8 vCPUs; AWS may exceed a queue by one of them: 288 vCPUs in all at most" in out
    project = read_project()
    assert project.types == ("c7a.medium", "c7a.large", "c7a.xlarge", "c7a.2xlarge")
    assert project.gpu_types == ("g6.xlarge", "g6.2xlarge")
    assert {kind.partition(".")[2] for kind in project.wide_types} == {
        *("medium", "large", "xlarge", "2xlarge"),
    }
    # First the image, then a run.
    assert out.index("rlzoo-plus cloud build") < out.index("rlzoo-plus train")
    _, out, _ = say("cloud", "deploy", "--yes", "--max-vcpus", "2", "--gpu-family", "g6.12xlarge")
    assert "48 vCPUs; AWS may exceed a queue by one of them: 62 vCPUs in all at most" in out


@pytest.mark.slow
def test_deploy_again_updates_the_project_in_use(account, say):
    # That values are kept is tested in test_stack_progress.py; moto forgets them.
    say("cloud", *DEPLOY)
    code, out, _ = say("cloud", "deploy", "--yes", "--bid-percentage", "60")
    assert (code, "updates project lab" in out) == (0, True)
    assert read_project().bid_percentage == 60


@pytest.mark.parametrize(
    ("given", "mend"),
    [
        (("--family", "c9z"), "no instance family 'c9z'. Choose another one"),
        (("--project", "My_Lab"), "Use 3 to 21 lower-case letters"),
        (("--subnets", "subnet-0"), "cannot look for the network of the machines"),
    ],
)
def test_each_mistake_is_one_line_and_makes_nothing(account, say, given, mend):
    code, _, err = say("cloud", *DEPLOY, *given)
    assert (code, err.count("\n")) == (2, 1)
    assert mend in err
    assert aws.client("cloudformation").describe_stacks()["Stacks"] == []


def test_deploy_without_a_default_network_says_how_to_make_one(account, say):
    for subnet in default_network()[1]:
        aws.client("ec2").delete_subnet(SubnetId=subnet)
    code, _, err = say("cloud", *DEPLOY)
    assert (code, "aws ec2 create-default-vpc" in err) == (2, True)


@pytest.mark.parametrize("verb", ["deploy", "use", "status", "destroy"])
def test_without_credentials_every_verb_says_how_to_get_some(account, monkeypatch, say, verb):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    aws.forget_clients()
    words = ["--project", NAME] if verb == "deploy" else [NAME]
    code, _, err = say("cloud", verb, *words)
    assert (code, err.count("\n"), "aws sso login" in err) == (2, 1, True)


def test_use_remembers_a_project_that_exists(monkeypatch, say):
    with deployed_project(monkeypatch) as project:
        monkeypatch.delenv("RLZOO_PROJECT")
        assert "no project is chosen" in say("cloud", "status")[2]
        assert "there is no project 'other'" in say("cloud", "use", "other")[2]
        assert "no project is chosen" in say("cloud", "status")[2]
        code, out, _ = say("cloud", "use", NAME)
        assert (code, project.store in out) == (0, True)
        assert read_project() == project


def test_status_shows_what_costs_with_dollars_a_day(monkeypatch, say):
    with deployed_project(monkeypatch) as project:
        ours = _start_instance(project, project_tags(NAME))
        _start_instance(project, {"Project": NAME})
        _start_instance(project, project_tags("lab-two"))
        code, out, _ = say("cloud", "status")
        data = json.loads(say("cloud", "status", "--json")[1])
    assert code == 0
    found = {item["kind"]: item for item in data["items"]}
    assert set(found) == {"instance", "bucket"}
    assert found["instance"]["name"] == ours
    # A c7a.large: $0.1026 an hour, and its address.
    assert 2.4 < found["instance"]["usd_per_day"] < 2.7
    assert f"${found['instance']['usd_per_day']:.2f} a day" in out
    assert f"project {NAME} in us-east-1: stack CREATE_COMPLETE" in out


def test_destroy_ends_all_of_the_project_and_leaves_the_bucket(monkeypatch, say):
    with deployed_project(monkeypatch) as project:
        ours = _start_instance(project, project_tags(NAME))
        others = _start_instance(project, project_tags("lab-two"))
        definition = aws.client("batch").register_job_definition(
            jobDefinitionName="rlzoo-lab-0",
            type="container",
            tags=project_tags(NAME),
            containerProperties={"image": "x", "command": [], "vcpus": 1, "memory": 64},
        )["jobDefinitionArn"]
        code, out, err = say("cloud", "destroy")
        assert (code, "Add --yes" in err) == (2, True)
        assert f"leaves the bucket {project.store[5:]}" in out
        assert _states(ours, others) == ["running", "running"]
        aws.client("iam").create_user(UserName="ada")
        (policy,) = [p for p in _policies() if "UserPolicy" in p]
        aws.client("iam").attach_user_policy(UserName="ada", PolicyArn=policy)
        detach_policies()
        code, out, err = say("cloud", "destroy", "--yes")
        assert (code, err) == (0, "")
        assert _states(ours, others) == ["terminated", "running"]
        assert aws.client("cloudformation").describe_stacks()["Stacks"] == []
        found = aws.client("batch").describe_job_definitions(jobDefinitions=[definition])
        assert [d["status"] for d in found["jobDefinitions"]] in ([], ["INACTIVE"])
        buckets = aws.client("s3").list_buckets()["Buckets"]
        assert [bucket["Name"] for bucket in buckets] == [project.store[5:]]
        assert "detached the project's policy from ada" in out
        attached = aws.client("iam").list_attached_user_policies(UserName="ada")
        assert attached["AttachedPolicies"] == []
        assert f"aws s3 rb --force {project.store}" in out
        assert "nothing to do" in say("cloud", "destroy", "--yes")[1]


def _policies():
    found = aws.client("iam").list_policies(Scope="Local")["Policies"]
    return [policy["Arn"] for policy in found]


def _states(*instances):
    ec2 = aws.client("ec2")
    found = [ec2.describe_instances(InstanceIds=[name])["Reservations"][0] for name in instances]
    return [group["Instances"][0]["State"]["Name"] for group in found]
