"""FedJAX: federated averaging on its jit backend; the models written again in JAX."""

import jax

jax.tree_map = jax.tree.map  # fedjax 0.0.17 still calls it by its old name

import fedjax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

from benchmarks.peers.laps import Laps  # noqa: E402
from benchmarks.workloads import Workload, samples  # noqa: E402

LSTM_WIDTH = 256


def initial(work: Workload) -> dict[str, jax.Array]:
    """Return parameters drawn as PyTorch draws them: uniform within one over the root of the inputs."""
    shapes = {  # name: (shape, inputs to one unit)
        "W1": {"w0": ((60, 10), 60), "b0": ((10,), 60)},
        "W2": {f"{k}{i}": v for i, (a, b) in enumerate([(784, 200), (200, 200), (200, 10)]) for k, v in _linear(a, b)},
        "W3": {
            "k0": ((5, 5, 1, 32), 25),
            "c0": ((32,), 25),
            "k1": ((5, 5, 32, 64), 800),
            "c1": ((64,), 800),
            **{f"{k}{i}": v for i, (a, b) in enumerate([(3136, 512), (512, 62)]) for k, v in _linear(a, b)},
        },
        "digits": {f"{k}{i}": v for i, (a, b) in enumerate([(64, 32), (32, 10)]) for k, v in _linear(a, b)},
        "W4": {"embedding": ((80, 8), 1), **_lstm("l0", 8), **_lstm("l1", LSTM_WIDTH), **dict(_head())},
    }[work.name]
    rng = np.random.default_rng(0)
    return {
        name: jnp.asarray(rng.uniform(-1, 1, shape) / np.sqrt(inputs), jnp.float32)
        for name, (shape, inputs) in shapes.items()
    }


def _linear(inputs: int, outputs: int):
    return [("w", ((inputs, outputs), inputs)), ("b", ((outputs,), inputs))]


def _head():
    return [(f"{name}0", shape) for name, shape in _linear(LSTM_WIDTH, 80)]


def _lstm(name: str, inputs: int):
    width, gates = LSTM_WIDTH, 4 * LSTM_WIDTH
    shapes = {"x": (inputs, gates), "h": (width, gates), "b": (gates,)}
    return {f"{name}{part}": (shape, width) for part, shape in shapes.items()}


def logits(params: dict[str, jax.Array], x: jax.Array, name: str) -> jax.Array:
    """Return the model's output for a batch."""
    if name == "W3":
        h = x.reshape(-1, 28, 28, 1)
        for i in range(2):
            h = lax.conv_general_dilated(h, params[f"k{i}"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            h = lax.reduce_window(
                jax.nn.relu(h + params[f"c{i}"]), -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME"
            )
        x = h.reshape(len(h), -1)
    if name == "W4":
        x = params["embedding"][x].swapaxes(0, 1)
        for layer in ("l0", "l1"):
            x = lstm_layer(params, layer, x)
        x = x[-1]
    depth = {"W1": 1, "W2": 3, "W3": 2, "W4": 1, "digits": 2}[name]
    for i in range(depth):
        x = x @ params[f"w{i}"] + params[f"b{i}"]
        x = jax.nn.relu(x) if i < depth - 1 else x
    return x


def lstm_layer(params: dict[str, jax.Array], name: str, x: jax.Array) -> jax.Array:
    """Return the hidden states over time, [time, batch, width]."""
    inputs = x @ params[f"{name}x"] + params[f"{name}b"]

    def step(carry, at):
        hidden, cell = carry
        i, f, g, o = jnp.split(at + hidden @ params[f"{name}h"], 4, axis=1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    zeros = jnp.zeros((x.shape[1], LSTM_WIDTH))
    return lax.scan(step, (zeros, zeros), inputs)[1]


def main() -> None:
    laps = Laps(__doc__)
    work = laps.workload

    def loss(params, x, y):
        log_probs = jax.nn.log_softmax(logits(params, x, work.name))
        return -jnp.take_along_axis(log_probs, y[:, None], 1).mean()

    gradient = jax.jit(lambda params, batch, key: jax.grad(loss)(params, batch["x"], batch["y"]))
    fedjax.set_for_each_client_backend("jit")
    batches = fedjax.ShuffleRepeatBatchHParams(
        batch_size=work.batch_size, num_steps=work.local_steps, num_epochs=None, drop_remainder=False
    )
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        gradient, fedjax.optimizers.sgd(work.lr), fedjax.optimizers.sgd(1.0), batches
    )
    x, y = samples(work)
    clients = [fedjax.ClientDataset({"x": a, "y": b.astype(np.int32)}) for a, b in zip(x, y, strict=True)]
    state = algorithm.init(initial(work))
    for turn in range(laps.rounds):
        laps.start()
        keys = jax.random.split(jax.random.PRNGKey(turn), len(clients))
        asked = [(str(i).encode(), client, key) for i, (client, key) in enumerate(zip(clients, keys, strict=True))]
        state, _ = algorithm.apply(state, asked)
        jax.block_until_ready(state.params)
        laps.stop()
    losses = [loss(state.params, jnp.asarray(a), jnp.asarray(b)) for a, b in zip(x, y, strict=True)]
    laps.finish(float(np.mean(losses)))


if __name__ == "__main__":
    main()
