"""The short run of every module of cases; `make fuzz` is the long one."""

import pytest

from fuzz.runner import missing, modules, run_cases

MODULES = modules()


@pytest.mark.parametrize("name", MODULES)
def test_a_few_cases(name: str) -> None:
    if reason := missing(MODULES[name]):
        pytest.skip(reason)
    few = MODULES[name].FEW
    outcomes, failures = run_cases(name, MODULES[name], range(1, few + 1))
    assert failures == []
    assert outcomes.total() == few
