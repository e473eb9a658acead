"""What finished runs show: comparisons, statistics and diagnostics. Nothing here changes a run."""
