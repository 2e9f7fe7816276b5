"""Options that several commands share."""

import pytest
import typer
from typer.testing import CliRunner

from numalab.cli.options import refuse_given
from numalab.errors import UserError


def test_only_an_option_that_was_given_is_refused() -> None:
    application = typer.Typer()

    @application.command()
    def command(context: typer.Context, first: int = 1, second: int = 2) -> None:
        refuse_given(context, "with --other", "first")

    run = CliRunner().invoke
    assert run(application, []).exit_code == 0
    assert run(application, ["--second", "1"]).exit_code == 0
    refused = run(application, ["--first", "1"])  # the default, but given
    assert isinstance(refused.exception, UserError)
    with pytest.raises(UserError, match="--first: has no effect with --other"):
        raise refused.exception
