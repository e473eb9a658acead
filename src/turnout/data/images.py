"""Images as bytes, and their conversion to standardised samples."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from turnout.data.federation import Samples


@dataclass(frozen=True, slots=True)
class Images:
    """Images and labels as the files store them."""

    pixels: NDArray[np.uint8]  # (images, channels, height, width)
    labels: NDArray[np.int64]  # class of each image

    def moments(self) -> tuple[float, float]:
        """Return the mean and the standard deviation of all pixels, scaled to [0, 1]."""
        blocks = (
            self.pixels[at : at + 1024] for at in range(0, len(self.pixels), 1024)
        )  # bincount converts bytes to int64: block by block
        counts = sum((np.bincount(block.ravel(), minlength=256) for block in blocks), np.zeros(256, dtype=np.int64))
        values = np.arange(256) / 255.0
        mean = float((counts * values).sum() / counts.sum())
        return mean, float(np.sqrt((counts * (values - mean) ** 2).sum() / counts.sum()))

    def samples(self, mean: tuple[float, ...], std: tuple[float, ...]) -> Samples:
        """Return float32 samples, scaled to [0, 1] and then standardised per channel."""
        x = torch.from_numpy(self.pixels.astype(np.float32)).div_(255.0)
        by_channel = (1, len(mean), 1, 1)
        x.sub_(torch.tensor(mean).view(by_channel)).div_(torch.tensor(std).view(by_channel))
        return Samples(x, torch.from_numpy(self.labels))
