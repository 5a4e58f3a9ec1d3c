"""What every test shares: shapes in annotations are enforced, random numbers are seeded."""

import os
import random

import hypothesis
import numpy as np
import pytest
import torch
from jaxtyping import install_import_hook

# Here, before any test module imports them: the hook sees only modules that are imported after it.
install_import_hook(["qkv.nn", "qkv.models"], "beartype.beartype")

# The tensors here are small: a second thread gains little, and where the cores are busy, or shared among xdist's
# processes, threads that wait for each other cost several times the work.
torch.set_num_threads(1)

# The same examples at each run of the project's checks; new ones at each run by hand. Time says nothing about
# correctness on a shared machine, so there is no deadline.
hypothesis.settings.register_profile("hand", deadline=None)
hypothesis.settings.register_profile("checks", deadline=None, derandomize=True)
hypothesis.settings.load_profile("checks" if "CI" in os.environ else "hand")


@pytest.fixture(autouse=True)
def seeded():
    """Every test draws the same random numbers, alone or among others."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
