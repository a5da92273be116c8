import pytest
from omegaconf import OmegaConf

from rlzoo_plus.config.composer import plain_values
from rlzoo_plus.config.references import refuse_secrets, reveal, variables_in
from rlzoo_plus.errors import ConfigError


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    monkeypatch.setenv("API_TOKEN", "abcd-1234")
    monkeypatch.setenv("FOLDER", "/data")


def test_a_reference_to_a_secret_stays_and_others_are_read():
    cfg = OmegaConf.create({"t": "${oc.env:API_TOKEN}", "f": "${oc.env:FOLDER}/x", "l": "${t}/y"})
    assert plain_values(cfg) == {
        "t": "${oc.env:API_TOKEN}",
        "f": "/data/x",
        "l": "${oc.env:API_TOKEN}/y",
    }


def test_a_reference_under_the_name_of_a_secret_stays_whatever_the_variable_is_called():
    cfg = OmegaConf.create({"auth": {"user": "${oc.env:FOLDER}"}})
    assert plain_values(cfg) == {"auth": {"user": "${oc.env:FOLDER}"}}


def test_a_default_counts_where_the_variable_is_not_set():
    assert plain_values(OmegaConf.create({"token": "${oc.env:NOT_SET,null}"})) == {"token": None}


def test_the_resolver_is_as_it_was_afterwards():
    cfg = OmegaConf.create({"t": "${oc.env:API_TOKEN}"})
    plain_values(cfg)
    assert cfg.t == "abcd-1234"


@pytest.mark.parametrize(
    "key",
    ["a1" * 32, "01" * 32, "12" * 32, "ab" * 31, "mrUnR8mBbWmWJjTzCj3Vb5dZ1BAbfR0lWyvBo4J2q5s="],
)
def test_an_encryption_key_in_place_of_its_variable_is_refused_and_not_shown(key):
    for given in (key, f"'{key}'"):
        with pytest.raises(ConfigError, match="takes the NAME") as caught:
            refuse_secrets({"encryption": given})
        assert key not in str(caught.value)
    refuse_secrets({"encryption": "RUN_KEY"})
    refuse_secrets({"encryption": None})


def test_references_are_revealed_in_nested_data():
    data = {"a": ["x ${oc.env:API_TOKEN}", ("${oc.env:FOLDER}", 1)], "b": None}
    assert reveal(data, "env.kwargs") == {"a": ["x abcd-1234", ("/data", 1)], "b": None}
    assert variables_in(data) == ["API_TOKEN", "FOLDER"]


def test_a_variable_that_is_missing_is_named_with_its_key(monkeypatch):
    monkeypatch.delenv("API_TOKEN")
    with pytest.raises(ConfigError, match=r"env\.kwargs .* API_TOKEN, .* export API_TOKEN="):
        reveal({"t": "${oc.env:API_TOKEN}"}, "env.kwargs")


def test_a_configuration_is_searched_with_one_look_at_the_variables(monkeypatch):
    from rlzoo_plus.artifacts import secrets

    looks = []
    look = secrets.os.environ.items
    monkeypatch.setattr(secrets.os.environ, "items", lambda: (looks.append(1), look())[1])
    refuse_secrets({"env": {"kwargs": {f"key_{n}": "text" for n in range(50)}}})
    assert len(looks) == 1


def test_a_variable_that_is_set_later_is_found(monkeypatch):
    values = {"env": {"kwargs": {"a": "Zx81-qwerty"}}}
    refuse_secrets(values)
    monkeypatch.setenv("API_TOKEN", "Zx81-qwerty")
    with pytest.raises(ConfigError, match=r"env\.kwargs\.a holds a secret"):
        refuse_secrets(values)
