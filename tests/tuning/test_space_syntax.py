"""Search spaces: how a dimension is written, and what is refused."""

import pytest

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.dimensions import Kind, parse_entry
from rlzoo_plus.tuning.override_values import parse_override, same_value, value_text
from rlzoo_plus.tuning.space import Space


@pytest.mark.parametrize(
    ("text", "kind", "low", "high", "step", "log"),
    [
        ("interval(1e-5, 1e-2)", Kind.FLOAT, 1e-5, 1e-2, None, False),
        ("interval(1, 8)", Kind.INT, 1, 8, 1, False),
        ("interval(1, 8.0)", Kind.FLOAT, 1, 8, None, False),
        ("tag(log, interval(1e-4, 0.1))", Kind.FLOAT, 1e-4, 0.1, None, True),
        ("tag(log, interval(1, 100))", Kind.INT, 1, 100, 1, True),
        ("int(interval(1.0, 3.0))", Kind.INT, 1, 3, 1, False),
        ("range(8, 65, 8)", Kind.INT, 8, 64, 8, False),
        ("range(8, 64, 8)", Kind.INT, 8, 56, 8, False),
        ("range(4)", Kind.INT, 0, 3, 1, False),
        ("range(10, 0, -5)", Kind.INT, 5, 10, 5, False),
        ("range(0, 1, 0.25)", Kind.FLOAT, 0, 0.75, 0.25, False),
        ("range(0.1, 0.45, 0.1)", Kind.FLOAT, 0.1, 0.4, 0.1, False),
    ],
)
def test_numbers_are_drawn_from_what_is_written(text, kind, low, high, step, log):
    found = parse_entry("key", text)
    assert (found.kind, found.low, found.high, found.step) == (kind, low, high, step)
    assert found.log is log
    assert isinstance(found.low, int) is (kind is Kind.INT)


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("choice(a, b)", ("a", "b")),
        ("a,b", ("a", "b")),
        ("null,0.1,2", (None, 0.1, 2)),
        ("true,false", (True, False)),
        ("lin_3e-4,3e-4", ("lin_3e-4", 3e-4)),
        ("choice('1e-3', 'a, b')", ("1e-3", "a, b")),
        ("'1e-3',['true'],[x]", ("1e-3", ["true"], ["x"])),
        ("[64,64],[]", ([64, 64], [])),
        (
            "choice([64], {actor: [64, 64], critic: [256]})",
            ([64], {"actor": [64, 64], "critic": [256]}),
        ),
    ],
)
def test_choices_are_the_values_that_hydra_reads(text, choices):
    assert parse_entry("key", text).choices == choices


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, False, 0, -3, 1e-05, 0.1 + 0.2, -1e300, 10**20),
        *("relu", "auto_0.1", "lin_3e-4", "1e-3", "null", "true", "nan", "", "a b", "a,b", "it's"),
        *('say "x"', "back\\slash", "[1]", "{a: 1}", "a=b", "a:b", "-1", "choice(1,2)", "$HOME"),
        *([], [64, 64], [[1], ["a"]], ["1", 1, None], {}),
        *({"actor": [64], "critic": []}, {"type": "normal", "std": 0.1}, {"a": {"b": "1e-3"}}),
    ],
    ids=repr,
)
def test_a_value_comes_back_from_a_command_line(value):
    parsed = parse_override(f"key={value_text(value)}")
    assert not parsed.is_sweep_override()
    assert same_value(parsed.value(), value)
    assert type(parsed.value()) is type(value)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), object(), {1: 2}, "${seed}", {"a b": 1}]
)
def test_a_value_that_no_command_line_holds_is_refused(value):
    with pytest.raises(ValueError, match=r"\w"):
        value_text(value)


def test_true_is_not_one_but_one_is_one_point_zero():
    assert not same_value(True, 1)
    assert not same_value([0], [False])
    assert same_value({"a": [1]}, {"a": (1.0,)})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("0.5", "one value is no space"),
        (0.5, "one value is no space"),
        ([64, 64], "one value is no space"),
        ("[64,64]", "one value is no space"),
        ("interval(5, 1)", "the smaller one first"),
        ("interval(1, 1)", "the smaller one first"),
        ("interval(0.0, inf)", "finite"),
        ("interval(nan, 1)", "finite"),
        ("interval(1)", "hpo.space.key.a=interval"),
        ("interval(a, b)", "hpo.space.key.a=interval"),
        ("intervall(1, 2)", "Unknown function 'intervall'"),
        ("range(5, 5)", "is empty"),
        ("range(0, 5, 0)", "a step other than 0"),
        ("choice()", "empty choice"),
        ("choice(null, 1)", "takes no null. Write the values without it: null,0.1"),
        ("choice(1, true)", "equals another value"),
        ("choice([1], '[1]')", "equals another value"),
        ("choice('${a}', b)", "interpolation"),
        ("shuffle(choice(1, 2))", "Leave shuffle out"),
        ("glob(*)", "Write the names"),
        ("tag(lgo, interval(1, 2))", "unknown tag 'lgo'. Did you mean 'log'"),
        ("tag(log, choice(1, 2))", "tags are for interval and range"),
        ("tag(log, interval(0.0, 1.0))", "log needs numbers above 0"),
        ("tag(log, range(1, 10, 3))", "log does not go with a step"),
        ("tag(log, range(1.0, 10.0))", "log does not go with a step"),
        ("tag(log, pow2, range(1, 5))", "logarithmic without log"),
        ("tag(pow2, interval(0.0, 5.0))", "whole exponents"),
        ("tag(pow2, range(0, 99))", "whole exponents"),
        ("tag(pow2, one_minus, range(0, 5))", "pow2 and one_minus do not go together"),
        ("tag(one_minus, interval(0, 1))", "one_minus needs fractions"),
        ({"space": "1,2", "wehn": {}}, "unknown part .* 'wehn'. Did you mean 'when'"),
        ({"when": {"a": 1}}, "has no space"),
        ({"space": "1,2", "when": "use_sde"}, "must be a mapping"),
        ({"space": "1,2", "at_most": "a * b"}, "at_most is for numbers"),
        ({"space": "interval(1, 2)", "at_most": "a + b"}, "with \\* and / between them"),
        ({"space": "interval(1, 2)", "at_most": "a *"}, "with \\* and / between them"),
        (
            {"space": "tag(one_minus, interval(0.1, 0.2))", "at_most": "a"},
            "does not go with one_minus",
        ),
    ],
    ids=str,
)
def test_a_mistake_names_key_value_and_rule(entry, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Space.parse({"key.a": entry})
    assert "hpo.space.key.a" in str(caught.value)


@pytest.mark.parametrize("key", ["seed", "hpo.n_trials", "infra.workers", "hydra.job.name"])
def test_what_a_study_does_not_search_for_is_refused(key):
    with pytest.raises(ConfigError, match="a study does not search for"):
        Space.parse({key: "1,2"})


def test_several_seeds_are_hinted_at():
    with pytest.raises(ConfigError, match=r"hpo\.seeds"):
        Space.parse({}).with_overrides(["seed=1,2"])
