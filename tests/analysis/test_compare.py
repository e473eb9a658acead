import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from scipy import stats

from tests.support.journal_records import add_run, info, journal, record
from turnout.analysis.compare import compare
from turnout.analysis.comparison import sparklines
from turnout.cli.comparison_table import comparison_table
from turnout.errors import ConfigError, JournalError
from turnout.journal import Journal, Loaded, frames

Curves = Mapping[str, Sequence[Sequence[float]]]  # by arm: one curve a seed

PHONES: Curves = {
    "FedAvg": [[0.1, 0.5, 0.60], [0.1, 0.5, 0.70], [0.1, 0.5, 0.80]],
    "FedNova": [[0.1, 0.5, 0.70], [0.1, 0.6, 0.82], [0.1, 0.7, 0.88]],
}


@pytest.fixture
def journals() -> Iterator[list[Journal]]:
    made: list[Journal] = []
    yield made
    for each in made:
        each.close()


@pytest.fixture
def loaded_from(journals: list[Journal]) -> Callable[..., Loaded]:
    """Return a function that writes curves to a journal and loads it."""

    def build(curves: Curves, *, metric: str = "accuracy", study: str = "phones") -> Loaded:
        out = journal(study=study)
        journals.append(out)
        for arm, of_seeds in curves.items():
            for seed, values in enumerate(of_seeds):
                add_run(out, arm, seed, values, metric=metric)
        return frames(out)

    return build


def test_golden_two_arms_over_three_seeds(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from(PHONES))
    fedavg, fednova = result.rows
    assert (result.metric, result.baseline, result.higher_is_better) == ("accuracy", "FedAvg", True)
    assert fedavg.final.mean == pytest.approx(0.7)
    assert fedavg.final.std == pytest.approx(0.1)
    assert fedavg.difference is None
    assert fednova.difference is not None
    assert fednova.difference.mean == pytest.approx(0.1)  # 0.10, 0.12, 0.08
    half = 4.302653 * 0.02 / 3**0.5
    assert fednova.difference.low == pytest.approx(0.1 - half, abs=1e-6)
    assert fednova.difference.high == pytest.approx(0.1 + half, abs=1e-6)
    assert fednova.difference.corrected_p == fednova.difference.t_test_p


def test_golden_the_verdict_is_one_sentence_with_its_interval(loaded_from: Callable[..., Loaded]) -> None:
    verdict = compare(loaded_from(PHONES)).verdict()
    assert verdict == "FedNova ends 10.0 points above FedAvg, 95 % interval 5.0 to 15.0, in 3 of 3 seeds."


def test_golden_the_verdict_when_the_baseline_is_best(loaded_from: Callable[..., Loaded]) -> None:
    verdict = compare(loaded_from(PHONES), baseline="FedNova").verdict()
    assert verdict == (
        "No arm ends better than FedNova: FedAvg, the next best, ends 10.0 points below it, "
        "95 % interval 5.0 to 15.0, in 3 of 3 seeds."
    )


def test_golden_the_verdict_on_a_loss(loaded_from: Callable[..., Loaded]) -> None:
    loaded = loaded_from({"A": [[4, 2.0], [4, 3.0]], "B": [[4, 1.0], [4, 1.9]]}, metric="loss")
    result = compare(loaded)
    assert not result.higher_is_better
    assert result.verdict() == (
        "B ends with a loss 1.05 below A, 95 % interval 0.415 to 1.69, in 2 of 2 seeds."  # 12.706 · 0.05 = 0.635
    )


def test_golden_the_verdict_admits_a_difference_that_is_not_clear(loaded_from: Callable[..., Loaded]) -> None:
    verdict = compare(loaded_from({"A": [[0.5], [0.5], [0.5]], "B": [[0.7], [0.4], [0.6]]})).verdict()
    assert verdict == (
        "B ends 6.7 points above A, 95 % interval −31.3 to 44.6, in 2 of 3 seeds; not settled (p = 0.529): "
        "3 seeds can tell 49.9 points or more; about 41 more would tell one of this size."
    )


def test_golden_one_seed_claims_nothing(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from({"A": [[0.5]], "B": [[0.7]]}))
    assert result.verdict() == (
        "B ends 20.0 points above A in the only seed that was run; one seed cannot tell a difference from chance, "
        "so run more."
    )
    text = result.text()
    assert "50.00 %" in text
    assert "±" not in text
    assert "[–]" not in text
    assert "one seed gives neither a spread nor a test: run more" in text
    assert result.rows[1].difference is not None
    assert result.rows[1].difference.corrected_p is None
    assert compare(loaded_from({"A": [[0.5]], "B": [[0.5]]})).verdict() == (
        "B ends level with A in the only seed that was run."
    )
    assert compare(loaded_from({"A": [[0.5]]})).verdict() == (
        "There is only one arm, so nothing to compare: A ends at 50.00 % in the only seed that was run."
    )


