"""The papers, reproduced: shipped studies that end in a verdict."""

from turnout.reproduce.claims import Claim, Statement, above, below, exactly, number, settled
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
    "settled",
    "shipped",
    "shipped_named",
]
