"""`nearkin export`: the network for other runtimes, or the explorer as a folder that opens from disk."""

import json
from argparse import Namespace
from pathlib import Path

from nearkin.cli.progress import note
from nearkin.cli.terminal import Terminal
from nearkin.index.collection import open_index
from nearkin.models.folder import load
from nearkin.serve.atlas.export import check_free, write_page
from nearkin.serve.atlas.model_maps import Indexed, ModelMap, build_maps
from nearkin.train.export import to_onnx


def run(arguments: Namespace) -> int:
    """Write the ONNX file, the page, or both."""
    if arguments.onnx is None and not arguments.page:
        raise ValueError("nothing to write: pass --onnx FILE.onnx for the network, or --page OUT for the explorer")
    if arguments.page:
        check_free(Path(arguments.page))
    console = Terminal(markup=False, highlight=False, soft_wrap=True)
    if arguments.onnx is not None:
        target = Path(arguments.onnx or Path(arguments.folder) / "model.onnx")
        console.print(json.dumps(to_onnx(load(arguments.folder, device="cpu", verify=not arguments.no_verify), target)))
    if arguments.page:
        page = write_page(_maps(arguments), Path(arguments.page), note)
        size = sum(file.stat().st_size for file in page.parent.rglob("*") if file.is_file())
        console.print(f"{page} ({size / 1e6:.1f} MB in its folder): open it in a browser")
    return 0


def _maps(arguments: Namespace) -> list[ModelMap]:
    how = {"device": arguments.device, "verify": not arguments.no_verify}
    collections = [open_index(arguments.folder, uri=arguments.uri, **how)]
    collections += [open_index(arguments.compare, **how)] if arguments.compare else []
    return list(build_maps([Indexed(one.folder, one.index.frozen()) for one in collections], arguments.map, note))[-1]
