"""A run that was damaged, or that a stranger made: typed errors, issues, or recovery."""

import json
import os
import shutil
import zlib

import pytest
import torch

from nabla_core.artifacts.opening import UnsafePathError
from nabla_core.artifacts.strict_json import StrictJsonError
from nabla_core.errors import InputError
from nabla_replay.errors import CheckpointError, RunFormatError, StateFormatError
from nabla_replay.store import rank_log
from nabla_replay.store.reader import RunReader
from nabla_replay.store.tables import TensorInfo
from nabla_replay.store.verify import verify_run


def rules(folder):
    return sorted({issue.rule for issue in verify_run(folder).issues})


def damage(folder):
    with RunReader.open(folder) as reader:
        return [(found.kind, found.records) for found in reader.log().damage]


def lines(store, folder):
    return store.log(folder).read_bytes().splitlines(keepends=True)


def rewrite(store, folder, kept):
    store.log(folder).write_bytes(b"".join(kept))


def reframe(line, change):
    """Change the body of a line and give it a right checksum."""
    body = json.loads(line)["d"]
    change(body)
    text = json.dumps(body, separators=(",", ":")).encode()
    return b'{"c":"%08x","d":%b}\n' % (zlib.crc32(text), text)


def test_a_torn_end_is_recovered_and_told(store):
    folder = store.run()
    whole = store.log(folder).read_bytes()
    store.log(folder).write_bytes(whole[:-20])

    assert store.steps(folder) == list(range(6))
    assert rules(folder) == ["REP202"] and verify_run(folder).passed
    message = verify_run(folder).issues[0].message
    assert f"good up to line {whole.count(10) - 1}" in message


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_a_changed_bit_in_the_log_costs_one_record_and_is_told(store, place):
    folder = store.run()
    kept = lines(store, folder)
    at = int(len(kept) * place)
    kept[at] = kept[at][:30] + bytes([kept[at][30] ^ 4]) + kept[at][31:]
    rewrite(store, folder, kept)

    assert damage(folder) == [("corrupt", 1)]
    assert rules(folder) == ["REP201"] and not verify_run(folder).passed
    with RunReader.open(folder) as reader:
        assert len(reader.log().records) == len(kept) - 1


def test_an_edited_loss_is_told(store):
    folder = store.run()
    text = store.log(folder).read_bytes()
    edited = text.replace(b'"0x1.5555555555555p-3"', b'"0x1.5555555555555p-4"')
    store.log(folder).write_bytes(edited)

    assert text != edited and [kind for kind, _ in damage(folder)] == ["corrupt"]


def test_deleted_records_are_told(store):
    folder = store.run()
    kept = lines(store, folder)
    rewrite(store, folder, kept[:2] + kept[4:])

    assert damage(folder) == [("missing", 2)]


def test_a_deleted_last_record_is_told(store):
    folder = store.run()
    rewrite(store, folder, lines(store, folder)[:-1])

    assert damage(folder) == [] and rules(folder) == ["REP202"]


def test_repeated_and_moved_records_are_told(store):
    folder = store.run()
    kept = lines(store, folder)
    rewrite(store, folder, [*kept[:3], kept[2], *kept[3:]])
    assert damage(folder) == [("repeated", 1)]

    rewrite(store, folder, [kept[0], kept[2], kept[1], *kept[3:]])
    assert [kind for kind, _ in damage(folder)] == ["missing", "repeated"]


def test_an_inserted_line_costs_no_good_record(store):
    folder = store.run()
    kept = lines(store, folder)
    rewrite(store, folder, [*kept[:3], b"hello\n", *kept[3:]])

    assert damage(folder) == [("corrupt", 1)]
    assert store.steps(folder) == list(range(6))


def test_a_lost_newline_costs_both_records_and_is_told(store):
    folder = store.run()
    kept = lines(store, folder)
    kept[2] = kept[2][:-1] + b"\xff"
    rewrite(store, folder, kept)

    assert damage(folder) == [("corrupt", 1), ("missing", 1)]


def test_damage_is_bounded(store, monkeypatch):
    monkeypatch.setattr(rank_log, "_MAX_DAMAGE", 5)
    folder = store.run()
    store.log(folder).write_bytes(b"x\n" * 100)

    found = damage(folder)
    assert len(found) == 5 and sum(records for _, records in found) == 100


