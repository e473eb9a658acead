"""Tables, figures and pages of a study."""

from turnout.report.write import write_report

__all__ = ["write_report"]
