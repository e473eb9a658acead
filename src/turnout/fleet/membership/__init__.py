"""Membership: which clients join and leave the federation. To add a rule: one file here, one line below, one test."""

from turnout.fleet.membership.journal import ReplayedMembership
from turnout.fleet.membership.random import Random
from turnout.fleet.membership.scheduled import Scheduled

__all__ = ["Random", "ReplayedMembership", "Scheduled"]
