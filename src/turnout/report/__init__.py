"""The HTML report of studies, with its figures and tables."""

from turnout.report.write import Written, write_all, write_report

__all__ = ["Written", "write_all", "write_report"]
