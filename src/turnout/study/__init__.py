"""Arms and seeds: the study as a value, its file, its run, and what it found."""

from turnout.study.compare import Comparison, compare
from turnout.study.load import load_study, shipped_studies, study_of
from turnout.study.resolve import resolved, to_toml
from turnout.study.running import Result
from turnout.study.study import Arm, Study, arm

__all__ = [
    "Arm",
    "Comparison",
    "Result",
    "Study",
    "arm",
    "compare",
    "load_study",
    "resolved",
    "shipped_studies",
    "study_of",
    "to_toml",
]
