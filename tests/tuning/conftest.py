"""Studies in both kinds of storage, for tests that run no training."""

import pytest
from support.studies import settings as settings_of_study


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL server of this test process."""
    from support.postgres import running_server, why_not

    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with running_server() as server:
        yield server


@pytest.fixture(params=["journal", "postgresql"])
def storage_name(request):
    """The name of an empty storage, once of each kind."""
    if request.param == "journal":
        return "journal"
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture(scope="session")
def settings():
    """Return a function: some settings to those of a study, with the shipped ones beside."""
    return settings_of_study


@pytest.fixture
def open_study(tmp_path, storage_name, settings):
    """Return a function that opens the test's study, as another process would."""
    from rlzoo_plus.tuning.study import Study

    def open_it(about=None, grid=None, **changes):
        hpo = settings(**{"storage": storage_name, "heartbeat_s": 1, **changes})
        return Study.open("swing", tmp_path, hpo, about or {"base": []}, grid)

    return open_it
