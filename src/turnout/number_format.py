"""Formats numbers for people to read; a missing number is a dash."""

import math
from collections.abc import Callable, Sequence

Say = Callable[[float | None], str]
MISSING = "–"
MINUS = "−"
MOST_DECIMALS = 9
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def signed(text: str) -> str:
    """Return the text of a number with a typographic minus sign."""
    return text.replace("-", MINUS)


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with this many significant digits, with commas between thousands."""
    if value is None or not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if abs(value) >= 1e9 or abs(value) < 1e-4:
        return signed(f"{value:.{digits - 1}e}")
    whole = abs(value) >= 10 ** (digits - 1) or float(value).is_integer()
    return signed(f"{value:,.0f}" if whole else f"{value:.{digits}g}")


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share as a percentage."""
    return MISSING if value is None or not math.isfinite(value) else signed(f"{100 * value:.{digits}f} %")


def amount_of_bytes(value: float | None) -> str:
    """Return a number of bytes with a suitable unit."""
    if value is None or not math.isfinite(value):
        return MISSING
    for size, unit in UNITS:
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.0f} B"


def seconds(value: float | None) -> str:
    """Return a time in seconds, minutes, hours or days."""
    if value is None or not math.isfinite(value):
        return MISSING
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if value >= 2 * size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} s"


def decimals(values: Sequence[float], threshold: float, fewest: int) -> int:
    """Return how many decimals to show so that no value is rounded to a threshold that it differs from."""
    told = fewest
    while told < MOST_DECIMALS and any(x != threshold and round(x, told) == round(threshold, told) for x in values):
        told += 1
    return told


def p_value(value: float | None) -> str:
    """Return a p-value with three decimals, or with as many as tell it from 0.05."""
    if value is None:
        return MISSING
    return f"{value:.{decimals([value], 0.05, 3)}f}" if value >= 0.001 else "< 0.001"


def index(value: float | None) -> str:
    """Return an index between 0 and 1 with three decimals."""
    return MISSING if value is None or not math.isfinite(value) else signed(f"{value:.3f}")


def spread_index(mean: float | None, std: float | None) -> str:
    """Return mean ± standard deviation of an index between 0 and 1."""
    return index(mean) if std is None or not math.isfinite(std) else f"{index(mean)} ± {index(std)}"


def spread(mean: float | None, std: float | None, digits: int = 3) -> str:
    """Return mean ± standard deviation; the mean alone if there is no standard deviation."""
    if mean is None or not math.isfinite(mean):
        return MISSING
    if std is None or not math.isfinite(std):
        return number(mean, digits)
    return f"{number(mean, digits)} ± {number(std, 2)}"


def spread_percent(mean: float | None, std: float | None, digits: int = 1) -> str:
    """Return mean ± standard deviation of a share, as percentages."""
    if mean is None or not math.isfinite(mean):
        return MISSING
    if std is None or not math.isfinite(std):
        return percent(mean, digits)
    return signed(f"{100 * mean:.{digits}f} ± {100 * std:.{digits}f} %")


def plural(count: int, thing: str) -> str:
    """Return a count and its noun, in the plural unless the count is one."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def ranges(values: list[int], most: int = 8) -> str:
    """Return integers as ranges: 1–3, 7, 9–12; at most `most` of them."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    shown = [str(low) if low == high else f"{low}–{high}" for low, high in runs[:most]]
    return ", ".join(shown) + (f" … ({len(runs) - most} more)" if len(runs) > most else "")
