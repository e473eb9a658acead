"""Names of the array types that the code speaks of."""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]  # client ids, counts and places
Bits = NDArray[np.uint64]  # words of keyed randomness
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
