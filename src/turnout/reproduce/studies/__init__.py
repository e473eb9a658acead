"""One study file and one module of claims per table or figure."""
