"""The IDX file format of MNIST and similar data sets: a magic number, the shape, then the values, all big-endian."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turnout.data.files import DataSet, File, read
from turnout.data.images import Images
from turnout.errors import DataError

WIDTHS = {0x08: 1, 0x0C: 4}  # bytes per value by type code: unsigned bytes and 32-bit integers
SIDE = 28  # height and width of an image in pixels


def image_file_bytes(count: int) -> int:
    """Return the size of an unpacked file of `count` images."""
    return 16 + count * SIDE * SIDE


def label_file_bytes(count: int) -> int:
    """Return the size of an unpacked file of `count` labels."""
    return 8 + count


def four_files(address: str, digests: tuple[str, str, str, str]) -> tuple[File, ...]:
    """Return the files of a data set with MNIST's names and sizes: train images and labels, test images and labels."""
    images, labels = "images-idx3-ubyte", "labels-idx1-ubyte"
    names = (f"train-{images}", f"train-{labels}", f"t10k-{images}", f"t10k-{labels}")
    sizes = [size for count in (60_000, 10_000) for size in (image_file_bytes(count), label_file_bytes(count))]
    return tuple(
        File(name=name, size=size, digest=f"sha256:{digest}", url=f"{address}{name}.gz")
        for name, size, digest in zip(names, sizes, digests, strict=True)
    )


def parse_idx(data: bytes, name: str) -> NDArray[np.integer[Any]]:
    """Return the array of an IDX file of bytes or 32-bit integers."""
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in WIDTHS or not 1 <= data[3] <= 4:
        raise DataError(f"{name} must start with an IDX magic number; got {data[:4].hex()}. Replace the file.")
    width, dimensions = WIDTHS[data[2]], data[3]
    header = 4 + 4 * dimensions
    shape = [int.from_bytes(data[at : at + 4], "big") for at in range(4, header, 4)]
    size = header + width * math.prod(shape)
    if len(data) != size:
        raise DataError(f"{name} must have {size:,} bytes for its shape {shape}; got {len(data):,}. Replace the file.")
    if 0 in shape:
        raise DataError(f"{name} must hold values; its shape is {shape}. Replace the file.")
    return np.frombuffer(data, dtype=np.uint8 if width == 1 else ">i4", offset=header).reshape(shape)


def read_images(dataset: DataSet, files: Sequence[File], folder: str | None) -> tuple[Images, Images]:
    """Return the training and the test images of four files: train images, train labels, test images, test labels."""
    content = read(dataset, files, folder)
    arrays = [parse_idx(content.pop(file.name), f"{dataset.title}: {file.name}") for file in files]
    return _images(dataset, files[:2], arrays[0], arrays[1]), _images(dataset, files[2:], arrays[2], arrays[3])


def _images(
    dataset: DataSet, files: Sequence[File], pixels: NDArray[np.integer[Any]], labels: NDArray[np.integer[Any]]
) -> Images:
    if pixels.dtype != np.uint8 or pixels.shape != (len(labels), SIDE, SIDE) or labels.ndim != 1:
        raise DataError(
            f"{dataset.title} needs images of {SIDE}×{SIDE} bytes and one label each; {files[0].name} has shape "
            f"{pixels.shape} and {files[1].name} {labels.shape}. Replace both files by the published ones."
        )
    images = pixels.astype(np.uint8, copy=False).reshape(-1, 1, SIDE, SIDE)
    return Images(images, labels.astype(np.int64))
