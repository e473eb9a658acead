"""Errors a user can act on: each message says the rule, the need, what came, and what to do."""


class TurnoutError(Exception):
    """The root of every error turnout raises on purpose; the command prints it and exits with 2."""


class ConfigError(TurnoutError):
    """A study that cannot run as written."""


class DataError(TurnoutError):
    """Data that is missing, damaged or not what a federation can hold."""


class StudyNote(UserWarning):
    """Something that the reader of a study's results should know before it runs; nothing is wrong."""


class UpdateError(TurnoutError):
    """Answers that a rule cannot combine."""


class RunsFailed(UserWarning):
    """Some runs of a study failed, and the others are finished."""


class JournalError(TurnoutError):
    """An output folder that cannot be read or written."""
