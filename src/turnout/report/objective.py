"""What the arms of a report minimised: their audits, mean over seeds, and the table of them."""

from collections.abc import Sequence

import pandas as pd

from turnout import number_format
from turnout.analysis.audit import audit
from turnout.analysis.audit.weights import NothingToAuditError
from turnout.analysis.audit.words import Summary, summarise
from turnout.report.load_studies import Arm, rounds_of
from turnout.report.tables import Table

MOST_CLIENT_ROUNDS = 1 << 26  # of all runs; beyond it, `turnout audit` reads one arm or seed at a time
NOTE = (
    "By chance: the mismatch that the randomness of the rounds alone gives on average. Clients that count: the "
    "number of clients of equal weight that would average as much noise away."
)


def objectives(arms: Sequence[Arm]) -> tuple[Summary, ...]:
    """Return the summary of each arm that moved its model; none at all if there is too much to read."""
    if sum(int(rounds_of(arm)["num_clients"].sum()) for arm in arms) > MOST_CLIENT_ROUNDS:
        return ()
    found = []
    for arm in arms:
        audits = []
        for seed in arm.seeds:
            try:
                audits.append(audit(arm.study, arm.own_name, seed))
            except NothingToAuditError:
                continue
        if audits:
            found.append(summarise(audits, arm.name))
    return tuple(found)


def objective_table(found: Sequence[Summary]) -> Table:
    """Return one row per arm: the mismatch, what chance gives, and the causes that sum to it."""
    causes = [name for name in found[0].causes if any(each.causes[name] for each in found)]
    headings = ["arm", "mismatch", "by chance", "χ²", "clients that count", "by samples", "without weight", *causes]
    rows = [
        [
            each.arm,
            number_format.percent(each.total_variation),
            number_format.percent(each.chance),
            number_format.number(each.chi_square),
            number_format.number(each.effective_clients),
            number_format.number(each.effective_clients_asked),
            number_format.number(each.unseen),
            *(number_format.percent(each.causes[name]) for name in causes),
        ]
        for each in found
    ]
    return Table(
        name="objective",
        title="The objective that was minimised",
        headings=headings,
        rows=rows,
        raw=pd.DataFrame([each.as_dict() for each in found]),
        notes=(NOTE,),
    )
