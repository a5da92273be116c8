"""Who goes on from whom, what changes then, and that each decision outlives a kill."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.populations.breeding import Breeder
from rlzoo_plus.populations.mutation import Values, changed, wider_than
from rlzoo_plus.populations.population import DIVERGED, LOG, Population, Result
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.tuning.population_settings import PopulationSettings, read_settings
from rlzoo_plus.tuning.space import Space

SETTINGS = PopulationSettings(population=4, segments=3)
SPACE = Space.parse(
    {
        "algo.hyperparams.learning_rate": "tag(log, interval(1e-5, 1e-2))",
        "algo.hyperparams.batch_size": "tag(pow2, range(5, 10))",
        "algo.hyperparams.n_epochs": "range(3, 20)",
        "algo.hyperparams.ent_coef": "choice(auto, auto_0.1)",
        "network.net_arch": "choice([64,64],[256,256])",
    }
)
PARAMS = {
    "algo.hyperparams.learning_rate": 1e-3,
    "log2(algo.hyperparams.batch_size)": 7,
    "algo.hyperparams.n_epochs": 3,
    "algo.hyperparams.ent_coef": "auto",
    "network.net_arch": "[64,64]",
}
OVERRIDES = ("algo.hyperparams.ent_coef=auto", "network.net_arch=[64,64]")


def drawn(member, source, before, rng):
    rate = rng.uniform() if source is None else source["rate"] * 2
    return {"rate": rate}, [f"rate={rate}"]


def population(folder, settings=SETTINGS):
    return Population(folder, settings, 0, 1000, drawn)


def ends(people, task, score):
    people.record(Result(task.member, task.segment, task.run, 100 * task.segment, score))


def test_the_worst_goes_on_from_the_best_with_changed_values(tmp_path):
    people = population(tmp_path)
    tasks = [people.next_task(member) for member in range(4)]
    assert [task.run for task in tasks] == [f"members/00{member}/0" for member in range(4)]
    for task, score in zip(tasks, (10.0, 40.0, 30.0, 20.0), strict=True):
        ends(people, task, score)
    following = [people.next_task(member) for member in range(4)]
    worst = following[0]
    assert (worst.run, worst.parent, worst.parent_step) == ("members/000/1", "members/001/0", 100)
    assert worst.params == {"rate": tasks[1].params["rate"] * 2}
    for task in following[1:]:
        assert (task.parent, task.run) == (None, tasks[task.member].run)
        assert task.params == tasks[task.member].params


def test_nobody_waits_for_half_of_the_others_and_the_first_ones_go_on(tmp_path):
    people = population(tmp_path)
    tasks = [people.next_task(member) for member in range(4)]
    ends(people, tasks[0], 1.0)
    assert people.next_task(0).parent is None
    ends(people, tasks[1], 0.5)
    assert people.next_task(1).parent == "members/000/0"


def test_nobody_goes_on_from_one_that_has_ended(tmp_path):
    """Rollouts longer than a part: members come to the end in other parts."""
    people = population(tmp_path)
    tasks = [people.next_task(member) for member in range(4)]
    for task, score, step in zip(
        tasks, (10.0, 40.0, 30.0, 20.0), (100,) * 2 + (1000,) * 2, strict=True
    ):
        people.record(Result(task.member, 1, task.run, step, score))
    assert people.next_task(0).parent == "members/001/0"
    # The first one that is better and not at the end is none.
    (tmp_path / "other").mkdir()
    people = population(tmp_path / "other")
    tasks = [people.next_task(member) for member in range(4)]
    for task, score in zip(tasks, (10.0, 40.0, 30.0, 20.0), strict=True):
        people.record(Result(task.member, 1, task.run, 100 if score == 10 else 1000, score))
    following = people.next_task(0)
    assert (following.run, following.parent, following.segment) == ("members/000/0", None, 2)


def test_decisions_are_read_again_and_are_not_made_twice(tmp_path):
    people = population(tmp_path)
    for member in range(4):
        ends(people, people.next_task(member), float(member))
    following = [people.next_task(member) for member in range(4)]
    lines = (tmp_path / LOG).read_text()
    again = population(tmp_path)
    assert [again.next_task(member) for member in range(4)] == following
    assert (tmp_path / LOG).read_text() == lines
    # A kill cuts the last line: that decision is made again, the same one.
    (tmp_path / LOG).write_text(lines[:-20])
    cut = population(tmp_path)
    assert [cut.next_task(member) for member in range(4)] == following


def test_one_that_diverged_waits_for_one_to_go_on_from(tmp_path):
    people = population(tmp_path)
    tasks = [people.next_task(member) for member in range(4)]
    ends(people, tasks[0], DIVERGED)
    assert people.next_task(0) is None
    ends(people, tasks[2], 3.0)
    assert people.next_task(0).parent == "members/002/0"
    assert population(tmp_path).results[0, 1].score == -math.inf


def test_the_lineage_of_the_best_names_each_run_it_came_from(tmp_path):
    people = population(tmp_path)
    scores = {0: 5.0, 1: 40.0, 2: 30.0, 3: 20.0}
    for _ in range(3):
        for member in range(4):
            task = people.next_task(member)
            ends(people, task, 100.0 if task.segment == 3 and member == 0 else scores[member])
    assert all((member, 3) in people.results for member in range(4))
    assert people.next_task(0) is None
    best = people.best()
    runs = [task.run for task in people.lineage(best.run)]
    assert runs[0].endswith("/0")
    assert runs[-1] == best.run
    assert best.member == 0
    assert len(runs) >= 2


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_all_parts_are_trained_by_any_number_of_workers(tmp_path, slots):
    class Breeding(Breeder):
        def spec_of(self, job):
            return job

        def on_end(self, job, end, ran_s):
            ends(self.population, job, float(job.member))

    # All jobs of a round have ended by the next look.
    handle = SimpleNamespace(poll=lambda: JobEnd(0), kill=lambda: None, stop=lambda: None)
    launcher = SimpleNamespace(slots=slots, submit=lambda spec: handle)
    plan = SimpleNamespace(folder=tmp_path)
    members = SimpleNamespace(plan=plan, settings=SETTINGS, population=lambda: population(tmp_path))
    begun = []
    breeder = Breeding(members, launcher, lambda what, why: begun.append(why))
    assert breeder.run() == 0
    assert all((member, 3) in breeder.population.results for member in range(4))
    assert begun == ["begins"] * SETTINGS.population * SETTINGS.segments


@pytest.mark.parametrize(
    "change",
    [{"run": "../../elsewhere/0"}, {"parent": "members/0"}, {"overrides": [1]}, {"other": 1}],
)
def test_a_damaged_log_is_refused(tmp_path, change):
    people = population(tmp_path)
    people.next_task(0)
    record = json.loads((tmp_path / LOG).read_text())
    record["task"] |= change
    (tmp_path / LOG).write_text(json.dumps(record) + "\n")
    with pytest.raises(ConfigError, match="is damaged"):
        population(tmp_path)


def test_values_change_by_the_factor_and_stay_in_the_space():
    settings = PopulationSettings(redraw=0.0, factor=1.5)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = Values(0, changed(SPACE, PARAMS, OVERRIDES, settings, rng), rng)
        SPACE.draw(values, {})
        rate = values.params["algo.hyperparams.learning_rate"]
        assert rate == pytest.approx(1.5e-3) or rate == pytest.approx(1e-3 / 1.5)
        assert values.params["log2(algo.hyperparams.batch_size)"] in (6, 8)
        # The range begins at 3.
        assert values.params["algo.hyperparams.n_epochs"] in (3, 5)
        # The checkpoint holds what is learned of it, and the network.
        assert values.params["algo.hyperparams.ent_coef"] == "auto"
        assert values.params["network.net_arch"] == "[64,64]"


def test_values_are_drawn_anew_where_that_is_due():
    settings = PopulationSettings(redraw=1.0)
    rates = set()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        values = Values(0, changed(SPACE, PARAMS, OVERRIDES, settings, rng), rng)
        SPACE.draw(values, {})
        rates.add(values.params["algo.hyperparams.learning_rate"])
        assert values.params["network.net_arch"] == "[64,64]"
    assert len(rates) == 20
    assert all(1e-5 <= rate <= 1e-2 for rate in rates)


def test_networks_grow_where_that_is_asked_for_and_never_shrink():
    space = Space.parse({"network.net_arch": "null,[64],[64,64],[32,128],[128,128]"})
    dimension = space.dimensions[0]
    assert wider_than(dimension, "[64,64]") == ["[128,128]"]
    assert wider_than(dimension, "[32,128]") == ["[128,128]"]
    assert [wider_than(dimension, one) for one in (None, "[64]", "[128,128]", "?")] == [[]] * 4
    found = set()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        settings = PopulationSettings(grow=0.5)
        params = {"network.net_arch": "[64,64]"}
        found.add(changed(space, params, (), settings, rng)["network.net_arch"])
    assert found == {"[64,64]", "[128,128]"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"populaton": 4}, "populaton"),
        ({"population": 1}, "population=1: .*greater than or equal to 2"),
        ({"factor": "big"}, "factor=big: "),
    ],
)
def test_wrong_settings_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        read_settings(options)
