"""An account of AWS on moto, empty or with a project whose stack is the real one.

moto knows no `DeletionPolicy: RetainExceptOnCreate`, which stands as `Retain` here. It needs the
service-linked role of AWS Batch, and drops what tests/cloud/test_stack_text.py reads in the text.
"""

import contextlib
import json
import tempfile
import urllib.request
import warnings
from pathlib import Path

import pytest

REGION = "us-east-1"
NAME = "lab"
_BATCH_ROLE = "AWSServiceRoleForBatch"
_WITHOUT_DOCKER = {"batch": {"use_docker": False}}


@contextlib.contextmanager
def aws_account(monkeypatch, *, server=False):
    """Give AWS's settings an empty account; yields the endpoint of its server, None without one.

    Args:
        monkeypatch: Sets the settings.
        server: Serve it, for other processes; else it is in this process only, which is quicker.
    """
    pytest.importorskip("moto", reason="needs the extra dev")
    from moto import mock_aws
    from support.stores import shared_server

    from rlzoo_plus.cloud import aws

    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with contextlib.ExitStack() as stack:
        settings = {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "XDG_CONFIG_HOME": stack.enter_context(tempfile.TemporaryDirectory()),
        }
        endpoint = None
        if server:
            endpoint = settings["AWS_ENDPOINT_URL"] = shared_server()
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        if endpoint is None:
            stack.enter_context(mock_aws(config=_WITHOUT_DOCKER))
        else:
            ask_moto(endpoint, "reset")
            ask_moto(endpoint, "config", _WITHOUT_DOCKER)
        aws.forget_clients()
        stack.callback(aws.forget_clients)
        make_batch_role()
        template = Path(settings["XDG_CONFIG_HOME"]) / "stack.yaml"
        template.write_text(template_for_moto())
        monkeypatch.setattr("rlzoo_plus.cloud.stack.template_path", lambda: template)
        # moto has no such call.
        monkeypatch.setattr("rlzoo_plus.cloud.account.show_costs_by_project", lambda: False)
        # It says which resources it leaves out.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield endpoint


def ask_moto(endpoint, path, data=None):
    """Send JSON to moto's own interface, such as `reset`."""
    body = b"" if data is None else json.dumps(data).encode()
    headers = {"Content-Type": "application/json"}
    url = f"{endpoint}/moto-api/{path}"
    urllib.request.urlopen(urllib.request.Request(url, body, headers, method="POST")).close()


@contextlib.contextmanager
def deployed_project(monkeypatch, *, server=False, name=NAME, **parameters):
    """Deploy the stack of a project in an empty account; yields the `Project`.

    Args:
        monkeypatch: Sets AWS's settings and RLZOO_PROJECT.
        server: See `aws_account`.
        name: Of the project.
        parameters: Of the template, such as `GpuFamily="g6"`.
    """
    from rlzoo_plus.cloud.project import VARIABLE, read_project
    from rlzoo_plus.cloud.stack import deploy

    with aws_account(monkeypatch, server=server):
        vpc, subnets = default_network()
        values = {"Project": name, "VpcId": vpc, "SubnetIds": ",".join(subnets), **parameters}
        deploy(name, {key: str(value) for key, value in values.items()}, lambda _: None)
        monkeypatch.setenv(VARIABLE, name)
        yield read_project()


def template_for_moto():
    """Return aws/stack.yaml as moto understands it."""
    from rlzoo_plus.cloud.template import template_path

    return template_path().read_text().replace("RetainExceptOnCreate", "Retain")


def make_batch_role():
    """Make the service-linked role of AWS Batch; moto's own call gives it another name."""
    from rlzoo_plus.cloud import aws

    path = "/aws-service-role/batch.amazonaws.com/"
    iam = aws.client("iam")
    with contextlib.suppress(iam.exceptions.EntityAlreadyExistsException):
        iam.create_role(Path=path, RoleName=_BATCH_ROLE, AssumeRolePolicyDocument="{}")


def detach_policies():
    """Detach all managed policies from roles: moto deletes no stack whose policies name roles."""
    from rlzoo_plus.cloud import aws

    iam = aws.client("iam")
    for policy in iam.list_policies(Scope="Local", OnlyAttached=True)["Policies"]:
        for role in iam.list_entities_for_policy(PolicyArn=policy["Arn"])["PolicyRoles"]:
            iam.detach_role_policy(RoleName=role["RoleName"], PolicyArn=policy["Arn"])


def default_network():
    """Return the id of the default VPC, and those of its subnets."""
    from rlzoo_plus.cloud import aws

    ec2 = aws.client("ec2")
    vpc = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]
    found = ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc["VpcId"]]}])
    return vpc["VpcId"], [subnet["SubnetId"] for subnet in found["Subnets"]]
