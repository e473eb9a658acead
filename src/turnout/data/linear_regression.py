"""LinearRegression: least squares with more parameters than samples, so that one model fits every client exactly.

Intuition: clients have different gradients but a common minimiser, so a large server step is an advantage.

    u_i ~ N(0, α),  B_i ~ N(0, β),  v_i ~ N(B_i, 1) ∈ R^d,  w_i ~ N(u_i, 1) ∈ R^d
    a ~ N(v_i, I),  b = aᵀw_i,   then a ← a/‖a‖ for every row and b_i ← b_i/‖b_i‖ for every client

The loss is `turnout.losses.squared_error`. The test set is all samples, so its mean loss is ‖Ax − b‖²/n.
Differs from the paper: the draws come from the keyed streams and are rounded to float32. The authors' local gradient is
Aᵀ(Ax − b). The gradient of the mean squared error is 2/n_i times that, so their learning rate 0.1 is 0.05·n_i here (1.5
for 30 samples).
Reference: Jhunjhunwala, Wang, Joshi. FedExP. ICLR 2023. arXiv:2301.09604.
"""

import numpy as np
import torch

from turnout.array_types import Floats
from turnout.data.federation import Federation, Held, Samples, checked
from turnout.limits import check_memory
from turnout.settings import Clients, Count, NonNegative, Width, rule
from turnout.streams import Streams
from turnout.traits import SampleForm


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

    clients: Clients = 20  # number of clients N, 1 or more; 20 is usual
    samples: Count = 30  # number of samples n_i of each client, 1 or more; 30 is usual
    dim: Width = 1000  # number of parameters d, 1 or more; 1000 is usual, more than clients x samples fits exactly
    alpha: NonNegative = 0.1  # spread α of the clients' solutions w_i, 0 or more; 0.1 is usual
    beta: NonNegative = 0.1  # spread β of the clients' input means v_i, 0 or more; 0.1 is usual

    @property
    def sample_form(self) -> SampleForm:
        """The form of a sample."""
        return SampleForm(shape=(self.dim,), outputs=1, has_classes=False)

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
