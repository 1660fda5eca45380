"""Commands and readers as data: nothing is imported to list them."""

from __future__ import annotations

from nabla_core.declarations import Command, Reader, RunList

__all__ = ["COMMANDS", "READERS", "RUN_LISTS"]

COMMANDS = (
    Command(
        name="lint",
        target="nabla_diagnose.cli:lint",
        summary="Read training logs and say what broke.",
    ),
)

RUN_LISTS = (
    RunList(
        name="judged",
        target="nabla_diagnose.history.table:list_runs",
        summary="Runs that nabla lint judged.",
    ),
)


def _reader(name: str, module: str, suffixes: tuple[str, ...], summary: str) -> Reader:
    return Reader(
        name=name,
        target="nabla_diagnose.readers.log:read_run",
        summary=summary,
        suffixes=suffixes,
        sniff=f"nabla_diagnose.readers.{module}:sniff",
    )


READERS = (
    _reader("table", "table", (".csv", ".tsv"), "CSV of any tracker."),
    _reader("json", "trainer_state", (".json",), "trainer_state.json and other JSON documents."),
    _reader("jsonl", "json_lines", (".jsonl", ".ndjson"), "JSON lines."),
    _reader("tensorboard", "event_file", (".tfevents",), "TensorBoard event files."),
    _reader("parquet", "parquet", (".parquet", ".pq"), "Parquet tables; needs pyarrow."),
    _reader("boxes", "boxes", (".log", ".txt"), "Boxes of names and values between rulers."),
    _reader("text", "text_log", (".log", ".txt"), "Logs in text with key: value pairs."),
)
