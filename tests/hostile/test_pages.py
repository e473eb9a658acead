"""A report shows strangers' words as words: no name, setting, event or reason becomes markup."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.report_journals import data_of, write
from turnout.report import write_report
from turnout.report.contents import contents
from turnout.report.figures import drawings
from turnout.report.load_studies import gather

MARKUP = (
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--", "-->", "]]>", "&lt;b&gt;", "'\"><b>",
    "</title><svg onload=alert(1)>", "javascript:alert(1)", "{{7*7}}", "${7*7}", "</style><style>*{}", "\\u003cb>",
    "&#60;b", "<a href='javascript:1'>", "\\", "../../x", "%3Cb%3E",
)  # fmt: skip
printable = st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp", "Zs"])
names = st.tuples(st.sampled_from(MARKUP), st.text(printable, max_size=8)).map("".join)
anything = names | st.text(st.characters(codec="utf-8"), max_size=20)


class Shape(HTMLParser):
    """The tags of a page, each with the names of its attributes: what a browser would build."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.tags.append((f"/{tag}",))

    def handle_comment(self, data: str) -> None:
        self.tags.append(("comment",))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def shape_of(page: str) -> Shape:
    shape = Shape()
    shape.feed(page)
    shape.close()
    return shape


def page_with(folder: Path, words: dict[str, str]) -> str:
    """Return the page of a study in which every word a stranger can choose is one of these."""
    journal = write(
        folder,
        arms=(f"1{words['arm']}", f"2{words['arm']}"),
        seeds=2,
        rounds=2,
        study=words["study"],
        config={words["key"]: words["value"], "data": {"use": words["value"], "more": {words["key"]: 1}}},
        events=(words["event"],),
        rejected={0: words["event"]},
        metrics={"loss": 1.0, "accuracy": 0.5, f"m{words['metric']}": 2.0},
    )
    return write_report([journal], folder / "report.html").read_text(encoding="utf-8")


PLAIN = {"arm": "a", "study": "s", "key": "k", "value": "v", "event": "e", "metric": "m"}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Shape:
    """The page of the same study with harmless words."""
    return shape_of(page_with(tmp_path_factory.mktemp("plain") / "runs", PLAIN))


@given(
    st.fixed_dictionaries(
        {"arm": names, "study": names, "metric": names, "key": anything, "value": anything, "event": anything}
    )
)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_property_no_word_changes_what_the_page_is_built_of(
    plain: Shape, tmp_path_factory: pytest.TempPathFactory, words: dict[str, str]
) -> None:
    folder = tmp_path_factory.mktemp("words") / "runs"
    page = page_with(folder, words)
    found = shape_of(page)
    assert found.tags == plain.tags
    assert words["study"] in "".join(found.words)
    assert any(words["arm"] in text for text in texts_of(data_of(page)))
    told = contents(gather([folder]))
    drawn = dict(drawings(told))
    assert drawn
    for name in (*drawn, *(table.name for table in told.tables)):
        assert re.fullmatch(r"[\w-]+", name)  # it becomes a file's name
    for text in drawn.values():
        elements = list(ElementTree.fromstring(text).iter())
        assert not {element.tag.rpartition("}")[2] for element in elements} & {"script", "img", "a", "foreignObject"}
        linked = [value for each in elements for name, value in each.attrib.items() if name.endswith("href")]
        assert all(value.startswith("data:image/png;base64,") for value in linked)


def texts_of(value: Any) -> list[str]:
    """Return every text within a JSON value."""
    if isinstance(value, dict):
        return [*value, *(text for each in value.values() for text in texts_of(each))]
    if isinstance(value, list):
        return [text for each in value for text in texts_of(each)]
    return [value] if isinstance(value, str) else []


def test_contract_the_test_would_see_a_word_that_became_markup() -> None:
    word = "<b>x</b>"
    assert shape_of(f"<p>{word}").tags != shape_of("<p>x").tags
    assert shape_of(f"<script>{json.dumps('</script><b>')}</script>").tags != shape_of("<script>1</script>").tags
