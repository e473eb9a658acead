"""An audit in words, and as a row of a table: the runs of one arm together, mean over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from turnout import number_format
from turnout.analysis.audit.audit import Audit
from turnout.analysis.audit.mismatch import effective_clients
from turnout.analysis.audit.repair import Repair
from turnout.analysis.audit.weights import CAUSES

CHANCE = 1.2  # a mismatch below this many times what chance gives is put down to chance
NOTHING = 5e-4  # of the weight: a smaller mismatch is not spoken of
WORTH_NAMING = 0.01  # of the weight: a smaller part of the mismatch is not named as a cause
ADVICE = {
    "membership": "clients joined or left; turnover.on_departure says whether those who left stay in the objective",
    "availability": (
        'clients that are away count less; aggregation.weighting = "ht-fleet", or recipe = "mifa" or "fedvarp", '
        "corrects it"
    ),
    "filtering": 'the filter leaves clients out; that is its purpose, and filtering.use = "everyone" turns it off',
    "selection": (
        'the selection prefers some clients; aggregation.weighting = "ht" corrects it where the selection rule knows '
        "how likely each client is to be selected"
    ),
    "lost updates": "updates are late, lost or rejected; allow more time, or ask for less local work",
    "local work": 'clients that do more local work count more; recipe = "fednova" corrects it',
    "weighting": (
        "updates are not weighed by data size; aggregation.weighting says how they are, and a rule that weighs them by "
        "the clients' losses does so on purpose"
    ),
    "memory": "stored updates and control variates count again; clients without one carry no weight",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The audits of an arm, mean over seeds."""

    arm: str
    seeds: int
    clients: int
    total_variation: float
    chance: float
    chi_square: float
    effective_clients: float
    effective_clients_asked: float
    heavy: int  # number of clients in the heaviest tenth
    heavy_share: float  # Σ p̃_i over them
    heavy_asked: float  # Σ p_i over them
    unseen: float  # number of clients that carry no weight
    unseen_share: float
    causes: dict[str, float]  # what each adds

    def as_dict(self) -> dict[str, Any]:
        """Return one flat row, for a table of raw numbers."""
        plain = asdict(self)
        causes = plain.pop("causes")
        return plain | {f"cause: {name}": value for name, value in causes.items()}


def summarise(audits: Sequence[Audit], arm: str | None = None) -> Summary:
    """Return the means over the audits of one arm; `arm` is its name where that is not the run's own."""

    def mean(value: Callable[[Audit], float]) -> float:
        return float(np.mean([value(each) for each in audits]))

    causes = np.mean([[cause.adds for cause in each.causes] for each in audits], axis=0)
    return Summary(
        arm=audits[0].arm if arm is None else arm,
        seeds=len(audits),
        clients=audits[0].num_clients,
        total_variation=mean(lambda each: each.total_variation),
        chance=mean(lambda each: each.chance),
        chi_square=mean(lambda each: each.chi_square),
        effective_clients=mean(lambda each: effective_clients(each.weights.effective)),
        effective_clients_asked=mean(lambda each: effective_clients(each.weights.asked)),
        heavy=len(audits[0].heaviest),
        heavy_share=mean(lambda each: float(each.weights.effective[each.heaviest].sum())),
        heavy_asked=mean(lambda each: float(each.weights.asked[each.heaviest].sum())),
        unseen=mean(lambda each: float(len(each.unseen))),
        unseen_share=mean(lambda each: each.unseen_share),
        causes=dict(zip(CAUSES, map(float, causes), strict=True)),
    )


def summaries(audits: Sequence[Audit]) -> list[Summary]:
    """Return one summary per arm, in order."""
    arms = dict.fromkeys(each.arm for each in audits)
    return [summarise([each for each in audits if each.arm == arm]) for arm in arms]


def sentences(found: Summary) -> list[str]:
    """Return what an arm minimised, how far that is from what was asked for, and why."""
    over = "" if found.seeds == 1 else f" (mean over {found.seeds} seeds)"
    if found.total_variation < NOTHING:
        exactly = "exactly " if found.total_variation == 0 else ""
        return [f"{found.arm} minimised {exactly}the mean loss over all samples{over}."]
    carry, hold = ("carries", "holds") if found.heavy == 1 else ("carry", "hold")
    said = [
        f"{found.arm} did not minimise the mean loss over all samples: {found.heavy} of {found.clients} clients "
        f"{carry} {number_format.percent(found.heavy_share, 0)} of the weight and {hold} "
        f"{number_format.percent(found.heavy_asked, 0)} of the samples; {_unseen(found)}{over}."
    ]
    share, chance = (number_format.percent(value) for value in (found.total_variation, found.chance))
    said.append(
        f"{share} of the weight is at other clients than the samples are; in a run of this length, chance alone gives "
        f"about {chance}."
    )
    causes = sorted(found.causes.items(), key=lambda entry: -entry[1])
    named = [(name, value) for name, value in causes if value >= WORTH_NAMING]
    if found.total_variation < CHANCE * found.chance:
        said.append("That is mostly chance. What to do: nothing, or more rounds or a larger selection.cohort_size.")
    elif named:
        listed = ", ".join(f"{name} {number_format.percent(value)}" for name, value in named)
        said.append(f"Causes: {listed}.")
        said.append(f"What to do: {ADVICE[named[0][0]]}.")
    return said


def _unseen(found: Summary) -> str:
    if found.unseen == 0:
        return "every client carries some weight"
    share = number_format.percent(found.unseen_share, 0)
    clients = "1 client carries" if found.unseen == 1 else f"{number_format.number(found.unseen)} clients carry"
    return f"{clients} none, with {share} of the samples"


def repair_sentences(arm: str, found: Repair) -> list[str]:
    """Return what a repair reaches, what it costs, and what it cannot do."""
    said = []
    if len(found.never_used):
        clients = number_format.plural(len(found.never_used), "client")
        share = number_format.percent(found.remaining)
        said.append(
            f"No weighting can repair {arm} fully: of {clients} no update was ever used, and {share} of the weight is "
            "asked for there. Keep them available longer, or use a rule that waits for them (MIFA with wait)."
        )
    rest = "exactly" if found.remaining == 0 else f"up to {number_format.percent(found.remaining)}"
    factor = number_format.number(found.noise_factor)
    said.append(
        f"With the coefficients p_i / f_i, {arm} would have minimised the mean loss over all samples {rest}, and the "
        f"noise of its mean step would have been {factor} times what it was."
    )
    left = number_format.percent(found.remaining_by_selection)
    said.append(f"Selection alone, with the clients that were available, could have come within {left}.")
    return said
