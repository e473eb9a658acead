"""The table of axes, and what derives from it."""

from dataclasses import MISSING, fields

import pytest

from tests.support.optional import present
from turnout.axes import AXES, PLAN_SECTIONS, REQUIRED_SECTIONS, RULE_SECTIONS, STUDY_SECTIONS, TABLES, Axis, at
from turnout.catalogue import catalogue
from turnout.coordinator import Plan
from turnout.fleet import Fleet
from turnout.local.solver import Solver
from turnout.study import Study

HOLDERS = {"fleet": Fleet, "local": Solver}


def default_of(owner: type, name: str) -> object:
    """Return the default of a dataclass field."""
    entry = next(entry for entry in fields(owner) if entry.name == name)
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


@pytest.mark.parametrize("axis", AXES.values(), ids=lambda axis: axis.name)
def test_contract_an_axis_leads_to_its_protocol_and_its_default(axis: Axis) -> None:
    assert at(axis.protocol) is not None
    if axis.default is not None:
        assert catalogue(axis.name)[present(axis.default_use)] is at(axis.default)


@pytest.mark.parametrize("owner", [Plan, Study])
def test_contract_a_study_and_its_plan_have_the_sections_and_defaults_of_the_table(owner: type) -> None:
    sections = PLAN_SECTIONS if owner is Plan else STUDY_SECTIONS
    assert {entry.name for entry in fields(owner) if entry.init} >= set(sections)
    for section in set(sections) & RULE_SECTIONS.keys():
        axis, default = AXES[RULE_SECTIONS[section]], default_of(owner, section)
        if axis.is_required:
            assert section in REQUIRED_SECTIONS
            assert default is MISSING
        else:
            assert type(default) is (type(None) if axis.is_optional else at(axis.default or ""))
    for section in set(sections) & TABLES.keys():
        assert type(default_of(owner, section)) is at(TABLES[section].kind)


@pytest.mark.parametrize("axis", [axis for axis in AXES.values() if axis.section.partition(".")[0] in HOLDERS])
def test_contract_an_axis_inside_a_section_has_the_default_of_the_table(axis: Axis) -> None:
    holder, _, name = axis.section.partition(".")
    if name:
        default = default_of(HOLDERS[holder], name)
        assert type(default) is (type(None) if axis.is_optional else at(axis.default or ""))
