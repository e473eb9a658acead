"""The numbers on the page, against the journal read another way."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.support.report_journals import CONFIG, FACTS, ask, change, data_of, unpacked, write
from turnout.journal import Journal, RunInfo, load
from turnout.report import write_report
from turnout.report.contents import contents
from turnout.report.fairness import edges, gini, jain, parity_gap, ranked, summary
from turnout.report.figures import _marks, states
from turnout.report.load_studies import gather
from turnout.report.participation import NOT_ASKED, STATE_OF, STATES, UNAVAILABLE
from turnout.report.participation_encoding import Steps, _run, maps
from turnout.requests import Outcome, Record

ACCURACIES = np.array([0.9, np.nan, 0.2, 0.5, 0.8, 0.1, 0.6, 0.7, 0.3, 0.4, 1.0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "phones")


def page_of(*folders: Path) -> str:
    return write_report(folders, folders[0].parent / "report.html").read_text(encoding="utf-8")


def test_contract_a_curve_is_the_mean_and_spread_of_the_journals_rows(folder: Path) -> None:
    found = data_of(page_of(folder))
    rows = ask(folder, "SELECT arm, round, accuracy FROM round JOIN run ON run.id = round.run")
    metric = next(each for each in found["metrics"] if each["label"] == "accuracy")
    assert [curve["arm"] for curve in metric["curves"]] == [0, 1]
    for curve in metric["curves"]:
        mine = rows[rows["arm"] == found["arms"][curve["arm"]]].groupby("round")["accuracy"]
        assert curve["x"][0] == [0, 1, 2, 3, 4]
        for name, wanted in (("mean", mine.mean()), ("std", mine.std()), ("low", mine.min()), ("high", mine.max())):
            np.testing.assert_allclose(curve[name], wanted, rtol=1e-5)


def test_contract_a_cost_axis_is_the_sum_of_the_rounds_so_far(folder: Path) -> None:
    found = data_of(page_of(folder))
    assert [axis for axis, _ in found["axes"]] == ["round", "cumulative_bytes", "cumulative_gradient_evaluations"]
    query = "SELECT seed, round, bytes_down + bytes_up AS b FROM round JOIN run ON run.id = run WHERE arm = 'FedNova'"
    rows = ask(folder, query).pivot(index="round", columns="seed", values="b")
    curve = next(each for each in found["metrics"] if each["label"] == "loss")["curves"][1]
    np.testing.assert_allclose(curve["x"][1], rows.cumsum().mean(axis=1), rtol=1e-5)


def test_contract_the_map_holds_what_each_client_did(folder: Path) -> None:
    """Rebuilt from the page's bits and lists as its script does, against the journal's own frames."""
    found, loaded = data_of(page_of(folder))["maps"], load(folder)
    assert [(run["arm"], run["seed"]) for run in found["runs"]] == [(a, s) for s in range(3) for a in range(2)]
    for run in found["runs"]:
        arm, seed = loaded.arms[run["arm"]], run["seed"]
        bits = unpacked(found["ups"][run["up"]]).reshape(4, -1)
        table = np.unpackbits(bits, axis=1, count=12, bitorder="little")
        at = np.repeat(np.arange(4), unpacked(run["counts"]))
        table[at, unpacked(run["asked"])] = unpacked(run["as"])
        np.testing.assert_array_equal(table, by_hand(loaded.clients, loaded, arm, seed))


def by_hand(clients: pd.DataFrame, loaded: object, arm: str, seed: int) -> np.ndarray:
    table = np.full((4, 12), UNAVAILABLE, dtype=np.uint8)
    for round in range(1, 5):
        table[round - 1, loaded.up(arm, seed, round)] = NOT_ASKED  # type: ignore[attr-defined]
    for row in clients[(clients["arm"] == arm) & (clients["seed"] == seed)].itertuples():
        table[row.round - 1, row.client] = STATES.index(row.outcome)  # type: ignore[index, operator]
    return table


def test_contract_counts_and_shares_are_sums_over_the_journal(folder: Path) -> None:
    found, loaded = data_of(page_of(folder))["maps"], load(folder)
    for run in found["runs"]:
        mine = loaded.clients[
            (loaded.clients["arm"] == loaded.arms[run["arm"]]) & (loaded.clients["seed"] == run["seed"])
        ]
        asked = mine.groupby("client").size().reindex(range(12), fill_value=0)
        answered = mine[mine["answered"]].groupby("client").size().reindex(range(12), fill_value=0)
        weight = mine.groupby("client")["coefficient"].sum().reindex(range(12), fill_value=0)
        np.testing.assert_array_equal(unpacked(run["times_asked"]), asked)
        np.testing.assert_array_equal(unpacked(run["times_answered"]), answered)
        np.testing.assert_allclose(unpacked(run["share"]), weight / weight.sum(), rtol=1e-6)


def test_contract_the_ledger_is_the_sum_of_all_rounds(folder: Path) -> None:
    table = contents(gather([folder])).table("costs")
    assert table is not None
    query = "SELECT arm, seed, sum(bytes_up) AS up FROM round JOIN run ON run.id = run GROUP BY arm, seed"
    sums = ask(folder, query).groupby("arm")["up"]
    raw = table.raw.set_index("arm")
    np.testing.assert_allclose(raw["cumulative_bytes_up_mean"], sums.mean())
    np.testing.assert_allclose(raw["cumulative_bytes_up_std"], sums.std())


def test_golden_a_server_that_does_not_wait_leaves_clients_asked(tmp_path: Path) -> None:
    facts = {"up": [0, 1], "asked": [0, 1, 2], "multiplicity": [1, 1, 1], "answered": [1], "asked_steps": [0, 4, 4]}
    facts |= {"local_steps": [0, 4, 0], "outcomes": [Outcome.AT_WORK, Outcome.COMPLETE, Outcome.REJECTED]}
    facts |= {"rejected": {2: "not finite"}}  # type: ignore[dict-item]
    changes: dict[str, Any] = {name: value if name == "rejected" else np.array(value) for name, value in facts.items()}
    floats = {"coefficients": np.array([0.0, 1.0, 0.0]), "losses": np.array([np.nan, 1.0, np.nan])}
    folder = write(tmp_path / "phones", arms=("A",), seeds=1, rounds=1, num_clients=4, **changes, **floats)  # type: ignore[arg-type]
    run = contents(gather([folder])).first_runs["A"]
    assert states(run)[:, 0].tolist() == [
        STATE_OF[Outcome.AT_WORK],
        STATE_OF[Outcome.COMPLETE],
        STATE_OF[Outcome.REJECTED],
        UNAVAILABLE,
    ]


def test_golden_jobs_are_counted_by_outcome_and_one_that_spans_rounds_once(tmp_path: Path) -> None:
    """Client 0 is late in every round. Client 1 starts a job in round 1 that ends in round 2, and one in round 3."""
    folder, nothing = tmp_path / "phones", np.zeros(2, dtype=np.int64)
    ends = [(Outcome.LATE, Outcome.AT_WORK), (Outcome.LATE, Outcome.PARTIAL), (Outcome.LATE, Outcome.AT_WORK)]
    asked: dict[str, Any] = {"up": np.arange(2), "asked": np.arange(2), "multiplicity": np.ones(2, dtype=np.int64)}
    facts = {"answered": nothing[:0], "asked_steps": nothing + 4, "local_steps": nothing}
    numbers = {"coefficients": np.zeros(2), "losses": np.full(2, np.nan)}
    with Journal.create(folder, study="phones", config=CONFIG, facts=FACTS) as journal:
        run = journal.begin(RunInfo(arm="A", seed=0, rounds=3, config=CONFIG))
        for round, end in enumerate(ends, 1):
            outcomes = {"outcomes": np.array(end), "metrics": {"loss": 1.0}}
            journal.write([(run, Record(round=round, num_clients=3, **asked, **facts, **numbers, **outcomes))])  # type: ignore[arg-type]
        journal.finish(run)
    table = contents(gather([folder])).table("outcomes")
    assert table is not None
    assert table.headings == ["arm", "jobs", "complete", "partial", "late", "lost", "rejected", "at work"]
    assert table.rows == [["A", "5", "0 (0.0 %)", "1 (20.0 %)", "3 (60.0 %)", "0 (0.0 %)", "0 (0.0 %)", "1 (20.0 %)"]]
    assert table.raw["late share"].tolist() == [0.6]


def test_contract_the_outcomes_of_each_arm_are_those_of_the_journal(folder: Path) -> None:
    table, clients = contents(gather([folder])).table("outcomes"), load(folder).clients
    assert table is not None
    for row in table.raw.to_dict("records"):
        ended = clients[clients["arm"] == row["arm"]]["outcome"].value_counts()
        assert {name: row[name] for name in ended.index} == ended.to_dict()
        assert row["jobs"] == ended.sum()
    page = page_of(folder)
    assert "<h3>How jobs ended</h3>" in page


def test_golden_worst_best_and_jain_leave_out_clients_without_a_hold_out() -> None:
    found = summary("client_accuracy", ACCURACIES)
    assert found["client_accuracy_worst"] == pytest.approx(0.1)
    assert found["client_accuracy_best"] == pytest.approx(1.0)
    assert found["client_accuracy_mean"] == pytest.approx(0.55)
    assert found["client_accuracy_jain"] == pytest.approx(5.5**2 / (10 * 3.85))


def test_golden_jain_is_one_when_all_are_alike_and_one_nth_when_one_has_all() -> None:
    assert jain(np.full(5, 0.3)) == pytest.approx(1.0)
    assert jain(np.array([0.0, 0.0, 0.7, 0.0])) == pytest.approx(0.25)
    assert np.isnan(jain(np.zeros(3)))


def test_golden_gini_by_hand_and_the_gap_between_groups() -> None:
    values = np.array([0.2, 0.4, 0.6])  # Σ|a_i − a_j| = 2 · (0.2 + 0.4 + 0.2) = 1.6, over 2 · 9 · 0.4
    assert gini(values) == pytest.approx(1.6 / 7.2)
    assert gini(np.full(4, 0.3)) == pytest.approx(0)
    assert gini(np.array([0.0, 0.0, 0.7, 0.0])) == pytest.approx(0.75)
    assert np.isnan(gini(np.zeros(3)))
    assert np.isnan(gini(np.array([-1.0, 3.0])))
    assert parity_gap(np.array([0.2, 0.4, np.nan, 0.9]), ("a", "a", "b", "b")) == pytest.approx(0.9 - 0.3)
    assert np.isnan(parity_gap(values, ("a", "a", "a")))
    assert np.isnan(parity_gap(values, None))


def test_golden_the_worst_losses_are_the_highest() -> None:
    found = summary("client_loss", np.array([0.5, 2.0, 1.0]))
    assert (found["client_loss_worst"], found["client_loss_best"]) == (2.0, 0.5)


def test_golden_a_tenth_of_eleven_clients_is_two() -> None:
    assert edges(np.arange(11.0)) == (0.5, 9.5)


def test_golden_ranks_stretch_few_clients_without_inventing_values() -> None:
    (found,) = ranked([np.array([0.0, 1.0])], ranks=5)
    assert found.tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]


def test_contract_fairness_over_rounds_is_a_curve(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", num_clients=11, client_accuracy=ACCURACIES)
    found = data_of(page_of(folder))
    worst = next(each for each in found["metrics"] if each["label"] == "accuracy, worst 10 % of clients")
    assert worst["group"] == "fairness"
    assert worst["curves"][0]["x"][0] == [1, 2, 3, 4]
    assert worst["curves"][0]["mean"] == [0.1] * 4


def test_contract_filter_acceptance_is_kept_over_considered_else_over_up(tmp_path: Path) -> None:
    up = np.arange(8)
    common = {"arms": ("A",), "seeds": 1, "rounds": 2, "up": up, "asked": up[:0], "multiplicity": up[:0]}
    nobody = dict.fromkeys(("answered", "asked_steps", "local_steps"), up[:0])
    floats: dict[str, Any] = {"coefficients": np.zeros(0), "losses": np.zeros(0)}
    for metrics, wanted in (({"filter_kept": 2.0}, 0.25), ({"filter_kept": 2.0, "filter_considered": 4.0}, 0.5)):
        folder = write(tmp_path / str(wanted), metrics={"loss": 1.0, **metrics}, **common, **nobody, **floats)  # type: ignore[arg-type]
        found = contents(gather([folder])).curves["filter_acceptance"]["A"]
        assert found.mean.tolist() == [wanted, wanted]


def test_contract_a_model_that_diverged_leaves_a_gap(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones")
    change(
        folder, "UPDATE round SET loss = NULL WHERE round > 2 AND run = (SELECT min(id) FROM run)"
    )  # one seed of three
    loss = next(each for each in data_of(page_of(folder))["metrics"] if each["label"] == "loss")
    assert [value is None for value in loss["curves"][0]["mean"]] == [False, False, False, True, True]
    assert None not in loss["curves"][1]["mean"]


def test_contract_unfinished_runs_are_left_out_where_others_are_finished(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A",), seeds=3)
    change(folder, "UPDATE run SET status = 'failed' WHERE seed = 2")
    (arm,) = gather([folder]).arms
    assert (arm.seeds, arm.unfinished) == ((0, 1), 1)
    assert "1 run not finished." in page_of(folder)


def test_contract_two_studies_with_one_arm_name_keep_both(tmp_path: Path) -> None:
    folders = [write(tmp_path / name, study=name, arms=("FedAvg",)) for name in ("phones", "hospitals")]
    assert data_of(page_of(*folders))["arms"] == ["phones: FedAvg", "hospitals: FedAvg"]


def test_contract_what_does_not_fit_is_left_out_and_said(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A",), seeds=3, rounds=200, num_clients=100)
    arms = gather([folder]).arms
    read = {seed: contents(gather([folder])).first_runs["A"] for seed in (0, 1, 2)}
    whole = maps(arms, lambda arm, seed: read[seed], lambda arm, seed: None)
    assert (len(whole["runs"]), whole["left_out"], whole["every_round"]) == (3, 0, 1)
    small = maps(arms, lambda arm, seed: read[seed], lambda arm, seed: None, budget=5_000)
    assert (len(small["runs"]), small["left_out"], small["every_client"]) == (1, 2, 1)
    assert small["every_round"] > 1
    assert unpacked(small["runs"][0]["rounds"]).tolist() == list(range(1, 201, small["every_round"]))
    assert len(json.dumps(small["runs"]) + json.dumps(small["ups"])) < 6_000


def test_golden_every_other_client_keeps_its_own_bits(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A",), seeds=1, num_clients=9)
    run = contents(gather([folder])).first_runs["A"]
    entry = _run(run, Steps(clients=2, rounds=3))
    assert entry["clients"] == 5
    assert unpacked(entry["rounds"]).tolist() == [1, 4]
    bits = np.unpackbits(unpacked(entry["up"]).reshape(2, 1), axis=1, count=5, bitorder="little")
    for row, place in enumerate((0, 3)):
        assert np.flatnonzero(bits[row]).tolist() == [client // 2 for client in run.up[place] if client % 2 == 0]
    kept = [
        client // 2
        for place in (0, 3)
        for client in np.split(run.clients, np.cumsum(run.counts))[place]
        if client % 2 == 0
    ]
    assert unpacked(entry["asked"]).tolist() == kept


def finals(folder: Path) -> pd.DataFrame:
    """Return the last accuracy of each run, seeds by arms."""
    query = (
        "SELECT arm, seed, accuracy FROM round JOIN run ON run.id = round.run "
        "WHERE round.round = (SELECT max(round) FROM round AS later WHERE later.run = round.run)"
    )
    return ask(folder, query).pivot(index="seed", columns="arm", values="accuracy")


def test_contract_the_comparison_is_what_scipy_says_of_the_journals_rows(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A", "B", "C"), seeds=6)
    table = contents(gather([folder])).table("tests")
    assert table is not None
    raw, last = table.raw.set_index("arm"), finals(folder)
    for arm in ("B", "C"):
        difference = last[arm] - last["A"]
        assert raw.loc[arm, "final_mean"] == pytest.approx(last[arm].mean())
        assert raw.loc[arm, "final_std"] == pytest.approx(last[arm].std())
        assert raw.loc[arm, "difference_mean"] == pytest.approx(difference.mean())
        test = stats.ttest_rel(last[arm], last["A"])
        interval = test.confidence_interval(0.975)  # two intervals that hold together with 95 %
        assert raw.loc[arm, "difference_low"] == pytest.approx(interval.low)
        assert raw.loc[arm, "difference_high"] == pytest.approx(interval.high)
        assert raw.loc[arm, "difference_effect_size"] == pytest.approx(difference.mean() / difference.std())
        assert raw.loc[arm, "difference_signed_rank_p"] == pytest.approx(stats.wilcoxon(difference).pvalue)
        assert raw.loc[arm, "difference_corrected_p"] == pytest.approx(min(1, 2 * test.pvalue))


def test_contract_costs_to_the_target_are_those_of_the_first_round_there(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", arms=("A",), seeds=3, config={"target": {"accuracy": 0.25}})
    table = contents(gather([folder])).table("comparison")
    assert table is not None
    query = (
        "SELECT seed, round, accuracy, bytes_down + bytes_up AS b FROM round JOIN run ON run.id = run ORDER BY round"
    )
    rows, reached = ask(folder, query), []
    for _, mine in rows.sort_values("round").groupby("seed"):
        first = mine["accuracy"].ge(0.25).to_numpy().argmax()
        reached.append((mine["round"].iloc[first], mine["b"].cumsum().iloc[first]))
    assert table.raw["round_to_target"].tolist() == [np.median([round for round, _ in reached])]
    assert table.raw["bytes_to_target"].tolist() == [np.median([spent for _, spent in reached])]


def test_contract_who_counted_is_counted_from_the_journals_clients(folder: Path) -> None:
    table, loaded = contents(gather([folder])).table("participation"), load(folder)
    assert table is not None
    for arm, row in table.raw.set_index("arm").iterrows():
        never, median, top = [], [], []
        for seed in range(3):
            mine = loaded.clients[(loaded.clients["arm"] == arm) & (loaded.clients["seed"] == seed)]
            times = mine[mine["answered"]].groupby("client").size().reindex(range(12), fill_value=0)
            shares = mine.groupby("client")["coefficient"].sum().sort_values(ascending=False)
            never.append((times == 0).sum())
            median.append(times.median())
            top.append(shares.iloc[:2].sum() / shares.sum())  # a tenth of twelve is two, rounded up
        assert row["never_answered_mean"] == pytest.approx(np.mean(never))
        assert row["times_answered_median_mean"] == pytest.approx(np.mean(median))
        assert row["top_tenth_share_mean"] == pytest.approx(np.mean(top))


def test_contract_events_lie_at_the_cost_of_their_round(tmp_path: Path) -> None:
    folder = write(tmp_path / "phones", rounds=3, events=("odd",))
    found = contents(gather([folder]))
    places = {"FedAvg": 0, "FedNova": 1}
    by_arm = found.curves["loss"]
    assert _marks(found.events, by_arm, "round", places) == [1, 2, 3]
    wanted = np.mean([curve.costs["cumulative_bytes"][1:] for curve in by_arm.values()], axis=0)
    np.testing.assert_allclose(_marks(found.events, by_arm, "cumulative_bytes", places), wanted)
