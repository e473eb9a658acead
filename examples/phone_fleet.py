"""Phones that come and go as real ones did: is it better to wait for slow phones, or to close the round?

With TURNOUT_DATA set, the FLASH recording of 300 phones says who is up, and its benchmark says how fast phones are.
Without it, a made-up fleet follows the hour of the day.
"""

import os
from dataclasses import replace
from pathlib import Path

import turnout as to

recording = Path(os.environ.get("TURNOUT_DATA", ".")) / "availability-traces" / "flash_300_devices_6d.json"
if recording.is_file():
    about = "300 recorded phones"
    availability = to.fleet.Recorded(trace=to.fleet.read_recording(recording), assign="drawn")
    clock = to.fleet.Deadline(seconds_per_step=50.0, phones=to.fleet.Phones(), idle_seconds=600)
else:
    about = "a made-up fleet (set TURNOUT_DATA to use the FLASH recording)"
    availability = to.fleet.Diurnal(peak=0.3, trough=0.05, period_seconds=86_400, zones=3)
    clock = to.fleet.Deadline(seconds_per_step=to.fleet.Lognormal(median=50.0, sigma=0.8), idle_seconds=600)


def fleet(**limits: object) -> to.Fleet:
    """Return the phones with a clock of these limits."""
    return to.Fleet(availability=availability, clock=replace(clock, **limits))


study = to.Study(
    name="phone-fleet",
    data=to.data.Digits(clients=100, partition=to.data.partition.Shards(per_client=2)),  # about two digits each
    model=to.models.MLP(hidden=(32,)),
    selection=to.selection.Uniform(cohort_size=13),
    local=to.local.SGD(lr=0.1, batch_size=5, epochs=3),
    fleet=fleet(),
    arms=[
        to.arm("wait for all 13"),
        to.arm("first 10 of 13", fleet=fleet(over_selection=1.3)),
        to.arm("10 min, partial work", fleet=fleet(deadline_seconds=600)),
        to.arm("10 min, or nothing", fleet=fleet(deadline_seconds=600, incomplete="drop")),
    ],
    rounds=40,
    seeds=3,
)

if __name__ == "__main__":
    result = study.run()
    rounds = result.loaded.rounds[result.loaded.rounds["round"] > 0]
    print(about)
    print(result.table())
    print(f"\nclients a round, and simulated hours for all {study.rounds} rounds:")
    hours = rounds.groupby(["arm", "seed"])["sim_seconds"].sum().groupby("arm").mean() / 3600
    share = rounds.groupby("arm", sort=False)[["up", "asked", "answered"]].mean()
    print(share.assign(hours=hours).round(1).to_string())
