"""The server's side of the Flower app: turnout's coordinator."""

from turnout.deploy.apps import server_app

app = server_app()
