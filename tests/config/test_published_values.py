"""The values of published agents, as ``benchmarks/published.py`` gives them, fit our configs."""

import pytest

from benchmarks.published import PUBLISHED, _has

AGENTS = pytest.mark.parametrize(
    "name", [name for name, score in PUBLISHED.items() if score.values is not None]
)


def _words(name: str) -> list[str]:
    algo, _, env = name.partition(":")
    return [f"algo={algo}", f"env={env}"]


@AGENTS
def test_an_agent_differs_from_the_shipped_values_by_what_is_said(name, compose_values):
    today, choices = compose_values(*_words(name))
    assert choices["tuned"] == name.replace(":", "/")
    assert not _has(today, PUBLISHED[name].values)
    for word in PUBLISHED[name].values:
        assert not _has(today, [word]), word


@AGENTS
def test_an_agent_s_values_are_recognised_in_its_configuration(name, compose_values):
    values, _ = compose_values(*_words(name), *PUBLISHED[name].values)
    assert _has(values, PUBLISHED[name].values)
