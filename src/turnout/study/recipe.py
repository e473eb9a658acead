"""`recipe` in a study file: a named algorithm of `turnout.algorithms` with its settings, as sections with their places.

`recipe = "scaffold"` is short for `recipe = { use = "scaffold" }`; the table has the algorithm's settings beside `use`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turnout.algorithms import ALGORITHMS
from turnout.algorithms.algorithm import Algorithm, flat
from turnout.errors import did_you_mean
from turnout.settings import shown
from turnout.study.config_tree import DEFAULT_USE, Node, Where, as_table, tree_from_value
from turnout.study.typed_values import FAILED, Reader


@dataclass(frozen=True, slots=True)
class Recipe:
    """An algorithm with its settings, and where a study file names it."""

    algorithm: Algorithm
    settings: Mapping[str, Any]
    where: Where

    def sections(self) -> dict[str, Node]:
        """Return the sections of the algorithm; one that it leaves as it is, is left out."""
        made = self.algorithm.function(**self.settings)
        return {key: tree_from_value(value, self.where) for key, value in made.items() if value}

    def contradictions(self, sections: Mapping[str, Node]) -> Iterator[tuple[Where, str]]:
        """Yield where and how merged sections are not those of the algorithm: once for each section."""
        name, told = self.algorithm.name, set()
        for found in self.algorithm.differences(self.settings, _values(sections)):
            section, *keys = found.path.split(".")
            if section not in told:
                told.add(section)
                yield (
                    _place(sections[section], keys) if section in sections else self.where,
                    f"The recipe {name} needs {found.path} {found.need}; got {shown(found.got)}. "
                    f"Change {found.path}, or leave the recipe out and write its sections (`turnout show {name}`).",
                )


def read_recipe(node: Node, reader: Reader) -> Recipe | None:
    """Return the recipe that a name or a table stands for; None if it is wrong, which has then been noted."""
    table = as_table(node)
    use = table.value.get("use") if table is not None else None
    if table is None or use is None:
        got = shown(node.plain())
        message = f'recipe needs the name of an algorithm, or a table with use = "fedavg", for example; got {got}.'
        reader.problems.add(node.where, message)
        return None
    algorithm = ALGORITHMS.get(use.value) if isinstance(use.value, str) else None
    if algorithm is None:
        called = use.value if isinstance(use.value, str) else shown(use.plain())
        few = ", ".join(list(ALGORITHMS)[:6])
        message = (
            f"There is no recipe {called!r}.{did_you_mean(called, list(ALGORITHMS))} "
            f"There are {few}: see `turnout ls algorithms`."
        )
        reader.problems.add(use.where, message)
        return None
    entries = Node({key: entry for key, entry in table.value.items() if key != "use"}, table.where)
    settings = reader.make(algorithm.function, entries, "recipe", by=lambda **given: given)
    return None if settings is FAILED else Recipe(algorithm, settings, node.where)


def _values(sections: Mapping[str, Node]) -> dict[str, Any]:
    """Return what sections say, by path; a rule that they do not name is the default one."""
    tables = {key: as_table(node) for key, node in sections.items()}
    plain = {key: table.plain() for key, table in tables.items() if table is not None}
    return flat(
        {key: {"use": DEFAULT_USE[key], **value} if key in DEFAULT_USE else value for key, value in plain.items()}
    )


def _place(node: Node, keys: list[str]) -> Where:
    """Return where a setting was written or, if it is left out, the table that lacks it."""
    for key in keys:
        table = as_table(node)
        if table is None or key not in table.value:
            break
        node = table.value[key]
    return node.where
