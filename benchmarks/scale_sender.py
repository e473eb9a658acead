"""A process that answers for many clients through one TCP connection; `benchmarks.scale` starts several of them.

    python -m benchmarks.scale_sender PORT SEED

It does not import turnout or PyTorch: devices are not part of the measurement.
"""

import socket
import sys

import numpy as np

PARAMETERS = 650  # a softmax on images of 8 × 8 pixels and ten classes
STEPS = 5
BAD = 1000  # the answer of one client in so many is not finite
CHUNK = 256  # frames that are sent or parsed at once
FRAME = np.dtype(
    [
        *((name, "<i8") for name in ("client", "round", "steps")),
        *((name, "<f8") for name in ("loss", "seconds")),
        ("row", "<f4", (PARAMETERS,)),
    ]
)


def send_answers(port: int, seed: int) -> None:
    """Answer orders until the connection is closed: a round, a number of clients, their ids, and the model."""
    rng, frames = np.random.default_rng(seed), np.zeros(CHUNK, dtype=FRAME)
    frames["row"] = rng.normal(scale=0.01, size=(CHUNK, PARAMETERS))
    frames["steps"] = STEPS
    with socket.create_connection(("127.0.0.1", port)) as server:
        while head := exactly(server, 16):
            round, count = np.frombuffer(head, dtype="<i8").tolist()
            clients = np.frombuffer(exactly(server, 8 * count), dtype="<i8")
            exactly(server, 4 * PARAMETERS)  # the model
            for start in range(0, count, CHUNK):
                part = frames[: len(clients[start : start + CHUNK])].copy()
                part["client"], part["round"] = clients[start : start + CHUNK], round
                part["loss"], part["seconds"] = rng.random(len(part)), rng.random(len(part))
                part["row"][part["client"] % BAD == 0] = np.nan
                server.sendall(part.tobytes())


def exactly(source: socket.socket, count: int) -> bytes:
    """Return so many bytes; none where the connection was closed."""
    parts, left = [], count
    while left:
        got = source.recv(min(left, 1 << 20))
        if not got:
            return b""
        parts.append(got)
        left -= len(got)
    return b"".join(parts)


if __name__ == "__main__":
    send_answers(int(sys.argv[1]), int(sys.argv[2]))
