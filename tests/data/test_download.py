"""Fetching over a loopback server: whole, cut, wrong, refused; and a named set from nothing to read."""

import contextlib
import dataclasses
import hashlib
import os
import shlex
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nearkin.data import SETS, DownloadError, Progress
from nearkin.data import open as open_data
from nearkin.data import progress as report
from nearkin.data.sources.download import CHUNK, _locked, fetch
from nearkin.data.sources.local_files import MissingFileError, OfficialFile
from nearkin.data.sources.unpack import unpack
from tests.data import official_files as official

pytest.importorskip("pooch")
BODY = os.urandom(1_000_000)
SHA256 = "sha256:" + hashlib.sha256(BODY).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves `files`; `cuts` says after how many bytes each of the next responses breaks off."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cuts, self.requests, self.encodings = {"/file.bin": BODY}, [], [], []

    def url(self, name="file.bin"):
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.server.files.get(self.path)
        self.server.requests.append(self.path)
        self.server.encodings.append(self.headers.get("Accept-Encoding"))
        if body is None:
            return self.send_error(404)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[: self.server.cuts.pop(0)] if self.server.cuts else body)
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("nearkin.data.sources.download.RETRIES", 0)  # pooch waits a second before each
    running = Server()
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def get(server, target, checksum=SHA256, **options):
    fetch([server.url()], target, checksum, **options)


