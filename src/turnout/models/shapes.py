"""Checks of the input shape of a model."""

from math import prod

from turnout.errors import ConfigError

Shape = tuple[int, ...]


def flat_size(rule: str, example_shape: Shape) -> int:
    """Return the number of values of a sample, for a model that flattens it."""
    if not example_shape or prod(example_shape) < 1:
        raise ConfigError(
            f"{rule} needs samples with an axis of at least one number; got example shape {example_shape}. "
            "Reshape the inputs to (samples, features)."
        )
    return prod(example_shape)


def image_size(rule: str, example_shape: Shape, least: int) -> tuple[int, int, int]:
    """Return (channels, height, width), for a model that needs images of at least `least` pixels a side."""
    if len(example_shape) != 3 or min(example_shape) < 1:
        raise ConfigError(
            f"{rule} needs images of shape (channels, height, width); got example shape {example_shape}. "
            'Reshape the inputs, or set model.use = "mlp", which takes any shape.'
        )
    channels, height, width = example_shape
    if min(height, width) < least:
        raise ConfigError(
            f"{rule} needs images of at least {least}x{least}; got {height}x{width}. "
            'Use larger images, or set model.use = "mlp", which takes any size.'
        )
    return channels, height, width
