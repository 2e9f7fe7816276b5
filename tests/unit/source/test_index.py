from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.source import patch_index as module
from numalab.source.patch_index import PatchIndex
from numalab.source.plain_files import SourceFile

FILES = {"a": SourceFile("old\n"), "d/b": SourceFile("\udcff\r\n\0", executable=True)}
PATCH = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-old\n+new\n"


def test_bytes_and_modes_go_through_an_index_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a hook of the user's own repository, whose attributes ask for other line ends.
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere/index")
    monkeypatch.setenv("GIT_WORK_TREE", "/nowhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "apply.whitespace")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "error-all")
    index = PatchIndex(tmp_path)
    index.put({**FILES, ".gitattributes": SourceFile("* text eol=crlf ident\n")})
    assert index.apply([PATCH, PATCH.replace("new", "$Id$  ").replace("old", "new")]) is None
    files = index.read(index.entries())
    assert files["d/b"] == FILES["d/b"]
    assert files["a"] == SourceFile("$Id$  \n")


def test_patches_apply_all_or_none(tmp_path: Path) -> None:
    index = PatchIndex(tmp_path)
    index.put(FILES)
    before = index.entries()
    assert "a: patch does not apply" in str(index.apply([PATCH, PATCH]))
    assert index.entries() == before


def test_large_results_are_refused(tmp_path: Path) -> None:
    index = PatchIndex(tmp_path, max_bytes=6)
    index.put(FILES)
    with pytest.raises(UserError, match=r"have 8 bytes \(at most 6\)"):
        index.read(index.entries())


def test_git_has_a_limit_of_cpu_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = PatchIndex(tmp_path)
    lines = [f"{number}\n" for number in range(200_000)]
    index.put({"a": SourceFile("".join(lines))})
    monkeypatch.setattr(module, "MAX_CPU_SECONDS", 1)
    hunks = (
        f"@@ -10,3 +10,3 @@\n {at - 1}\n-{at}\n+x\n {at + 1}\n"
        for at in range(199_000, 100_000, -4)
    )
    assert (
        index.apply(["--- a/a\n+++ b/a\n" + "".join(hunks)])
        == "git takes more than 1 s of CPU time"
    )
