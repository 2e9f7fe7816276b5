"""libnuma's own tests on four machines: a test for pytest.

Build numactl from its source, and name the folder:

    ./configure --disable-shared && make && make check TESTS=
    NUMACTL_SOURCE=$PWD pytest test_libnuma.py

docs/results/libnuma-tests.md explains the failures.
"""

import os
import re
import shlex
from pathlib import Path

import pytest

from numalab.api import GuestSession

SOURCE = Path(os.environ.get("NUMACTL_SOURCE", "none"))
SKIPPED = 77  # the exit status of a test that needs another machine (automake)
# The name of a test, and its words where these are not the name.
TESTS = {
    # `make check` runs these ...
    **dict.fromkeys(["bind_range", "checkaffinity", "checktopology", "distance", "move_pages"]),
    **dict.fromkeys(["nodemap", "regress", "tbitmap"]),
    "numademo": "./numademo -t -e 100k",
    # ... and not these.
    **dict.fromkeys(["mbind_mig_pages", "migrate_pages", "mynode", "prefered", "realloc_test"]),
    **dict.fromkeys(["shmtest", "tshared"]),
    "node-parse": "test/node-parse all 0-1 +0",
    "randmap": "test/randmap 3 1",
    "regress-io": "bash regress-io",
}
ENDS = {"randmap": 142}  # by the signal of its alarm
# Some of them print an error and exit with 0.
ERROR = re.compile(r"^.*(failed to convert|^offset|got policy|get_mempolicy:).*$", re.MULTILINE)

pytestmark = [
    pytest.mark.skipif(not SOURCE.is_dir(), reason="NUMACTL_SOURCE names no folder"),
    pytest.mark.numa("ring-4", "mesh-8", "memoryless-4", "slow-memory-3"),
]


@pytest.mark.parametrize("test", TESTS)
def test_libnuma(test: str, guest: GuestSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SOURCE)
    words = shlex.split(TESTS[test] or f"test/{test}")
    result = guest.run(words, cwd="test", timeout=300)
    if result.status == SKIPPED:
        pytest.skip(result.stdout.splitlines()[-1])
    assert result.status == ENDS.get(test, 0), result
    assert not (error := ERROR.search(result.stdout)), error[0]
