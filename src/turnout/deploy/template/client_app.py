"""The device's side of the Flower app: turnout's local solver on the device's own samples."""

from pathlib import Path

from device import load_data

from turnout.deploy.apps import client_app

app = client_app(load_data, Path(__file__).with_name("study.toml"))
