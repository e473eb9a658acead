"""Local Adagrad: clients run Adagrad in place of SGD, and the server corrects for the different scales they used.

With the joint correction each client sends its update divided by its accumulated preconditioner, and the server puts a
common one back.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  v ← v₀;  C_i ← 0
        repeat τ_i times:  v ← v + g²;  x_i ← x_i − η_l g / (√v + τ_a);  C_i ← C_i + 1 / (√v + τ_a)
        Δ_i ← x − x_i
    none   x ← x − Σ w_i Δ_i          local  x ← x − Σ w_i Δ_i ⊘ C_i
    joint  x ← x − Σ w_i (Δ_i ⊘ C_i) ⊘ Σ w_i (1 ⊘ C_i)

Choice per axis:
    local        adagrad with correction
    aggregation  joint with correction = "joint", else fedavg

Reduces to: FedAvg over the clients' Adagrad updates when every C_i is equal, or when one client answers.
When to use it: when gradients of some parameters are rare or small at the clients. Keep the joint correction: without
it the average leans to clients with small gradients, and "local" changes the scale of the step.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

from turnout.algorithms.example import Example
from turnout.algorithms.local_adaptive import local_adaptive

EXAMPLE = Example("local Adagrad", settings={"lr": 0.1})

local_adagrad = local_adaptive(
    "adagrad", module=__name__, title="local Adagrad", default_lr=0.1, usual_lr="0.01 to 0.3"
)
