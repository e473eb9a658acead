"""Numbers for objects: unlike `id`, a number is never given to another object, even after the first is gone."""

import itertools
import weakref
from collections.abc import Callable

_numbers = itertools.count(1)
_known: dict[int, tuple[Callable[[], object], int]] = {}  # by id: the object, if it still lives, and its number


def number_of(value: object) -> int:
    """Return the number of an object in this process."""
    known = _known.get(id(value))
    if known is not None and known[0]() is value:
        return known[1]
    try:
        reference: Callable[[], object] = weakref.ref(value)
    except TypeError:  # it allows no weak references, so it is kept

        def reference() -> object:
            return value

    _known[id(value)] = (reference, next(_numbers))
    return _known[id(value)][1]
