"""The same rounds on other federated-learning frameworks, each in its own virtual environment."""
