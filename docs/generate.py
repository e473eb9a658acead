"""A MkDocs hook: one page per algorithm and per axis, from what their files say. Nothing is written to disk."""

from html import escape
from textwrap import dedent

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from turnout.algorithms import ALGORITHMS, GROUPS
from turnout.algorithms.algorithm import Algorithm
from turnout.axes import AXES
from turnout.catalogue import Description, Setting, catalogue, describe
from turnout.study.toml_text import to_toml

PARTS = (("Reduces to", "reduces_to"), ("Differs from the paper", "differs"), ("Reference", "reference"))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the algorithms and the axes to the navigation."""
    named: list[str | dict[str, list[dict[str, str]]]] = ["algorithms/index.md"]
    named += [
        {group: [{entry.example.title: f"algorithms/{entry.name}.md"} for entry in map(Algorithm, functions)]}
        for group, functions in GROUPS.items()
    ]
    overview: list[str | dict[str, str]] = ["axes/index.md"]
    pages = [{axis.capitalize(): f"axes/{axis}.md"} for axis in AXES]
    config.nav = [*(config.nav or []), {"Algorithms": named}, {"Axes": overview + pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages themselves."""
    files.append(File.generated(config, "algorithms/index.md", content=algorithms_page()))
    for name, entry in ALGORITHMS.items():
        files.append(File.generated(config, f"algorithms/{name}.md", content=algorithm_page(entry)))
    files.append(File.generated(config, "axes/index.md", content=overview_page()))
    for axis in AXES:
        files.append(File.generated(config, f"axes/{axis}.md", content=axis_page(axis)))
    return files


def algorithms_page() -> str:
    """Return the page that lists every algorithm, in the order in which people learn them."""
    lines = [
        "# Algorithms",
        "",
        "A named algorithm is one choice per axis. Each page has the round in pseudo-code, when",
    ]
    lines += ["to use the algorithm, its settings, and a study file that compares it with FedAvg.", ""]
    for group, functions in GROUPS.items():
        lines += [f"## {group}", "", "| algorithm | recipe | |", "|---|---|---|"]
        for entry in map(Algorithm, functions):
            lines.append(f"| [{entry.example.title}]({entry.name}.md) | `{entry.name}` | {cell(entry.summary)} |")
        lines.append("")
    return "\n".join(lines)


def algorithm_page(entry: Algorithm) -> str:
    """Return the page of one algorithm."""
    summary = f"{entry.summary} {entry.parts['about']}".replace("\n", " ")
    lines = [f"# {entry.example.title}", "", escape(summary, quote=False), ""]
    for part in ("When to use it:", "Round:", "Choice per axis:", "Reduces to:"):
        lines += part_lines(part, entry.parts[part])
        lines += [f"Rules: {', '.join(rule_links(entry))}.", ""] if part == "Choice per axis:" else []
    lines += ["## Settings", "", *settings_table(entry.settings)]
    if entry.settings:
        call = f"`{entry.in_python}`"
        lines += [f"In a study file they stand beside `use` in `recipe`; in Python they are arguments of {call}.", ""]
    lines += ["## Try it", "", f"Save it as `try-{entry.name}.toml`, then `turnout run try-{entry.name}.toml`.", ""]
    lines += ["```toml", to_toml(entry.example.study(entry.name)).strip("\n"), "```", ""]
    return "\n".join([*lines, *part_lines("Reference:", entry.parts["Reference:"])])


def rule_links(entry: Algorithm) -> list[str]:
    """Return links to the rules that an algorithm names, on the pages of their axes."""
    named = entry.function(**entry.example.settings)
    used = [(axis, named.get(facts.section, {}).get("use")) for axis, facts in AXES.items()]
    return [f"[{axis}/{rule}](../axes/{axis}.md#{rule})" for axis, rule in used if rule is not None]


def part_lines(label: str, text: str) -> list[str]:
    """Return one part of an algorithm's docstring under a heading of its own; indented text is pseudo-code."""
    shown = ["```text", dedent(text), "```"] if text.startswith("    ") else [capitalised(text)]
    return [f"## {label.rstrip(':')}", "", *shown, ""]


def overview_page() -> str:
    """Return the page that lists every axis with its rules."""
    lines = ["# Axes", "", "A study makes one choice on each of these.", ""]
    lines += ["| axis | asks | section of a study | rules |", "|---|---|---|---|"]
    for axis, facts in AXES.items():
        rules = ", ".join(f"[{name}]({axis}.md#{name})" for name in catalogue(axis))
        lines.append(f"| [{axis}]({axis}.md) | {facts.about} | `{facts.section}` | {rules} |")
    return "\n".join(lines) + "\n"


def axis_page(axis: str) -> str:
    """Return the page of one axis."""
    facts = AXES[axis]
    intro = f"{facts.about.capitalize()}. In a study file: `[{facts.section}]`, with `use` and the rule's settings."
    rules = [rule_text(name, describe(rule)) for name, rule in catalogue(axis).items()]
    return "\n".join([f"# {axis.capitalize()}", "", intro, "", *rules])


def rule_text(name: str, said: Description) -> str:
    """Return one rule's part of its axis's page."""
    lines = [f"## {name} {{ #{name} }}", "", escape(said.summary, quote=False), ""]
    if said.intuition:
        lines += [f"*{capitalised(said.intuition)}*", ""]
    if said.formula:
        lines += ["```text", said.formula, "```", ""]
    if said.notes:
        lines += [escape(said.notes, quote=False), ""]
    lines += settings_table(said.settings)
    for label, part in PARTS:
        text = getattr(said, part)
        if text and text != "none needed.":
            lines += [f"**{label}:** {escape(text, quote=False)}", ""]
    return "\n".join(lines)


def settings_table(settings: tuple[Setting, ...]) -> list[str]:
    """Return a rule's settings as the lines of a table."""
    if not settings:
        return ["No settings.", ""]
    lines = ["| setting | type | default | |", "|---|---|---|---|"]
    for entry in settings:
        default = "*must be given*" if entry.default is None else code(entry.default)
        lines.append(f"| {code(entry.name)} | {code(entry.type)} | {default} | {cell(entry.meaning)} |")
    return [*lines, ""]


def code(text: str) -> str:
    """Return text as code inside a table cell, where a bar would end the cell."""
    return f"<code>{cell(text)}</code>"


def cell(text: str) -> str:
    """Return text that a table cell can hold."""
    return escape(text, quote=False).replace("|", "&#124;")


def capitalised(text: str) -> str:
    """Return text with its first letter large, the rest as it is, safe inside emphasis."""
    return escape(text[:1].upper() + text[1:], quote=False).replace("*", "\\*")
