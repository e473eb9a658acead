"""Reproductions of papers: shipped studies with claims that are tested."""

from turnout.reproduce.claims import Claim, Statement, above, below, exactly, number, with_verdicts
from turnout.reproduce.running import Verdict, reproduce
from turnout.reproduce.shipped import SCALES, About, Shipped, shipped, shipped_named

__all__ = [
    "SCALES",
    "About",
    "Claim",
    "Shipped",
    "Statement",
    "Verdict",
    "above",
    "below",
    "exactly",
    "number",
    "reproduce",
    "shipped",
    "shipped_named",
    "with_verdicts",
]
