import pytest

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.run_dir import FAILED, RunDir
from rlzoo_plus.artifacts.secrets import is_secret, is_secret_name, is_secret_variable, redact

VALUE = "Zx81-qwerty"


@pytest.mark.parametrize(
    "name",
    [
        "api_token",
        "dbPassword",
        "auth",
        "pwd",
        "API_KEY",
        "apiKey",
        "tokens",
        "my-secret",
        "apikey",
    ],
)
def test_a_name_that_says_secret_is_one(name):
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["key", "obs_key", "keyboard", "author", "tokenizer", "monkey"])
def test_a_name_that_only_looks_like_one_is_none(name):
    assert not is_secret_name(name)


def test_a_key_is_a_secret_among_variables_and_the_working_directory_is_none():
    assert is_secret_variable("KEY")
    assert is_secret_variable("SERVICE_KEY")
    assert not is_secret_variable("PWD")


@pytest.mark.parametrize(
    "text",
    [
        f"export KEY={VALUE}",
        f"infra.setup=[export KEY={VALUE}]",
        f'env.kwargs={{"api_key": {VALUE}}}',
        f"env.kwargs={{a: {{token: {VALUE}}}}}",
        f"env.kwargs.url=http://user:{VALUE}@host/path",
        f"env.kwargs.auth={VALUE}",
        f"env.kwargs.dsn=Server=host;Pwd={VALUE};Port=1",
        f"Authorization: Bearer {VALUE}",
        f"+api_key = '{VALUE}'",
        f"{{auth: {{user: a, value: {VALUE}}}}}",
        f"password={VALUE} and more",
    ],
)
def test_a_secret_is_blanked_by_the_name_beside_it(text):
    assert VALUE not in redact(text)
    assert VALUE not in command_line([text])
    assert "***" in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "ghp_0123456789abcdefghij0123456789abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "sk-abcdefghijklmnopqrstuv123",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQ\nIBADAN\n-----END PRIVATE KEY-----",
    ],
)
def test_a_token_of_a_known_form_is_blanked_without_a_name(text):
    assert redact(f"x={text}") not in (f"x={text}", "")
    assert text.split("\n")[0][-8:] not in redact(f"x={text}") or "MIIEvQ" in text
    assert "MIIEvQ" not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "algo.hyperparams.key=3",
        "env.kwargs.n_token=3",
        "env.kwargs.api_token=${oc.env:API_TOKEN}",
        "http://user:${oc.env:DB_PASSWORD}@host",
        "export API_KEY=$OTHER",
        "x.urdf is not XML: unclosed token: line 1, column 0",
        "must be KEY=VALUE, e.g. n_timesteps=200000",
        "Set it: export API_TOKEN=...",
        "token = tokenizer.next()",
        "env.kwargs.path=//share/a:b/c",
        "KeyError: 'token'",
        "run_dir=outputs/cartpole_bullet/ppo",
        "hpo.storage=postgresql://me@host/db",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text) == text


def test_the_value_of_a_secret_variable_is_blanked_wherever_it_stands(monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", VALUE)
    assert redact(f"host refused {VALUE}.") == "host refused ***."
    monkeypatch.setenv("SERVICE_KEY", "default")
    assert redact("sweep=default") == "sweep=default"


def test_a_number_is_a_secret_under_a_password_only():
    assert is_secret("env.kwargs.password", 123456)
    assert not is_secret("env.kwargs.token", 3)
    assert not is_secret("env.kwargs.password", True)


def test_what_a_run_records_of_an_error_or_a_diff_has_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("SERVICE_KEY", VALUE)
    run = RunDir(tmp_path)
    run.start({}, "train", {"git": {"diff": f"+password: {VALUE}\n+x = '{VALUE}'"}})
    run.write_status(FAILED, message=f"ConnectionError: {VALUE} refused")
    run.write_result({"reason": f"{VALUE}"})
    for file in tmp_path.iterdir():
        assert VALUE not in file.read_text()
    assert run.read_status()["message"] == "ConnectionError: *** refused"
