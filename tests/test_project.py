"""The shape of the tree: which way imports point, how long files are, what a rule's docstring holds."""

import ast
import contextlib
import io
import re
import runpy
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

import turnout
from turnout.algorithms import ALGORITHMS
from turnout.algorithms.algorithm import PARTS as ALGORITHM_PARTS
from turnout.algorithms.algorithm import Algorithm
from turnout.axes import AXES
from turnout.catalogue import catalogue
from turnout.study import load_study, resolved_settings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "turnout"
MODULES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

# From the ground up. A module may import from lower layers and from its own unit, never from a neighbour or above.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "axes",
            "costs",
            "errors",
            "field_comments",
            "parameters",
            "parameter_grids",
            "lazy_imports",
            "settings",
            "streams",
            "drift",
            "distillation",
            "row_table",
            "array_types",
            "number_format",
            "rows",
            "submodels",
            "protocols",
            "traits",
            "own_rules",
            "offset",
            "orders",
            "requests",
            "requirement",
            "generators",
            "ids",
            "learned",
            "client_models",
            "progress",
            "losses",
            "metrics",
            "limits",
            "untrusted_input",
            "shorthand",
            "safe_files",
            "row_file",
        }
    ),
    frozenset(
        {
            "data",
            "models",
            "fleet",
            "filtering",
            "selection",
            "local",
            "aggregation",
            "server",
            "assignment",
            "assist",
            "asynchrony",
            "attacks",
            "width",
        }
    ),
    frozenset({"personal"}),
    frozenset({"coordinator", "catalogue"}),
    frozenset({"checkpoint", "rule_sources", "algorithms"}),
    frozenset({"engine", "journal", "track"}),
    frozenset({"world"}),
    frozenset({"analysis"}),
    frozenset({"study"}),
    frozenset({"report", "deploy"}),
    frozenset({"ui"}),
    frozenset({"reproduce"}),
    frozenset({"cli"}),
    frozenset({"__main__"}),
)
GROUND = LAYERS[0]  # the shared words of all layers; these may name each other
RANK = {unit: rank for rank, layer in enumerate(LAYERS) for unit in layer}

PACKAGES = {name: facts.package.removeprefix("turnout.") for name, facts in AXES.items()}
ONLY_RULES = {"availability", "work", "filtering", "selection", "local", "aggregation", "server"}  # list nothing else
NO_RULES = {"UserModule"}  # wraps a module of one's own
PARTS = ("Intuition:", "\n    ", "Reduces to:", "Differs from the paper:", "Reference:")
LABELS = frozenset(part for part in PARTS if part.strip())
NEVER_NEEDED = frozenset({"Differs from the paper:"})
OPTIONAL = {  # a way to deal samples need not be a case of another; a data set is neither rule nor formula
    "partition": NEVER_NEEDED | {"Reduces to:"},
    "data": NEVER_NEEDED | {"Intuition:", "\n    ", "Reduces to:"},
}


def dotted(path: Path) -> str:
    """Return a module's name below `turnout`; empty for the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str) -> set[str]:
    """Return the modules below `turnout` that a source imports, for types or not."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # `from turnout import selection` names a module; `from turnout.rows import Rows` does not
            deeper = node.module == "turnout"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if deeper else {node.module or ""}
    return {name.removeprefix("turnout.") for name in found if name.startswith("turnout.")}


def trespasses(module: str, targets: set[str]) -> list[str]:
    """Return the imports of a module that do not point down."""
    unit = module.partition(".")[0]
    bad = []
    for target in sorted(targets):
        other = target.partition(".")[0]
        within = other == unit and not _are_sibling_axes(module, target)
        below = RANK[other] < RANK[unit] or (unit in GROUND and other in GROUND)
        if not (within or below):
            bad.append(f"{module} imports {target}")
    return bad


def _are_sibling_axes(module: str, target: str) -> bool:
    axes = [next((p for p in PACKAGES.values() if f"{name}.".startswith(f"{p}.")), None) for name in (module, target)]
    return None not in axes and axes[0] != axes[1]


def rules() -> list[tuple[str, type]]:
    """Return every shipped (axis, rule)."""
    return [(axis, rule) for axis in AXES for rule in catalogue(axis).values()]


