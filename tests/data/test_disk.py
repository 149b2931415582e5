"""Files that survive: replaced in one rename, recorded with checksums, and written by one owner at a time."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from nearkin.data import checksums, disk
from nearkin.data.disk import FileDamagedError, append_line, damage, fast_digest, replacing
from nearkin.data.lock import FolderInUseError, locked, owned
from tests.faults import FAULTS, after_power_cut, calls, faults, in_a_process


def put(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


def tried(work) -> bool:
    """Whether it failed as a full or broken disk does."""
    try:
        work()
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EIO)
    return False


def test_a_file_is_replaced_with_the_permissions_of_any_new_file(tmp_path) -> None:
    put(tmp_path / "a", b"old")
    put(tmp_path / "a", b"new" * 1_000_000)
    (tmp_path / "b").touch()
    assert (tmp_path / "a").read_bytes() == b"new" * 1_000_000 and sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_fails_the_old_file_or_the_new_one_is_there(tmp_path, fault) -> None:
    path, old, new = tmp_path / "a", b"old", b"new" * 500_000
    path.write_bytes(old)
    n = calls(lambda: put(path, new)).count
    for at in range(1, n + 1):
        path.write_bytes(old)
        if fault == "kill":
            assert in_a_process(lambda: put(path, new), at)
        else:
            with faults(at, fault) as layer:
                failed = tried(lambda: put(path, new))
            assert failed == (layer.met and fault != "short") and (failed or path.read_bytes() == new)
        assert path.read_bytes() in (old, new)
        leftovers = [name for name in os.listdir(tmp_path) if name != "a"]
        assert not leftovers or fault == "kill"
        for name in leftovers:
            (tmp_path / name).unlink()


@pytest.mark.parametrize("kept", ["nothing", "names", "removals"])
def test_a_power_cut_leaves_the_old_file_or_the_new_one(tmp_path, kept) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/f").write_bytes(b"old")
    (tmp_path / "before").mkdir()
    (tmp_path / "before/f").write_bytes(b"old")
    log = calls(lambda: put(tmp_path / "a/f", b"new" * 500_000)).log
    for at in range(len(log) + 1):
        after_power_cut(tmp_path / "before", log[:at], tmp_path / "a", tmp_path / f"{at}", kept)
        assert (tmp_path / f"{at}/f").read_bytes() in (b"old", b"new" * 500_000)
    assert (tmp_path / f"{len(log)}/f").read_bytes() == b"new" * 500_000  # and what has returned lasts


def test_the_simulated_power_cut_loses_what_is_not_synced(tmp_path) -> None:
    """A layer that forgives a missing sync would prove nothing."""
    for name in ("a", "before"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(b"old")
    log = [one for one in calls(lambda: put(tmp_path / "a/f", b"new")).log if one[0] != "fsync"]
    after_power_cut(tmp_path / "before", log, tmp_path / "a", tmp_path / "x", "names")
    assert (tmp_path / "x/f").read_bytes() == b""
    after_power_cut(tmp_path / "before", log, tmp_path / "a", tmp_path / "y", "nothing")
    assert (tmp_path / "y/f").read_bytes() == b"old"


def test_content_that_was_given_up_never_reaches_another_file(tmp_path) -> None:
    """The buffer of a failed write may be flushed by the garbage collector when its number belongs to another file."""
    with pytest.raises(RuntimeError), replacing(tmp_path / "a") as file:  # noqa: PT012
        file.write(b"secret")
        raise RuntimeError
    with open(tmp_path / "b", "wb") as other:
        del file
        other.flush()
    assert (tmp_path / "b").read_bytes() == b"" and os.listdir(tmp_path) == ["b"]


def test_a_log_line_is_whole_or_not_there(tmp_path) -> None:
    append_line(tmp_path / "log", "one")
    with faults(at=2, fault="ENOSPC"), pytest.raises(OSError, match="No space"):
        append_line(tmp_path / "log", "two" * 100)
    append_line(tmp_path / "log", "three")
    assert (tmp_path / "log").read_text() == "one\nthree\n"


def test_the_fast_checksum_sees_every_kind_of_damage(tmp_path) -> None:
    path, rng = tmp_path / "f", np.random.default_rng(0)
    content = rng.integers(0, 256, 3 * disk.BLOCK + 1001, dtype=np.uint8)
    path.write_bytes(content.tobytes())
    right = fast_digest(path)
    assert right == fast_digest(path)

    def changed(make) -> bool:
        other = content.copy()
        other = make(other)
        path.write_bytes(other.tobytes())
        return fast_digest(path) != right

    for at in [0, 7, disk.BLOCK - 1, disk.BLOCK, len(content) - 1, *rng.integers(0, len(content), 60).tolist()]:
        assert changed(lambda x, at=at: np.concatenate([x[:at], x[at : at + 1] ^ np.uint8(1 << at % 8), x[at + 1 :]]))
    assert changed(lambda x: x[:-1]) and changed(lambda x: np.append(x, np.uint8(0)))
    assert changed(lambda x: np.concatenate([x[8:16], x[:8], x[16:]]))  # two words of a row
    assert changed(lambda x: np.concatenate([x[4096:8192], x[:4096], x[8192:]]))  # two rows
    assert changed(lambda x: np.concatenate([x[disk.BLOCK : 2 * disk.BLOCK], x[: disk.BLOCK], x[2 * disk.BLOCK :]]))  # two blocks
    assert changed(lambda x: np.concatenate([np.zeros(4096, np.uint8), x[4096:]]))  # a page that was never written


def test_records_accept_the_file_before_and_after_a_crash(tmp_path) -> None:
    """The checksum is recorded before the file is renamed: whenever a process is killed, what is there matches."""
    page = tmp_path / "model.json"
    checksums.write_json(page, {"n": 1})
    n = calls(lambda: checksums.write_json(page, {"n": 2})).count
    checksums.write_json(page, {"n": 1})
    for at in range(1, n + 1):
        checksums.write_json(page, {"n": 1})
        assert in_a_process(lambda: checksums.write_json(page, {"n": 2}), at)
        assert json.loads(page.read_text())["n"] in (1, 2) and not checksums.wrong(page, tmp_path, whole=True)
    other = tmp_path / "new.json"
    n = calls(lambda: checksums.write_json(other, {"n": 3})).count
    for at in range(1, n + 1):  # also where there was no file before
        other.unlink(missing_ok=True)
        (tmp_path / checksums.CHECKSUMS).unlink()
        checksums.write_json(page, {"n": 1})
        assert in_a_process(lambda: checksums.write_json(other, {"n": 3}), at)
        assert not any(one.wrong for one in checksums.check_all(tmp_path))
    checksums.write_json(other, {"n": 3})
    other.unlink()
    assert checksums.wrong(other, tmp_path) == "is missing"
    checksums.write_json(other, {"n": 3})
    page.write_text(page.read_text().replace("1", "7").replace("2", "7"))
    with pytest.raises(FileDamagedError, match=r"model.json is damaged: it does not match its checksum; do this; --no-verify"):
        checksums.check(page, tmp_path, "do this")
    assert checksums.accept(tmp_path) == 1 and checksums.accept(tmp_path) == 0
    checksums.check(page, tmp_path, "do this")
    page.unlink()
    assert checksums.check_all(tmp_path) == [("model.json", "is missing"), ("new.json", "")]


def test_damaged_checksums_are_named_and_written_anew(tmp_path) -> None:
    checksums.write_json(tmp_path / "run.json", {"n": 1})
    (tmp_path / checksums.CHECKSUMS).write_text("{")
    with pytest.raises(FileDamagedError, match=r"checksums.json is damaged, so that no file .* can be verified.*--accept"):
        checksums.recorded(tmp_path)
    checksums.write_json(tmp_path / "model.json", {"n": 1})
    assert list(checksums.recorded(tmp_path)) == ["model.json"]
    (tmp_path / checksums.CHECKSUMS).write_text("{")
    checksums.accept(tmp_path)
    assert sorted(checksums.recorded(tmp_path)) == ["model.json", "run.json"]


def test_two_processes_record_without_losing_a_record(tmp_path) -> None:
    def write(name: str) -> None:
        for number in range(20):
            checksums.write_json(tmp_path / f"{name}.json", {"n": number})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.wrong for one in checksums.check_all(tmp_path)] == ["", "", ""]


def test_a_record_names_the_damage(tmp_path) -> None:
    (tmp_path / "f").write_bytes(b"abc")
    record = disk.checksums(tmp_path / "f")
    assert damage(tmp_path / "f", record, whole=True) is None
    (tmp_path / "f").write_bytes(b"abd")
    assert damage(tmp_path / "f", record) == "does not match its checksum"
    (tmp_path / "f").write_bytes(b"ab")
    assert damage(tmp_path / "f", record) == "has 2 bytes where 3 were written"
    assert damage(tmp_path / "g", record) == "is missing"


HOLD = """
import sys, time
from pathlib import Path
from nearkin.data.lock import owned
with owned(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_second_owner_is_told_who_the_first_is_and_a_kill_frees_the_folder(tmp_path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    message = rf"is being written by `-c` .process {process.pid} on .*, since 20.*; try again when it has ended"
    with pytest.raises(FolderInUseError, match=message), owned(tmp_path):
        pass
    process.kill()
    process.communicate()
    with owned(tmp_path), owned(tmp_path):  # the same thread may own it twice
        pass


def test_a_forked_process_does_not_keep_the_lock(tmp_path) -> None:
    with owned(tmp_path):
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
    try:
        with owned(tmp_path):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_two_threads_do_not_own_a_folder(tmp_path) -> None:
    found: list[str] = []

    def second() -> None:
        try:
            with owned(tmp_path):
                found.append("owned")
        except FolderInUseError as error:
            found.append(str(error))

    with owned(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert "is being written by" in found[0]


def test_a_lock_is_no_symbolic_link(tmp_path) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"), locked(tmp_path):
        pass
    assert (tmp_path / "other").read_text() == "precious"
