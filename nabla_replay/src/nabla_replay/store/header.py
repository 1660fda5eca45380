"""``run.json``: what a run is. Written once, at once, by the first process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from nabla_core.artifacts.strict_json import JsonObject, parse_object

from ..errors import RecordError, RunFormatError
from .fields import take_count, take_float, take_object, take_text, take_texts
from .tables import Tables, tables_from_json, tables_to_json

__all__ = ["RUN_SCHEMA", "RunHeader", "header_from_json", "header_to_json", "new_run_id"]

RUN_SCHEMA = "nabla.run/1"
_LAST_MOMENT_S = 6e10  # the years 69 to 3871: what lies beyond is no date of a run
_FAMILY, _MAJOR = "nabla.run", 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHeader:
    """What holds for the whole run.

    Attributes:
        run_id: name of the folder.
        created_s: wall clock, for people.
        hash_algorithm: of the fingerprints, e.g. ``"crc32"``.
        rotation: each tensor is fingerprinted at least once in so many steps.
        tables: what is fingerprinted.
        environment: what decides whether a replay can be exact.
        policy: what was asked for, e.g. ``checkpoint_every``.
        versions: of the tool and of torch.
        unknown: keys of a newer minor version, kept as they are.
    """

    run_id: str
    created_s: float
    hash_algorithm: str = ""
    rotation: int = 1
    tables: Tables = field(default_factory=dict)
    environment: JsonObject = field(default_factory=dict)
    policy: JsonObject = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    unknown: JsonObject = field(default_factory=dict)


_KNOWN = {
    "schema",
    "run_id",
    "created",
    "created_utc",
    "hash_algorithm",
    "rotation",
    "tables",
    "environment",
    "policy",
    "versions",
}


def new_run_id(now_s: float, token: str) -> str:
    """Return a name that sorts by time, e.g. ``20260131-142530-9f3a1c``.

    Args:
        now_s: seconds since 1970.
        token: a few random letters, against two runs in one second.
    """
    moment = datetime.fromtimestamp(now_s, UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{token}"


def header_to_json(header: RunHeader) -> JsonObject:
    """Return the content of ``run.json``."""
    moment = datetime.fromtimestamp(header.created_s, UTC)
    return {
        "schema": RUN_SCHEMA,
        "run_id": header.run_id,
        "created": header.created_s.hex(),
        "created_utc": moment.isoformat(timespec="seconds"),
        "hash_algorithm": header.hash_algorithm,
        "rotation": header.rotation,
        "tables": tables_to_json(header.tables),
        "environment": header.environment,
        "policy": header.policy,
        "versions": dict(header.versions),
        **header.unknown,
    }


def header_from_json(text: bytes, what: str) -> RunHeader:
    """Read :func:`header_to_json`.

    Raises:
        StrictJsonError: it is no strict JSON.
        RunFormatError: it is of another schema or major version, or a part has the wrong form.
    """
    found = parse_object(text, what)
    _check_schema(found, what)
    try:
        return RunHeader(
            run_id=take_text(found, "run_id"),
            created_s=_moment(found),
            hash_algorithm=take_text(found, "hash_algorithm"),
            rotation=take_count(found, "rotation"),
            tables=tables_from_json(found.get("tables", {})),
            environment=take_object(found, "environment"),
            policy=take_object(found, "policy"),
            versions=take_texts(found, "versions"),
            unknown={key: value for key, value in found.items() if key not in _KNOWN},
        )
    except RecordError as error:
        raise RunFormatError(f"{what}: {error}") from error


def _moment(found: JsonObject) -> float:
    created_s = take_float(found, "created")
    if not abs(created_s) < _LAST_MOMENT_S:
        raise RecordError(f"'created' is {created_s:g}, which is no date")
    return created_s


def _check_schema(found: JsonObject, what: str) -> None:
    schema = found.get("schema")
    family, _, version = str(schema).partition("/")
    if family != _FAMILY or not isinstance(schema, str):
        raise RunFormatError(f"{what}: schema is {str(schema)[:60]!r}, not {RUN_SCHEMA!r}")
    if version.partition(".")[0] != str(_MAJOR):
        raise RunFormatError(
            f"{what}: schema is {schema[:60]!r}; this version reads {RUN_SCHEMA!r}: "
            "use the nabla that wrote it"
        )
