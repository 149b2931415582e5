"""The HTML report: one self-contained page that no name or path of the data can add markup to."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import nn

from nearkin.data import Dataset
from nearkin.evaluate import Score
from nearkin.models.folder import Model
from nearkin.report.baselines import Baseline
from nearkin.report.html import Findings, as_html
from nearkin.report.illustrate import Illustration
from nearkin.report.inspection import Sanity
from nearkin.report.measure import Measured, measure
from nearkin.report.sanity import Finding, Suspect
from nearkin.report.subject import Subject, embedded

SCRIPT = "<script>alert(1)</script>"
ATTRIBUTE = '"><img src=x onerror=alert(1)>'
ABOUT: dict[str, Any] = {
    "prepare": [],
    "metric": "squared_euclidean",
    "shape": [3],
    "classes": [SCRIPT, "b"],
    "supervision": "classes",
    "objective": "nca",
    "why": "the data have classes",
    "network": {"name": "linear", "dimension": 3},
}


class Tags(HTMLParser):
    """Collects every tag and checks that they are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


class Drawn:
    """Stands for a matplotlib figure."""

    def savefig(self, file: Any, **_: Any) -> None:
        file.write(b"png")


@pytest.fixture
def findings() -> Findings:
    """Ten queries among themselves, with hostile text wherever text comes from the data or the command line."""
    data = Dataset(
        ATTRIBUTE, torch.randn(10, 3, generator=torch.Generator().manual_seed(0)), labels=torch.arange(10) % 2, classes=(SCRIPT, "b")
    )
    model = Model(nn.Identity(), ABOUT)
    subject = Subject(model, embedded(model, data, "test part"), None, (SCRIPT, "b"), "classes", "test")
    measured = measure(subject)
    measured.notes.append(SCRIPT)
    checks = [Finding("Fine", "fine", "nothing."), Finding("A", "look", SCRIPT, ATTRIBUTE), Finding("B", "wrong", "serious.")]
    sanity = Sanity(checks, None, [("test part", f"/photos/{SCRIPT}/{ATTRIBUTE}.png", Suspect(0, 0, 1, 0.9))])
    baselines = [Baseline(SCRIPT, 3, {"1-nn": Score("1-nn", 0.5, 0.4, 0.6, 0.1)}, 0.1, ATTRIBUTE)]
    return Findings(subject, measured, sanity, baselines, {"model": f"runs/{SCRIPT}", "command": ATTRIBUTE, "versions": {"a": SCRIPT}})


def test_class_names_and_paths_add_no_markup(findings: Findings) -> None:
    text = as_html(findings, [Illustration("worst", "neighbors", Drawn(), ATTRIBUTE, SCRIPT)])
    tags = Tags(text)
    assert {"script"}.isdisjoint(tag for tag, _ in tags.found) and not any("onerror" in attributes for _, attributes in tags.found)
    images = [attributes for tag, attributes in tags.found if tag == "img"]
    assert images == [{"src": "data:image/png;base64,cG5n", "alt": ATTRIBUTE}]
    assert text.count("&lt;script&gt;") >= 7 and "&#34;&gt;&lt;img src=x" in text


def test_a_figure_is_drawn_once_in_each_format_however_often_it_is_written(findings: Findings) -> None:
    drawn: list[str] = []

    class Counted(Drawn):
        def savefig(self, file: Any, **how: Any) -> None:
            drawn.append(how["format"])
            super().savefig(file)

    one = Illustration("worst", "neighbors", Counted(), "alt", "caption")
    assert as_html(findings, [one]) == as_html(findings, [one]) and one.png == one.svg == one.svg
    assert drawn == ["png", "svg"]


def test_the_page_fetches_nothing_and_has_both_color_schemes(findings: Findings) -> None:
    text = as_html(findings, [])
    assert not re.search(r"https?://|<link|@import|url\(", text) and "prefers-color-scheme: dark" in text


def test_only_sections_with_content_are_shown_and_each_has_a_link(findings: Findings) -> None:
    tags = Tags(as_html(findings, [])).found
    sections = [attributes["id"] for tag, attributes in tags if tag == "section"]
    assert sections == ["problems", "baselines", "figures", "classes", "made"]
    assert [attributes["href"] for tag, attributes in tags if tag == "a"] == [f"#{name}" for name in sections]


def test_the_most_serious_check_comes_first_and_passed_ones_are_folded(findings: Findings) -> None:
    text = as_html(findings, [])
    assert text.index("serious.") < text.index("<b>A.</b>") < text.index("<summary>1 checks passed") < text.index("<b>Fine.</b>")


def test_the_verdict_is_the_share_of_right_nearest_neighbors(findings: Findings) -> None:
    score = findings.measured.scores["prediction from neighbors"]["1-nn"]
    right = round(10 * float(score))
    assert f'<p class="verdict">{right} of 10 queries have a right nearest neighbor: one of their own class. ' in as_html(findings, [])


def test_a_bar_spans_the_interval_and_marks_value_and_chance(findings: Findings) -> None:
    measured = Measured({"retrieval": {"mrr": Score("mrr", 0.5, 0.25, 0.75, 0.125)}})
    text = as_html(Findings(findings.subject, measured, Sanity()), [])
    expected = '<i style="left: 25.0%; width: 50.0%"></i><u style="left: 50.0%"></u><b style="left: 12.5%"></b>'
    assert expected in text and "<p>No check found a problem.</p>" in text
