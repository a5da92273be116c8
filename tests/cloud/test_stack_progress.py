"""What deploying says and raises, on a CloudFormation that takes its time, which moto does not."""

import pytest

from rlzoo_plus.cloud import aws, stack
from rlzoo_plus.cloud.stack import deploy, remove
from rlzoo_plus.errors import ConfigError

ID = "arn:aws:cloudformation:us-east-1:1:stack/rlzoo-lab/0"


class SlowCloudFormation:
    """Answers with one state after another; each look sees one more event."""

    def __init__(self, before, states, events):
        self.before, self.states, self.events = before, list(states), events
        self.n_seen, self.begun, self.requests = 0, False, []

    def describe_stacks(self, StackName):  # noqa: N803
        if not self.begun:
            if self.before is None:
                from botocore.exceptions import ClientError

                text = f"Stack with id {StackName} does not exist"
                raise ClientError({"Error": {"Code": "ValidationError", "Message": text}}, "x")
            return {"Stacks": [self.before]}
        self.n_seen += 1
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return {"Stacks": [{"StackStatus": state, "StackId": ID}]}

    def create_stack(self, **request):
        return self._begin("create", request)

    def update_stack(self, **request):
        return self._begin("update", request)

    def delete_stack(self, **request):
        return self._begin("delete", request)

    def describe_stack_events(self, StackName):  # noqa: N803
        return {"StackEvents": [_event("old", "Old", "CREATE_COMPLETE")]}

    def get_paginator(self, _):
        return self

    def paginate(self, StackName):  # noqa: N803
        new = self.events[: self.n_seen][::-1]
        old = [] if self.before is None else [_event("old", "Old", "CREATE_COMPLETE")]
        yield {"StackEvents": [*new, *old]}

    def _begin(self, verb, request):
        self.begun = True
        self.requests.append((verb, request))
        return {"StackId": ID}


def _event(number, name, status, reason=""):
    return {
        "EventId": number,
        "LogicalResourceId": name,
        "PhysicalResourceId": name,
        "StackId": ID,
        "ResourceType": "AWS::S3::Bucket",
        "ResourceStatus": status,
        "ResourceStatusReason": reason,
    }


@pytest.fixture
def pretend(monkeypatch):
    """Return a function that puts a slow CloudFormation into place."""
    pytest.importorskip("botocore", reason="needs the extra aws")

    def put(before, states, events=()):
        service = SlowCloudFormation(before, states, list(events))
        monkeypatch.setattr(aws, "client", lambda name: service)
        monkeypatch.setattr(stack, "_LOOK_S", 0.0)
        return service

    return put


def _stack(status, **parameters):
    given = [{"ParameterKey": k, "ParameterValue": v} for k, v in parameters.items()]
    return {"StackStatus": status, "StackId": ID, "Parameters": given}


def test_each_resource_is_told_once_and_old_events_never(pretend):
    events = [
        _event("1", "Bucket", "UPDATE_IN_PROGRESS"),
        _event("2", "Bucket", "UPDATE_COMPLETE"),
        _event("3", "Logs", "CREATE_COMPLETE"),
    ]
    states = ["UPDATE_IN_PROGRESS"] * 3 + ["UPDATE_COMPLETE"]
    pretend(_stack("CREATE_COMPLETE"), states, events)
    told = []
    assert deploy("lab", {}, told.append)
    assert told == ["  updated Bucket", "  made    Logs"]


def test_failed_deployment_names_the_cause_and_not_what_was_cancelled(pretend):
    events = [
        _event("1", "SpotMachines", "CREATE_FAILED", "no such\nfamily"),
        _event("2", "Bucket", "CREATE_FAILED", "Resource creation cancelled"),
    ]
    pretend(None, ["CREATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "DELETE_COMPLETE"], events)
    told = []
    with pytest.raises(ConfigError) as error:
        deploy("lab", {}, told.append)
    cause = "SpotMachines (AWS::S3::Bucket): no such family"
    assert str(error.value) == f"the stack of project 'lab' was not made: {cause}"
    assert told == [f"  failed  {cause}"]


def test_new_stack_is_tagged_and_leaves_nothing_behind_if_it_fails(pretend):
    service = pretend(None, ["CREATE_COMPLETE"])
    deploy("lab", {"Family": "c6a"}, print)
    ((verb, request),) = service.requests
    assert (verb, request["OnFailure"], request["StackName"]) == ("create", "DELETE", "rlzoo-lab")
    assert {"Key": "Project", "Value": "lab"} in request["Tags"]
    assert {"Key": "ManagedBy", "Value": "rlzoo-plus"} in request["Tags"]
    assert request["Parameters"] == [{"ParameterKey": "Family", "ParameterValue": "c6a"}]


def test_update_keeps_values_of_parameters_that_still_exist(pretend):
    before = _stack("UPDATE_COMPLETE", Family="c7a", MaxVcpus="8", OfAnOldVersion="1")
    service = pretend(before, ["UPDATE_COMPLETE"])
    deploy("lab", {"Family": "c6a"}, print)
    ((verb, request),) = service.requests
    assert (verb, request["Parameters"]) == (
        "update",
        [
            {"ParameterKey": "Family", "ParameterValue": "c6a"},
            {"ParameterKey": "MaxVcpus", "ParameterValue": "8"},
        ],
    )


def test_update_without_a_change_is_no_mistake(pretend, monkeypatch):
    from botocore.exceptions import ClientError

    def refuse(**_):
        text = "No updates are to be performed."
        raise ClientError({"Error": {"Code": "ValidationError", "Message": text}}, "UpdateStack")

    service = pretend(_stack("CREATE_COMPLETE"), ["CREATE_COMPLETE"])
    monkeypatch.setattr(service, "update_stack", refuse)
    assert not deploy("lab", {}, print)


@pytest.mark.parametrize("act", [lambda: deploy("lab", {}, print), lambda: remove("lab", print)])
def test_stack_that_somebody_changes_is_left_alone(pretend, act):
    service = pretend(_stack("UPDATE_IN_PROGRESS"), ["UPDATE_IN_PROGRESS"])
    with pytest.raises(ConfigError, match="somebody is changing it"):
        act()
    assert service.requests == []


def test_stack_that_never_was_whole_is_removed_first(pretend):
    service = pretend(_stack("ROLLBACK_COMPLETE", Family="c7a"), ["DELETE_COMPLETE"])
    with pytest.raises(ConfigError, match="was not made"):
        # Every later state of this one is DELETE_COMPLETE.
        deploy("lab", {}, print)
    assert [verb for verb, _ in service.requests] == ["delete", "create"]


def test_stack_that_cannot_be_deleted_says_what_is_in_the_way(pretend):
    events = [_event("1", "SecurityGroup", "DELETE_FAILED", "has a dependent object")]
    pretend(_stack("CREATE_COMPLETE"), ["DELETE_FAILED"], events)
    with pytest.raises(ConfigError, match=r"not deleted: SecurityGroup .*has a dependent object"):
        remove("lab", print)
