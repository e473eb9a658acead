"""MLflow: one experiment per study, one run per arm and seed, settings as parameters.

Where MLFLOW_TRACKING_URI is set, it is used; else the store is a database in the study's folder, shown by
`mlflow ui --backend-store-uri sqlite:///FOLDER/mlflow.sqlite`.
"""

import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from turnout.requests import Record
from turnout.safe_files import check_database, is_own_folder
from turnout.track.tracker import Place, Tracked, flat, numbers

FILE = "mlflow.sqlite"
ARTEFACTS = "mlflow-artefacts"
KEY = "turnout.run"
MOST_PARAMETERS = 100  # per request of MLflow
MOST_LETTERS = 500


class Mlflow:
    """Sends to an MLflow store."""

    package = "mlflow"

    @staticmethod
    def is_local() -> bool:
        """Whether the store is a file: the one in the study's folder, or another that MLFLOW_TRACKING_URI names."""
        scheme = urlsplit(os.environ.get("MLFLOW_TRACKING_URI", "")).scheme
        return scheme in ("", "file", "sqlite") or len(scheme) == 1  # a single letter is a drive

    @staticmethod
    def check(folder: Path) -> None:
        """Raise if a link in the study's folder would make it write elsewhere."""
        check_database(folder / FILE)
        is_own_folder(folder / ARTEFACTS)

    def __init__(self, tracked: Tracked) -> None:
        from mlflow import entities
        from mlflow.tracking import MlflowClient

        self._tracked, self._entities = tracked, entities
        own = tracked.folder.absolute()
        self._client: Any = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{own / FILE}")
        known = self._client.get_experiment_by_name(tracked.study)
        where = None if os.environ.get("MLFLOW_TRACKING_URI") else (own / ARTEFACTS).as_uri()
        self._experiment = (
            self._client.create_experiment(tracked.study, artifact_location=where)
            if known is None
            else known.experiment_id
        )
        self._runs: dict[Place, str] = {}
        self._last_sent: dict[Place, int] = {}  # by run: the last round that was sent before the study was stopped

    def record(self, place: Place, record: Record) -> None:
        """Send one round."""
        if place not in self._runs:
            self._begin(place, record.round)
        if record.round > self._last_sent[place]:
            now = int(1000 * time.time())
            metrics = [self._entities.Metric(name, value, now, record.round) for name, value in numbers(record).items()]
            self._client.log_batch(self._runs[place], metrics=metrics)
        if record.finished:
            self._client.set_terminated(self._runs.pop(place), "FINISHED")

    def close(self) -> None:
        """Mark the runs that did not end as stopped."""
        for run in self._runs.values():
            self._client.set_terminated(run, "KILLED")
        self._runs.clear()

    def _begin(self, place: Place, round: int) -> None:
        """Start a run, or continue the one that this folder's study was stopped in."""
        key = self._tracked.key(place)
        earlier = self._client.search_runs([self._experiment], f"tags.`{KEY}` = '{key}'", max_results=1)
        if round > 0 and earlier:
            run = self._runs[place] = earlier[0].info.run_id
            self._client.update_run(run, status="RUNNING")
            taken = self._client.get_metric_history(run, "up")
            self._last_sent[place] = max((metric.step for metric in taken), default=-1)
            return
        arm, seed = place
        made = self._client.create_run(self._experiment, run_name=f"{arm}, seed {seed}", tags={KEY: key})
        self._runs[place], self._last_sent[place] = made.info.run_id, -1
        settings = {**flat(self._tracked.configs[arm]), "arm": arm, "seed": seed}
        parameters = [self._entities.Param(name, str(value)[:MOST_LETTERS]) for name, value in settings.items()]
        for at in range(0, len(parameters), MOST_PARAMETERS):
            self._client.log_batch(made.info.run_id, params=parameters[at : at + MOST_PARAMETERS])
