"""What goes together: one predicate over traits and settings for each combination that does not make sense.

A predicate has one message: the rule, its need, what came, and what to do. It names the setting to change.
"""

from turnout.coordinator.predicates.architectures import ARCHITECTURES
from turnout.coordinator.predicates.requirements import REQUIREMENTS
from turnout.coordinator.predicates.rules import RULES
from turnout.coordinator.predicates.several_models import SEVERAL_MODELS
from turnout.coordinator.predicates.widths import WIDTHS

PREDICATES = (*RULES, *WIDTHS, *ARCHITECTURES, *SEVERAL_MODELS, *REQUIREMENTS)
