"""The server's settings: read once, frozen. Each is an environment variable with the prefix SCRUBJAY_."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)

EMBEDDERS = ("lite", "e5", "openai", "hash")
_OPENAI = re.compile(r"openai:(?P<model>[^\s@]+)/(?P<dimension>[1-9]\d{0,3})(?:@(?P<url>https?://\S+))?")
LOOPBACK = ("127.", "localhost:", "[::1]:", "unix:")


@dataclass(frozen=True, slots=True)
class OpenAIModel:
    """An embedding model behind an OpenAI-compatible endpoint."""

    base_url: str
    name: str
    dimension: int
    api_key: SecretStr


class Settings(BaseSettings):
    """Where the server listens, keeps its data and finds its model."""

    model_config = SettingsConfigDict(env_prefix="SCRUBJAY_", frozen=True, env_ignore_empty=True)

    listen: str = Field(
        default="127.0.0.1:7437", description="Address and port to serve on; port 0 takes a free one."
    )
    tls_cert: Path | None = Field(
        default=None,
        description="PEM file of the server's certificate, and what leads to its authority. None: no TLS.",
    )
    tls_key: Path | None = Field(default=None, description="PEM file of its key, without a passphrase.")
    tls_client_ca: Path | None = Field(
        default=None,
        description="PEM file of authorities; clients must have a certificate of one. None: they need none.",
    )
    insecure: bool = Field(
        default=False, description="Serve without TLS beyond loopback: only behind a proxy that ends TLS."
    )
    data_dir: Path = Field(
        default=Path("data"), description="Folder of the SQLite files, the pepper and index snapshots."
    )
    shards: str = Field(
        default="", description="Database URLs of the shards, separated by commas. Empty: four SQLite files."
    )
    catalogue: str = Field(
        default="",
        description="Database URL of tenants and keys. Empty: the first PostgreSQL shard, or a SQLite file.",
    )
    pepper: SecretStr = Field(
        default=SecretStr(""),
        description="Secret that keys and page tokens are authenticated with. Empty: made once in data_dir.",
    )
    secrets_dir: Path | None = Field(
        default=None,
        description="Folder of secrets, each in a file named like its variable. The environment comes first.",
    )
    embedder: Literal["lite", "e5", "openai", "hash"] = Field(
        default="lite", description="The embedding model of new tenants."
    )
    embedders: str = Field(
        default="",
        description="Other embedding models, separated by commas, that made or shall make tenants' vectors: "
        "names as above, or openai:<model>/<dimension>, with @<endpoint> where it is another one.",
    )
    openai_base_url: str = Field(
        default="https://api.openai.com/v1", description="OpenAI-compatible endpoint for the embedder openai."
    )
    openai_api_key: SecretStr = Field(default=SecretStr(""), description="Its key; never logged.")
    openai_model: str = Field(default="text-embedding-3-small", description="Its embedding model.")
    openai_dimension: int = Field(
        default=1536, ge=1, le=8192, description="The dimension of that model's vectors."
    )
    chat_base_url: str = Field(
        default="https://api.openai.com/v1", description="OpenAI-compatible endpoint of the chat model."
    )
    chat_api_key: SecretStr = Field(default=SecretStr(""), description="Its key; never logged.")
    chat_model: str = Field(default="", description="The chat model. Empty: none.")
    chat_timeout_seconds: float = Field(
        default=60.0, gt=0, le=600, description="How long an answer of the chat model may take while writing."
    )
    rerank_url: str = Field(default="", description="URL of the reranking endpoint. Empty: none.")
    rerank_api: Literal["cohere", "jina", "tei"] = Field(
        default="cohere", description="What the reranking endpoint speaks."
    )
    rerank_api_key: SecretStr = Field(default=SecretStr(""), description="Its key; never logged.")
    rerank_model: str = Field(default="", description="Its model, where it has several.")
    handler_threads: int = Field(
        default=64,
        ge=2,
        le=1024,
        description="Calls of one tenant answered at once; of all together a quarter more. Most of them "
        "wait: for a commit, or for the model.",
    )
    queued_calls: int = Field(
        default=512,
        ge=0,
        description="Calls that may wait for their turn; where more come, those of the tenant with most are "
        "answered RESOURCE_EXHAUSTED.",
    )
    watch_streams: int = Field(
        default=1000,
        ge=1,
        le=10_000,
        description="Watch and Snapshot streams of one tenant open at once, and its calls that wait for slow "
        "work; of all together a quarter more. A quiet one costs a thread of 60 KB.",
    )
    snapshot_mib: int = Field(
        default=1024,
        ge=16,
        description="Disk for the files of first loads, in MiB; 100 000 memories are some 40, and a quarter "
        "of an hour after its last reader a file goes.",
    )
    upload_mib: int = Field(
        default=16_384,
        ge=1,
        description="Disk for the files that one tenant uploads to be imported, in MiB; 100 000 memories "
        "with their history are some 30.",
    )
    resident_mib: int = Field(
        default=1024,
        ge=16,
        description="Memory for resident streams over all shards, in MiB; least recently used leave.",
    )
    tombstone_days: int = Field(
        default=90,
        ge=1,
        le=3650,
        description="Days that deletions are told to devices; one that was away longer loads anew.",
    )
    shard_calls_per_second: float = Field(
        default=0,
        ge=0,
        description="Calls a second on the memories of one shard, counted by each server on its own; 0: no "
        "limit. One tenant leaves half of what was saved up to the others.",
    )
    audit_days: int = Field(
        default=0,
        ge=0,
        le=36_500,
        description="Days that the audit log keeps an event; it notes what is deleted then. 0: for ever.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Least level logged."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment, and behind it the files of ``secrets_dir``."""
        del dotenv_settings, file_secret_settings
        folder = os.environ.get("SCRUBJAY_SECRETS_DIR")
        if not folder or not Path(folder).is_dir():
            return init_settings, env_settings
        return init_settings, env_settings, SecretsSettingsSource(settings_cls, secrets_dir=folder)

    @field_validator("secrets_dir")
    @classmethod
    def _is_folder(cls, secrets_dir: Path | None) -> Path | None:
        if secrets_dir is not None and not secrets_dir.is_dir():
            raise ValueError(f"{secrets_dir} is no folder")
        return secrets_dir

    @field_validator("listen")
    @classmethod
    def _has_port(cls, listen: str) -> str:
        if not listen.startswith("unix:") and not listen.rpartition(":")[2].isdigit():
            raise ValueError("give address:port, such as 127.0.0.1:7437")
        return listen

    @model_validator(mode="after")
    def _whole_tls(self) -> Settings:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("SCRUBJAY_TLS_CERT and SCRUBJAY_TLS_KEY go together; give both or neither")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ValueError("SCRUBJAY_TLS_CLIENT_CA needs SCRUBJAY_TLS_CERT and SCRUBJAY_TLS_KEY")
        return self

    @model_validator(mode="after")
    def _loopback_without_tls(self) -> Settings:
        if self.tls_cert is None and not self.insecure and not self.listen.startswith(LOOPBACK):
            raise ValueError(
                f"{self.listen} is reachable from other machines; give SCRUBJAY_TLS_CERT and "
                "SCRUBJAY_TLS_KEY, listen on 127.0.0.1, or set SCRUBJAY_INSECURE=1 behind a proxy that ends "
                "TLS"
            )
        return self

    @field_validator("embedders")
    @classmethod
    def _are_embedders(cls, embedders: str) -> str:
        for name in filter(None, (name.strip() for name in embedders.split(","))):
            if name not in EMBEDDERS and not _OPENAI.fullmatch(name):
                raise ValueError(
                    f"{name!r} is no embedder; choose of {', '.join(EMBEDDERS)} and "
                    "openai:<model>/<dimension>[@<endpoint>]"
                )
        return embedders

    def shard_urls(self) -> dict[str, str]:
        """Database URL by shard name."""
        urls = [url.strip() for url in self.shards.split(",") if url.strip()]
        if urls:
            return {f"shard-{n}": url for n, url in enumerate(urls)}
        return {f"shard-{n}": f"sqlite:///{self.data_dir / f'shard-{n}.db'}" for n in range(4)}

    def embedder_names(self) -> tuple[str, ...]:
        """The embedders, that of new tenants first."""
        others = (name.strip() for name in self.embedders.split(","))
        return tuple(dict.fromkeys((self.embedder, *filter(None, others))))

    def openai_of(self, name: str) -> OpenAIModel:
        """What an embedder ``openai`` asks, under this name. The key goes to the endpoint it was set for."""
        found = _OPENAI.fullmatch(name)
        if found is None:
            return OpenAIModel(
                self.openai_base_url, self.openai_model, self.openai_dimension, self.openai_api_key
            )
        key = SecretStr("") if found["url"] else self.openai_api_key
        url = found["url"] or self.openai_base_url
        return OpenAIModel(url, found["model"], int(found["dimension"]), key)

    def catalogue_url(self) -> str:
        """Database URL of the catalogue."""
        postgres = [url for url in self.shard_urls().values() if url.startswith("postgresql")]
        return self.catalogue or (postgres or [f"sqlite:///{self.data_dir / 'catalogue.db'}"])[0]
