import numpy as np
import pytest


class Tensors:
    """Random (B, T) arrays of float64 and a mask with right padding and one hole."""

    def __init__(self, seed: int, rows: int = 6, columns: int = 5) -> None:
        self.rng = np.random.default_rng(seed)
        self.shape = (rows, columns)
        lengths = self.rng.integers(1, columns + 1, size=rows)
        self.mask = (np.arange(columns)[None, :] < lengths[:, None]).astype(np.int64)
        self.mask[0] = [1, 0, 1, 1, 0]

    def normal(self, scale: float = 1.0) -> np.ndarray:
        return self.rng.normal(scale=scale, size=self.shape)

    def scores(self) -> np.ndarray:
        return self.rng.normal(size=self.shape[0])


@pytest.fixture(params=range(5))
def tensors(request: pytest.FixtureRequest) -> Tensors:
    return Tensors(request.param)
