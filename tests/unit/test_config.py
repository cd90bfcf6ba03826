"""Where settings come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from server.config import Settings

KEY = "sk-secret-of-the-operator"


def test_a_secret_is_read_from_a_file_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SCRUBJAY_CHAT_API_KEY").write_text(f"{KEY}\n")
    (tmp_path / "SCRUBJAY_PEPPER").write_text("of the file")
    monkeypatch.setenv("SCRUBJAY_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("SCRUBJAY_PEPPER", "of the environment")
    settings = Settings()
    assert settings.chat_api_key.get_secret_value() == KEY
    assert settings.pepper.get_secret_value() == "of the environment"
    assert KEY not in repr(settings)


@pytest.mark.parametrize("place", ["missing", "file"])
def test_a_folder_of_secrets_that_is_none_is_said(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text(KEY)
    monkeypatch.setenv("SCRUBJAY_SECRETS_DIR", str(tmp_path / place))
    with pytest.raises(ValidationError, match="is no folder"):
        Settings()


def test_no_folder_of_secrets_is_not_this_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "SCRUBJAY_CHAT_API_KEY").write_text(KEY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRUBJAY_SECRETS_DIR", "")
    assert Settings().chat_api_key.get_secret_value() == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"TLS_CERT": "server.pem"}, "SCRUBJAY_TLS_CERT and SCRUBJAY_TLS_KEY go together"),
        ({"TLS_KEY": "server-key.pem"}, "SCRUBJAY_TLS_CERT and SCRUBJAY_TLS_KEY go together"),
        ({"TLS_CLIENT_CA": "ca.pem"}, "SCRUBJAY_TLS_CLIENT_CA needs SCRUBJAY_TLS_CERT"),
        ({"LISTEN": "0.0.0.0:7437"}, "give SCRUBJAY_TLS_CERT and SCRUBJAY_TLS_KEY"),
        ({"LISTEN": "memory.example.com:7437"}, "is reachable from other machines"),
    ],
)
def test_tls_is_whole_and_beyond_this_machine_it_is_needed(
    settings: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(f"SCRUBJAY_{name}", value)
    with pytest.raises(ValidationError, match=said):
        Settings()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0", "[::1]:0", "unix:socket"])
def test_this_machine_needs_no_tls(listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRUBJAY_LISTEN", listen)
    assert Settings().tls_cert is None
    monkeypatch.setenv("SCRUBJAY_LISTEN", "0.0.0.0:7437")
    monkeypatch.setenv("SCRUBJAY_INSECURE", "1")
    assert Settings().insecure


def test_embedders_are_named_once_each_that_of_new_tenants_first() -> None:
    named = "hash, openai:a/b-1/8,openai:large/3072@https://models.example.com/v1,lite"
    settings = Settings(embedder="lite", embedders=named, openai_api_key=SecretStr("secret"))
    own, elsewhere = "openai:a/b-1/8", "openai:large/3072@https://models.example.com/v1"
    assert settings.embedder_names() == ("lite", "hash", own, elsewhere)
    model, other = settings.openai_of(own), settings.openai_of(elsewhere)
    assert (model.base_url, model.name, model.dimension) == (settings.openai_base_url, "a/b-1", 8)
    assert (other.base_url, other.name, other.dimension) == ("https://models.example.com/v1", "large", 3072)
    assert model.api_key.get_secret_value() == "secret"
    assert other.api_key.get_secret_value() == ""  # it is for the endpoint that it was given for
    assert settings.openai_of("openai").name == settings.openai_model


@pytest.mark.parametrize(
    "wrong", ["bert", "openai:a", "openai:a/0", "openai:a/8@ftp://x", "openai:/8", "lite hash"]
)
def test_a_name_that_is_no_embedder_is_refused_with_those_that_are(wrong: str) -> None:
    with pytest.raises(ValidationError, match="openai:<model>/<dimension>"):
        Settings(embedders=wrong)
