"""A MkDocs hook: draws the import graph of the packages, read from the source. An arrow goes to what is imported."""

import ast
from collections.abc import Mapping
from pathlib import Path

from turnout.axes import AXES as TABLE

PACKAGE = Path(__file__).parents[1] / "src" / "turnout"
AXES = "rules of the axes"  # packages of rules, which do not import each other, share a box
SHARED = "shared types"  # so do single modules of values and types
WIDTH, BOX, ROW, GAP = 760, 30, 74, 14
Graph = Mapping[str, set[str]]


def on_page_markdown(markdown: str, **rest: object) -> str:
    """Draw the graph where a page asks for it."""
    return markdown.replace("<!-- import graph -->", svg()) if "<!-- import graph -->" in markdown else markdown


def imports() -> Graph:
    """Return what each package imports, by name, without itself."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        unit = box_of(path.relative_to(PACKAGE).with_suffix("").parts[0])
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "turnout":
                inside = (node.module or "").partition(".")[2]
                names = [inside] if inside else [alias.name for alias in node.names]
                found.setdefault(unit, set()).update(box_of(name.partition(".")[0]) for name in names)
    return {unit: targets - {unit, ""} for unit, targets in found.items() if unit}


def box_of(name: str) -> str:
    """Return the box that a package or module is drawn in; empty for what is not drawn."""
    if name in ("__init__", "__main__"):
        return ""
    if name in {axis.package.split(".")[1] for axis in TABLE.values()}:
        return AXES
    return name if (PACKAGE / name).is_dir() else SHARED


def layers(graph: Graph) -> list[list[str]]:
    """Return the boxes by layer, the top first: each imports from layers below it only."""
    rank: dict[str, int] = {}

    def place(unit: str) -> int:
        if unit not in rank:
            rank[unit] = 1 + max((place(target) for target in graph.get(unit, ())), default=-1)
        return rank[unit]

    for unit in graph:
        place(unit)
    return [sorted(unit for unit in rank if rank[unit] == level) for level in sorted(set(rank.values()), reverse=True)]


def direct(graph: Graph) -> Graph:
    """Return the graph without arrows that a longer way implies."""

    def below(unit: str) -> set[str]:
        return {unit}.union(*(below(target) for target in graph.get(unit, ())))

    return {
        unit: {t for t in targets if not any(t in below(other) for other in targets - {t})}
        for unit, targets in graph.items()
    }


def svg() -> str:
    """Return the drawing."""
    graph = imports()
    rows, where, parts = layers(graph), {}, []
    for level, row in enumerate(rows):
        sizes = [24 + 8 * len(name) for name in row]
        left = (WIDTH - sum(sizes) - GAP * (len(row) - 1)) / 2
        for name, size in zip(row, sizes, strict=True):
            where[name] = (left, level * ROW + 4, size)
            left += size + GAP
    for unit, targets in direct(graph).items():
        for target in sorted(targets):
            (x, y, size), (other, below, wide) = where[unit], where[target]
            start, end = x + size / 2, other + wide / 2
            parts.append(
                f'<path d="M{start:.0f} {y + BOX} C{start:.0f} {y + ROW * 0.7:.0f} {end:.0f} {below - ROW * 0.3:.0f} '
                f'{end:.0f} {below - 4}" fill="none" stroke="currentColor" opacity="0.5" marker-end="url(#tip)"/>'
            )
    for name, (x, y, size) in where.items():
        parts.append(
            f'<rect x="{x:.0f}" y="{y}" width="{size}" height="{BOX}" rx="6" '
            f'fill="var(--md-default-bg-color, white)" stroke="currentColor"/>'
            f'<text x="{x + size / 2:.0f}" y="{y + 20}" text-anchor="middle" font-size="14" '
            f'fill="currentColor">{name}</text>'
        )
    tip = '<marker id="tip" markerWidth="7" markerHeight="7" refX="6" refY="3.5" orient="auto">'
    tip += '<path d="M0 0 L7 3.5 L0 7 z" fill="currentColor"/></marker>'
    height = len(rows) * ROW - ROW + BOX + 8
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Which package imports which" '
        f'style="max-width: {WIDTH}px"><defs>{tip}</defs>{"".join(parts)}</svg>'
    )