def missing_parts(doc: str, optional: frozenset[str] = NEVER_NEEDED) -> list[str]:
    """Return the parts of a rule's docstring that are absent or out of order."""
    place, missing = 0, []
    for part in PARTS:
        found = doc.find(part, place)
        if found >= 0:
            place = found + len(part)
        elif part not in optional or (part in doc and part in LABELS):
            missing.append(part.strip() or "the formula, indented by four")
    return missing


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_contract_imports_point_one_way(path: Path) -> None:
    module = dotted(path)
    if not module:
        return  # the package's front page gathers names from everywhere
    unit = module.partition(".")[0]
    assert unit in RANK, f"turnout.{unit} has no layer: give it a place in LAYERS"
    assert trespasses(module, imported(path.read_text())) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("selection.uniform", "from turnout.local.batches import steps_per_epoch"),
        ("selection.uniform", "from turnout import aggregation"),
        ("fleet.work.complete", "from turnout.fleet.availability import Always"),
        ("coordinator.round", "def late():\n    import turnout.engine.task"),
        ("engine.task", "from turnout.journal import open"),
        ("rows", "from turnout.local import SGD"),
    ],
)
def test_contract_a_wrong_import_is_seen(module: str, source: str) -> None:
    assert len(trespasses(module, imported(source))) == 1


def imported_tests(source: str) -> list[str]:
    """Return the modules of tests and fixtures that a source imports."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if re.match(r"tests\.(.*\.)?(test_|conftest\b)", name)]


def test_contract_tests_share_code_through_support_alone() -> None:
    """A test module or conftest.py that others import runs, or fails, with them."""
    found = {str(path.relative_to(ROOT)): imported_tests(path.read_text()) for path in TESTS}
    assert {path: names for path, names in found.items() if names} == {}, "move what is shared to tests/support"


@pytest.mark.parametrize(
    "source",
    [
        "from tests.core.test_round import Spy",
        "from tests.core import test_round as rounds",
        "def late():\n    import tests.test_losses",
        "from tests.conftest import turnout",
        "from tests import conftest",
    ],
)
def test_contract_an_import_of_a_test_is_seen(source: str) -> None:
    assert len(imported_tests(source)) == 1
    assert imported_tests("from tests.support.runs import run\nimport pytest") == []


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_contract_no_file_is_over_400_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


SEEDS_A_FORK = {  # for modules that draw from global generators, which are put back afterwards
    "engine.single_client": ["torch.manual_seed"],
    "models.keyed": ["torch.manual_seed", "np.random.seed", "random.seed"],
}


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_contract_nothing_is_seeded_globally(path: Path) -> None:
    assert global_seeds(path.read_text()) == SEEDS_A_FORK.get(dotted(path), [])


def test_contract_a_global_seed_is_seen() -> None:
    assert global_seeds("torch.Generator().manual_seed(1)") == []
    assert global_seeds("def f():\n    np.random.seed(1)\n    torch.manual_seed(2)") == [
        "np.random.seed",
        "torch.manual_seed",
    ]


def global_seeds(source: str) -> list[str]:
    """Return the calls that seed a generator which others share."""
    calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        call for call in calls if re.fullmatch(r"((np|numpy)\.)?random\.seed|torch\.(random\.)?(manual_)?seed", call)
    ]


@pytest.mark.parametrize("axis", sorted(ONLY_RULES))
def test_contract_an_axis_lists_rules_and_nothing_else(axis: str) -> None:
    listed = import_module(AXES[axis].package).__all__
    assert sorted(listed) == sorted(rule.__name__ for rule in catalogue(axis).values())


@pytest.mark.parametrize("axis", AXES)
def test_contract_an_axis_lists_one_class_per_module(axis: str) -> None:
    for path in sorted(PACKAGE.joinpath(*PACKAGES[axis].split(".")).glob("[!_]*.py")):
        public = [node.name for node in rule_classes(path.read_text(), AXES[axis].methods)]
        public = [name for name in public if name not in NO_RULES]
        listed = [rule.__name__ for rule in catalogue(axis).values() if rule.__module__.endswith(f".{path.stem}")]
        assert public == listed, f"{path.name} holds {public}; {AXES[axis].package} lists {listed}"
        assert len(public) <= 1, f"{path.name} holds more than one rule"


def rule_classes(source: str, methods: tuple[str, ...]) -> list[ast.ClassDef]:
    """Return the public classes of a source that have one of the methods, protocols left out."""
    found = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        has = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        is_protocol = any(isinstance(parent, ast.Name) and parent.id == "Protocol" for parent in node.bases)
        if has & set(methods) and not is_protocol:
            found.append(node)
    return found


@pytest.mark.parametrize(("axis", "rule"), rules(), ids=lambda value: getattr(value, "__name__", value))
def test_contract_a_rule_says_what_why_how_and_whence(axis: str, rule: type) -> None:
    doc = import_module(rule.__module__).__doc__ or ""
    summary, _, rest = doc.partition("\n")
    assert summary.endswith("."), "the first line is one sentence"
    assert rest.startswith("\n"), "a blank line follows it"
    assert missing_parts(doc, OPTIONAL.get(axis, NEVER_NEEDED)) == []


def test_contract_a_docstring_out_of_order_is_seen() -> None:
    whole = "It.\n\nIntuition: a.\n\n    x = y\n\nReduces to: b.\nReference: c.\n"
    assert missing_parts(whole) == []
    assert missing_parts(whole.replace("Reduces to: b.\n", "")) == ["Reduces to:"]
    assert missing_parts(whole.replace("    x = y", "x = y")) == ["the formula, indented by four"]
    swapped = whole.replace("Reduces to: b.\nReference: c.\n", "Reference: c.\nReduces to: b.\n")
    assert missing_parts(swapped) == ["Reference:"]


def fenced(text: str, language: str) -> list[str]:
    """Return the code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_contract_the_worked_example_of_contributing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, tests, _ = fenced((ROOT / "CONTRIBUTING.md").read_text(), "python")
    module = ModuleType("turnout.selection.round_robin")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(rule, "CONTRIBUTING.md", "exec"), vars(module))
    assert missing_parts(module.__doc__ or "") == []
    claims: dict[str, object] = {}
    exec(compile(tests, "CONTRIBUTING.md", "exec"), claims)
    run = [claim() for name, claim in claims.items() if name.startswith("test_") and callable(claim)]
    assert len(run) == 3