def test_golden_equal_differences_claim_no_test(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from({"A": [[0.5], [0.6]], "B": [[0.7], [0.8]]}))
    assert result.verdict() == (
        "B ends 20.0 points above A by the same amount in each of 2 seeds, so no test is possible."
    )
    assert compare(loaded_from({"A": [[0.5]] * 2, "B": [[0.5]] * 2})).verdict() == "B ends level with A over 2 seeds."


def test_golden_one_arm(loaded_from: Callable[..., Loaded]) -> None:
    verdict = compare(loaded_from({"A": [[0.5], [0.6]]})).verdict()
    assert verdict == "There is only one arm, so nothing to compare: A ends at 55.00 ± 7.07 %."


def test_golden_costs_to_a_given_target(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from(PHONES), target={"accuracy": 0.6})
    assert result.target_origin == "as given"
    fedavg, fednova = result.rows
    assert fedavg.to_target["round"].median == 2
    assert fednova.to_target["round"].median == 1  # rounds 2, 1, 1
    assert fedavg.to_target["bytes"].median == 300
    assert fedavg.to_target["gradient_evaluations"].median == 20
    assert fedavg.to_target["sim_seconds"].median == 3.0
    assert fednova.to_target["bytes"].median == 150
    assert fednova.to_target["gradient_evaluations"].median == 10
    assert fednova.to_target["sim_seconds"].median == 1.5


def test_golden_seeds_that_never_reach_the_target_are_said(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from(PHONES), target={"accuracy": 0.75})
    assert result.rows[0].to_target["round"].reached == 1
    assert result.rows[0].to_target["round"].median is None
    assert "FedAvg: 2 of 3 seeds never reached the target" in result.text()
    assert "FedNova: 1 of 3 seeds never reached the target" in result.text()


def test_golden_the_default_target_is_a_share_of_the_best_mean_and_said(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from(PHONES))
    assert result.target is not None
    assert (result.target.metric, result.target.value) == ("accuracy", pytest.approx(0.95 * 0.8))  # type: ignore[comparison-overlap]
    assert "target: accuracy 76.00 % (95 % of the best arm's final mean); medians over seeds" in result.text()
    loss = compare(loaded_from({"A": [[4.0, 2.0]], "B": [[4.0, 0.0]]}, metric="loss"))
    assert loss.target is not None
    assert loss.target.value == pytest.approx(0.2)  # 4 − 0.95 · 4
    assert "95 % of the way from the start to the best arm's final mean" in loss.text()


def test_golden_intervals_and_p_values_are_corrected_over_the_arms(loaded_from: Callable[..., Loaded]) -> None:
    third = {**PHONES, "FedProx": [[0.1, 0.5, 0.61], [0.1, 0.5, 0.72], [0.1, 0.5, 0.80]]}
    two, three = compare(loaded_from(PHONES)), compare(loaded_from(third))
    alone, among = two.rows[1].difference, three.rows[1].difference
    assert alone is not None
    assert among is not None
    assert alone.corrected_p == pytest.approx(0.0131, abs=1e-4)
    assert among.corrected_p == pytest.approx(2 * 0.0131, abs=1e-4)
    half = 6.205347 * 0.02 / 3**0.5  # t_{0.9875}(2)
    assert (among.low, among.high) == pytest.approx((0.1 - half, 0.1 + half), abs=1e-6)


def test_golden_the_verdict_is_about_the_best_arm(loaded_from: Callable[..., Loaded]) -> None:
    third = {**PHONES, "FedProx": [[0.1, 0.5, 0.61], [0.1, 0.5, 0.72], [0.1, 0.5, 0.80]]}
    assert compare(loaded_from(third)).verdict().startswith("FedNova ends 10.0 points above FedAvg")
    assert compare(loaded_from(third), baseline="FedProx").verdict().startswith("FedNova ends 9.0 points above FedProx")


