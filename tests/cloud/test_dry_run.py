"""A dry run's plan: runs, hours and dollars of a sweep that is not started, and nobody is asked."""

import re

import pytest
import yaml
from support.training import make_config

from rlzoo_plus.cloud import launch_plan as plan
from rlzoo_plus.cloud.launch_plan import plan_lines
from rlzoo_plus.cloud.prices import load_prices
from rlzoo_plus.cloud.settings import LARGEST_VCPUS, CloudSettings
from rlzoo_plus.cloud.template import template_path
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.estimate import JobTime

HOUR = JobTime(3000.0, 600.0)


@pytest.fixture(autouse=True)
def _no_settings_of_aws(monkeypatch):
    for name in ("RLZOO_PRICES", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)


def _lines(times, vcpus=1, **settings):
    configs = {f"run{number}": make_config() for number in range(len(times))}
    return plan_lines(configs, times, CloudSettings(**settings), vcpus, "AWS Batch")


def _dollars(lines, what):
    (line,) = (line for line in lines if line.startswith(what))
    return [float(text.replace(",", "")) for text in re.findall(r"\$([0-9.,]*[0-9])", line)]


def test_a_plan_tells_runs_vcpus_hours_and_dollars():
    text = "\n".join(_lines([HOUR] * 40, vcpus=2))
    assert "40 on AWS Batch, Spot machines of c7a, 2 vCPUs each; 32 at once" in text
    assert "1h00m a run, evaluations included, as fast as here; 40h00m in all, 2h00m" in text
    assert "of 2026-11-22 for us-east-1, from AWS's public price list" in text
    assert "Spot at 45% of on-demand is an estimate" in text
    assert "nothing was started, and nobody was asked" in text


def test_dollars_are_hours_times_the_price_of_vcpus_and_at_most_of_whole_machines():
    expected, highest = _dollars(_lines([HOUR] * 40, vcpus=2, attempts=1), "machines:")
    assert expected == pytest.approx(0.45 * 40 * 2 * 0.05132, abs=0.01)
    assert highest == pytest.approx(40 * 4 * 0.05132, abs=0.01)
    larger = _dollars(_lines([HOUR] * 40, vcpus=6, attempts=1), "machines:")
    assert larger[1] == pytest.approx(40 * 8 * 0.05132, abs=0.01)


def test_the_worst_case_has_all_interruptions():
    once = _dollars(_lines([HOUR] * 40, attempts=1), "machines:")
    often = _dollars(_lines([HOUR] * 40, attempts=10), "machines:")
    assert often[0] == once[0]
    # Nine times ten minutes more for each of 40 runs of an hour.
    assert often[1] == pytest.approx(2.5 * once[1], abs=0.02)


def test_on_demand_machines_are_expected_to_cost_their_highest_price():
    expected, highest = _dollars(_lines([HOUR] * 10, vcpus=4, spot=False), "machines:")
    assert expected == highest
    assert "estimate" not in "\n".join(_lines([HOUR] * 10, spot=False))


def test_a_cap_that_is_enough_is_told_with_the_share_of_a_run():
    lines = _lines([HOUR] * 10, max_usd=5)
    (cap,) = (line for line in lines if line.startswith("cap:"))
    assert "$5.00 for machines, $0.50 for each run" in cap
    assert "stop early" not in cap


def test_a_cap_that_is_too_low_says_how_many_runs_end_early_and_what_is_enough():
    lines = _lines([HOUR] * 10, max_usd=0.3)
    (cap,) = (line for line in lines if line.startswith("cap:"))
    assert "10 runs would stop early" in cap
    enough = float(cap.rpartition("=")[2].split()[0])
    (cap,) = (line for line in _lines([HOUR] * 10, max_usd=enough) if line.startswith("cap:"))
    assert "stop early" not in cap


def test_a_cap_is_told_without_what_was_spent_before():
    configs = {f"run{number}": make_config() for number in range(2)}
    spent = {"run0": 0.5, "ended": 1.5}
    lines = plan_lines(configs, [HOUR] * 2, CloudSettings(max_usd=4), 1, "EC2", spent)
    (cap,) = (line for line in lines if line.startswith("cap:"))
    assert "$4.00 for machines, of which $2.00 are spent, $1.00 for each run" in cap


def test_a_cap_that_pays_for_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"infra\.max_usd=0\.001 is too small"):
        _lines([HOUR] * 10, max_usd=0.001)


def test_the_dearest_of_several_families_decides_the_worst_case():
    lines = _lines([HOUR] * 100, families=["c6a", "m7a"], attempts=1)
    expected, highest = _dollars(lines, "machines:")
    assert highest == pytest.approx(100 * 4 * 0.05796, abs=0.01)
    assert expected == pytest.approx(100 * 0.45 * (0.03825 + 0.05796) / 2, abs=0.01)


def test_runs_that_cannot_be_measured_still_have_a_price():
    configs = {"run0": make_config()}
    lines = plan_lines(configs, [], CloudSettings(), 1, "EC2")
    assert any("an hour of a run is about $0.023, at most $0.21" in line for line in lines)


def test_prices_are_those_of_the_region_that_is_set(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    lines = _lines([HOUR] * 40, attempts=1)
    assert _dollars(lines, "machines:")[1] == pytest.approx(40 * 4 * 0.05132 * 1.142, abs=0.01)
    assert any("for eu-central-1" in line for line in lines)


def test_an_unknown_family_is_refused_in_a_line():
    with pytest.raises(ConfigError, match=r"unknown instance family 'c7b'\."):
        _lines([HOUR], families=["c7b"])


def test_the_plan_assumes_what_the_stack_has_by_default():
    text = re.sub(r"!(\w+)", "", template_path().read_text())
    parameters = yaml.safe_load(text)["Parameters"]
    assert parameters["Family"]["Default"] == plan.FAMILY
    assert parameters["MaxVcpus"]["Default"] == plan.PROJECT_VCPUS
    assert parameters["LargestVcpus"]["Default"] == LARGEST_VCPUS
    assert set(re.findall(r"VolumeSize: (\d+)", text)) == {str(plan.DISK_GB)}
    prices = load_prices()
    for family in parameters["Families"]["Default"].split(","):
        assert prices.usd_per_hour(family, 1).highest > 0
    assert prices.usd_per_hour(plan.GPU_FAMILY, 1, gpus=1).highest > 0
