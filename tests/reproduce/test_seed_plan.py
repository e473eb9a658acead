"""What the seeds of a reproduction can tell: cases worked by hand, the shipped results, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.reproduction_results import claim, result
from turnout.errors import TurnoutError
from turnout.reproduce import Reproduction, Statement, above, judged
from turnout.reproduce.seed_plan import StudyPlan, overall_verdict, plans_as_dict, study_plan

RESULTS = sorted((Path(__file__).parents[2] / "docs" / "results").glob("*.json"))
SPREAD_ONE = math.sqrt(0.9) * np.array([1.0, -1.0] * 5)  # ten values of mean 0 and standard deviation 1


def plan(*claims: dict[str, Any], **changes: Any) -> StudyPlan:
    return study_plan(result(*claims, **changes), "small.json")


HELD = claim(verdict="held", seeds_needed=4)


def test_golden_a_result_of_reproduce_needs_the_seeds_of_the_textbook() -> None:
    """An effect of half a standard deviation takes 34 seeds at 5 % with a power of 80 %: 340 s at 10 s a seed."""
    claims = judged(
        [
            above(Statement(id="open", text="half a spread", unit="points"), 1.5 + SPREAD_ONE, 1.0),
            above(Statement(id="held", text="three spreads"), 3.0 + SPREAD_ONE),
        ],
        [("open",), ("held",)],
        looks=(10,),
        most=10,
    )
    reproduction = Reproduction(
        name="small", paper="", what="", caveat="", found="", scale="small", seeds=10, looks=(10,), most=10, runs=10,
        claims=tuple(claims), command="", date="", version="", seconds={"training": 60.0, "rest": 40.0},
    )  # fmt: skip
    found = study_plan(json.loads(json.dumps(reproduction.as_dict())), "result.json")
    assert [each.verdict for each in found.claims] == ["not settled", "held"]
    assert [each.effect for each in found.claims] == pytest.approx([0.5, 3.0])
    assert [each.spread for each in found.claims] == pytest.approx([1.0, 1.0])
    assert [each.seeds_to_settle for each in found.claims] == [34, None]
    assert found.minutes(34) == pytest.approx(34 * 10 / 60)
    assert found.verdict() == (
        "1 of 2 claims is settled; about 34 seeds would settle the open one, 6 minutes of processor time; "
        "120 seeds fit into 20 minutes."
    )


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ((), "There is no primary claim to settle; 120 seeds fit into 20 minutes."),
        ((HELD,), "The only claim is settled, so no more seeds are needed; 120 seeds fit into 20 minutes."),
        (
            (HELD, claim(verdict="contradicted")),
            "Both claims are settled, so no more seeds are needed; 120 seeds fit into 20 minutes.",
        ),
        ((HELD,) * 3, "All 3 claims are settled, so no more seeds are needed; 120 seeds fit into 20 minutes."),
        (
            (HELD, HELD, claim(), claim(seeds_needed=119)),
            "2 of 4 claims are settled; about 119 seeds would settle the 2 open ones, 20 minutes of processor time; "
            "120 seeds fit into 20 minutes.",
        ),
        (
            (claim(seeds_needed=121),),
            "0 of 1 claim is settled; about 121 seeds would settle the open one, 21 minutes of processor time; "
            "only 120 seeds fit into 20 minutes.",
        ),
        (
            (HELD, claim(), claim(seeds_needed=300)),
            "1 of 3 claims is settled; about 300 seeds would settle the 2 open ones, 50 minutes of processor time; "
            "120 seeds fit into 20 minutes, and about 60 would settle 1 of the 2.",
        ),
        (
            (claim(seeds_needed=None), claim(seeds_needed=5000)),
            "0 of 2 claims are settled; more than 1,000 seeds would settle the 2 open ones, more than 167 minutes of "
            "processor time; only 120 seeds fit into 20 minutes.",
        ),
        (
            (HELD, claim(verdict="not tested", smallest=None, seeds_needed=None)),
            "1 of 2 claims is settled; 1 could not be tested; 120 seeds fit into 20 minutes.",
        ),
    ],
)
def test_golden_one_sentence_says_what_would_settle_a_study(claims: tuple[dict[str, Any], ...], sentence: str) -> None:
    assert plan(*claims).verdict() == sentence


def test_golden_claims_that_the_budget_does_not_settle_are_named_with_the_reason() -> None:
    untested = {"verdict": "not tested", "smallest": None, "seeds_needed": None}
    found = plan(
        claim(),
        claim(text="small gain", seeds_needed=300),
        claim(text="tiny gain", seeds_needed=None),
        claim(text="same", **untested),
        claim(text="endless", ours=None, **untested),
        claim(text="single", **{**untested, "seeds": 1}),
    )
    assert found.remarks() == [
        "more than 20 minutes: small gain: about 300 seeds, 50 minutes of processor time",
        "more than 20 minutes: tiny gain: more than 1,000 seeds, more than 167 minutes of processor time",
        "not tested: same: every seed gave the same value, which allows no test",
        "not tested: endless: a value that is not finite allows no test",
        "not tested: single: one seed allows no test; run two or more",
    ]


def test_golden_an_open_claim_needs_more_seeds_than_it_has() -> None:
    """The signed-rank test may leave open what the power of the t-test says that the seeds show."""
    assert plan(claim(seeds_needed=7)).claims[0].seeds_to_settle == 11


def test_golden_secondary_claims_are_left_out_and_another_scale_is_named() -> None:
    found = plan(claim(is_primary=False), HELD, scale="paper")
    assert [each.verdict for each in found.claims] == ["held"]
    assert (found.label, plan().label) == ("small (paper)", "small")


def test_golden_several_studies_are_summed_up_in_one_sentence() -> None:
    mixed, settled = plan(HELD, claim(), claim(seeds_needed=300)), plan(HELD)
    assert overall_verdict([mixed, settled, plan(claim(seeds_needed=90))]) == (
        "3 studies: 2 of 5 claims are settled; runs of at most 20 minutes would settle 2 of the 3 open ones, "
        "25 minutes of processor time in all."
    )
    assert overall_verdict([settled, settled]) == "2 studies: 2 of 2 claims are settled, so no more seeds are needed."


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_contract_every_shipped_result_has_a_plan(file: Path) -> None:
    plain = json.loads(file.read_text(encoding="utf-8"))
    found = study_plan(plain, str(file))
    counted = {"not settled": len(found.affordable) + len(found.too_dear), "not tested": len(found.untested)}
    assert counted == {verdict: plain["verdicts"][verdict] for verdict in counted}
    assert len(found.settled) == plain["verdicts"]["held"] + plain["verdicts"]["contradicted"]
    assert len(found.remarks()) == len(found.too_dear) + len(found.untested)
    assert found.minutes(found.seeds_in_budget) <= 20 < found.minutes(found.seeds_in_budget + 1)
    for each in found.affordable:
        assert each.seeds_to_settle is not None
        assert each.seeds < each.seeds_to_settle <= found.seeds_in_budget
    assert json.loads(json.dumps(plans_as_dict([found]), allow_nan=False))["studies"][0]["verdict"] == found.verdict()


def without(plain: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in plain.items() if key not in keys}


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (
            without(result(HELD), "verdicts"),
            r"power needs results with four verdicts; r\.json was written before there were four\. Run the study again",
        ),
        (
            without(result(HELD), "most", "seconds"),
            r"needs results of turnout reproduce; r\.json has no most, seconds\.",
        ),
        ([1, 2], r"needs results of turnout reproduce; r\.json has no name, scale, seeds, most, seconds, claims\. Run"),
        (
            result(without(HELD, "than")),
            r"a claim of r\.json has no than\. Run the study again .* or leave the file out",
        ),
        (result(without(HELD, "is_primary")), r"r\.json holds values that turnout did not write \(KeyError: 'is_pr"),
        (result(claims=3), r"r\.json holds values that turnout did not write \(TypeError.* Bring back a good copy"),
        (result(HELD, seconds={}), r"r\.json .* \(ValueError: the seconds must add up to more than 0; got 0\)"),
        (result(HELD, seeds=0), r"r\.json .* seeds must be a whole number from 1 to"),
        (result(claim(verdict="maybe")), r"r\.json .* the verdict must be one of held, .*; got 'maybe'\)"),
        (result(claim(ours="much")), r"r\.json .* a finite number is expected; got 'much'\)"),
        (result(claim(spread=math.nan)), r"r\.json .* a finite number is expected; got nan\)"),
        (result(claim(text=None)), r"r\.json .* a text is expected; got None\)"),
        (result(claim(seeds_needed=-1)), r"r\.json .* seeds_needed must be a whole number"),
    ],
)
def test_error_a_result_that_cannot_be_read_names_the_file_and_what_to_do(damaged: Any, message: str) -> None:
    with pytest.raises(TurnoutError, match=message):
        study_plan(damaged, "r.json")


@pytest.mark.parametrize("value", [3.5, "text", None, [], {}, [{}], {"": None}, True])
@pytest.mark.parametrize("key", ["name", "scale", "seeds", "most", "seconds", "claims"])
def test_property_a_value_of_another_type_is_read_or_refused_but_never_a_crash(key: str, value: Any) -> None:
    message = ""
    try:
        study_plan({**result(HELD, claim()), key: value}, "r.json").verdict()
    except TurnoutError as error:
        message = str(error)
    assert not message or "r.json" in message