@pytest.mark.parametrize(
    "kind", ["missing", "zero", "short", "flipped", "older", "pickle", "torch"]
)
def test_a_damaged_checkpoint_is_a_typed_error_and_told(store, tmp_path, nothing_runs, kind):
    folder = store.run()
    path = store.checkpoint(folder)
    if kind == "missing":
        path.unlink()
    elif kind == "zero":
        path.write_bytes(b"")
    elif kind == "short":
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "flipped":
        store.flip(path)
    elif kind == "older":
        shutil.copy(store.checkpoint(folder, 0), path)
    else:
        torch.save({"x": torch.ones(3)}, path, _use_new_zipfile_serialization=kind == "torch")

    with nothing_runs(), pytest.raises(CheckpointError):
        store.load(folder)
    with nothing_runs():
        assert rules(folder) == ["REP201"]


def test_a_checkpoint_of_another_run_is_refused_although_its_record_fits(store):
    folder, other = store.run(), store.run("other")
    shutil.copy(store.checkpoint(other), store.checkpoint(folder))
    with RunReader.open(other) as reader:
        record = reader.find_checkpoint(3)
    kept = [
        reframe(line, lambda body: body.update(crc32=record.crc32, sha256=record.sha256))
        if b'"k":"ckpt","s":3' in line
        else line
        for line in lines(store, folder)
    ]
    rewrite(store, folder, kept)

    with pytest.raises(CheckpointError, match="of run 'other'"):
        store.load(folder)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "..", "", "a\0b", "x" * 300])
def test_a_checkpoint_name_cannot_lead_out_of_the_folder(store, name):
    folder = store.run()
    kept = [
        reframe(line, lambda body: body.update(name=name)) if b'"k":"ckpt"' in line else line
        for line in lines(store, folder)
    ]
    rewrite(store, folder, kept)

    with pytest.raises(UnsafePathError):
        store.load(folder)
    assert rules(folder) == ["REP203"]


@pytest.mark.parametrize("target", ["checkpoint", "log", "run.json", "ckpt", "run"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_are_neither_followed_nor_waited_for(store, in_child, target, kind):
    folder = store.run()
    path = {
        "checkpoint": store.checkpoint(folder),
        "log": store.log(folder),
        "run.json": folder / "run.json",
        "ckpt": folder / "ckpt",
        "run": folder,
    }[target]
    moved = store.root / "moved"
    shutil.move(path, moved)
    if kind == "link":
        path.symlink_to(moved)
    else:
        os.mkfifo(path)

    def look():
        seen = []
        for use in (store.load, verify_run, lambda run: store.resume(run).close()):
            try:
                found = use(folder)
                seen.append(sorted({issue.rule for issue in getattr(found, "issues", ())}))
            except UnsafePathError:
                seen.append("unsafe")
            except InputError as error:
                seen.append(f"refused: {error}")
        return seen

    loaded, verified, resumed = in_child(look, 15.0)
    assert loaded == "unsafe"
    assert verified == "unsafe" if target in ("run.json", "run") else "REP203" in verified
    # a checkpoint that somebody replaced does not keep the run from going on
    assert resumed == ([] if target == "checkpoint" else "unsafe")


def test_what_has_no_place_in_a_run_is_told_and_not_opened(store, nothing_runs):
    folder = store.run()
    torch.save({}, folder / "model.pt")
    torch.save({}, folder / "ckpt" / "best.pt")
    (folder / "ckpt" / "r0-0000000009.safetensors.pt").write_bytes(b"")

    with nothing_runs():
        found = [issue.where.file for issue in verify_run(folder).issues]

    assert found == ["model.pt", "ckpt/best.pt", "ckpt/r0-0000000009.safetensors.pt"]
    assert rules(folder) == ["REP203"]


def test_an_unfinished_file_is_told_and_removed_by_a_resume(store):
    folder = store.run()
    (folder / "ckpt" / ".r0-0123abcd.tmp").write_bytes(b"half")
    (folder / ".r0-0123abcd.tmp").write_bytes(b"half")
    (folder / "ckpt" / ".r1-0123abcd.tmp").write_bytes(b"of another rank")

    assert rules(folder) == ["REP202"]
    with store.resume(folder) as writer:
        assert sorted(writer.removed) == [".r0-0123abcd.tmp", ".r0-0123abcd.tmp"]
    assert [path.name for path in folder.rglob(".*.tmp")] == [".r1-0123abcd.tmp"]


def test_a_checkpoint_without_a_record_is_removed_only_if_the_log_is_whole(store):
    folder = store.run()
    orphan = folder / "ckpt" / "r0-0000000099.safetensors"
    orphan.write_bytes(b"complete, but never acknowledged")
    kept = lines(store, folder)
    rewrite(store, folder, [*kept[:3], b"damaged\n", *kept[3:]])
    store.resume(folder).close()
    assert orphan.exists()

    rewrite(store, folder, kept)
    store.resume(folder).close()
    assert not orphan.exists() and store.checkpoint(folder).exists()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b"", StrictJsonError),
        (b"[" * 200_000, StrictJsonError),
        (b'{"schema":"nabla.run/1","schema":"nabla.run/1"}', StrictJsonError),
        (b'{"schema":"nabla.run/1","rotation":NaN}', StrictJsonError),
        (b'{"schema":"nabla.run/2"}', RunFormatError),
        (b'{"schema":"other/1"}', RunFormatError),
        (b'{"schema":["nabla.run/1"]}', RunFormatError),
        (b"{}", RunFormatError),
        (b"[]", StrictJsonError),
        (b'{"schema":"nabla.run/1"}', RunFormatError),
    ],
)
def test_a_header_that_is_none_is_refused(store, text, error):
    folder = store.run()
    (folder / "run.json").write_bytes(text)

    with pytest.raises(error):
        RunReader.open(folder)
    with pytest.raises(error):
        store.resume(folder)


