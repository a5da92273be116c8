"""`train study=S trial=N`: the words of a trial, and what is not taken from a stranger."""

import pytest
from support.studies import add_trial, make_study, settings

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.stored_study import with_trial

pytestmark = pytest.mark.usefixtures("here")
BASE = ["algo=ppo", "env=cartpole_bullet", "n_timesteps=4096"]


@pytest.fixture
def study(tmp_path):
    study = make_study(tmp_path / "outputs" / "studies" / "first_one", base=BASE)
    add_trial(study, [1.0])
    return study


def drawn(study, number=0):
    return list(study.trials()[number].overrides)


def test_the_words_of_the_study_and_of_the_trial_take_the_place_of_its_name(study):
    assert with_trial(["study=first_one", "trial=0"]) == [*BASE, *drawn(study), "num_threads=1"]


def test_what_is_typed_beside_them_wins(study):
    typed = ["n_timesteps=10", "algo.hyperparams.gamma=0.5"]
    words = with_trial(["study=first_one", "trial=0", *typed])
    keys = ("n_timesteps=", "algo.hyperparams.gamma=")
    assert [word for word in words if word.startswith(keys)] == typed


def test_threads_of_the_study_stay(tmp_path):
    folder = tmp_path / "outputs" / "studies" / "t"
    add_trial(make_study(folder, base=[*BASE, "num_threads=2"]), [1.0])
    words = with_trial(["study=t", "trial=0"])
    assert "num_threads=2" in words
    assert "num_threads=1" not in words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study=first_one"], "belong together"),
        (["trial=0"], "belong together"),
        (["study=first_one", "trial=7"], "its trials are 0 to 0"),
        (["study=first_one", "trial=best"], "must be the number"),
        (["study=first_on", "trial=0"], "Did you mean .first_one."),
    ],
)
def test_mistakes_are_named(study, words, said):
    with pytest.raises(ConfigError, match=said):
        with_trial(words)


# tests/tuning/test_stored_overrides.py has all kinds of them.
@pytest.mark.parametrize("word", ["callbacks=[evil.Callback]", "run_dir=/etc", "--config-dir"])
def test_words_that_may_import_code_or_read_secrets_need_trust(tmp_path, word):
    add_trial(make_study(tmp_path / "outputs" / "studies" / "x", base=[*BASE, word]), [1.0])
    with pytest.raises(ConfigError, match="add --trust"):
        with_trial(["study=x", "trial=0"])
    words = with_trial(["study=x", "trial=0", "--trust"])
    assert word in words
    assert "--trust" not in words


def test_where_a_study_ran_is_no_part_of_its_trials(tmp_path):
    words = ["infra=slurm", "infra.setup=['touch /tmp/evil']", "infra.workers=2", "store=s3://b/x"]
    add_trial(make_study(tmp_path / "outputs" / "studies" / "i", base=[*BASE, *words]), [1.0])
    found = with_trial(["study=i", "trial=0"])
    assert not [word for word in found if word.startswith(("infra", "store"))]


def test_a_trial_that_only_waits_has_nothing_to_train(tmp_path):
    hpo = settings(sampler="random")
    study = make_study(tmp_path / "outputs" / "studies" / "w", hpo)
    study.enqueue({"algo.hyperparams.gamma": 0.95})
    with pytest.raises(ConfigError, match="no values"):
        with_trial(["study=w", "trial=0"])
