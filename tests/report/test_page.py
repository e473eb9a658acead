"""The page as a file: what it says, what it escapes, what it never asks for, and how large it gets."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.report_journals import change, data_of, held, unpacked, write
from turnout.analysis.compare import compare
from turnout.analysis.comparison import NOBODY
from turnout.cli.report import report
from turnout.errors import ConfigError, JournalError
from turnout.journal import load
from turnout.number_format import amount_of_bytes, number, ranges, seconds
from turnout.report import write_report
from turnout.report.tables import latex_text

NASTY = "<script>alert(1)</script>"
NO_ONE = {name: np.zeros(0, dtype=np.int64) for name in ("up", "asked", "multiplicity", "answered", "asked_steps")}
NOBODY_AT_ALL: dict[str, Any] = {
    **NO_ONE,
    "local_steps": NO_ONE["up"],
    "coefficients": np.zeros(0),
    "losses": np.zeros(0),
}


def page_of(folder: Path) -> str:
    return write_report([folder], folder.parent / "report.html").read_text(encoding="utf-8")


def text_of(page: str) -> str:
    """Return what a reader sees, without tags."""
    body = re.sub(r"<script.*?</script>", "", page.partition("<body>")[2], flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", body)).replace("&#x27;", "'")


def test_contract_the_verdict_is_the_comparisons(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones")
    assert compare(load(folder)).verdict() in text_of(page_of(folder))


def test_contract_the_table_shows_mean_spread_difference_and_costs(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones")
    text, found = text_of(page_of(folder)), compare(load(folder))
    row = found.rows[1]
    assert row.final.mean is not None
    assert row.final.std is not None
    assert row.difference is not None
    assert f"{100 * row.final.mean:.2f} ± {100 * row.final.std:.2f} %" in text
    assert f"{100 * row.difference.mean:+.1f} [".replace("-", "−") in text
    assert amount_of_bytes(row.to_target["bytes"].median) in text


def test_contract_the_target_of_the_study_is_used(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", config={"target": {"accuracy": 0.21}})
    assert "target: accuracy 21.00 % (as given)" in text_of(page_of(folder))


@pytest.mark.parametrize("where", ["study", "arm", "event", "fact"])
def test_contract_markup_stays_text(tmp_path: Path, where: str) -> None:
    study, arms = (NASTY if where == "study" else "phones"), (("A", NASTY) if where == "arm" else ("A", "B"))
    folder = write(tmp_path / "phones", study=study, arms=arms, **({"events": (NASTY,)} if where == "event" else {}))  # type: ignore[arg-type]
    if where == "fact":
        change(folder, "UPDATE study SET facts = ?", json.dumps({"engine": NASTY}))
    page = page_of(folder)
    assert NASTY not in page
    assert len(re.findall("<script", page)) == 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    if where == "arm":
        assert data_of(page)["arms"] == ["A", NASTY]


def test_contract_no_address_is_in_the_page(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "phones"))
    assert re.findall(r"https?:|//[a-z0-9-]+\.[a-z]|url\(|@import|src=|<link(?! rel=icon href=\"data:,\")", page) == []


def test_contract_the_policy_allows_this_script_and_nothing_else(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "phones"))
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; script-src 'sha256-{digest}';")
    assert "connect-src" not in policy


def test_contract_ten_thousand_clients_stay_small(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", seeds=2, rounds=200, num_clients=10_000, cohort=50)
    page = page_of(folder)
    assert len(page) < 3_000_000
    assert data_of(page)["maps"]["every_round"] == 1
    assert len(data_of(page)["maps"]["runs"]) == 4


@pytest.mark.parametrize("arms", [("FedAvg",), ("FedAvg", "FedNova")])
def test_contract_one_seed_is_said_in_words_and_shows_no_spread(tmp_path: Path, arms: tuple[str, ...]) -> None:
    page = page_of(write(tmp_path / "phones", arms=arms, seeds=1, client_accuracy=np.linspace(0, 1, 12)))
    text = text_of(page)
    assert "in the only seed that was run" in text
    assert "One seed does not show how much results vary: run more seeds." in text
    assert "One seed, so no band." in text
    shown = text.replace("± std over seeds", "")  # an entry of a list that is hidden
    assert "±" not in shown
    assert "[–]" not in shown
    assert "All statistical tests" not in text


def test_contract_every_test_is_in_a_table_of_its_own(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones")
    page = text_of(page_of(folder)).partition("All statistical tests")[2].partition("Training curves")[0]
    row = compare(load(folder)).rows[1]
    assert row.difference is not None
    assert f"{number(row.difference.effect_size)}" in page
    low, high = (100 * end for end in (row.difference.low or 0, row.difference.high or 0))
    assert f"{low:.1f} to {high:.1f}".replace("-", "−") in page


def test_contract_fairness_and_rules_have_pictures_over_rounds(tmp_path: Path) -> None:
    plain = page_of(write(tmp_path / "plain"))
    assert "data-picture=fairness" not in plain.partition("<script")[0]
    assert "data-picture=rules" not in plain.partition("<script")[0]
    metrics = {"loss": 1.0, "accuracy": 0.5, "server_lr": 2.0}
    full = page_of(write(tmp_path / "full", metrics=metrics, client_accuracy=np.linspace(0, 1, 12)))
    assert "data-picture=fairness" in full
    assert "data-picture=rules" in full
    groups = {each["label"]: each["group"] for each in data_of(full)["metrics"]}
    assert groups["server learning rate"] == "metrics of the rules"
    assert groups["Jain's index of client accuracies"] == "fairness"


def test_contract_appeal_has_a_table_and_a_picture_over_rounds(tmp_path: Path) -> None:
    assert "Appeal over rounds" not in text_of(page_of(write(tmp_path / "plain")))
    metrics = {"loss": 1.0, "accuracy": 0.5, "appeal": 0.25, "cohort_appeal": 0.75}
    page = page_of(write(tmp_path / "full", metrics=metrics))
    assert "data-picture=appeal" in page
    text = text_of(page)
    assert "Appeal over rounds" in text
    table = text.partition("that the client trained alone.")[2][:400]
    assert "last tenth of the rounds" in table
    assert "25" in table
    assert "75" in table
    groups = {each["label"]: each["group"] for each in data_of(page)["metrics"]}
    assert groups["share of clients that the model serves"] == "appeal"
    assert groups["share of the cohort that the model serves"] == "appeal"


def test_contract_clients_measured_once_are_not_drawn_over_rounds(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", rounds=1, client_accuracy=np.linspace(0, 1, 12))
    page = page_of(folder)
    assert "Clients were evaluated once. Set evaluate.clients_every to see their accuracy over rounds." in text_of(page)
    assert "data-picture=fairness" not in page.partition("<script")[0]


def test_contract_one_arm_has_nothing_to_compare_with(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "phones", arms=("FedAvg",), seeds=1))
    assert "There is only one arm, so nothing to compare" in text_of(page)
    assert "data-picture=forest" not in page.partition("<script")[0]


def test_contract_nobody_came_is_said_first(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "phones", events=("nobody was up",), **NOBODY_AT_ALL))
    text = text_of(page)
    assert NOBODY in text
    assert "No client's update was used" not in text, "once is enough"
    assert "No client was asked in any round." in text
    assert "nobody was up 1–4 every arm 6" in text


def test_golden_rejected_updates_are_counted_by_reason(tmp_path: Path) -> None:
    liars = {1: "the update is not finite", 2: "the update norm exceeds trust.max_norm = 1"}
    folder = write(tmp_path / "phones", arms=("FedAvg",), seeds=2, rounds=3, rejected=liars)
    text = text_of(page_of(folder))
    assert "FedAvg the update is not finite 6" in text  # two seeds, three rounds
    assert "FedAvg the update norm exceeds trust.max_norm = 1 6" in text
    assert "Rejected updates" not in text_of(page_of(write(tmp_path / "honest")))


def test_contract_twelve_arms_all_have_a_row_and_a_look_of_their_own(tmp_path: Path) -> None:
    arms = tuple(f"arm {place}" for place in range(12))
    page = page_of(write(tmp_path / "phones", arms=arms, seeds=2))
    assert data_of(page)["arms"] == list(arms)
    table = page.partition("id=comparison")[2].partition("</table>")[0]
    assert re.findall(r"<span>(arm \d+)</span>", table) == list(arms)
    assert len(set(re.findall(r'class="(arm c\d d\d)"', table))) == 12


def test_contract_a_study_that_is_running_shows_what_it_has(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "phones", finished=False))
    assert "No run is finished" in text_of(page)
    assert "6 runs not finished." in text_of(page)
    assert len(data_of(page)["metrics"][0]["curves"]) == 2
    assert "id=comparison" not in page


def test_contract_a_study_without_a_test_set_is_shown(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", metrics={})
    change(folder, "UPDATE round SET loss = NULL, accuracy = NULL, evaluated = 0")
    page = page_of(folder)
    assert "Nothing was measured" in text_of(page)
    assert [each["group"] for each in data_of(page)["metrics"]] == ["participation"] * 3


def test_contract_a_study_with_no_run_yet_is_shown(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "phones", seeds=0))
    assert "Nothing was measured" in text_of(page)
    assert data_of(page)["arms"] == []


def test_contract_shortages_of_all_sizes_are_one_event(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", events=("fewer than 8 clients were asked: too few were available",) * 2)
    assert "fewer than 8 clients were asked: too few were available 1–4" in text_of(page_of(folder))


def test_contract_who_holds_what_is_in_the_journal(tmp_path: Path) -> None:
    found = data_of(page_of(write(tmp_path / "known", holdings=held())))["maps"]
    assert [run["holdings"] for run in found["runs"]] == [0, 0, 1, 1, 2, 2]  # each seed deals anew
    for seed in range(3):
        wanted = held()(seed)
        np.testing.assert_array_equal(unpacked(found["holdings"][seed]["sizes"]), wanted.sizes)
        np.testing.assert_allclose(unpacked(found["holdings"][seed]["seconds"]), wanted.seconds_per_step, rtol=1e-6)  # type: ignore[arg-type]
        labels = unpacked(found["holdings"][seed]["labels"]).reshape(12, 3) / 255
        np.testing.assert_allclose(labels, wanted.label_counts / wanted.sizes[:, None], atol=1 / 500)  # type: ignore[operator]


def test_contract_a_journal_that_was_not_told_who_holds_what_says_so(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "unknown"))
    assert {run["holdings"] for run in data_of(page)["maps"]["runs"]} == {None}
    assert "The journal does not say how much data each client holds." in text_of(page)


def test_contract_the_study_can_be_run_again_from_the_page(tmp_path: Path) -> None:
    page = page_of(write(tmp_path / "phones", config={"data": {"use": "digits", "clients": 12}}))
    assert "save the settings below as phones.toml and run turnout run phones.toml" in text_of(page).replace(" .", ".")
    assert "use     = &quot;digits&quot;" in page


def test_error_a_report_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="A report needs at least one folder that turnout run wrote; got none"):
        write_report([], tmp_path / "report.html")


def test_error_a_folder_without_a_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"holds no journal.sqlite"):
        write_report([tmp_path], tmp_path / "report.html")


def test_error_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones")
    with pytest.raises(ConfigError, match=r"The report cannot be written: .*with -o"):
        write_report([folder], folder / "journal.sqlite" / "report.html")


def test_contract_the_command_says_what_and_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "phones")
    report([folder], None, None)
    assert capsys.readouterr().out == f"{compare(load(folder)).verdict()}\nopen {folder / 'report.html'}\n"
    report([folder], tmp_path / "it.html", None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found == {"report": str(tmp_path / "it.html"), "verdict": compare(load(folder)).verdict(), "figures": []}


def test_golden_numbers_are_short() -> None:
    assert [number(v) for v in (0, 7.5, 16, 12345.6, -0.01234, 3e-7, None)] == [
        "0",
        "7.5",
        "16",
        "12,346",
        "−0.0123",
        "3.00e−07",
        "–",
    ]
    assert [amount_of_bytes(v) for v in (12, 3_080_000, 1.5e9)] == ["12 B", "3.08 MB", "1.5 GB"]
    assert [seconds(v) for v in (41, 97.3, 144, 7200, 345_600)] == ["41 s", "97.3 s", "2.4 min", "2 h", "4 days"]
    assert ranges([1, 2, 3, 7, 9, 10]) == "1–3, 7, 9–10"


def test_golden_latex_gets_no_orders_from_a_name() -> None:
    assert latex_text(r"50 % & \input{x} ± $y_1^2$ <b>") == (
        r"50 \% \& \textbackslash{}input\{x\} $\pm$ \$y\_1\textasciicircum{}2\$ $<$b$>$"
    )
