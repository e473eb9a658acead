"""A study: arms and seeds as a value, its file, its run and its results."""

from typing import TYPE_CHECKING

from turnout.lazy_imports import lazy_getattr

if TYPE_CHECKING:  # for type checkers and editors; at run time each is imported when it is first used
    from turnout.analysis.comparison import Comparison
    from turnout.study.fleet_preview import preview_notes
    from turnout.study.load import load_study, study_of
    from turnout.study.resolve import resolved_settings
    from turnout.study.running import Result
    from turnout.study.study import Arm, Study, arm
    from turnout.study.study_files import shipped_studies
    from turnout.study.toml_text import to_toml

__all__ = [
    "Arm",
    "Comparison",
    "Result",
    "Study",
    "arm",
    "load_study",
    "preview_notes",
    "resolved_settings",
    "shipped_studies",
    "study_of",
    "to_toml",
]

_MODULES = {
    "turnout.analysis.comparison": ("Comparison",),
    "turnout.study.load": ("load_study", "study_of"),
    "turnout.study.fleet_preview": ("preview_notes",),
    "turnout.study.resolve": ("resolved_settings",),
    "turnout.study.running": ("Result",),
    "turnout.study.study_files": ("shipped_studies",),
    "turnout.study.study": ("Arm", "Study", "arm"),
    "turnout.study.toml_text": ("to_toml",),
}
__getattr__ = lazy_getattr(__name__, {name: module for module, names in _MODULES.items() for name in names})
