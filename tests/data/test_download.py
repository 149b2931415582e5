"""Fetching over a loopback server: whole, cut, wrong, refused; and a named set from nothing to read."""

import contextlib
import dataclasses
import hashlib
import os
import re
import shlex
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nearkin.data import SETS, DownloadError, Progress
from nearkin.data import open as open_data
from nearkin.data import progress as report
from nearkin.data.sources.download import _locked, fetch
from nearkin.data.sources.local_files import MissingFileError, Official
from nearkin.data.sources.unpack import unpack
from tests.data import official_files as official

BODY = os.urandom(1 << 20)
MD5 = "md5:" + hashlib.md5(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`; `cuts` says after how many bytes each of the next answers breaks off."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cuts, self.asked, self.codes = {"/file.bin": BODY}, [], [], []
        self.resumable = True

    def url(self, name="file.bin"):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body, start = self.server.files.get(self.path), 0
        self.server.asked.append(self.headers.get("Range"))
        if self.server.codes or body is None:
            return self.send_error(self.server.codes.pop(0) if self.server.codes else 404)
        found = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if found and self.server.resumable:
            start = int(found[1])
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[start : start + self.server.cuts.pop(0)] if self.server.cuts else body[start:])
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def get(server, target, checksum=MD5, **how):
    fetch([server.url()], target, checksum, pause=0, **how)


def test_a_file_arrives_whole_with_progress(server, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "PAUSE", 0)
    said = []
    get(server, tmp_path / "sub" / "file.bin", report=said.append)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == BODY
    assert os.listdir(tmp_path / "sub") == ["file.bin"]  # nothing else is left behind
    steps = [line for line in said if isinstance(line, Progress)]
    assert said[0] == f"fetching {server.url()}" and steps[-1] == "file.bin: 1.0 of 1.0 MB (100 %)"
    assert steps[-1].done == steps[-1].total == len(BODY) and len(steps) > 2


def test_a_cut_connection_goes_on_where_it_stopped(server, tmp_path):
    server.cuts = [300_000, 200_000]
    said = []
    get(server, tmp_path / "file.bin", report=said.append)
    assert (tmp_path / "file.bin").read_bytes() == BODY
    assert server.asked == [None, "bytes=300000-", "bytes=500000-"]
    assert "file.bin.part: the connection was cut after 0.3 MB; trying again" in said


def test_a_server_that_cannot_go_on_starts_over(server, tmp_path):
    server.cuts, server.resumable = [300_000], False
    get(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY


def test_a_killed_download_goes_on_in_the_next_call(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY[:700_000])
    get(server, tmp_path / "file.bin")
    assert server.asked == ["bytes=700000-"] and (tmp_path / "file.bin").read_bytes() == BODY


def test_killed_after_the_last_byte(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY)
    get(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY and not (tmp_path / "file.bin.part").exists()


def test_a_remnant_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(BODY + b"more")
    get(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY


def test_a_connection_that_stays_cut_is_given_up_and_what_arrived_is_kept(server, tmp_path):
    server.cuts = [1000] + [0] * 20
    with pytest.raises(
        DownloadError, match=r"cannot be fetched \(the connection was cut, 5 times\); what arrived is kept in .*file.bin.part"
    ):
        get(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin.part").stat().st_size == 1000 and not (tmp_path / "file.bin").exists()


def test_a_wrong_checksum_is_an_error_and_the_file_is_removed(server, tmp_path):
    wrong = "sha256:" + "0" * 64
    with pytest.raises(DownloadError, match=r"came with sha256 [0-9a-f]{64} where 0{64} is right, and was removed; try again"):
        get(server, tmp_path / "file.bin", wrong)
    assert os.listdir(tmp_path) == []


def test_the_remnant_of_another_file_does_not_pass(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    with pytest.raises(DownloadError, match="was removed"):
        get(server, tmp_path / "file.bin")
    get(server, tmp_path / "file.bin")  # and the next try starts from nothing
    assert (tmp_path / "file.bin").read_bytes() == BODY


def test_without_a_checksum_nothing_old_is_continued_and_that_is_said(server, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 1000)
    said = []
    get(server, tmp_path / "file.bin", None, report=said.append)
    assert (tmp_path / "file.bin").read_bytes() == BODY and server.asked == [None]
    assert said[0] == "file.bin: no checksum is known, so only its length is compared"


def test_the_next_place_is_tried(server, tmp_path):
    fetch([server.url("gone.bin"), server.url()], tmp_path / "file.bin", MD5, pause=0)
    assert (tmp_path / "file.bin").read_bytes() == BODY
    with pytest.raises(DownloadError, match=r"gone.bin answers 404 Not Found; fetch it by hand if it has moved"):
        fetch([server.url("gone.bin")], tmp_path / "gone.bin", MD5, pause=0)


def test_a_passing_fault_is_tried_again(server, tmp_path):
    server.codes = [503, 429]
    get(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY


@pytest.mark.parametrize("look", [1, 2])
def test_a_lock_that_goes_while_it_is_looked_at_is_taken_anew(look, tmp_path, monkeypatch):
    lock, real, looks = tmp_path / "file.lock", Path.stat, []

    def stat(self, **how):
        looks.append(self)
        if len(looks) == look:
            self.unlink()  # as whoever held it does when done
        return real(self, **how)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", stat)
        held = _locked(lock)
    assert os.path.samestat(os.fstat(held.fileno()), lock.stat())
    held.close()


def test_ranks_that_ask_at_once_fetch_once(server, tmp_path):
    threads = [threading.Thread(target=get, args=(server, tmp_path / "file.bin")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file.bin").read_bytes() == BODY and len(server.asked) == 1


def serve(server, monkeypatch, name, folder, unpacked=False):
    """The catalog's entry, with its files at the loopback server."""
    files = []
    for path in sorted(folder.iterdir()):
        server.files["/" + path.name] = path.read_bytes()
        checksum = "md5:" + hashlib.md5(path.read_bytes()).hexdigest()
        files.append(Official(path.name, (server.url(path.name),), checksum, unpacked=unpacked))
    monkeypatch.setitem(SETS, name, dataclasses.replace(SETS[name], files=tuple(files)))


def test_a_named_set_is_fetched_and_read_and_not_fetched_again(server, tmp_path, monkeypatch):
    official.write_idx(tmp_path / "there")
    serve(server, monkeypatch, "mnist", tmp_path / "there")
    assert len(open_data("mnist", data_root=tmp_path / "here", download=True)) == 8
    assert len(os.listdir(tmp_path / "here" / "mnist")) == len(server.asked) == 4
    open_data("mnist", data_root=tmp_path / "here", download=True)
    assert len(server.asked) == 4


def test_the_command_that_a_missing_file_is_told_with_fetches_it(server, tmp_path, monkeypatch):
    official.write_idx(tmp_path / "there")
    serve(server, monkeypatch, "mnist", tmp_path / "there")
    with pytest.raises(MissingFileError, match="To fetch it pass download=True to nearkin.data.open") as caught:
        open_data("mnist", data_root=tmp_path / "it's here")
    python, flag, code = shlex.split(str(caught.value).split("`")[1])
    exec(code, {})
    assert (python, flag) == ("python", "-c") and len(open_data("mnist", data_root=tmp_path / "it's here")) == 8


def test_only_what_is_missing_is_fetched(server, tmp_path, monkeypatch):
    official.write_idx(tmp_path / "there")
    serve(server, monkeypatch, "mnist", tmp_path / "there")
    open_data("mnist", data_root=tmp_path / "here", download=True)
    (tmp_path / "here" / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    open_data("mnist", data_root=tmp_path / "here", download=True)
    assert len(server.asked) == 5


def test_an_archive_is_unpacked(server, tmp_path, monkeypatch):
    official.write_cub(tmp_path / "work" / "CUB_200_2011")
    (tmp_path / "there").mkdir()
    official.tar(tmp_path / "there" / "CUB_200_2011.tgz", tmp_path / "work" / "CUB_200_2011")
    serve(server, monkeypatch, "cub-200-2011", tmp_path / "there", unpacked=True)
    data = open_data("cub", data_root=tmp_path / "here", download=True)
    assert data.parts == {"train": 2, "test": 1} and data.read([0]).shape == (1, 3, 8, 8)
    assert sorted(os.listdir(tmp_path / "here" / "cub-200-2011")) == ["CUB_200_2011", "CUB_200_2011.tgz"]


def test_a_wrong_checksum_stops_a_named_set(server, tmp_path, monkeypatch):
    official.write_idx(tmp_path / "there")
    serve(server, monkeypatch, "mnist", tmp_path / "there")
    server.files["/train-images-idx3-ubyte.gz"] += b"!"
    with pytest.raises(DownloadError, match=r"train-images-idx3-ubyte.gz came with md5 "):
        open_data("mnist", data_root=tmp_path / "here", download=True)
    assert not (tmp_path / "here" / "mnist" / "train-images-idx3-ubyte.gz").exists()


def test_the_large_extra_part_is_fetched_only_when_asked_for(server, tmp_path, monkeypatch):
    official.write_svhn(tmp_path / "there", "train", "test", "extra")
    serve(server, monkeypatch, "svhn", tmp_path / "there")
    marked = tuple(dataclasses.replace(file, extra=file.name.startswith("extra")) for file in SETS["svhn"].files)
    monkeypatch.setitem(SETS, "svhn", dataclasses.replace(SETS["svhn"], files=marked))
    open_data("svhn", data_root=tmp_path / "here", download=True)
    assert len(server.asked) == 2
    assert len(open_data("svhn", data_root=tmp_path / "here", split="extra", download=True)) == 2
    assert len(server.asked) == 3


def test_every_official_file_has_a_well_formed_checksum_or_none():
    lengths = {"md5": 32, "sha256": 64}
    for name, entry in SETS.items():
        for file in entry.files:
            assert all(url.startswith(("https://", "http://")) and url.endswith(file.name) for url in file.urls)
            assert (
                name == "coil-20"
                if file.checksum is None
                else len(file.checksum.partition(":")[2]) == lengths[file.checksum.partition(":")[0]]
            )


def test_an_archive_cannot_write_elsewhere(tmp_path):
    import io
    import tarfile
    import zipfile

    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as pack:
        pack.writestr("../outside.txt", "x")
    with pytest.raises(ValueError, match=r"evil.zip holds ../outside.txt, which leads out of the folder"):
        unpack(tmp_path / "evil.zip", tmp_path / "in")
    assert not (tmp_path / "outside.txt").exists()
    with tarfile.open(tmp_path / "links.tar", "w") as tape:
        link = tarfile.TarInfo("away")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tape.addfile(link)
        plain = tarfile.TarInfo("a/b.txt")
        plain.size = 2
        tape.addfile(plain, io.BytesIO(b"hi"))
    said = []
    unpack(tmp_path / "links.tar", tmp_path / "in", said.append)
    assert (tmp_path / "in" / "a" / "b.txt").read_text() == "hi" and not (tmp_path / "in" / "away").exists()
    assert any("left out away" in line for line in said)


def test_a_damaged_archive_leaves_nothing_behind(tmp_path):
    (tmp_path / "cut.tgz").write_bytes(b"\x1f\x8b\x08 no more")
    with pytest.raises(ValueError, match=r"cut.tgz cannot be unpacked .*remove it and fetch it again"):
        unpack(tmp_path / "cut.tgz", tmp_path / "in")
    assert not (tmp_path / "in").exists() or os.listdir(tmp_path / "in") == []
