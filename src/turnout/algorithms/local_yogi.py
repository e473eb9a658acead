"""Local Yogi: clients run Yogi in place of SGD, and the server corrects for the different scales they used.

Yogi is Adam with a second moment that changes slowly; the corrections are those of local Adam.

Round:
    S_t ← K clients of those available
    for each client i in S_t, in parallel:
        x_i ← x;  m ← 0;  v ← v₀;  a ← 0;  C_i ← 0
        repeat τ_i times:  m ← β1 m + (1 − β1) g;  v ← v − (1 − β2) g² sign(v − g²);  x_i ← x_i − η_l m / (√v + τ_a)
                           a ← β1 a + (1 − β1) / (√v + τ_a);  C_i ← C_i + a
        Δ_i ← x − x_i
    none   x ← x − Σ w_i Δ_i          local  x ← x − Σ w_i Δ_i ⊘ C_i
    joint  x ← x − Σ w_i (Δ_i ⊘ C_i) ⊘ Σ w_i (1 ⊘ C_i)

Choice per axis:
    local        yogi with correction
    aggregation  joint with correction = "joint", else fedavg

Reduces to: FedAvg over the clients' Yogi updates when every C_i is equal, or when one client answers.
When to use it: where local Adam would, when gradients are sparse or differ much from step to step.
Reference: Wang, Xu, Garrett, Charles, Liu, Joshi. Local adaptivity in federated learning. 2021. arXiv:2106.02305.
"""

from turnout.algorithms.example import Example
from turnout.algorithms.local_adaptive import local_adaptive

EXAMPLE = Example("local Yogi", settings={"lr": 0.02})

local_yogi = local_adaptive("yogi", module=__name__, title="local Yogi", default_lr=0.01, usual_lr="0.001 to 0.1")
