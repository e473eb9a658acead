"""Errors that a user can fix: each message names the rule, the requirement, the actual value and what to do."""


class TurnoutError(Exception):
    """Base class of the errors that turnout raises; the command prints the message and exits with 2."""


class ConfigError(TurnoutError):
    """A study has invalid settings."""


class DataError(TurnoutError):
    """Data is missing, damaged or invalid."""


class StudyNote(UserWarning):
    """A note about a study that its author should know before it runs; not an error."""


class UpdateError(TurnoutError):
    """An aggregation rule cannot combine the updates of a round."""


class RunsFailed(UserWarning):
    """Some runs of a study failed; the others are finished."""


class JournalError(TurnoutError):
    """A study's folder cannot be read or written."""
