"""Tables, figures and pages of a study."""

from turnout.report.write import Written, write_all, write_report

__all__ = ["Written", "write_all", "write_report"]
