"""What an archive says of itself, of its tenant, and of whom its lines are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scrubjay import v1
from scrubjay.memory import SUBJECT_FIELDS, Micros, Subject
from scrubjay.stamp import CommitStamp
from scrubjay.validity import name_violation
from server.archive import values
from server.archive.lines import TENANT_FORMAT, VERSION
from server.archive.values import Fault, Line
from server.store.memory_store import StreamKey
from tenants import forget_policy, quotas, retention, write_settings
from tenants.forget_policy import ForgetPolicy
from tenants.quotas import Quotas
from tenants.retention import Retention
from tenants.tenant import Incarnation
from tenants.write_settings import WriteSettings


@dataclass(frozen=True, slots=True)
class Head:
    """Of which tenant an archive is."""

    tenant_id: str
    exported_at: Micros


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """What a tenant forgets, if it ever said so, how it writes, what it keeps, and its quotas."""

    forget_policy: ForgetPolicy | None
    write_settings: WriteSettings
    retention: Retention
    quotas: Quotas


@dataclass(frozen=True, slots=True)
class Stream:
    """Of whom the lines behind it are, and where the subject's stream stood; 0 where it never began. Its
    operations up to ``history_horizon`` are forgotten.

    Edits in it were made by ``latest``, a stamp's time.
    """

    subject: Subject
    key: StreamKey
    head: CommitStamp
    horizon: CommitStamp
    history_horizon: CommitStamp
    latest: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an archive says that it holds."""

    counts: Mapping[str, int] = field(default_factory=dict)
    sha256: str = ""


NO_TIME = "1970-01-01T00:00:00.000Z.0000"
"""Of a stream that never forgot anything."""


def read_head(line: Line) -> Head:
    """The first line. Fault where it is of no archive of a tenant that this version reads."""
    if line.get("format") != TENANT_FORMAT:
        raise Fault(f"is no first line of an export of a tenant: its format is no {TENANT_FORMAT!r}")
    if line.get("version") != VERSION:
        raise Fault(f"is of the version {line.get('version')!r}; this server reads {VERSION}")
    return Head(values.named(line, "tenant_id"), values.time(line, "exported_at"))


def read_manifest(line: Line) -> Manifest:
    """The last line."""
    counts = values.mapping(line, "counts")
    return Manifest({kind: values.whole(counts, kind) for kind in counts}, values.text(line, "sha256"))


def read_settings(line: Line) -> TenantSettings:
    """What a tenant had settled."""
    policy = None
    if "forget_policy" in line:
        policy = forget_policy.from_message(values.message_of(line, "forget_policy", v1.ForgetPolicy))
        values.check_fields(*forget_policy.violations("forget_policy", policy))
    settings = write_settings.from_message(values.message_of(line, "write_settings", v1.WriteSettings))
    kept = retention.from_message(values.message_of(line, "retention", v1.Retention))
    limits = quotas.from_message(values.message_of(line, "quotas", v1.Quotas))
    values.check_fields(
        *write_settings.violations("write_settings", settings),
        *retention.violations("retention", kept),
        *quotas.violations("quotas", limits),
    )
    return TenantSettings(policy, settings, kept, limits)


def read_stream(line: Line, incarnation: Incarnation, latest: int) -> Stream:
    """A subject, whose stream and edits must not lie behind ``latest``."""
    names = [name for name in SUBJECT_FIELDS if line.get(name)]
    if len(names) != 1:
        raise Fault("names no subject; it needs one of user_id, agent_id and run_id")
    name = values.text(line, names[0])
    values.check_fields(name_violation(names[0], name))
    subject = Subject(names[0].removesuffix("_id"), name)
    head = _standing(line, "head", CommitStamp(latest))
    return Stream(
        subject,
        StreamKey(incarnation, subject.key),
        head,
        horizon=_standing(line, "horizon", head),
        history_horizon=_standing(line, "history_horizon", head),
        latest=latest,
    )


def _standing(line: Line, name: str, most: CommitStamp) -> CommitStamp:
    """A commit stamp, or 0."""
    value = line.get(name)
    return CommitStamp(0) if value in (None, NO_TIME) else values.commit_stamp(value, name, most)
