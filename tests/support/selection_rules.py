"""Every selection rule, with settings that suit a small federation."""

from typing import Any

from turnout.selection import AFL, DivFL, LowLoss, Oort, Optimal, Poisson, PowerOfChoice, Uniform, Weighted

RULES: dict[str, Any] = {
    "uniform": Uniform(cohort_size=3),
    "uniform, everyone": Uniform(),
    "uniform, replaced": Uniform(cohort_size=3, replacement=True),
    "poisson": Poisson(prob=0.4),
    "weighted": Weighted(cohort_size=3),
    "weighted, once": Weighted(cohort_size=3, replacement=False),
    "pow-d": PowerOfChoice(cohort_size=3, pool_size=5),
    "cpow-d": PowerOfChoice(cohort_size=3, pool_size=5, estimate="batch", batch_size=2),
    "rpow-d": PowerOfChoice(cohort_size=3, pool_size=5, estimate="last"),
    "adapow-d": PowerOfChoice(cohort_size=3, pool_size=12, schedule="halve", every=2),
    "low-loss": LowLoss(cohort_size=3, pool_size=5),
    "low-loss, last": LowLoss(cohort_size=3, pool_size=5, estimate="last"),
    "afl": AFL(cohort_size=3),
    "afl, scaled": AFL(cohort_size=3, scaled=True, exploration=0.5, kept_share=0.6),
    "divfl": DivFL(cohort_size=3),
    "divfl, full": DivFL(cohort_size=3, refresh="full", greedy="lazy"),
    "divfl, stochastic": DivFL(cohort_size=3, greedy="stochastic", candidates_share=0.5),
    "divfl, represent": DivFL(cohort_size=3, represent=True),
    "optimal": Optimal(cohort_size=3, pool_size=6),
    "optimal, iterative": Optimal(cohort_size=2, pool_size=4, probabilities="iterative"),
    "oort": Oort(cohort_size=3),
    "oort, by speed": Oort(cohort_size=3, preferred_seconds=2.0),
    "oort, greedy": Oort(cohort_size=3, exploration=0.0, least_exploration=0.0),
}
