"""A deployment's folder: made, checked, run and watched. It joins a study with Flower's SuperLink and SuperNodes."""
