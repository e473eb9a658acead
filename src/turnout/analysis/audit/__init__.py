"""Audit: which objective did a run minimise? Effective client weights, their mismatch, its causes, and a repair."""

from turnout.analysis.audit.audit import Audit, audit, audit_runs
from turnout.analysis.audit.repair import Repair, repair

__all__ = ["Audit", "Repair", "audit", "audit_runs", "repair"]
