"""Fleets become smaller when their machines have nothing left to do, and only then."""

import pytest

pytest.importorskip("moto", reason="needs the extra dev")

from support.aws import aws_account
from support.fake_ec2 import start_fleet, with_modify_fleet

from rlzoo_plus.cloud import aws
from rlzoo_plus.cloud.fleets import delete_fleets, find_fleets, leave_fleet
from rlzoo_plus.commands import leave_fleet as command
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import FINISHED, RunLease
from rlzoo_plus.store.submissions import Submissions

SWEEP, LAUNCH = "s3://rlzoo-lab/first", "000001-0a1b2c3d"


@pytest.fixture(autouse=True)
def account(monkeypatch):
    with_modify_fleet(monkeypatch)
    with aws_account(monkeypatch):
        yield


def instances():
    pages = aws.client("ec2").describe_instances()["Reservations"]
    return [each["State"]["Name"] for page in pages for each in page["Instances"]]


def test_a_machine_that_leaves_makes_its_fleet_smaller_and_ends_no_other():
    start_fleet("lab", SWEEP, LAUNCH, 3)
    assert leave_fleet("lab", LAUNCH)
    assert [fleet.target for fleet in find_fleets("lab")] == [2]
    assert instances() == ["running"] * 3


def test_the_last_machine_deletes_the_fleet_and_ends_by_itself():
    start_fleet("lab", SWEEP, LAUNCH, 1)
    assert leave_fleet("lab", LAUNCH)
    assert find_fleets("lab") == []
    assert instances() == ["running"]


def test_a_machine_whose_fleet_is_gone_may_end():
    assert leave_fleet("lab", LAUNCH, n_open=5)


@pytest.mark.parametrize(("n_open", "may_end"), [(4, True), (5, False), (6, False)])
def test_a_machine_stays_while_all_machines_are_needed(n_open, may_end):
    # A machine died without a word, and its run is not free yet: this one came for it.
    start_fleet("lab", SWEEP, LAUNCH, 3, slots=2)
    assert leave_fleet("lab", LAUNCH, n_open) == may_end
    assert [fleet.target for fleet in find_fleets("lab")] == [2 if may_end else 3]


def test_machines_of_another_launch_count_for_what_is_needed():
    start_fleet("lab", SWEEP, LAUNCH, 1)
    start_fleet("lab", SWEEP, "000002-0a1b2c3d", 2, spot=False)
    assert leave_fleet("lab", LAUNCH, n_open=2)
    assert [(fleet.launch, fleet.spot) for fleet in find_fleets("lab")] == [
        ("000002-0a1b2c3d", False)
    ]


def test_fleets_of_other_projects_and_of_others_are_left_alone():
    start_fleet("other", SWEEP, LAUNCH, 2)
    assert leave_fleet("lab", LAUNCH)
    delete_fleets(find_fleets("lab", sweep=SWEEP))
    assert [fleet.target for fleet in find_fleets("other")] == [2]


def test_deleted_fleets_start_no_machines_and_end_none():
    start_fleet("lab", SWEEP, LAUNCH, 2)
    delete_fleets(find_fleets("lab", sweep=SWEEP))
    assert find_fleets("lab") == []
    assert instances() == ["running"] * 2


def test_what_aws_refuses_is_told(monkeypatch):
    start_fleet("lab", SWEEP, LAUNCH, 2)
    fleets = find_fleets("lab")
    error = {"Code": "unexpectedError", "Message": "try later"}
    said = {"UnsuccessfulFleetDeletions": [{"FleetId": fleets[0].id, "Error": error}]}
    monkeypatch.setattr(aws.client("ec2"), "delete_fleets", lambda **_: said)
    with pytest.raises(ConfigError, match=f"cannot delete fleet {fleets[0].id}: try later"):
        delete_fleets(fleets)


def test_the_command_looks_how_many_runs_are_left(tmp_path, capsys):
    store = open_store(str(tmp_path / "store"))
    Submissions(store, "first").add([{"job": "a"}, {"job": "b"}], {"version": "1"})
    sweep = f"{tmp_path / 'store'}/first"
    start_fleet("lab", sweep, LAUNCH, 2)
    words = [sweep, "--project", "lab", "--launch", LAUNCH]
    assert command.main([*words, "--unless-needed"]) == command.NEEDED
    assert "runs that have not ended: 2; this machine is needed" in capsys.readouterr().out
    lease = RunLease(store, "first/a", "worker")
    assert lease.claim({})
    lease.beat(FINISHED)
    assert command.main([*words, "--unless-needed"]) == 0
    assert command.main(words) == 0
    assert find_fleets("lab") == []
