import base64
import gzip
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from numalab.cli.inputs.kernel import app
from numalab.errors import UserError
from numalab.places import forget_skipped, skipped_inputs
from numalab.source import kernel_source as source


def numalab(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_build_list_show_and_config(project: Path) -> None:
    before = json.loads(numalab("list", "--json").stdout)
    assert [(row["name"], row["built"]) for row in before] == [("plain", None), ("changed", None)]

    result = numalab("build", "--all", "--json")
    built = json.loads(result.stdout)
    assert [row["spec_name"] for row in built] == ["plain", "changed"]
    assert Path(built[1]["bzimage"]).is_file()
    assert "changed: built in " in result.stderr

    listed = numalab("list").stdout
    assert "9.9.1" in listed
    assert built[0]["config_hash"][:12] in listed

    shown = json.loads(numalab("show", "changed", "--json").stdout)
    assert shown["series"][0]["patches"] == ["sched: change line ten"]
    assert shown["fragments"] == {"guest": "What the guest needs."}
    assert shown["built"]["digest"] == built[1]["digest"]
    text = numalab("show", "changed").stdout
    assert "             sched: change line ten\n" in text
    assert f"  digest     {built[1]['digest']}\n" in text

    assert numalab("config", "plain").stdout.splitlines() == [
        "CONFIG_EXPERT=y     kernel/configs/tiny-base.config",
        "CONFIG_SLUB_TINY=y  kernel/configs/tiny.config",
        "CONFIG_SMP=y        guest.config:4  More than one CPU.",
    ]
    *_, option = json.loads(numalab("config", "plain", "--json").stdout)
    assert (option["name"], option["value"], option["origin"]) == (
        "CONFIG_SMP", "y", "guest.config:4",
    )  # fmt: skip
    assert "CONFIG_EXPERT=y" in numalab("config", "plain", "--full").stdout


def test_a_list_cuts_no_name_where_there_is_no_terminal(project: Path) -> None:
    names = [f"{'n' * 63}{number}" for number in range(2)]
    entry = 'summary = "x"\nsource = "linux-source-9.9"\nfragments = ["guest"]\n'
    with (project / "kernel-configs/kernels.toml").open("a") as file:
        file.writelines(f"\n[kernel.{name}]\n{entry}" for name in names)
    listed = [line.split()[0] for line in numalab("list").stdout.splitlines()]
    assert listed == ["kernel", "plain", "changed", *names]


def test_a_kernel_with_a_bad_fragment_is_left_out_of_the_list(project: Path) -> None:
    configs = project / "kernel-configs"
    (configs / "other.config").write_text("# Other.\n\n# One CPU.\nCONFIG_SMP=n\n")
    (configs / "broken.config").write_text("# Broken.\n\nCONFIG_SMP=y\n")
    with (configs / "kernels.toml").open("a") as file:
        for name in ("other", "broken"):
            file.write(f'[kernel.{name}]\nsummary = "x"\nsource = "linux-source-9.9"\n'
                       f'fragments = ["guest", "{name}"]\n')  # fmt: skip
    forget_skipped()
    listed = numalab("list").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["kernel", "plain", "changed"]
    assert list(map(str, skipped_inputs())) == [
        f"kernel other: {configs}/other.config:4: CONFIG_SMP: wants n, and "
        f"{configs}/guest.config:4 wants y",
        f"kernel broken: {configs}/broken.config:3: CONFIG_SMP: has no reason: put a comment right "
        "above it",
    ]
    forget_skipped()


def test_config_without_a_build_says_what_is_for_other_versions(project: Path) -> None:
    fragment = project / "kernel-configs/guest.config"
    fragment.write_text(fragment.read_text() + "\n# Until 5.0: once.\nCONFIG_OLD=y\n")
    last = numalab("config", "plain").stdout.splitlines()[-1]
    assert last.split() == ["#", "no", "CONFIG_OLD", "guest.config:7", "Until", "5.0:", "once."]
    assert json.loads(numalab("list", "--json").stdout)[0]["built"] is None


def test_a_second_build_names_the_time_of_the_first(project: Path) -> None:
    result = numalab("build", "--all")
    output = r"changed: built in \d+ s \(first build: \d+ s\)"
    assert re.search(output, result.stderr)
    assert "plain: built in" in result.stderr.partition("changed")[0]


def test_build_the_kernels_of_one_source(project: Path) -> None:
    file = project / "kernel-configs/kernels.toml"
    file.write_text(file.read_text() + '[kernel.x]\nsummary = "x"\nsource = "linux-source-8.8"\n'
                    'fragments = ["guest"]\n')  # fmt: skip
    built = json.loads(numalab("build", "--source", "linux-source-9.9", "-j1", "--json").stdout)
    assert [row["spec_name"] for row in built] == ["plain", "changed"]
    with pytest.raises(UserError, match=r"--source: no kernel has the source 'x' \(valid: linux-s"):
        numalab("build", "--source", "x")


def test_refresh_renews_offsets(project: Path) -> None:
    patch = project / "kernel-configs/series/change/0001-change.patch"
    text = patch.read_text()
    patch.write_text(text.replace("@@ -9,3 +9,3 @@", "@@ -4,3 +14,3 @@ a function"))
    assert numalab("refresh", "change").stdout == f"renewed {patch}\n"
    assert patch.read_text() == text.replace("@@ -9,3 +9,3 @@", "@@ -9,3 +9,3 @@ a function")
    assert numalab("refresh", "change").stdout == "the line numbers of change are correct\n"
    with pytest.raises(UserError, match="no named kernel has this series; name one with --base"):
        numalab("refresh", str(patch.parent))
    assert "are correct" in numalab("refresh", str(patch.parent), "--base", "changed").stdout
    patch.write_text(text.replace("-line 10", "-line X"))
    with pytest.raises(UserError, match="does not apply: hunk 1 of 1 does not fit kernel/sched"):
        numalab("refresh", "change")
    head = "From x Mon Sep 17 00:00:00 2001\nContent-Transfer-Encoding: base64\n\n"
    mail = project / "mails/0001.patch"
    mail.parent.mkdir()
    mail.write_text(head + base64.encodebytes(text.encode()).decode())
    with pytest.raises(
        UserError, match=r"0001\.patch: cannot be refreshed: holds no diff; first unp"
    ):
        numalab("refresh", str(mail.parent), "--base", "plain")
    with pytest.raises(UserError, match="only the patches of a folder can be refreshed"):
        numalab("refresh", str(patch), "--base", "plain")


def test_refresh_keeps_the_ends_of_lines_and_refuses_what_it_cannot_write(project: Path) -> None:
    text = (project / "kernel-configs/series/change/0001-change.patch").read_text()
    moved = text.replace("@@ -9,3 +9,3 @@", "@@ -4,3 +14,3 @@")
    folder = project / "mails"
    folder.mkdir()
    patch = folder / "0001.patch"
    patch.write_bytes(moved.replace("\n", "\r\n").encode())
    assert numalab("refresh", str(folder), "--base", "plain").stdout == f"renewed {patch}\n"
    assert patch.read_bytes() == text.replace("\n", "\r\n").encode()
    patch.rename(folder / "away")
    box = "".join(f"From {n} Mon Sep 17 00:00:00 2001\nFrom: x\n\n{moved}" for n in range(2))
    (folder / "a.mbox").write_text(box.replace("line ten", "line 11", 1))
    with pytest.raises(UserError, match=r"a\.mbox: is a mailbox of several patches; save each as"):
        numalab("refresh", str(folder), "--base", "plain")
    (folder / "a.mbox").unlink()
    (folder / "0001.patch.gz").write_bytes(gzip.compress(moved.encode()))
    with pytest.raises(UserError, match=r"0001\.patch\.gz: .*holds no diff; first unpack a packed"):
        numalab("refresh", str(folder), "--base", "plain")


def test_a_missing_source_does_not_hide_the_list(project: Path) -> None:
    (source.PACKAGES / "linux-source-9.9.tar.xz").unlink()
    assert [line.split()[:2] for line in numalab("list").stdout.splitlines()[1:]] == [
        ["plain", "no"],
        ["changed", "no"],
    ]


def test_build_wants_names_or_all(project: Path) -> None:
    for words in ([], ["plain", "--all"]):
        with pytest.raises(UserError, match=r"--all or --source \(valid: plain, ch"):
            numalab("build", *words)
    with pytest.raises(UserError, match="plain is not built; run: numalab kernel build plain"):
        numalab("config", "plain", "--full")
    with pytest.raises(UserError, match="no kernel is called 'x'"):
        numalab("show", "x")
