"""LinearRegression: more unknowns than equations, so one model fits every client exactly.

Intuition: clients disagree on the way but not on the goal, which is where a bold server step pays.

    u_i ~ N(0, α),  B_i ~ N(0, β),  v_i ~ N(B_i, 1) ∈ R^d,  w_i ~ N(u_i, 1) ∈ R^d
    a ~ N(v_i, I),  b = aᵀw_i,   then a ← a/‖a‖ for every row and b_i ← b_i/‖b_i‖ for every client

The loss is `turnout.losses.squared_error`; the test set is all samples, so its mean loss is ‖Ax − b‖²/n.
Differs from the paper: the draws come from the keyed stream and are rounded to float32. The authors' local gradient is
Aᵀ(Ax − b); the mean squared error's is 2/n_i times that, so their step 0.1 is 0.05·n_i here (1.5 for 30 samples).
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604.
"""

import numpy as np
import torch

from turnout.array_types import Floats
from turnout.data.federation import Federation, Held, Samples, checked
from turnout.limits import check_memory
from turnout.settings import Clients, Count, NonNegative, Width, rule
from turnout.streams import Streams


def equations(rng: np.random.Generator, size: int, dim: int, centres: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return one client's (A_i, b_i); `centres` are u_i and B_i."""
    mean = rng.normal(centres[1], 1.0, dim)  # v_i
    solution = rng.normal(centres[0], 1.0, dim)  # w_i
    rows = mean + rng.standard_normal((size, dim))
    values = rows @ solution
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), values / np.linalg.norm(values)


@rule("data")
class LinearRegression:
    """Over-parameterised least squares."""

    clients: Clients = 20  # N
    samples: Count = 30  # of each client
    dim: Width = 1000  # d
    alpha: NonNegative = 0.1  # α
    beta: NonNegative = 0.1  # β

    def build(self, streams: Streams) -> Federation:
        """Return the federation."""
        numbers = self.clients * self.samples * (self.dim + 1)
        check_memory(12 * numbers, f"LinearRegression with {numbers:,} numbers", "Lower clients, samples or dim.")
        rng = streams.generator("linear-regression")
        model_means, input_means = rng.normal(0, self.alpha, self.clients), rng.normal(0, self.beta, self.clients)
        systems = [
            equations(
                streams.generator("linear-regression", client=client), self.samples, self.dim, (float(u), float(centre))
            )
            for client, (u, centre) in enumerate(zip(model_means, input_means, strict=True))
        ]
        x = torch.from_numpy(np.concatenate([rows for rows, _ in systems])).float()
        y = torch.from_numpy(np.concatenate([values for _, values in systems])).float()[:, None]
        offsets = np.arange(self.clients + 1, dtype=np.int64) * self.samples
        return checked(
            Federation(
                train=Held(x, y, offsets),
                test=Samples(x, y),
                name="linear-regression",
                example_shape=(self.dim,),
                example=x[:1].clone(),
            )
        )
