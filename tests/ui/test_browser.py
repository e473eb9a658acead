"""The pages in a real browser, beside real runs; skipped where there is no browser."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.support.browser import Browser, Tab, browser_path
from tests.support.report_journals import write
from tests.support.ui_serving import ask, asked_for, is_ready, linked, rows, run, serving, start, visit, wait_for
from turnout.ui import Server

PATH = browser_path()
pytestmark = pytest.mark.skipif(PATH is None, reason="no browser (chromium or google-chrome) is on the path")
NASTY = "<script>alert(1)</script>"


@pytest.fixture
def browser() -> Iterator[Browser]:
    assert PATH is not None
    with Browser(PATH) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    run(root, root / "small")
    same_data = {"data": {"use": "digits"}}  # runs on other data are not compared
    write(root / NASTY, study=NASTY, arms=(NASTY, "FedNova"), config=same_data)
    return root


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as running:
        yield running


def is_quiet(browser: Browser, tab: Tab, server: Server) -> bool:
    tab.run("1")
    assert tab.complaints() == []
    assert [url for url in asked_for(browser) if not url.startswith(server.url)] == []
    return True


def text(tab: Tab, selector: str) -> Any:
    return tab.run(f"document.querySelector('{selector}')?.textContent ?? ''")


def click(tab: Tab, selector: str) -> None:
    tab.run(f"document.querySelector('{selector}').click()")


def look_for(tab: Tab, words: str) -> None:
    box = "document.querySelector('[data-part=find]')"
    tab.run(f"{{ const box = {box}; box.value = '{words}'; box.dispatchEvent(new Event('input')); }}")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 400])
def test_contract_the_list_is_drawn_quietly_and_fits(browser: Browser, server: Server, width: int, dark: bool) -> None:
    tab = visit(browser, server.url, width=width, dark=dark)
    assert tab.run("document.documentElement.scrollWidth") <= width
    assert tab.run("document.querySelectorAll('tbody tr').length") == 2
    assert text(tab, "[data-part=states]") == "all 2finished 2"
    colour = tab.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert is_quiet(browser, tab, server)


def test_contract_a_name_with_markup_stays_text(browser: Browser, server: Server) -> None:
    tab = visit(browser, server.url)
    assert NASTY in tab.run("[...document.querySelectorAll('tbody a')].map(a => a.textContent)")
    assert tab.run("document.querySelectorAll('tbody script').length") == 0
    tab.run(f"[...document.querySelectorAll('tbody a')].find(a => a.textContent === {NASTY!r}).click()")
    wait_for(lambda: text(tab, "h1 span") == NASTY and is_ready(tab))
    assert is_quiet(browser, tab, server)
    missing = ask(server, f"/show?run={quote(NASTY)}gone")
    assert missing.status == 404
    assert f"There is no run called {escape(NASTY)}gone here." in missing.text


def test_contract_ticking_two_runs_puts_them_side_by_side(browser: Browser, server: Server) -> None:
    tab = visit(browser, server.url)
    assert tab.run("document.querySelector('.compare').hidden")
    tab.run("document.querySelectorAll('tbody input').forEach(box => box.click())")
    assert text(tab, "[data-part=ticked]") == "2 runs selected"
    click(tab, "[data-part=go]")
    wait_for(lambda: "turnout report" in tab.run("document.title") and is_ready(tab))
    arms = tab.run("[...document.querySelectorAll('#comparison table')][0].innerText")
    assert all(arm in arms for arm in ("FedAvg", "FedNova", NASTY))
    assert tab.run("document.querySelectorAll('[data-picture=curves] polyline').length") == 4
    click(tab, "header nav a")
    wait_for(lambda: tab.run("document.querySelectorAll('tbody tr input').length") == 2)
    assert is_quiet(browser, tab, server)


def test_contract_the_list_can_be_searched_and_sorted(browser: Browser, server: Server) -> None:
    tab = visit(browser, server.url)
    names = "[...document.querySelectorAll('tbody a')].map(a => a.textContent)"
    click(tab, "[data-by=study] button")
    forwards = tab.run(names)
    click(tab, "[data-by=study] button")
    assert tab.run(names) == forwards[::-1]
    look_for(tab, "SMALL")
    assert tab.run(names) == ["small"]
    look_for(tab, "nothing like it")
    assert tab.run(names) == []
    assert text(tab, "[data-part=none]") == "No run matches."


@pytest.mark.slow
def test_contract_a_study_is_seen_to_begin_to_grow_and_to_be_killed(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        tab = visit(browser, server.url)
        assert text(tab, "[data-part=none]").startswith("There are no runs yet.")
        with start(tmp_path, tmp_path / "slow", "rounds=100000", "local.epochs=5") as process:
            try:
                wait_for(lambda: text(tab, "tbody .badge") == "running")  # nobody loads the list again
                first = text(tab, "tbody .rounds small")
                wait_for(lambda: text(tab, "tbody .rounds small") != first)
                wait_for(lambda: rows(ask(server, "/"))["slow"]["done"] > 12)
                _grows(browser, server)
            finally:
                process.kill()
        tab = visit(browser, server.url)  # the list was behind the other page, and so did not listen
        wait_for(lambda: text(tab, "tbody .badge") == "interrupted")
        assert is_quiet(browser, tab, server)


def _grows(browser: Browser, server: Server) -> None:
    page = visit(browser, f"{server.url}show?run=slow")
    assert text(page, ".words").startswith("Running: ")
    table, words = text(page, "#comparison table"), text(page, ".words")
    curve, seen = last_point(page), drawn_map(page)
    page.choose("curves", "metric", "1")
    wait_for(lambda: text(page, ".words") != words)
    wait_for(lambda: text(page, "#comparison table") != table)
    assert drawn_map(page) != seen
    assert page.run("document.querySelector('[data-picture=curves] [data-part=metric]').value") == "1"
    page.choose("curves", "metric", "0")
    assert last_point(page) > curve
    assert NASTY in text(page, "[data-picture=curves] .legend")
    assert is_quiet(browser, page, server)


def last_point(tab: Tab) -> int:
    found = tab.run("Math.max(...data.metrics[0].curves.map(c => c.x[0].at(-1)))")
    return int(found)


def drawn_map(tab: Tab) -> str:
    return str(tab.run("document.querySelector('[data-picture=map] canvas').toDataURL()"))


@pytest.mark.slow
def test_contract_a_page_of_a_study_that_ends_becomes_its_report(browser: Browser, tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with start(tmp_path, tmp_path / "slow", "rounds=100000", "local.epochs=5") as process:
            try:
                wait_for(lambda: rows(ask(server, "/")).get("slow", {}).get("done", 0) > 12)
                tab = visit(browser, f"{server.url}show?run=slow")
                assert text(tab, ".words").startswith("Running: ")
            finally:
                process.kill()
        wait_for(lambda: "turnout report" in tab.run("document.title") and is_ready(tab))
        assert text(tab, ".rests").endswith("4 runs not finished.")
        assert is_quiet(browser, tab, server)


@pytest.mark.slow
def test_contract_a_page_that_is_not_looked_at_does_not_listen(browser: Browser, server: Server) -> None:
    tab = visit(browser, server.url)
    wait_for(lambda: server.watcher.viewers == 1)
    for is_hidden, viewers in (("true", 0), ("false", 1)):
        tab.run(f"Object.defineProperty(document, 'hidden', {{ get: () => {is_hidden}, configurable: true }})")
        tab.run("document.dispatchEvent(new Event('visibilitychange'))")
        wait_for(lambda wanted=viewers: server.watcher.viewers == wanted)  # type: ignore[misc]
    assert is_quiet(browser, tab, server)


def test_contract_a_thousand_lines_are_drawn(browser: Browser, tmp_path: Path) -> None:
    first = write(tmp_path / "0", arms=("A",), seeds=1, rounds=1)
    for place in range(1, 1000):
        linked(first, tmp_path / str(place))
    with serving(tmp_path) as server:
        tab = visit(browser, server.url)
        assert tab.run("document.querySelectorAll('tbody tr').length") == 1000
        assert text(tab, "[data-part=states]") == "all 1,000finished 1,000"
        assert is_quiet(browser, tab, server)