def test_a_newer_minor_version_is_read_and_its_keys_are_kept(store):
    folder = store.run()
    found = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({**found, "schema": "nabla.run/1.7", "mood": "good"})
    )

    with RunReader.open(folder) as reader:
        assert reader.header.unknown == {"mood": "good"}


@pytest.mark.parametrize("created", ["nan", "inf", "-0x1p300", "soon", 3])
def test_a_date_that_is_none_is_refused(store, created):
    folder = store.run()
    found = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**found, "created": created}))

    with pytest.raises(RunFormatError, match="created"):
        RunReader.open(folder)


@pytest.mark.parametrize("tables", [[], {"p": 1}, {"p": [["w"]]}, {"p": [["w", [-1], "f"]]}])
def test_tables_of_the_wrong_form_are_refused(store, tables):
    folder = store.run()
    found = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**found, "tables": tables}))

    with pytest.raises(RunFormatError, match="table"):
        RunReader.open(folder)


@pytest.mark.parametrize(
    "text", [b"[" * 200_000, b"[" * 200_000 + b"\n", b"\0" * 100_000, b"\xff\n"]
)
def test_a_log_of_something_else_is_told(store, nothing_runs, text):
    folder = store.run()
    store.log(folder).write_bytes(text)

    with nothing_runs():
        assert store.steps(folder) == []
        assert set(rules(folder)) <= {"REP201", "REP202"} and rules(folder)


def test_an_endless_line_is_passed_over_in_bounded_memory(store, in_child):
    folder = store.run()
    kept = lines(store, folder)
    with open(store.log(folder), "wb") as log:
        log.writelines(kept[:2])
        log.seek(300 << 20, os.SEEK_CUR)  # a hole: no disk is used
        log.write(b"\n")
        log.writelines(kept[2:])

    def look():
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (150 << 20),) * 2)
        return damage(folder)

    assert in_child(look, 60.0) == [["corrupt", 1]]


def _address_space():
    with open("/proc/self/statm") as stream:
        return int(stream.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def test_a_folder_that_is_no_run_is_said_to_be_none(tmp_path):
    with pytest.raises(RunFormatError, match=r"holds no run\.json"):
        RunReader.open(tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        RunReader.open(tmp_path / "none")


def test_a_run_without_a_log_of_the_rank_says_which_it_has(store):
    with RunReader.open(store.run()) as reader, pytest.raises(RunFormatError, match="it has: 0"):
        reader.log(3)


def test_a_resume_with_another_world_or_other_tensors_is_told(store):
    folder = store.run()
    other = {"parameters": (TensorInfo(name="weight", shape=(9, 3), dtype="float32"),)}
    store.resume(folder, world_size=2, tables=other).close()

    found = {issue.rule: issue.message for issue in verify_run(folder).issues}

    assert set(found) == {"REP104", "REP105"}
    assert "2" in found["REP104"] and "weight" in found["REP105"]


def test_a_resume_of_the_same_program_is_not_told(store):
    folder = store.run()
    store.resume(folder, tables=store.header().tables).close()

    assert verify_run(folder).issues == ()


def test_state_errors_are_checkpoint_errors():
    assert issubclass(StateFormatError, CheckpointError)
