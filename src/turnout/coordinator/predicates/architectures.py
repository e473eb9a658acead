"""What does not go together with clients of different architectures, and with a server that learns from them."""

from turnout.coordinator.predicates.predicate import where

_family = where("width", lambda plan, traits: traits.width.members_of is not None)
_transfer = where("aggregation", lambda plan, traits: traits.aggregation.trains_server_model)
ARCHITECTURES = (
    _family(
        "selection.use",
        lambda plan, traits: traits.selection.needs_one_model,
        "{selection} asks clients for losses or gradients at the server's model, and clients have models of other "
        'architectures. Set selection.use = "uniform", or selection.estimate = "last" where the rule has it.',
    ),
    _family(
        "fleet.availability",
        lambda plan, traits: traits.availability.requires is not None,
        "{availability} has clients look at the server's model, and they have models of other architectures. "
        "Set fleet.availability to another rule.",
    ),
    _family(
        "aggregation.use",
        lambda plan, traits: traits.aggregation.requires is not None,
        "{aggregation} asks clients for losses at the server's model, and they have models of other architectures. "
        'Set aggregation.use = "ensemble-transfer" or "fedavg".',
    ),
    _family(
        "personal",
        lambda plan, traits: plan.personal is not None and not traits.personal.trains_members,
        "{personal} makes a client's own model from one that all clients share, and clients of different architectures "
        'share none. Set personal.use = "codistil", or leave personal or width out.',
    ),
    _family(
        "assist",
        lambda plan, traits: plan.assist is not None,
        "in a server round the server would train its own model and leave those of the clients behind. "
        "Leave assist out.",
    ),
    _transfer(
        "width.use",
        lambda plan, traits: traits.width.members_of is None,
        "{aggregation} teaches the server's model what clients of different architectures know, and these clients "
        'train one model. Set model.use = "family" and width.use = "architectures", or aggregation.use = "fedavg".',
    ),
    _transfer(
        "personal",
        lambda plan, traits: not traits.personal.has_shared_model,
        "{aggregation} teaches the server's model from models that clients send, and with {personal} they send none. "
        'Leave personal out, or set aggregation.use = "fedavg".',
    ),
    _transfer(
        "server.use",
        lambda plan, traits: not traits.server.subtracts_step,
        "the distilled model is a point that the server moves to, not a direction to scale or to add momentum to; "
        '{server} would leave it. Set server = {{ use = "sgd", lr = 1 }}.',
    ),
)
