"""What a model needs of its input: one clear message where a shape cannot fit."""

from math import prod

from turnout.errors import ConfigError

Shape = tuple[int, ...]


def flat_size(rule: str, example_shape: Shape) -> int:
    """Return how many numbers a sample holds, for a rule that flattens it."""
    if not example_shape or prod(example_shape) < 1:
        raise ConfigError(
            f"{rule} needs samples with an axis of at least one number; got example shape {example_shape}. "
            "Give the inputs the shape (samples, features)."
        )
    return prod(example_shape)


def image_size(rule: str, example_shape: Shape, least: int) -> tuple[int, int, int]:
    """Return (channels, height, width), for a rule that needs images of at least so many pixels a side."""
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
