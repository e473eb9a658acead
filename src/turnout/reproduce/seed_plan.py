"""What the seeds of a reproduction can tell, and how many would settle the claims that are open.

A claim is settled if it is held or contradicted. The seeds that an open claim needs are those that show an effect of
the size seen with a power of 80 %, at the level at which the claim was tested. Minutes are processor time, and count
every seed of a run from the first on: the seeds that a number was chosen with are not used again.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from turnout.analysis.power import MOST_NEEDED, POWER
from turnout.errors import ConfigError
from turnout.number_format import plural
from turnout.reproduce.claims import MANY_SEEDS, VERDICTS
from turnout.untrusted_input import as_written, count_of, name_of

BUDGET_MINUTES = 20  # processor time of one study
MINUTE = 60.0  # seconds
USUAL_SCALE = "small"
STUDY_KEYS = ("name", "scale", "seeds", "most", "seconds", "claims")
CLAIM_KEYS = ("text", "unit", "verdict", "ours", "than", "spread", "seeds", "smallest", "seeds_needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimPlan:
    """What seeds tell of one primary claim."""

    text: str
    unit: str
    verdict: str
    seeds: int
    effect: float | None  # our value − the threshold; None: not finite
    spread: float | None  # standard deviation over seeds; None: one seed, or censored values
    smallest: float | None  # smallest effect that these seeds show with a power of 80 %; None: unknown
    seeds_needed: int | None  # seeds that show an effect of the size seen; None: unknown, or too many to count

    @property
    def is_settled(self) -> bool:
        """Whether the claim is held or contradicted."""
        return self.verdict in ("held", "contradicted")

    @property
    def was_tested(self) -> bool:
        """Whether a test was possible."""
        return self.verdict != "not tested"

    @property
    def seeds_to_settle(self) -> int | None:
        """Seeds that would settle the claim if it is not settled: more than it has. None: unknown, or too many."""
        if self.verdict != "not settled" or self.seeds_needed is None or self.seeds_needed > MANY_SEEDS:
            return None
        return max(self.seeds_needed, self.seeds + 1)

    def why_untested(self) -> str:
        """Return why a claim could not be tested."""
        if self.seeds < 2:
            return "one seed allows no test; run two or more"
        if self.effect is None:
            return "a value that is not finite allows no test"
        return "every seed gave the same value, which allows no test"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """The seeds that the primary claims of a study need."""

    name: str
    scale: str
    seeds: int
    most: int  # seeds at the last look that could be made
    seconds: float  # processor time of all seeds
    claims: tuple[ClaimPlan, ...]

    @property
    def label(self) -> str:
        """The study's name, with its scale if that is not the usual one."""
        return self.name if self.scale == USUAL_SCALE else f"{self.name} ({self.scale})"

    @property
    def settled(self) -> tuple[ClaimPlan, ...]:
        """The claims that are held or contradicted."""
        return tuple(claim for claim in self.claims if claim.is_settled)

    @property
    def open(self) -> tuple[ClaimPlan, ...]:
        """The claims that are not settled, or not tested."""
        return tuple(claim for claim in self.claims if not claim.is_settled)

    @property
    def affordable(self) -> tuple[ClaimPlan, ...]:
        """The open claims that the seeds of the budget would settle."""
        return tuple(claim for claim in self.open if 0 < (claim.seeds_to_settle or 0) <= self.seeds_in_budget)

    @property
    def too_dear(self) -> tuple[ClaimPlan, ...]:
        """The open claims that need more seeds than fit into the budget."""
        return tuple(claim for claim in self.open if claim.was_tested and claim not in self.affordable)

    @property
    def untested(self) -> tuple[ClaimPlan, ...]:
        """The claims that could not be tested."""
        return tuple(claim for claim in self.claims if not claim.was_tested)

    @property
    def seeds_in_budget(self) -> int:
        """Seeds that fit into the budget."""
        return math.floor(BUDGET_MINUTES / self.minutes(1))

    @property
    def seeds_for_all(self) -> int | None:
        """Seeds that would settle all open claims that can be tested; None: none is open, or too many to count."""
        return _most_of([*self.affordable, *self.too_dear])

    @property
    def seeds_for_affordable(self) -> int | None:
        """Seeds that would settle what the budget can settle; None if that is nothing."""
        return _most_of(self.affordable)

    def minutes(self, seeds: int) -> float:
        """Return the processor time of a run with this many seeds."""
        return seeds * self.seconds / self.seeds / MINUTE

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            **{key: getattr(self, key) for key in ("name", "scale", "seeds", "most", "seconds")},
            "settled": len(self.settled),
            "open": len(self.open),
            "affordable": len(self.affordable),
            "seeds_in_budget": self.seeds_in_budget,
            "seeds_for_all": self.seeds_for_all,
            "minutes_for_all": self._minutes_or_none(self.seeds_for_all),
            "seeds_for_affordable": self.seeds_for_affordable,
            "minutes_for_affordable": self._minutes_or_none(self.seeds_for_affordable),
            "claims": [self._claim_as_dict(claim) for claim in self.claims],
            "verdict": self.verdict(),
        }

    def verdict(self) -> str:
        """Return what would settle the study in one sentence."""
        settled, total, fit = len(self.settled), len(self.claims), self.seeds_in_budget
        fits = f"{plural(fit, 'seed')} {'fits' if fit == 1 else 'fit'} into {BUDGET_MINUTES} minutes"
        if not total:
            return f"There is no primary claim to settle; {fits}."
        if not self.open:
            which = {1: "The only claim is", 2: "Both claims are"}.get(total, f"All {total} claims are")
            return f"{which} settled, so no more seeds are needed; {fits}."
        parts = [f"{settled} of {plural(total, 'claim')} {'is' if 1 in (settled, total) else 'are'} settled"]
        parts += [f"{len(self.untested)} could not be tested"] if self.untested else []
        unsettled = len(self.affordable) + len(self.too_dear)
        if unsettled:
            which = "open one" if unsettled == 1 else f"{unsettled} open ones"
            parts.append(f"{_amount(self.seeds_for_all)} would settle the {which}, {self._time(self.seeds_for_all)}")
        if self.too_dear and not self.affordable:
            fits = f"only {fits}"
        elif self.too_dear:
            some = f"{len(self.affordable)} of the {unsettled}"
            fits = f"{fits}, and about {self.seeds_for_affordable} would settle {some}"
        return f"{'; '.join([*parts, fits])}."

    def remarks(self) -> list[str]:
        """Return a line for each open claim that the budget does not settle."""
        dear = [
            f"more than {BUDGET_MINUTES} minutes: {claim.text}: {_amount(claim.seeds_to_settle)}, "
            f"{self._time(claim.seeds_to_settle)}"
            for claim in self.too_dear
        ]
        return dear + [f"not tested: {claim.text}: {claim.why_untested()}" for claim in self.untested]

    def _time(self, seeds: int | None) -> str:
        minutes = plural(math.ceil(self.minutes(MANY_SEEDS if seeds is None else seeds)), "minute")
        return f"{'more than ' if seeds is None else ''}{minutes} of processor time"

    def _minutes_or_none(self, seeds: int | None) -> float | None:
        return None if seeds is None else self.minutes(seeds)

    def _claim_as_dict(self, claim: ClaimPlan) -> dict[str, Any]:
        needs = {"seeds_to_settle": claim.seeds_to_settle, "minutes": self._minutes_or_none(claim.seeds_to_settle)}
        return {**asdict(claim), "is_settled": claim.is_settled, **needs, "is_affordable": claim in self.affordable}