def test_golden_text_is_lined_up(loaded_from: Callable[..., Loaded]) -> None:
    lines = compare(loaded_from(PHONES), target={"accuracy": 0.6}).text().splitlines()
    head = "arm      seeds   final accuracy  points from FedAvg [95 %]      p  rounds to target"
    assert lines[0].startswith(head)
    assert lines[1].startswith("FedAvg       3  70.00 ± 10.00 %")
    assert lines[2].startswith("FedNova      3   80.00 ± 9.17 %          +10.0 [5.0, 15.0]  0.013")
    assert lines[3].startswith("mean ± standard deviation over seeds; differences are taken seed by seed")
    assert lines[4] == "target: accuracy 60.00 % (as given); medians over seeds"
    assert lines[0].endswith("accuracy over rounds")
    start = lines[0].index("accuracy over rounds")
    assert [line[start:] for line in lines[1:3]] == ["▁▅▇", "▁▆█"]  # 0.1, 0.5, 0.7 and 0.1, 0.6, 0.8 on one scale


def test_golden_a_curve_that_diverged_has_a_gap_and_a_flat_one_is_low() -> None:
    assert sparklines([(0.0, 7.0, None, 3.0), (2.0,)]) == ["▁█ ▄", "▃"]
    assert sparklines([(0.5, 0.5)]) == ["▁▁"]
    assert sparklines([()]) == [""]


def test_golden_both_tests_are_corrected_over_the_arms(loaded_from: Callable[..., Loaded]) -> None:
    third = {**PHONES, "FedProx": [[0.1, 0.5, 0.61], [0.1, 0.5, 0.72], [0.1, 0.5, 0.80]]}
    rows = compare(loaded_from(third)).rows[1:]
    raw = [row.difference.signed_rank_p for row in rows if row.difference is not None]
    assert raw == [0.25, 0.5]  # three seeds of one sign; two, for FedProx differs in two
    corrected = [row.difference.corrected_signed_rank_p for row in rows if row.difference is not None]
    assert corrected == [0.5, 0.5]  # Holm: 2 · 0.25, and no less for the next


def test_golden_a_target_an_arm_never_reaches_is_said_in_its_cell(loaded_from: Callable[..., Loaded]) -> None:
    lines = compare(loaded_from({**PHONES, "slow": [[0.1, 0.2]] * 3}), target={"accuracy": 0.75}).text().splitlines()
    assert lines[1].split()[-4:-1] == ["(1/3)", "–", "(1/3)"]
    assert lines[3].split()[-4:-1] == ["never", "never", "never"]
    assert "in brackets: how many seeds reached the target" in "\n".join(lines)


def test_contract_the_table_shows_the_cells_of_the_text(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from({"[b]FedAvg": PHONES["FedAvg"], "[red]FedNova": PHONES["FedNova"]}))
    shown_on = StringIO()
    console = Console(width=200, file=shown_on)
    console.print(comparison_table(result))
    shown = shown_on.getvalue()
    for wanted in (
        "from [b]FedAvg ",
        "[95 %]",
        "[red]FedNova      3",
        "+10.0 [5.0, 15.0]",
        "95 % of the best arm's final mean",
    ):
        assert wanted in shown


def test_golden_a_narrow_terminal_folds_no_line(loaded_from: Callable[..., Loaded]) -> None:
    shown_on = StringIO()
    Console(width=80, file=shown_on).print(comparison_table(compare(loaded_from(PHONES), target={"accuracy": 0.6})))
    lines = [line.rstrip() for line in shown_on.getvalue().splitlines()]
    assert lines[:9] == [
        "                                 points from FedAvg",
        "arm      seeds   final accuracy              [95 %]      p",
        "FedAvg       3  70.00 ± 10.00 %                   –      –  ▁▅▇",
        "FedNova      3   80.00 ± 9.17 %   +10.0 [5.0, 15.0]  0.013  ▁▆█",
        "",
        "to target  rounds  bytes  gradients  simulated time",
        "FedAvg          2  300 B         20             3 s",
        "FedNova         1  150 B         10           1.5 s",
        "",
    ]


def test_contract_as_dict_is_json_with_no_nan(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from({"A": [[0.5], [float("nan")]], "B": [[0.7], [0.8]]}))
    back = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert "curve" not in back["rows"][0]
    assert back["rows"][0]["final"] == {"count": 2, "mean": None, "std": None}
    assert back["rows"][1]["difference"] is None
    assert back["rows"][1]["to_target"]["round"]["reached"] == 1  # 0.8, but not 0.7, is above 95 % of 0.75
    assert back["verdict"] == "The baseline A diverged in 1 of 2 seeds, so nothing can be compared."


def test_contract_a_run_that_ends_in_nan_is_not_judged_by_an_earlier_round(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from({"A": [[3.0, 2.0]], "B": [[3.0, 1.0, float("nan")]]}, metric="loss"))
    assert result.rows[1].final.mean is None
    assert result.rows[1].diverged == 1
    assert "B: diverged in 1 of 1 seed" in result.text()
    assert result.verdict() == "Every arm except the baseline A diverged, so nothing can be compared."


