"""The page in a real browser; skipped where there is none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.browser import Browser, Tab, browser_path
from tests.support.optional import present
from tests.support.report_journals import held, write
from turnout.report import write_report

PATH = browser_path()
pytestmark = pytest.mark.skipif(PATH is None, reason="no browser (chromium or google-chrome) is on the path")
NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PATH is not None
    with Browser(PATH) as running:
        yield running


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with everything on it."""
    there = tmp_path_factory.mktemp("report")
    arms = ("FedAvg", NASTY, "FedNova")
    changes: dict[str, Any] = {"events": ("client 3 arrived",), "client_accuracy": np.linspace(0, 1, 12)}
    folder = write(there / "phones", study="phones", arms=arms, holdings=held(), **changes)
    return write_report([folder], there / "page.html")


def drawn(tab: Tab, picture: str) -> str:
    """Return a picture as text, to see whether it changed."""
    box = f"document.querySelector('[data-picture={picture}] .chart')"
    found = tab.run(f"(c => c.querySelector('canvas') ? c.querySelector('canvas').toDataURL() : c.innerHTML)({box})")
    assert isinstance(found, str)
    return found


def is_quiet(tab: Tab) -> bool:
    tab.run("1")
    assert tab.complaints() == []
    assert tab.requests() == []
    return True


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1400, 400])
def test_contract_the_page_is_drawn_quietly_and_fits(browser: Browser, page: Path, width: int, dark: bool) -> None:
    tab = browser.open(page, width=width, dark=dark)
    assert tab.run("document.documentElement.scrollWidth") <= width
    charts = tab.run("[...document.querySelectorAll('.chart')].map(c => c.querySelector('svg, canvas') !== null)")
    assert charts == [True] * 14  # six of them fairness over rounds
    colour = tab.run("getComputedStyle(document.body).backgroundColor")
    assert colour == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert is_quiet(tab)


def test_contract_the_switches_of_the_curves_work(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    seen = [drawn(tab, "curves")]
    for part, value in (("metric", "1"), ("band", "range"), ("band", "none")):
        tab.choose("curves", part, value)
        seen.append(drawn(tab, "curves"))
    for value in ("1", "2"):
        tab.run(f"document.querySelector('[data-part=axis] [data-value=\"{value}\"]').click()")
        seen.append(drawn(tab, "curves"))
    tab.run("document.querySelector('[data-part=log]').click()")
    seen.append(drawn(tab, "curves"))
    assert len(set(seen)) == len(seen)
    assert "bytes, down + up" not in seen[0]
    assert "bytes, down + up" in seen[4]
    assert is_quiet(tab)


def test_contract_switching_an_arm_off_takes_it_out_of_every_picture(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    count = "document.querySelectorAll('[data-picture] polyline[data-arm=\"2\"]').length"
    assert tab.run(count) == 10
    tab.run("document.querySelectorAll('[data-picture=curves] .legend button')[2].click()")
    assert tab.run(count) == 0
    assert is_quiet(tab)


def test_contract_the_map_follows_its_lists(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    seen = [drawn(tab, "map")]
    for part, value in (
        ("order", "id"),
        ("order", "sizes"),
        ("order", "speed"),
        ("quantity", "up"),
        ("seed", "2"),
        ("arm", "1"),
    ):
        tab.choose("map", part, value)
        seen.append(drawn(tab, "map"))
    assert len(set(seen)) == len(seen)
    assert tab.run("document.querySelector('[data-part=of]').textContent") == f"{NASTY}, seed 2"
    assert is_quiet(tab)


def test_contract_clients_stand_in_the_order_asked_for(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    wanted = {"sizes": np.argsort(-held()(1).sizes, kind="stable"), "id": np.arange(12)}
    wanted["speed"] = np.argsort(present(held()(1).seconds_per_step), kind="stable")  # the fastest first
    for by, order in wanted.items():
        found = tab.run(f"JSON.stringify(orderOf(data.maps.runs.find(r => r.arm === 0 && r.seed === 1), '{by}'))")
        assert json.loads(found) == order.tolist()


def test_contract_events_are_marked_on_every_time_axis(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    for picture, charts in (("curves", 1), ("fairness", 6)):
        axes = tab.run(f"document.querySelectorAll('[data-picture={picture}] [data-part=axis] button').length")
        assert axes == 3
        for axis in range(axes):
            tab.run(f"document.querySelectorAll('[data-picture={picture}] [data-part=axis] button')[{axis}].click()")
            marks = tab.run(f"document.querySelectorAll('[data-picture={picture}] .chart .event').length")
            assert marks == 4 * charts  # one a round


def test_contract_one_seed_offers_no_band_and_one_arm_no_legend(browser: Browser, tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A",), seeds=1)
    tab = browser.open(write_report([folder], tmp_path / "page.html"))
    assert tab.run("document.querySelector('[data-part=banded]').hidden") is True
    assert tab.run("document.querySelectorAll('.legend button, .band').length") == 0
    assert tab.run("document.querySelector('[data-part=order] [value=speed]').disabled") is True
    assert is_quiet(tab)


def test_contract_the_script_reads_the_same_states_as_the_journal(browser: Browser, page: Path) -> None:
    from turnout.report.contents import contents
    from turnout.report.figures import states
    from turnout.report.load_studies import gather

    run = contents(gather([page.parent / "phones"])).first_runs["FedNova"]
    tab = browser.open(page)
    read = json.loads(
        tab.run("JSON.stringify(Array.from(matrix(data.maps.runs.find(r => r.arm === 2 && r.seed === 0))))")
    )
    np.testing.assert_array_equal(np.array(read).reshape(4, 12), states(run).T)


def test_contract_markup_in_a_name_stays_text(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    assert tab.run("document.querySelectorAll('img').length") == 0
    assert tab.run("document.querySelector('[data-picture=curves] .legend').textContent").count(NASTY) == 1
    assert is_quiet(tab)


def test_contract_a_tip_tells_the_values(browser: Browser, page: Path) -> None:
    tab = browser.open(page)
    box = tab.run("JSON.stringify(document.querySelector('[data-picture=curves] svg[role]').getBoundingClientRect())")
    at = json.loads(box)
    tab.run(f"scrollTo({{ top: {at['y'] - 100}, behavior: 'instant' }})")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=at["x"] + at["width"] - 30, y=200)
    tip = tab.run("document.querySelector('[data-picture=curves] .tip').textContent")
    assert tip.startswith("rounds: 4")
    assert "client 3 arrived" in tip


def test_contract_many_clients_are_binned(browser: Browser, tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A",), seeds=1, rounds=30, num_clients=3000, cohort=30)
    tab = browser.open(write_report([folder], tmp_path / "page.html"))
    assert tab.run("document.querySelector('[data-part=quantity]').value") == "used"
    assert "of the clients and rounds in a cell" in tab.run(
        "document.querySelector('[data-picture=map] .legend').textContent"
    )
    assert is_quiet(tab)


def test_contract_a_page_where_nobody_came_is_quiet(browser: Browser, tmp_path: Path) -> None:
    nobody = {name: np.zeros(0, dtype=np.int64) for name in ("up", "asked", "multiplicity", "answered")}
    nobody |= {"asked_steps": nobody["up"], "local_steps": nobody["up"]}
    floats: dict[str, Any] = {"coefficients": np.zeros(0), "losses": np.zeros(0)}
    folder = write(tmp_path / "phones", **nobody, **floats)  # type: ignore[arg-type]
    assert is_quiet(browser.open(write_report([folder], tmp_path / "page.html")))
