"""Reproductions of papers: shipped studies with claims that are tested."""

from turnout.reproduce.claims import Claim, Statement, Verdict, above, below, exactly, judged, number
from turnout.reproduce.running import Reproduction, reproduce
from turnout.reproduce.shipped import SCALES, About, Shipped, shipped, shipped_named

__all__ = [
    "SCALES",
    "About",
    "Claim",
    "Reproduction",
    "Shipped",
    "Statement",
    "Verdict",
    "above",
    "below",
    "exactly",
    "judged",
    "number",
    "reproduce",
    "shipped",
    "shipped_named",
]
