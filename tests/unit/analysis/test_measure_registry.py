"""The registry of measures: names are unique, and every name is explained."""

import pytest

from numalab.analysis.measures import catalogue, migrations
from numalab.analysis.measures.family import MeasureGroup
from numalab.errors import UserError


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(UserError, match="'task_migrations' already"):
        catalogue.register(MeasureGroup("more", migrations.GROUP.families, lambda _: ()))


def test_a_name_with_a_place_is_explained() -> None:
    assert catalogue.explain("task_time_share_node3").unit == "%"
    with pytest.raises(UserError, match="no measure is called 'nonsense'"):
        catalogue.explain("nonsense")
