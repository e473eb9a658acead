"""Study files: one with every kind of setting, and one that runs in a second."""

GOOD = """\
name   = "phones"
rounds = 20
seeds  = 3
target = { accuracy = 0.9 }

[data]
use       = "digits"
clients   = 40
partition = { use = "dirichlet", concentration = 0.1 }

[model]
use    = "mlp"
hidden = [64]

[fleet]
availability = { use = "bernoulli", prob = 0.6 }

[selection]
cohort_size = 10

[local]
lr         = 0.1
batch_size = 10
epochs     = [2, 5]

[[arm]]
name   = "FedAvg"
recipe = "fedavg"

[[arm]]
name   = "FedProx"
recipe = "fedprox"

[[arm]]
name      = "drawn by size"
selection = { use = "weighted", cohort_size = 5 }
local     = { epochs = "none", steps = 4 }
fleet     = { availability = "always" }
data      = { partition = "iid", seed = 3 }
"""

SMALL = """\
name   = "small"
rounds = 3
seeds  = 2
data   = { use = "digits", clients = 12 }
model  = "softmax"
fleet  = { availability = { use = "bernoulli", prob = 0.8 } }
local  = { lr = 0.2, batch_size = 16, epochs = 1 }

[selection]
cohort_size = 4

[[arm]]
name = "FedAvg"

[[arm]]
name   = "FedProx"
recipe = "fedprox"
"""