def _amount(seeds: int | None) -> str:
    return f"more than {MANY_SEEDS:,} seeds" if seeds is None else f"about {plural(seeds, 'seed')}"


def _most_of(claims: Sequence[ClaimPlan]) -> int | None:
    needed = [claim.seeds_to_settle for claim in claims]
    known = [seeds for seeds in needed if seeds is not None]
    return max(known) if known and len(known) == len(needed) else None


def plans_as_dict(plans: Sequence[StudyPlan]) -> dict[str, Any]:
    """Return the plans of several studies as plain values."""
    return {"budget_minutes": BUDGET_MINUTES, "power": POWER, "studies": [plan.as_dict() for plan in plans]}


def overall_verdict(plans: Sequence[StudyPlan]) -> str:
    """Return what would settle several studies in one sentence."""
    claims, settled = sum(len(plan.claims) for plan in plans), sum(len(plan.settled) for plan in plans)
    counted = f"{len(plans)} studies: {settled} of {plural(claims, 'claim')} are settled"
    if settled == claims:
        return f"{counted}, so no more seeds are needed."
    planned = [(plan, plan.seeds_for_affordable) for plan in plans]
    minutes = sum(plan.minutes(seeds) for plan, seeds in planned if seeds is not None)
    affordable = sum(len(plan.affordable) for plan in plans)
    return (
        f"{counted}; runs of at most {BUDGET_MINUTES} minutes would settle {affordable} of the {claims - settled} "
        f"open ones, {plural(math.ceil(minutes), 'minute')} of processor time in all."
    )


