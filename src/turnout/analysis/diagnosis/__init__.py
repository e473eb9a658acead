"""Diagnosis: what makes a federation hard, which error term dominates, and which rules address it, before training."""