def test_contract_only_shared_seeds_are_paired(loaded_from: Callable[..., Loaded]) -> None:
    result = compare(loaded_from({"A": [[0.5], [0.6]], "B": [[0.6], [0.8], [0.1]]}))
    difference = result.rows[1].difference
    assert difference is not None
    assert (difference.is_paired, difference.seeds) == (True, 2)
    assert difference.mean == pytest.approx(0.15)
    assert "B: 2 of 3 seeds shared with the baseline" in result.text()


def test_contract_unfinished_runs_are_left_out_and_counted(
    journals: list[Journal], loaded_from: Callable[..., Loaded]
) -> None:
    loaded_from(PHONES)
    journals[0].begin(info("FedAvg", 9))
    result = compare(frames(journals[0]))
    assert result.rows[0].final.count == 3
    assert "unfinished runs left out: 1" in result.text()


def test_contract_several_studies_keep_their_arms_apart(loaded_from: Callable[..., Loaded]) -> None:
    one, two = loaded_from({"A": [[0.5]]}), loaded_from({"A": [[0.6]], "B": [[0.7]]}, study="watches")
    assert [row.arm for row in compare([one, two]).rows] == ["phones: A", "watches: A", "B"]
    assert [row.arm for row in compare([one, one]).rows] == ["phones: A", "phones: A (2)"]


def test_error_a_metric_baseline_or_target_that_is_not_there(loaded_from: Callable[..., Loaded]) -> None:
    loaded = loaded_from(PHONES)
    with pytest.raises(ConfigError, match=r"no metric 'f1' that every arm has. Choose one of: accuracy"):
        compare(loaded, metric="f1")
    with pytest.raises(
        ConfigError, match=r"There is no finished arm 'FedProx'. Choose the baseline from: FedAvg, FedNova"
    ):
        compare(loaded, baseline="FedProx")
    with pytest.raises(ConfigError, match=r"accuracy is a share between 0 and 1; write 0.80"):
        compare(loaded, target={"accuracy": 80})
    with pytest.raises(ConfigError, match=r"There is no metric 'loss' that every arm has. Choose one of: accuracy"):
        compare(loaded, target={"loss": 0.5})


def test_error_nothing_finished_or_measured(journals: list[Journal]) -> None:
    out = journal()
    journals.append(out)
    with pytest.raises(JournalError, match=r"Nothing was measured"):
        compare(frames(out))
    run = add_run(out, "A", 0, [0.5])
    out.finish(run, "failed")
    with pytest.raises(JournalError, match=r"No run is finished"):
        compare(frames(out))


def made(loaded: Loaded, **of_arms: Mapping[str, object]) -> Loaded:
    """Return the study as if its arms had been run with these settings."""
    configs = [of_arms.get(arm, {}) for arm in loaded.runs["arm"]]
    return replace(loaded, runs=loaded.runs.assign(config=configs))  # type: ignore[arg-type]


SPREAD: Curves = {"A": [[0.1, 0.5], [0.1, 0.6], [0.1, 0.7]], "B": [[0.1, 0.7], [0.1, 0.9], [0.1, 0.8]]}
HERE = {"data": {"use": "mnist", "clients": 10, "seed": None}}
FEWER = {"data": {"use": "mnist", "clients": 5, "seed": None}}


def test_golden_arms_that_share_their_data_are_paired_whatever_else_differs(
    loaded_from: Callable[..., Loaded],
) -> None:
    other = {**HERE, "model": {"use": "cnn"}, "fleet": {"availability": {"use": "bernoulli"}}}
    difference = compare(made(loaded_from(SPREAD), A=HERE, B=other)).rows[1].difference
    assert difference is not None
    assert difference.is_paired


@pytest.mark.parametrize("key", ["clients", "seed", "partition"])
def test_golden_arms_of_other_clients_or_another_split_are_compared_unpaired_and_said(
    key: str, loaded_from: Callable[..., Loaded]
) -> None:
    result = compare(made(loaded_from(SPREAD), A=HERE, B={"data": {**HERE["data"], key: 7}}))
    difference = result.rows[1].difference
    assert difference is not None
    assert not difference.is_paired
    expected = stats.ttest_ind([0.7, 0.9, 0.8], [0.5, 0.6, 0.7], equal_var=False)
    assert difference.t_test_p == pytest.approx(expected.pvalue)
    text = result.text()
    assert "+20.0 unpaired [" in text
    assert "differences are taken between the means over seeds; interval and p: Welch's t-test" in text
    assert "seed by seed" not in text
    assert "Student" not in text
    assert f"B: not paired with A, because they differ in data.{key}; Welch's t-test and interval" in text
    assert result.verdict().startswith(
        "B ends 20.0 points above A, 95 % interval −2.7 to 42.7, not paired; not settled (p = "
    )
    assert result.as_dict()["rows"][1]["difference"]["is_paired"] is False