def test_contract_the_named_algorithm_of_contributing_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, source = fenced((ROOT / "CONTRIBUTING.md").read_text(), "python")
    module = ModuleType("turnout.algorithms.round_robin_fedavg")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source, "CONTRIBUTING.md", "exec"), vars(module))
    named = Algorithm(module.round_robin_fedavg)
    assert list(named.parts) == ["about", *ALGORITHM_PARTS]
    assert named.places({}) == {"selection.cohort_size": "cohort_size"}
    assert named.settings[0].meaning.endswith("usually 5 to 100.")
    assert named.example.study(named.name)["arm"][1]["recipe"] == {"use": "round-robin-fedavg", "cohort_size": 5}


def test_contract_the_readme_shows_the_examples_as_they_are() -> None:
    readme = (ROOT / "README.md").read_text()
    assert fenced(readme, "python") == [(ROOT / "examples" / "quickstart.py").read_text()]
    assert fenced(readme, "toml") == [(ROOT / "examples" / "phones.toml").read_text()]


def test_contract_the_readme_names_every_algorithm() -> None:
    (row,) = re.findall(
        r"^## The algorithms\n(.*?)^## ", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )
    titles = [entry.example.title for entry in ALGORITHMS.values()]
    assert [title for title in titles if title.casefold() not in row.casefold()] == []


