"""A case for tests that need some."""

import random

import pytest

from numalab.hunt.case import Case
from numalab.hunt.generate.families import draw_loads
from numalab.hunt.generate.machines import draw_machine


@pytest.fixture
def drawn_case() -> Case:
    rng = random.Random("tests")
    machine = draw_machine(rng)
    return Case(machine, draw_loads(rng, machine, 2))
