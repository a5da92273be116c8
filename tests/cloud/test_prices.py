"""The table of prices: the shipped one, one's own, and what is no table of prices."""

import pytest

from rlzoo_plus.cloud.prices import Prices, load_prices
from rlzoo_plus.errors import ConfigError


@pytest.fixture
def prices(monkeypatch) -> Prices:
    monkeypatch.delenv("RLZOO_PRICES", raising=False)
    return load_prices()


@pytest.fixture
def own_prices(tmp_path, monkeypatch):
    """Returns the prices that the text of one's own file makes."""

    def load(text: str) -> Prices:
        file = tmp_path / "mine.yaml"
        file.write_text(text)
        # A name of its own for each text: what was read is not read again.
        file = file.rename(tmp_path / f"{abs(hash(text))}.yaml")
        monkeypatch.setenv("RLZOO_PRICES", str(file))
        return load_prices()

    return load


def test_all_sizes_of_a_family_cost_the_same_per_vcpu(prices):
    assert prices.usd_per_hour("c7a", 4, spot=False).highest == pytest.approx(0.20528)
    assert prices.usd_per_hour("c7a.4xlarge", 16, spot=False).highest == pytest.approx(0.82112)


def test_on_demand_machines_cost_exactly_what_is_expected(prices):
    price = prices.usd_per_hour("c7a", 2, spot=False)
    assert price.expected == price.highest


@pytest.mark.parametrize("bid", [20, 60, 100])
def test_spot_machines_cost_at_most_the_bid(prices, bid):
    price = prices.usd_per_hour("c7a", 2, bid=bid)
    assert price.highest == pytest.approx(0.10264 * bid / 100)
    assert 0 < price.expected <= price.highest


def test_a_bid_above_the_on_demand_price_costs_the_on_demand_price(prices):
    assert prices.usd_per_hour("c7a", 1, bid=150).highest == pytest.approx(0.05132)


def test_machines_with_gpus_cost_as_a_whole(prices):
    assert prices.usd_per_hour("g5", 4, gpus=1, spot=False).highest == pytest.approx(1.006)
    assert prices.usd_per_hour("g5", 8, gpus=1, spot=False).highest == pytest.approx(1.212)
    assert prices.usd_per_hour("g5", 4, gpus=2, spot=False).highest == pytest.approx(5.672)


def test_other_regions_have_other_prices(prices):
    here = prices.usd_per_hour("c7a", 1).highest
    assert prices.usd_per_hour("c7a", 1, region="eu-central-1").highest > here
    assert prices.usd_per_hour("c7a", 1, region="us-west-2").highest == here
    # What costs 1.142 times as much for one family does not for every other one.
    with pytest.raises(ConfigError, match=r"no price of m7a is known in region 'eu-central-1'"):
        prices.usd_per_hour("m7a", 1, region="eu-central-1")


@pytest.mark.parametrize(
    ("family", "gpus", "said"),
    [
        ("c7aa", 0, "Did you mean 'c7a'?"),
        ("c7a", 1, "have no GPU"),
        ("g6", 9, "the largest has 192 and 8"),
    ],
)
def test_what_has_no_price_is_refused_with_a_mend(prices, family, gpus, said):
    with pytest.raises(ConfigError, match=said):
        prices.usd_per_hour(family, 4, gpus=gpus)


def test_an_unknown_region_has_no_price(prices):
    with pytest.raises(ConfigError, match=r"'mars-1'.*RLZOO_PRICES"):
        prices.usd_per_hour("c7a", 1, region="mars-1")
    assert prices.known_usd_per_hour("c7a.large", 2, region="mars-1") is None


def test_a_whole_machine_of_an_unknown_kind_has_no_price(prices):
    assert prices.known_usd_per_hour("z9.large", 2) is None
    found = prices.known_usd_per_hour("g4dn.xlarge", 4, spot=False)
    assert found is not None
    assert found.highest == pytest.approx(0.526)


def test_own_prices_take_the_place_of_shipped_ones(prices, own_prices):
    mine = own_prices("on_demand: {c7a: 0.01, c9x: 0.5}\nspot_share: 0.3\n")
    assert mine.on_demand["c7a"] == 0.01
    assert mine.usd_per_hour("c9x", 2, spot=False).highest == 1.0
    assert mine.usd_per_hour("c9x", 2).expected == pytest.approx(0.3)
    assert mine.on_demand["c6i"] == prices.on_demand["c6i"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("on_demand: {c7a: -1}", r"on_demand\.c7a"),
        ("on_demand: {c7a: .nan}", r"on_demand\.c7a"),
        ("spot_share: 2", "spot_share"),
        ("spot_shares: 0.5", "spot_shares"),
        ("- c7a", "no table of prices"),
        ("a: !!python/object:os.system {}", "cannot be read"),
        ("a: [", "cannot be read"),
    ],
)
def test_what_is_no_table_of_prices_is_refused_in_a_line(own_prices, text, said):
    with pytest.raises(ConfigError, match=said) as refused:
        own_prices(text)
    assert "\n" not in str(refused.value)