def test_contract_the_readme_names_every_axis() -> None:
    rows = re.findall(r"^\| (\w+) \| .* \| `\[?([a-z.]+)\]?` \|$", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    assert rows == [(axis, facts.section) for axis, facts in AXES.items()]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_contract_an_example_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, shown = turnout.Study, io.StringIO()
    monkeypatch.setattr(turnout, "Study", lambda **given: full(**{**given, "rounds": 2, "seeds": 2}))
    with contextlib.redirect_stdout(shown):
        runpy.run_path(str(path), run_name="__main__")
    assert "final accuracy" in shown.getvalue()


def test_identity_the_study_in_python_is_the_study_in_the_file() -> None:
    in_python = runpy.run_path(str(ROOT / "examples" / "phones.py"))["study"]
    in_file = load_study(ROOT / "examples" / "phones.toml")
    arms = [{name: resolved_settings(arm) for name, arm in study.versions().items()} for study in (in_python, in_file)]
    assert len(arms[0]) == 3
    assert arms[0] == arms[1]


def requirements(*left_out: str) -> list[Requirement]:
    """Return what pyproject.toml asks for, but for some of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        each for name, group in project["optional-dependencies"].items() if name not in left_out for each in group
    ]
    return [Requirement(each) for each in [*project["dependencies"], *extras]]


def test_contract_every_package_that_users_install_is_imported() -> None:
    modules = {"scikit-learn": "sklearn", "dp-accounting": "dp_accounting", "tensorboard": r"torch\.utils\.tensorboard"}
    sources = "\n".join(path.read_text() for path in MODULES)
    for name in {requirement.name for requirement in requirements("dev", "docs")}:
        assert re.search(rf"(from|import) {modules.get(name, name)}\b", sources), f"nothing imports {name}"


def test_contract_every_requirement_has_an_upper_bound() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    for requirement in [*requirements(), *map(Requirement, build)]:
        assert {bound.operator for bound in requirement.specifier} == {">=", "<"}, requirement


def test_contract_continuous_integration_installs_versions_that_users_may_have() -> None:
    """Flower asks for other versions than the trackers do, so it has an environment and a list of its own."""
    for name, left_out in (("constraints.txt", ("flower",)), ("constraints-flower.txt", ("track", "docs", "ray"))):
        lines = [line for line in (ROOT / ".ci" / name).read_text().splitlines() if not line.startswith("#")]
        pinned = dict(line.split("==") for line in lines)
        for requirement in requirements(*left_out):
            assert pinned[requirement.name] in requirement.specifier, requirement
        assert not any("+" in version for version in pinned.values()), "a local version cannot be installed elsewhere"


def test_contract_the_readme_can_be_shown_elsewhere() -> None:
    images = re.findall(r"!\[[^]]*\]\(([^)]*)\)", (ROOT / "README.md").read_text())
    source = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    raw = source.replace("https://github.com/", "https://raw.githubusercontent.com/") + "/main/"
    assert images
    for image in images:
        assert (ROOT / image.removeprefix(raw)).is_file(), image
        assert image.startswith(raw)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_contract_a_page_has_no_placeholder_left(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert [line for line in lines if re.fullmatch(r"[A-Z]{3,}|TODO.*|FIXME.*", line.strip())] == []


def test_contract_pages_of_promises_name_tests() -> None:
    pages = [
        (ROOT / "docs" / f"{name}.md").read_text() for name in ("attacks", "cluster", "live", "privacy", "reliability")
    ]
    assert all(re.search(r"`(test_\w+|tests/[\w/.]+)`", page) for page in pages)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_contract_every_test_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    named, paths = set(re.findall(r"`(test_\w+)`", text)), set(re.findall(r"`(tests/[\w/.]+)`", text))
    assert [test for test in sorted(named) if f"def {test}(" not in tests] == []
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_contract_the_round_never_asks_a_rule_of_the_fleet() -> None:
    """What the fleet does is the world's to say; only a plan and checks made before the first round may read it.

    The predicates are such checks, in a folder of their own.
    """
    for path in sorted((PACKAGE / "coordinator").glob("*.py")):
        read = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)]
        if path.name not in ("compatibility.py", "plan.py"):
            assert [node.lineno for node in read if node.attr == "fleet"] == [], path.name


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.name
)
def test_contract_every_module_that_a_page_names_is_there(page: Path) -> None:
    paths = set(re.findall(r"`([a-z_]+/[\w/]+\.py)`", page.read_text()))
    assert [path for path in sorted(paths) if not any((top / path).exists() for top in (ROOT, PACKAGE))] == []


def test_contract_every_package_in_the_glossary_is_there() -> None:
    rows = [line for line in (ROOT / "docs" / "glossary.md").read_text().splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([a-z_]+)\.[\w.]+`", row.split("|")[3])}
    assert named
    assert [
        name for name in sorted(named) if not any((PACKAGE / name).with_suffix(end).exists() for end in ("", ".py"))
    ] == []
