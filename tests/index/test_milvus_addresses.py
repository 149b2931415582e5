"""The address in a model folder is somebody else's word: it is used only after the user has named it, and tokens never travel in clear."""

import os
import shutil
from pathlib import Path

import pytest

from nearkin import cli
from nearkin.data.disk import FileDamagedError, write_checked_json
from nearkin.index import milvus_folder
from nearkin.index.collection import open_index
from nearkin.index.milvus_client import Milvus
from nearkin.index.milvus_folder import ADDRESS, Address, address, confirm, confirmed_address
from tests.serve.small_model import make_model

SERVER = "http://milvus.example:19530"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


def naming(folder: Path, uri: str) -> Path:
    write_checked_json(folder / ADDRESS, {"uri": uri, "name": "nearkin"})
    return folder


def test_an_address_is_used_only_when_the_user_has_named_it(folder: Path) -> None:
    naming(folder, SERVER)
    with pytest.raises(ValueError, match=f"names '{SERVER}', which you have not confirmed.*pass it once: --uri {SERVER}"):
        confirmed_address(folder)
    with pytest.raises(ValueError, match="uri 'http://other:1' is not the address in"):
        confirmed_address(folder, "http://other:1")
    assert confirmed_address(folder, SERVER) == Address(SERVER) == confirmed_address(folder)  # it is remembered
    naming(folder, "http://evil.example:19530")
    with pytest.raises(ValueError, match="which you have not confirmed"):
        confirmed_address(folder)


def test_a_folder_of_others_sends_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """`nearkin search` on a model folder that names a foreign server contacts nobody."""
    naming(make_model(folder), SERVER)
    monkeypatch.setenv("NEARKIN_MILVUS_TOKEN", "secret")
    monkeypatch.setattr(milvus_folder.MilvusIndex, "open", lambda *_, **__: pytest.fail("the server was contacted"))
    for words in (["search", "--id", "3"], ["index", "--delete", "3"], ["export", "--page", str(folder.parent / "out")]):
        assert cli.main([words[0], str(folder), *words[1:], "--device", "cpu"]) == 1
        assert "which you have not confirmed" in capsys.readouterr().err
    with pytest.raises(ValueError, match="which you have not confirmed"):
        open_index(folder, device="cpu")


def test_local_files_stay_inside_the_folder(folder: Path, tmp_path: Path) -> None:
    naming(folder, "points.db")
    assert confirmed_address(folder) == Address(str(folder.resolve() / "points.db"))
    moved = Path(shutil.move(folder, tmp_path / "moved"))
    assert confirmed_address(moved) == Address(str(moved.resolve() / "points.db"))
    for outside in ("../other.db", str(tmp_path / "other.db")):
        naming(moved, outside)
        with pytest.raises(ValueError, match="which you have not confirmed"):
            confirmed_address(moved)
    os.symlink(tmp_path, moved / "link")
    naming(moved, "link/other.db")
    with pytest.raises(ValueError, match="which you have not confirmed"):
        confirmed_address(moved)


def test_a_damaged_address_is_named_and_a_local_index_has_none(folder: Path) -> None:
    assert confirmed_address(folder) is None
    with pytest.raises(ValueError, match="is not in Milvus; leave it out"):
        confirmed_address(folder, SERVER)
    (folder / ADDRESS).write_text("{}")
    with pytest.raises(FileDamagedError, match="milvus.json is damaged: it names no address"):
        address(folder)
    write_checked_json(folder / ADDRESS, {"uri": 3, "name": "x"})
    with pytest.raises(FileDamagedError, match="names no address"):
        address(folder)


def test_what_is_remembered_survives_a_home_that_cannot_be_written(folder: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    confirm(SERVER)
    assert confirmed_address(naming(folder, SERVER), SERVER) == Address(SERVER)


@pytest.mark.parametrize(
    "uri", [SERVER, "http://10.0.0.1:19530", "tcp://milvus.example:19530", "http://user:password@milvus.example:19530"]
)
def test_a_token_is_not_sent_in_clear(uri: str) -> None:
    with pytest.raises(ValueError, match="would be sent in clear, for anyone on the way to read; use an https address") as error:
        Milvus(uri, token="" if "password" in uri else "secret")
    assert "user:password" not in str(error.value)


@pytest.mark.parametrize("uri", ["https://milvus.example:19530", "http://127.0.0.1:19530", "http://localhost:19530", "http://[::1]:19530"])
def test_a_token_is_sent_by_tls_or_to_this_machine(uri: str) -> None:
    pytest.importorskip("pymilvus")
    assert Milvus(uri, token="secret")._token == "secret"