def test_a_file_arrives_whole_with_progress(server, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(report, "PAUSE", 0)
    lines = []
    get(server, tmp_path / "sub" / "file.bin", report=lines.append)
    assert (tmp_path / "sub" / "file.bin").read_bytes() == BODY
    assert os.listdir(tmp_path / "sub") == ["file.bin"]  # nothing else is left behind
    steps = [line for line in lines if isinstance(line, Progress)]
    assert lines[0] == f"fetching {server.url()}" and steps[-1] == "file.bin: 1.0 of 1.0 MB (100 %)"
    assert [step.done for step in steps] == [CHUNK, 2 * CHUNK, 3 * CHUNK, len(BODY)] and steps[-1].total == len(BODY)
    assert capfd.readouterr() == ("", "")  # pooch itself prints nothing


def test_a_fetched_file_has_default_permissions(server, tmp_path):
    get(server, tmp_path / "file.bin")
    (tmp_path / "other").touch()
    assert (tmp_path / "file.bin").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_cut_connection_is_tried_again(server, tmp_path, monkeypatch):
    monkeypatch.setattr("nearkin.data.sources.download.RETRIES", 1)
    server.cuts = [300_000]
    get(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == BODY and len(server.requests) == 2


def test_a_partial_file_is_never_taken_for_a_whole_one(server, tmp_path):
    server.cuts = [300_000]
    with pytest.raises(DownloadError, match=r"file.bin cannot be fetched \(http.*: .*\); try again, or put the file into .* yourself"):
        get(server, tmp_path / "file.bin")
    assert os.listdir(tmp_path) == []


def test_a_wrong_checksum_is_an_error_and_the_file_is_removed(server, tmp_path):
    with pytest.raises(DownloadError, match=r"does not match the known hash: expected sha256:0{64}"):
        get(server, tmp_path / "file.bin", "sha256:" + "0" * 64)
    assert os.listdir(tmp_path) == []


def test_nothing_is_fetched_by_an_md5(server, tmp_path):
    """It can be forged, and someone on the way could put another file in its place."""
    with pytest.raises(DownloadError, match="file.bin is not fetched: only an md5 of it is published, .* get it yourself from http"):
        get(server, tmp_path / "file.bin", "md5:" + hashlib.md5(BODY).hexdigest())
    assert not server.requests and os.listdir(tmp_path) == []


def test_the_next_address_is_tried(server, tmp_path):
    fetch([server.url("gone.bin"), server.url()], tmp_path / "file.bin", SHA256)
    assert (tmp_path / "file.bin").read_bytes() == BODY
    with pytest.raises(DownloadError, match=r"gone.bin: 404 Client Error: Not Found"):
        fetch([server.url("gone.bin")], tmp_path / "gone.bin", SHA256)


def test_a_file_that_the_server_would_unpack_arrives_as_it_is(server, tmp_path):
    get(server, tmp_path / "file.bin")
    assert server.encodings == ["identity"]


def test_without_pooch_the_message_says_what_to_install(server, tmp_path, monkeypatch):
    official.write_idx(tmp_path / "there" / "mnist")
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"fetching file.bin needs pooch; pip install 'nearkin\[download\]', or put the file into"):
        get(server, tmp_path / "file.bin")
    assert len(open_data("mnist", data_root=tmp_path / "there", download=True)) == 8  # files that are there need none


@pytest.mark.parametrize("look", [1, 2])
def test_a_lock_that_is_removed_while_waiting_is_taken_again(look, tmp_path, monkeypatch):
    lock, real, looks = tmp_path / "file.lock", Path.stat, []

    def stat(self, **how):
        looks.append(self)
        if len(looks) == look:
            self.unlink()  # as the process that held it does when it is done
        return real(self, **how)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", stat)
        held = _locked(lock)
    assert os.path.samestat(os.fstat(held.fileno()), lock.stat())
    held.close()


def test_several_processes_fetch_a_file_once(server, tmp_path):
    threads = [threading.Thread(target=get, args=(server, tmp_path / "file.bin")) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file.bin").read_bytes() == BODY and len(server.requests) == 1


def serve(server, monkeypatch, name, folder, unpacked=False):
    """The catalog's entry, with its files at the loopback server."""
    files = []
    for path in sorted(folder.iterdir()):
        server.files["/" + path.name] = path.read_bytes()
        checksum = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
        files.append(OfficialFile(path.name, (server.url(path.name),), checksum, unpacked=unpacked))
    monkeypatch.setitem(SETS, name, dataclasses.replace(SETS[name], files=tuple(files)))


def test_a_named_set_is_fetched_and_read_and_not_fetched_again(server, tmp_path, monkeypatch):
    official.write_idx(tmp_path / "there")
    serve(server, monkeypatch, "mnist", tmp_path / "there")
    assert len(open_data("mnist", data_root=tmp_path / "here", download=True)) == 8
    assert len(os.listdir(tmp_path / "here" / "mnist")) == len(server.requests) == 4
    open_data("mnist", data_root=tmp_path / "here", download=True)
    assert len(server.requests) == 4


def test_the_command_in_the_message_of_a_missing_file_fetches_it(server, tmp_path, monkeypatch):
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
    assert len(server.requests) == 5


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
    with pytest.raises(DownloadError, match=r"train-images-idx3-ubyte.gz\) does not match the known hash"):
        open_data("mnist", data_root=tmp_path / "here", download=True)
    assert not (tmp_path / "here" / "mnist" / "train-images-idx3-ubyte.gz").exists()


def test_the_large_extra_part_is_fetched_only_on_request(server, tmp_path, monkeypatch):
    official.write_svhn(tmp_path / "there", "train", "test", "extra")
    serve(server, monkeypatch, "svhn", tmp_path / "there")
    marked = tuple(dataclasses.replace(file, extra=file.name.startswith("extra")) for file in SETS["svhn"].files)
    monkeypatch.setitem(SETS, "svhn", dataclasses.replace(SETS["svhn"], files=marked))
    open_data("svhn", data_root=tmp_path / "here", download=True)
    assert len(server.requests) == 2
    assert len(open_data("svhn", data_root=tmp_path / "here", split="extra", download=True)) == 2
    assert len(server.requests) == 3


def test_every_official_file_has_a_well_formed_checksum():
    for name, entry in SETS.items():
        for file in entry.files:
            algorithm, digest = file.checksum.split(":")
            assert all(url.endswith(file.name) for url in file.urls) and file.urls[0].startswith(
                "https://" if name != "online-products" else "http://"
            )
            assert len(digest) == (32 if name == "coil-20" else 64) and algorithm == ("md5" if name == "coil-20" else "sha256")


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
    lines = []
    unpack(tmp_path / "links.tar", tmp_path / "in", lines.append)
    assert (tmp_path / "in" / "a" / "b.txt").read_text() == "hi" and not (tmp_path / "in" / "away").exists()
    assert any("left out away" in line for line in lines)


def test_a_damaged_archive_leaves_nothing_behind(tmp_path):
    (tmp_path / "cut.tgz").write_bytes(b"\x1f\x8b\x08 no more")
    with pytest.raises(ValueError, match=r"cut.tgz cannot be unpacked .*remove it and fetch it again"):
        unpack(tmp_path / "cut.tgz", tmp_path / "in")
    assert not (tmp_path / "in").exists() or os.listdir(tmp_path / "in") == []
