"""What a run says of itself: read-only, never steering it."""