def test_golden_two_studies_are_paired_only_where_their_data_agree(loaded_from: Callable[..., Loaded]) -> None:
    one, two = loaded_from({"A": SPREAD["A"]}), loaded_from({"B": SPREAD["B"]}, study="watches")
    for settings, is_paired in ((HERE, True), (FEWER, False)):
        difference = compare([made(one, A=HERE), made(two, B=settings)]).rows[1].difference
        assert difference is not None
        assert difference.is_paired == is_paired


def test_golden_one_unpaired_seed_or_none_of_its_spread_claims_nothing(loaded_from: Callable[..., Loaded]) -> None:
    one = made(loaded_from({"A": [[0.5]], "B": [[0.7]]}), A=HERE, B=FEWER)
    assert compare(one).verdict().startswith("B ends 20.0 points above A in the only seed that was run")
    same = made(loaded_from({"A": [[0.5]] * 2, "B": [[0.7]] * 2}), A=HERE, B=FEWER)
    assert compare(same).verdict().endswith("by the same amount in each of 2 seeds, so no test is possible.")


def test_error_different_data_or_losses_are_not_compared(loaded_from: Callable[..., Loaded]) -> None:
    elsewhere = {"data": {"use": "femnist", "clients": 10}}
    with pytest.raises(
        ConfigError, match=r"B and A were run on different data \(data.use: 'femnist' and 'mnist'\); .* no meaning"
    ):
        compare(made(loaded_from(SPREAD), A=HERE, B=elsewhere))
    losses = made(loaded_from(SPREAD, metric="loss"), A={"loss": "cross-entropy"}, B={"loss": "squared-error"})
    with pytest.raises(ConfigError, match=r"different loss functions \('squared-error' and 'cross-entropy'\)"):
        compare(losses)
    accuracies = made(loaded_from(SPREAD), A={"loss": "cross-entropy"}, B={"loss": "squared-error"})
    assert compare(accuracies).rows[1].difference is not None


def test_golden_arms_of_different_length_are_compared_at_the_last_common_round(
    loaded_from: Callable[..., Loaded],
) -> None:
    long = [[0.1, 0.5, 0.9], [0.1, 0.6, 0.95]]
    result = compare(loaded_from({"A": [[0.1, 0.4], [0.1, 0.6]], "B": long}), target={"accuracy": 0.9})
    short, longer = result.rows
    assert (short.final.mean, longer.final.mean) == pytest.approx((0.5, 0.55))
    assert "compared at round 1, the last that every run evaluated; the longest run has 2 rounds" in result.text()
    assert longer.to_target["round"].median == 2  # what it took is counted over all its rounds
    assert len(longer.curve) == 2


def test_error_runs_without_a_common_round_are_not_compared(loaded_from: Callable[..., Loaded]) -> None:
    with pytest.raises(ConfigError, match=r"no evaluated round in common after round 0, .*the same evaluate.every"):
        compare(loaded_from({"A": [[0.1]], "B": [[0.1, 0.2]]}))


def test_golden_accuracy_is_compared_only_where_every_arm_has_it(journals: list[Journal]) -> None:
    out = journal()
    journals.append(out)
    for arm, metrics in (("A", {"loss": 1.0, "accuracy": 0.5}), ("B", {"loss": 2.0})):
        run = out.begin(info(arm))
        out.write([(run, record(0, metrics=metrics))])
        out.finish(run)
    assert compare(frames(out)).metric == "loss"
    with pytest.raises(ConfigError, match=r"no metric 'accuracy' that every arm has. Choose one of: loss"):
        compare(frames(out), metric="accuracy")


def test_golden_of_a_number_that_a_rule_reports_no_value_is_called_better(loaded_from: Callable[..., Loaded]) -> None:
    curves = {"A": [[4, 2.0], [4, 3.0]], "B": [[4, 1.0], [4, 1.9]], "C": [[4, 2.1], [4, 3.2]]}
    loaded = loaded_from(curves, metric="drift")
    result = compare(loaded, metric="drift")
    assert (result.higher_is_better, result.target) == (None, None)
    assert result.verdict().startswith("B ends with a drift 1.05 below A")  # the one that is farthest from the baseline
    with pytest.raises(ConfigError, match=r"whether higher is better, loss or accuracy.*; got 'drift'"):
        compare(loaded, metric="drift", target={"drift": 1.0})
