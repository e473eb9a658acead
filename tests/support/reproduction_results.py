"""Results of `turnout reproduce`, made by hand."""

from typing import Any


def claim(**changes: Any) -> dict[str, Any]:
    """Return a claim that is not settled by ten seeds, and that 60 seeds would settle."""
    plain = {"text": "gain", "unit": "points", "verdict": "not settled", "ours": 1.5, "than": 1.0, "spread": 1.0}
    return {**plain, "seeds": 10, "smallest": 1.0, "seeds_needed": 60, "is_primary": True, **changes}


def result(*claims: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a result with ten seeds that took ten seconds each, so that 120 seeds take 20 minutes."""
    plain = {"name": "small", "scale": "small", "seeds": 10, "most": 20, "seconds": {"training": 70.0, "rest": 30.0}}
    return {**plain, "verdicts": {}, "claims": list(claims), **changes}
