"""Some clients have their labels wrong. Does a filter on 100 trusted samples keep them out?"""

import numpy as np
import torch

import turnout as to
from turnout.filtering import Greedy
from turnout.streams import Streams

CLIENTS, LIARS = 30, 9


def spoilt_digits() -> to.data.Federation:
    """Thirty clients; every third one calls each digit by the next one's name."""
    clean = to.data.Digits(clients=CLIENTS, server_samples=100).build(Streams(0))
    pairs = []
    for client in range(CLIENTS):
        x, y = clean.train.of(client)
        pairs.append((x, (y + 1) % 10 if client % 3 == 0 and client < 3 * LIARS else y))
    return to.data.from_clients(pairs, test=clean.test, server=clean.server, num_classes=10, name="spoilt digits")


study = to.Study(
    data=spoilt_digits(),
    model=to.models.Softmax(),
    local=to.local.SGD(lr=0.1, batch_size=10, epochs=2),
    selection=to.selection.Uniform(cohort_size=10),
    aggregation=to.aggregation.FedAvg(weighting="mean"),
    arms=[
        to.arm("no filter"),
        to.arm("greedy", filtering=Greedy(every=5)),
        to.arm("greedy, randomised", filtering=Greedy(mode="randomised", every=5)),
    ],
    rounds=30,
    seeds=3,
)

if __name__ == "__main__":
    torch.set_num_threads(1)
    result = study.run()
    print(result.table())
    print(f"\n{LIARS} of {CLIENTS} clients have their labels wrong. How often each kind was asked, per round:")
    asked = result.loaded.clients
    asked = asked.assign(kind=np.where((asked["client"] % 3 == 0) & (asked["client"] < 3 * LIARS), "wrong", "right"))
    counts = asked.groupby(["arm", "kind"]).size().unstack(fill_value=0) / (study.rounds * len(study.all_seeds))
    print(counts.round(2).to_string())
