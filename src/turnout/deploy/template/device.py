"""Where the samples of a device come from. Replace the example with your own: each device has only its own samples.

The example deals the 1,797 handwritten digits that come with scikit-learn to the devices by their numbers.
"""

from sklearn.datasets import load_digits

DEVICES = 3  # among how many the example deals its images
CLASSES = 10


def load_data(device):
    """Return the samples of this device. Called on the device, once per message.

    "train" = (x, y) is what it trains on. "holdout" = (x, y) is optional: models are measured on it. "num_classes" is
    left out for regression.
    """
    images, labels = _images()
    own = range(device, 1500, DEVICES)
    train, holdout = own[: len(own) * 9 // 10], own[len(own) * 9 // 10 :]
    return {
        "train": (images[train], labels[train]),
        "holdout": (images[holdout], labels[holdout]),
        "num_classes": CLASSES,
    }


def load_server():
    """Return the samples of the server: "test" = (x, y) to measure models on, "server" = (x, y) for rules that need it.

    Both are optional: return {} if the server has none. Models are then measured on the devices' hold-outs.
    """
    images, labels = _images()
    return {"test": (images[1500:], labels[1500:])}


def _images():
    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype("float32"), labels
