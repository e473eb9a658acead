"""The Ray engine: blocks of clients on the workers of a Ray cluster, on this machine or on several."""

from turnout.engine.ray.engine import Ray

__all__ = ["Ray"]
