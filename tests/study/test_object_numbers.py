"""A number tells an object from all others, also from those that are gone."""

from turnout.study.object_numbers import number_of


class Slotted:
    """An object that allows no weak references."""

    __slots__ = ()


def test_contract_an_object_keeps_its_number() -> None:
    one, other = object.__new__(Slotted), [1]
    assert number_of(one) == number_of(one) != number_of(other) == number_of(other)


def test_contract_an_object_at_the_place_of_one_that_is_gone_has_a_number_of_its_own() -> None:
    places: set[int] = set()
    numbers: set[int] = set()
    for _ in range(50):
        made = lambda: None  # noqa: E731  # each is freed before the next is made
        places.add(id(made))
        numbers.add(number_of(made))
        del made
    assert len(numbers) == 50
    assert len(places) < 50  # so an id would not have told them apart
