"""An atlas on disk: one safetensors file in the model folder, valid for one content of the index."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as serialized

from nearkin.data.disk import replacing
from nearkin.report.sanity import Suspect
from nearkin.serve.atlas.atlas import Atlas
from nearkin.serve.atlas.lists import Lists

FORMAT = 5


def save(path: Path, atlas: Atlas, key: dict[str, Any]) -> None:
    """Write an atlas; the file is always whole, and holds its own checksum."""
    lists = atlas.lists
    arrays = {
        "points": atlas.points,
        "positions": atlas.positions,
        "affinity": atlas.affinity,
        "right": atlas.right,
        "purity": atlas.purity,
        "worst": lists.worst.astype(np.int64),
        "duplicates": np.array(lists.duplicates, dtype=np.float64).reshape(-1, 3),
        "suspects": np.array(lists.suspects or [], dtype=np.float64).reshape(-1, 4),
    }
    if atlas.residual is not None:
        arrays["residual"] = atlas.residual
    header = {
        "key": key,
        "format": FORMAT,
        "method": atlas.method,
        "confused": [[a, b, rows.tolist()] for a, b, rows in lists.confused],
        "compared": [lists.compared, lists.later],
    }
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    content = serialized(whole, {"atlas": json.dumps(header), "sha256": _digest(whole, header)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)


def is_whole(path: Path) -> bool:
    """Whether a stored atlas matches its own checksum."""
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return bool(about.get("sha256") == _digest(arrays, json.loads(about["atlas"])))
    except (OSError, SafetensorError, ValueError, KeyError):
        return False


def load(path: Path, key: dict[str, Any]) -> Atlas | None:
    """The atlas stored for this key, or None."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("atlas", "{}"))
            if header.get("format") != FORMAT or header["key"] != key:
                return None
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if (file.metadata() or {}).get("sha256") != _digest(arrays, header):
                return None
    except (OSError, SafetensorError, ValueError, KeyError, AttributeError):  # damaged: it is built again
        return None
    lists = Lists(
        worst=arrays["worst"],
        confused=[(a, b, np.array(rows, dtype=np.int64)) for a, b, rows in header["confused"]],
        suspects=[Suspect(int(row), int(label), int(says), float(share)) for row, label, says, share in arrays["suspects"].tolist()],
        duplicates=[(int(a), int(b), float(apart)) for a, b, apart in arrays["duplicates"].tolist()],
        compared=header["compared"][0],
        later=header["compared"][1],
    )
    names = ("points", "positions", "affinity", "right", "purity")
    return Atlas(method=header["method"], **{name: arrays[name] for name in names}, residual=arrays.get("residual"), lists=lists)


def _digest(arrays: Mapping[str, np.ndarray], header: Mapping[str, Any]) -> str:
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(arrays):
        found.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        found.update(np.ascontiguousarray(arrays[name]).tobytes())
    return found.hexdigest()
