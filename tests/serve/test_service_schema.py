"""The service against its own description: schemathesis asks what the OpenAPI page promises, and what it forbids."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from nearkin.serve.app import make_app
from nearkin.serve.schemas import ImageTypes
from tests.serve.small_model import encoded, make_collection, picture

schemathesis = pytest.importorskip("schemathesis")

PICTURES = [encoded(picture("red", 1), kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP")]
ROUTES = [("/search", "post"), ("/points", "get"), ("/image/{id}", "get"), ("/health", "get"), ("/metrics", "get")]


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> Any:
    for kind, content in zip(ImageTypes, PICTURES, strict=True):
        schemathesis.openapi.media_type(kind, st.just(content))
    app = make_app(make_collection(tmp_path_factory.mktemp("described")))
    return schemathesis.openapi.from_asgi("/openapi.json", app, headers={"Host": "127.0.0.1"})


def test_every_route_is_described(description: Any) -> None:
    assert sorted((path, method) for path in description for method in description[path]) == sorted(ROUTES)


@pytest.mark.parametrize(
    ("path", "method", "mode"),
    [(*route, mode) for route in ROUTES for mode in ("POSITIVE", "NEGATIVE") if route in ROUTES[:3] or mode == "POSITIVE"],
)
def test_every_answer_is_as_described(description: Any, path: str, method: str, mode: str) -> None:
    cases = description[path][method].as_strategy(generation_mode=schemathesis.GenerationMode[mode])

    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def ask(case: Any) -> None:
        if mode == "POSITIVE":  # no schema can say that no key may be given twice
            keys = [one.partition("=")[0] for one in dict(case.query or {}).get("where", ())]
            assume(len(set(keys)) == len(keys))
        form = case.media_type == "multipart/form-data"  # no schema can say that a file must be a picture: the drawn ones are not
        excluded = [schemathesis.checks.positive_data_acceptance] if form else []
        case.call_and_validate(headers={"Host": "127.0.0.1"}, excluded_checks=excluded)

    ask()