def study_plan(result: Any, where: str) -> StudyPlan:
    """Return the plan of a result that `turnout reproduce` wrote.

    Args:
        result: the content of its file.
        where: the file, for messages.
    """
    if isinstance(result, Mapping) and "claims" in result and "verdicts" not in result:
        raise ConfigError(
            f"power needs results with four verdicts; {where} was written before there were four. Run the study again "
            "with turnout reproduce, or leave the file out."
        )
    _check_keys(result, STUDY_KEYS, where)
    with as_written(where):
        primary = [claim for claim in result["claims"] if claim["is_primary"]]
    for claim in primary:
        _check_keys(claim, CLAIM_KEYS, f"a claim of {where}")
    with as_written(where):
        return StudyPlan(
            name=name_of(result["name"]),
            scale=name_of(result["scale"]),
            seeds=count_of(result["seeds"], "seeds", least=1),
            most=count_of(result["most"], "most"),
            seconds=_total_seconds(result["seconds"]),
            claims=tuple(map(_claim_plan, primary)),
        )


def _check_keys(value: Any, keys: Sequence[str], where: str) -> None:
    missing = [key for key in keys if key not in value] if isinstance(value, Mapping) else list(keys)
    if missing:
        raise ConfigError(
            f"power needs results of turnout reproduce; {where} has no {', '.join(missing)}. Run the study again with "
            "turnout reproduce, or leave the file out."
        )


def _claim_plan(claim: Mapping[str, Any]) -> ClaimPlan:
    if claim["verdict"] not in VERDICTS:
        raise ValueError(f"the verdict must be one of {', '.join(VERDICTS)}; got {claim['verdict']!r:.40}")
    ours, than, needed = _number_or_none(claim["ours"]), _number(claim["than"]), claim["seeds_needed"]
    return ClaimPlan(
        text=_text(claim["text"]),
        unit=_text(claim["unit"]),
        verdict=claim["verdict"],
        seeds=count_of(claim["seeds"], "seeds"),
        effect=None if ours is None else ours - than,
        spread=_number_or_none(claim["spread"]),
        smallest=_number_or_none(claim["smallest"]),
        seeds_needed=None if needed is None else count_of(needed, "seeds_needed", most=2 * MOST_NEEDED),
    )


def _total_seconds(seconds: Mapping[str, Any]) -> float:
    total = math.fsum(map(_number, seconds.values()))
    if total <= 0:
        raise ValueError(f"the seconds must add up to more than 0; got {total:g}")
    return total


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"a text is expected; got {value!r:.40}")
    return value


def _number_or_none(value: Any) -> float | None:
    return None if value is None else _number(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a finite number is expected; got {value!r:.40}")
    return float(value)
