"""`recipe` in a study file: a named algorithm of `turnout.algorithms` with its settings, read into sections.

`recipe = "scaffold"` is short for `recipe = { use = "scaffold" }`; the table has the algorithm's settings beside `use`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from turnout.algorithms import ALGORITHMS
from turnout.algorithms.algorithm import Algorithm, flat
from turnout.errors import did_you_mean
from turnout.settings import shown
from turnout.study.config_tree import DEFAULT_USE, Node, Where, as_table, tree_from_value, where_set
from turnout.study.typed_values import FAILED, Reader


@dataclass(frozen=True, slots=True)
class Recipe:
    """An algorithm with its settings, and its place in the study file."""

    algorithm: Algorithm
    settings: Mapping[str, Any]
    where: Where

    def sections(self) -> dict[str, Node]:
        """Return the sections that the algorithm sets."""
        made = self.algorithm.function(**self.settings)
        return {key: tree_from_value(value, self.where) for key, value in made.items() if value}

    def contradictions(self, sections: Mapping[str, Node]) -> Iterator[tuple[Where, str]]:
        """Yield the place and a message for each merged section that differs from the algorithm."""
        name, reported = self.algorithm.name, set()
        for difference in self.algorithm.differences(self.settings, _values(sections)):
            path = difference.path
            section = path.split(".")[0]
            if section not in reported:
                reported.add(section)
                yield (
                    where_set(Node(dict(sections), self.where), path),
                    f"The recipe {name} needs {path} {difference.need}; got {shown(difference.got)}. "
                    f"Change {path}, or leave the recipe out and write its sections (`turnout show {name}`).",
                )


def read_recipe(node: Node, reader: Reader) -> Recipe | None:
    """Return the recipe of a name or a table; None if it is invalid, which is added to the problems."""
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
    """Return the settings of the sections by path; a section without `use` has the default rule."""
    tables = {key: as_table(node) for key, node in sections.items()}
    plain = {key: table.plain() for key, table in tables.items() if table is not None}
    return flat(
        {key: {"use": DEFAULT_USE[key], **value} if key in DEFAULT_USE else value for key, value in plain.items()}
    )
