"""Descriptions of the shipped rules, read from their source so that `turnout ls` and `show` need not import PyTorch.

`catalogue.describe` makes the same descriptions from the imported classes; a test compares the two.
"""

import ast
import io
import math
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import cleandoc
from pathlib import Path
from typing import Any

import numpy as np

from turnout.axes import AXES, default_rule, use_name
from turnout.catalogue import Description, Setting, axis_named, default_text, read_docstring
from turnout.field_comments import Comments
from turnout.settings import Range

ROOT = Path(__file__).parent
EXPRESSION_NAMES: dict[str, Any] = {"len": len, "math": math, "np": np}  # names that bounds and defaults may use


@dataclass(frozen=True)
class Source:
    """One module's source."""

    module: str
    text: str

    @cached_property
    def docstring(self) -> str:
        """The module's docstring; the rest of the source is not parsed."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        first = next(token for token in tokens if token.type not in (tokenize.COMMENT, tokenize.NL))
        return cleandoc(ast.literal_eval(first.string)) if first.type == tokenize.STRING else ""

    @cached_property
    def tree(self) -> ast.Module:
        """The module's syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def comments(self) -> Comments:
        """The module's comments."""
        return Comments.of(self.text)

    @cached_property
    def names(self) -> dict[str, ast.AST]:
        """The definition of each global name: a class, a function, the assigned value, or an import."""
        definitions: dict[str, ast.AST] = {}
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                definitions[node.name] = node
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                definitions[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                definitions[node.target.id] = node.value
            elif isinstance(node, ast.ImportFrom):
                definitions |= {alias.asname or alias.name: node for alias in node.names}
        return definitions

    def resolve(self, name: str) -> tuple["Source", ast.AST | None]:
        """Follow turnout's imports of a name; return the defining module and the definition, None for other code."""
        node = self.names.get(name)
        if not isinstance(node, ast.ImportFrom):
            return self, node
        if node.module is None or not node.module.startswith("turnout."):
            return self, None
        original = next(alias.name for alias in node.names if name == (alias.asname or alias.name))
        return source_of(node.module).resolve(original)

    def class_named(self, name: str) -> ast.ClassDef:
        """Return the definition of a class of this module."""
        node = self.names[name]
        assert isinstance(node, ast.ClassDef)
        return node


@cache
def source_of(module: str) -> Source:
    """Return the source of a module of turnout."""
    place = ROOT.joinpath(*module.split(".")[1:])
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return Source(module, file.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedRule:
    """One shipped rule, described without importing it."""

    axis: str
    name: str  # the rule's name in a study file
    module: str
    class_name: str

    @property
    def in_python(self) -> str:
        """The rule's full name in Python code, after `import turnout`."""
        return f"{AXES[self.axis].package}.{self.class_name}"

    @property
    def summary(self) -> str:
        """One line on what the rule does."""
        return read_docstring(source_of(self.module).docstring).summary

    def describe(self) -> Description:
        """Return the description of the rule."""
        source = source_of(self.module)
        settings = settings_of(source, source.class_named(self.class_name))
        return read_docstring(source.docstring, settings)


def shipped_rules(axis: str) -> dict[str, ShippedRule]:
    """Return the rules of an axis by name, sorted."""
    axis = axis_named(axis)
    package = source_of(AXES[axis].package)
    rules = {}
    for public in ast.literal_eval(package.names["__all__"]):
        node = package.names[public]
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{package.module}."):
            name = use_name(str(node.module))
            rules[name] = ShippedRule(axis=axis, name=name, module=str(node.module), class_name=public)
    return dict(sorted(rules.items()))


def shipped_losses() -> dict[str, str]:
    """Return the first line of each loss's docstring, by its name in a study file."""
    source = source_of("turnout.losses")
    table = source.names["LOSSES"]
    assert isinstance(table, ast.Dict)
    summaries = {}
    for key, value in zip(table.keys, table.values, strict=True):
        assert isinstance(key, ast.Constant)
        assert isinstance(value, ast.Name)
        function = source.names[value.id]
        assert isinstance(function, ast.FunctionDef)
        summaries[str(key.value)] = (ast.get_docstring(function) or "").splitlines()[0]
    return summaries


def describe_class(module: str, name: str) -> Description:
    """Return the description of a class of turnout that is not a rule, from the class's own docstring and fields."""
    source = source_of(module)
    node = source.class_named(name)
    return read_docstring(ast.get_docstring(node) or "", settings_of(source, node))


def settings_of(source: Source, node: ast.ClassDef) -> tuple[Setting, ...]:
    """Return the fields of a class in the order of a dataclass: the fields of parent classes come first."""
    return tuple(_fields(source, node).values())


def _fields(source: Source, node: ast.ClassDef) -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    for base in reversed(node.bases):
        if isinstance(base, ast.Name):
            where, parent = source.resolve(base.id)
            settings |= _fields(where, parent) if isinstance(parent, ast.ClassDef) else {}
    for line in node.body:
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        if _is_class_variable(line.annotation) or not _is_setting(line.value):
            continue
        settings[line.target.id] = Setting(
            name=line.target.id,
            type=type_text(source, line.annotation),
            default=None if line.value is None else _default(source, line.value),
            meaning=source.comments.explanation(line),
        )
    return settings


def _is_class_variable(annotation: ast.expr) -> bool:
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return isinstance(outer, ast.Name) and outer.id == "ClassVar"


def _field_arguments(value: ast.expr | None) -> dict[str | None, ast.expr] | None:
    """Return the keyword arguments of a call of `field`; None if the value is not such a call."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        return {keyword.arg: keyword.value for keyword in value.keywords}
    return None


def _is_setting(value: ast.expr | None) -> bool:
    init = (_field_arguments(value) or {}).get("init")
    return not (isinstance(init, ast.Constant) and init.value is False)


def _default(source: Source, value: ast.expr) -> str | None:
    arguments = _field_arguments(value)
    if arguments is not None:
        factory = arguments.get("default_factory")
        value = arguments.get("default", value)
        if factory is not None:
            return _factory_text(factory)
        if "default" not in arguments:
            return None
    try:
        return default_text(_value(source, value))
    except ValueError:
        return ast.unparse(value)


def _factory_text(factory: ast.expr) -> str | None:
    """Return the name of the class that a default factory makes; default_rule("work") makes an axis's default."""
    if isinstance(factory, ast.Call) and ast.unparse(factory.func) == default_rule.__name__:
        return AXES[ast.literal_eval(factory.args[0])].default_class
    return ast.unparse(factory)


def _value(source: Source, node: ast.expr) -> Any:
    """Evaluate an expression of literals and turnout's own constants; raise ValueError for any other expression."""
    constants: dict[str, Any] = {}
    for name in {part.id for part in ast.walk(node) if isinstance(part, ast.Name)} - EXPRESSION_NAMES.keys():
        where, definition = source.resolve(name)
        if not isinstance(definition, ast.expr):
            raise ValueError(f"{name} is not a constant of turnout")
        constants[name] = _value(where, definition)
    names = EXPRESSION_NAMES | constants
    return eval(compile(ast.Expression(node), source.module, "eval"), {"__builtins__": {}}, names)


def _bounds(source: Source, notes: Sequence[ast.expr]) -> Iterator[str]:
    """Yield the text of each range among the metadata of an annotation."""
    for note in notes:
        if isinstance(note, ast.Call) and isinstance(note.func, ast.Name) and note.func.id == Range.__name__:
            bounds = [keyword for keyword in note.keywords if keyword.arg != "ceiling"]  # not part of the text
            words = Range(**{str(keyword.arg): _value(source, keyword.value) for keyword in bounds}).words
            yield from (words,) if words else ()


def type_text(source: Source, node: ast.AST) -> str:
    """Return an annotation in the notation of study files; `catalogue.hint_text` does the same for a type."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):  # a forward reference
            return type_text(source, ast.parse(node.value, mode="eval").body)
        return "none" if node.value is None else "…"
    if isinstance(node, ast.BinOp):
        return f"{type_text(source, node.left)} | {type_text(source, node.right)}"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if node.value.id == "Annotated":
            return " ".join([type_text(source, entries[0]), *_bounds(source, entries[1:])])
        if node.value.id == "Literal":
            return " | ".join(default_text(ast.literal_eval(entry)) for entry in entries)
        if node.value.id in ("tuple", "list", "Sequence"):
            return "[" + ", ".join(type_text(source, entry) for entry in entries) + "]"
    if isinstance(node, ast.Name):
        where, definition = source.resolve(node.id)
        if isinstance(definition, ast.Subscript | ast.BinOp):  # an alias
            return type_text(where, definition)
    return ast.unparse(node)
