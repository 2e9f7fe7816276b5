"""Programs of the host: what goes to the guest with them. `ldd` is the other opinion."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from numalab.errors import UserError, WorkloadFailed
from numalab.workload import luggage, luggage_folders
from numalab.workload.elf import cached_libraries
from numalab.workload.exit_status import explain_status
from numalab.workload.host_program import GuestCommand, Surroundings, guest_command
from numalab.workload.luggage import require_preloaded
from numalab.workload.starters import MARKED

IN_GUEST = {
    "sh",
    "numactl",
    "ls",
    "env",
    "/bin/sh",
    "/usr/bin/numactl",
    "cat",
    "wc",
    "kill",
    "stat",
}
STARTERS = {"taskset", "timeout", "perf"}
GUEST_ONLY = IN_GUEST.__contains__
SOURCE = "#include <math.h>\nint main(int c, char **v) { return (int)sin(c) + (c > 9); }\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which every test has to itself."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def compiled(path: Path, *options: str, source: str = SOURCE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = ["gcc", "-x", "c", "-", "-o", str(path), *options, "-lm"]
    subprocess.run(argv, input=source, text=True, check=True)
    return path


def elf_header(machine: int, bits: int) -> bytes:
    """The beginning of a program: for x86-64, `machine` is 62 and `bits` is 2."""
    header = bytearray(64)
    header[:7] = b"\x7fELF" + bytes([bits, 1, 1])
    header[16:20] = (2).to_bytes(2, "little") + machine.to_bytes(2, "little")
    header[20] = 1
    return bytes(header)


def run_on_host(command: GuestCommand, root: Path) -> Path:
    """Do in `root` what the guest does before the command; return the copied folder."""
    for name, data in command.files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    script = command.argv[2].replace("/job/files", str(root)).partition("; exec")[0]
    for _ in range(2):  # a session does it before each command
        subprocess.run(["sh", "-c", script], check=True)
    return root / "folder"


def names(files: object) -> set[str]:
    assert isinstance(files, dict)
    return set(files)


def test_a_program_of_the_guest_takes_nothing_along() -> None:
    command = guest_command(["numactl", "-H"], GUEST_ONLY)
    assert (command.argv, dict(command.files)) == (("numactl", "-H"), {})
    assert command.program == "numactl"


def test_a_program_goes_with_the_libraries_that_ldd_names(folder: Path) -> None:
    compiled(folder / "prog", "-lm", "-Wl,--no-as-needed", "-lrt")
    command = guest_command(["./prog", "a b"], GUEST_ONLY)
    printed = subprocess.run(["ldd", "prog"], capture_output=True, text=True, check=True).stdout
    libraries = set(re.findall(r"^\s+(\S+) => /", printed, re.MULTILINE))
    taken = {name.split("/")[-1] for name in command.files if name.startswith("host/lib/")}
    assert libraries
    assert libraries <= taken <= {*libraries, "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
    assert command.files["folder/prog"] == Path("prog").read_bytes()
    loader = command.argv.index("/job/files/host/bin/prog")
    path = ("--library-path", "/job/files/host/lib")
    words = (*path, "--argv0", "./prog", "/job/files/folder/prog", "a b")
    assert command.argv[loader + 1 :] == words
    assert command.argv[:2] == ("sh", "-c")
    assert command.program == "prog"


def test_a_static_program_starts_by_itself(folder: Path) -> None:
    compiled(folder / "prog", "-static", "-lm")
    command = guest_command(["./prog"], GUEST_ONLY)
    assert command.argv[-1] == "/job/files/folder/prog"
    assert names(command.files) == {"folder/prog"}


def test_a_program_elsewhere_takes_no_folder_along(folder: Path, tmp_path: Path) -> None:
    compiled(tmp_path / "bin/prog", "-static")
    Path("data").write_text("x")
    command = guest_command([str(tmp_path / "bin/prog")], GUEST_ONLY)
    assert command.argv == ("/job/files/host/program/prog",)
    assert names(command.files) == {"host/program/prog"}


def test_libraries_of_the_cache_are_those_for_any_cpu() -> None:
    """As glibc 2.36 lists a library and its variant for newer CPUs, which comes first."""
    folder = "/lib/x86_64-linux-gnu"
    text = (
        "2 libs found in cache `/etc/ld.so.cache'\n"
        f'\tlibz.so.1 (libc6,x86-64, hwcap: "x86-64-v3") => {folder}/glibc-hwcaps/v3/libz.so.1\n'
        f"\tlibz.so.1 (libc6,x86-64) => {folder}/libz.so.1\n"
        "\tlibz.so.1 (libc6) => /lib/i386-linux-gnu/libz.so.1\n"
        f"\tlibc.so.6 (libc6,x86-64, OS ABI: Linux 3.2.0) => {folder}/libc.so.6\n"
    )
    names = ("libz.so.1", "libc.so.6")
    assert cached_libraries(text) == {name: Path(folder) / name for name in names}


def test_libraries_beside_the_program_are_found(folder: Path) -> None:
    library = "int f(void) { return 7; }\n"
    compiled(folder / "lib/libseven.so", "-shared", "-fPIC", source=library)
    uses = "int f(void);\nint main(void) { return f(); }\n"
    options = ("-Llib", "-lseven", "-Wl,-rpath,$ORIGIN/../lib")
    compiled(folder / "bin/prog", *options, source=uses)
    command = guest_command(["bin/prog"], GUEST_ONLY)
    assert command.files["host/lib/libseven.so"] == Path("lib/libseven.so").read_bytes()
    Path("lib/libseven.so").unlink()
    with pytest.raises(UserError, match=r"bin/prog: needs libseven\.so, which was not found"):
        guest_command(["bin/prog"], GUEST_ONLY)


@pytest.fixture
def two_libraries(folder: Path) -> Path:
    """Two versions of a library, 1 and 2; a program is linked with the first."""
    for version in ("1", "2"):
        source = f"int f(void) {{ return {version}; }}\n"
        options = ("-shared", "-fPIC", "-Wl,-soname,libf.so")
        compiled(folder / version / "libf.so", *options, source=source)
    return folder


USES = "int f(void);\nint main(void) { return f(); }\n"


@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
@pytest.mark.parametrize("way", ["host", "option", "starter"])
def test_a_library_path_counts_as_on_the_host(
    two_libraries: Path, monkeypatch: pytest.MonkeyPatch, tags: str, way: str
) -> None:
    compiled(Path("prog"), "-L1", "-lf", f"-Wl,{tags},-rpath,{two_libraries}/1", source=USES)
    path = {"LD_LIBRARY_PATH": f"/nothing:{two_libraries}/2"}
    used = subprocess.run(["./prog"], check=False, env=os.environ | path).returncode
    assert used == (2 if tags.startswith("--enable") else 1)
    if way == "host":
        monkeypatch.setenv("LD_LIBRARY_PATH", path["LD_LIBRARY_PATH"])
    before = ["env", "LD_LIBRARY_PATH=" + path["LD_LIBRARY_PATH"]] if way == "starter" else []
    around = Surroundings(env=path if way == "option" else {})
    command = guest_command([*before, "./prog"], GUEST_ONLY, around)
    assert command.files["host/lib/libf.so"] == Path(f"{used}/libf.so").read_bytes()


def test_a_path_of_a_program_counts_for_its_own_libraries_only(two_libraries: Path) -> None:
    uses = "int f(void);\nint g(void) { return f(); }\n"
    compiled(Path("1/libg.so"), "-shared", "-fPIC", "-L1", "-lf", source=uses)
    for tags, whole in (("--disable-new-dtags", True), ("--enable-new-dtags", False)):
        options = ("-L1", "-lg", f"-Wl,{tags},-rpath-link,1,-rpath,{two_libraries}/1")
        compiled(Path("prog"), *options, source=USES.replace("f()", "g()").replace("f(v", "g(v"))
        printed = subprocess.run(["ldd", "prog"], capture_output=True, text=True, check=True)
        assert ("libf.so => not found" not in printed.stdout) is whole
        if whole:
            assert "host/lib/libf.so" in guest_command(["./prog"], GUEST_ONLY).files
            continue
        with pytest.raises(UserError, match=r"libg\.so: needs libf\.so, which was not found"):
            guest_command(["./prog"], GUEST_ONLY)


@pytest.mark.parametrize(("machine", "bits"), [(3, 1), (62, 1), (183, 2)])
def test_a_library_for_another_processor_is_passed_over(
    two_libraries: Path, machine: int, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(two_libraries / "prog", "-L1", "-lf", source=USES)
    Path("0").mkdir()
    Path("0/libf.so").write_bytes(elf_header(machine, bits))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{two_libraries}/0:{two_libraries}/2")
    assert subprocess.run(["./prog"], check=False).returncode == 2
    command = guest_command(["./prog"], GUEST_ONLY)
    assert command.files["host/lib/libf.so"] == Path("2/libf.so").read_bytes()


def test_a_preloaded_library_replaces_the_one_of_its_name(two_libraries: Path) -> None:
    compiled(Path("prog"), "-L1", "-lf", f"-Wl,-rpath,{two_libraries}/1", source=USES)
    env = {"LD_PRELOAD": f"{two_libraries}/2/libf.so"}
    assert subprocess.run(["./prog"], check=False, env=os.environ | env).returncode == 2
    command = guest_command(["./prog"], GUEST_ONLY, Surroundings(env=env))
    assert command.files["host/lib/libf.so"] == Path("2/libf.so").read_bytes()


def test_a_starter_starts_a_program_of_the_host(folder: Path) -> None:
    compiled(folder / "prog", "-static")
    command = guest_command(["numactl", "--membind=1", "./prog", "./prog"], GUEST_ONLY)
    assert command.argv[-4:] == ("numactl", "--membind=1", "/job/files/folder/prog", "./prog")
    assert command.program == "prog"


@pytest.mark.parametrize(
    ("before", "program", "after"),
    [
        ("", "sh", "drv.sh ./prog"),
        ("taskset -c 0", "wc", "-c ./prog"),
        (MARKED, "sh", "drv.sh ./prog"),
        (f"{MARKED} numactl -l", "sh", "drv.sh ./prog"),
        (f"{MARKED} timeout -s kill 5 taskset ff", "./prog", "./prog"),
        ("perf stat -e stat", "./prog", "./prog"),
        ("/usr/bin/numactl -l taskset ff", "./prog", "./prog"),
        ("numactl -H", "", ""),
    ],
)
def test_only_the_program_is_replaced(folder: Path, before: str, program: str, after: str) -> None:
    compiled(folder / "prog", "-static")
    Path("drv.sh").write_text("")
    has = (IN_GUEST | STARTERS).__contains__
    words = f"{before} {program} {after}".split()
    command = guest_command(words, has)
    mine = ["/job/files/folder/prog" if program == "./prog" else program]
    assert list(command.argv[-len(words) :]) == [
        *before.split(),
        *filter(None, mine),
        *after.split(),
    ]
    assert command.program == (Path(program).name or "numactl")


def test_a_name_that_the_guest_lacks_is_this_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(tmp_path / "bin/my-own-program", "-static")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    command = guest_command(["my-own-program"], GUEST_ONLY)
    assert "host/program/my-own-program" in command.files
    assert command.remarks == ("my-own-program is this host's: the guest has none",)


@pytest.mark.parametrize(
    ("machine", "bits", "message"),
    [
        (3, 1, "a program for 32 bits, which the guest's kernel does not run"),
        (183, 2, "a program for AArch64"),
        (62, 1, "of the x32 ABI"),
    ],
)
def test_programs_of_other_processors_are_refused(
    folder: Path, machine: int, bits: int, message: str
) -> None:
    Path("prog").write_bytes(elf_header(machine, bits))
    Path("prog").chmod(0o755)
    with pytest.raises(UserError, match=message):
        guest_command(["./prog"], GUEST_ONLY)


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("text", 0o755, "neither a program nor a script"),
        ("#!/bin/sh\n", 0o644, r"is not executable; chmod \+x \./prog"),
        ("#!/usr/bin/env -S ruby -w\n", 0o755, "needs ruby, which the guest lacks; use --package"),
        ("#!/bin/sh\r\necho\r\n", 0o755, "has the line ends of DOS"),
        ("\x7fELF and nothing", 0o755, "is no program"),
    ],
)
def test_what_cannot_run_is_refused(folder: Path, text: str, mode: int, message: str) -> None:
    Path("prog").write_text(text)
    Path("prog").chmod(mode)
    with pytest.raises(UserError, match=f"^prog: .*{message}"):
        guest_command(["./prog"], GUEST_ONLY)


def test_an_interpreter_of_a_virtual_environment_is_refused(folder: Path) -> None:
    compiled(folder / ".venv/bin/python3", "-lm")
    with pytest.raises(UserError, match="needs its modules too; use --host-root, or python3"):
        guest_command([".venv/bin/python3", "prog.py"], GUEST_ONLY)


def test_no_such_program(folder: Path) -> None:
    with pytest.raises(UserError, match="nothing: cannot read: No such file"):
        guest_command(["./nothing"], GUEST_ONLY)


def test_a_script_sees_the_current_folder(folder: Path, tmp_path: Path) -> None:
    Path("run.sh").write_text("#!/bin/sh\n")
    Path("run.sh").chmod(0o755)
    Path("sub").mkdir()
    Path("sub/data").write_text("1")
    Path(".hidden").write_text("2")
    Path("settings").symlink_to(".hidden")
    (tmp_path / "secret").write_text("3")
    Path("link").symlink_to(tmp_path / "secret")
    Path("near").symlink_to("sub/data")
    os.mkfifo("fifo")
    command = guest_command(["./run.sh"], GUEST_ONLY)
    taken = {"folder/run.sh", "folder/sub/data", "folder/near"}
    assert names(command.files) == taken
    assert command.argv[-1] == "/job/files/folder/run.sh"


@pytest.mark.parametrize(
    ("words", "taken"),
    [
        (["cat", "sub/data"], True),
        (["numactl", "--all", "sh", "run.sh"], True),
        (["cat", "/etc/hostname"], False),
        (["ls", "sub"], False),
        (["cat", "../here/run.sh"], False),
        (["sh", "-c", "echo " + "x" * 5000], False),
    ],
)
def test_a_file_among_the_words_takes_the_folder_along(
    folder: Path, words: list[str], taken: bool
) -> None:
    Path("sub").mkdir()
    Path("sub/data").write_text("1")
    Path("run.sh").write_text("echo\n")
    command = guest_command(words, GUEST_ONLY)
    assert names(command.files) == ({"folder/run.sh", "folder/sub/data"} if taken else set())
    assert command.argv[-len(words) :] == tuple(words)
    assert ("cd /job/files/folder" in " ".join(command.argv)) is taken


def test_linked_and_empty_folders_go_along(folder: Path, tmp_path: Path) -> None:
    Path("run.sh").write_text("#!/bin/sh\n")
    Path("run.sh").chmod(0o755)
    for name in ("v2/common", "my logs", ".hidden", "outer"):
        Path(name).mkdir(parents=True)
    Path("v2/x").write_text("1")
    Path("common").mkdir()
    Path("common/y").write_text("2")
    Path("v2/shared").symlink_to("../common")
    Path("v2/up").symlink_to("..")
    Path("current").symlink_to("v2")
    Path("secret").symlink_to(".hidden")
    Path("nowhere").symlink_to("missing")
    Path("loop").symlink_to("loop")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "z").write_text("3")
    Path("cfg").symlink_to(outside)
    command = guest_command(["./run.sh"], GUEST_ONLY, Surroundings(folder="my logs"))
    taken = {"folder/run.sh", "folder/common/y", "folder/v2/x"}
    assert names(command.files) == taken
    made = run_on_host(command, tmp_path / "guest")
    assert {path.name for path in made.iterdir() if path.is_dir()} == {
        *("common", "current", "my logs", "outer", "v2")
    }
    assert (made / "current/shared/y").read_text() == "2"
    assert (made / "v2/up").resolve() == made
    assert (made / "current/common").is_dir()
    assert command.remarks[0] == (
        f"the link cfg stays here, as it leads to {outside}; "
        "--add FILE takes along what the program reads"
    )
    left = [remark.split()[2] for remark in command.remarks]
    assert left == ["cfg", "loop", "nowhere", "secret"]
    added = guest_command(["./run.sh"], GUEST_ONLY, Surroundings(add=("cfg",)))
    assert names(added.files) == {*taken, "folder/cfg/z"}
    assert not any("cfg" in remark for remark in added.remarks)


def test_links_with_added_files_in_their_place_stay_here(folder: Path) -> None:
    Path("v2").mkdir()
    Path("v2/x").write_text("1")
    Path("current").symlink_to("v2")
    command = guest_command(["ls"], GUEST_ONLY, Surroundings(add=("current",)))
    assert names(command.files) == {"folder/v2/x", "folder/current/x"}
    assert command.remarks == ()
    command = guest_command(["ls"], GUEST_ONLY, Surroundings(add=("v2/x:current/y",)))
    assert names(command.files) == {"folder/v2/x", "folder/current/y"}
    assert command.remarks == ("the link current stays here, as --add puts files in its place",)
    assert "ln" not in command.argv[2].split()


def test_a_program_and_a_working_folder_may_lie_behind_links(folder: Path) -> None:
    Path("v2/sub").mkdir(parents=True)
    Path("v2/sub/run.sh").write_text("#!/bin/sh\n")
    Path("v2/sub/run.sh").chmod(0o755)
    Path("current").symlink_to(folder / "v2")
    around = Surroundings(folder="current/sub")
    command = guest_command(["current/sub/run.sh"], GUEST_ONLY, around)
    assert names(command.files) == {"folder/v2/sub/run.sh"}
    assert command.argv[-1] == "/job/files/folder/current/sub/run.sh"
    assert (
        "ln -sfn v2 /job/files/folder/current && cd /job/files/folder/current/sub"
        in (command.argv[2])
    )
    with pytest.raises(UserError, match="no file that goes to the guest lies below 'current/x'"):
        guest_command(["ls"], GUEST_ONLY, Surroundings(folder="current/x"))


def test_packages_that_link_each_other_are_taken_once(folder: Path) -> None:
    """Workspaces of npm: on each path that leads to it, 12 packages would be 12! copies."""
    count = 12
    for package in range(count):
        deps = Path(f"w/p{package}/deps")
        deps.mkdir(parents=True)
        (deps.parent / "index.js").write_text("")
        for other in set(range(count)) - {package}:
            (deps / f"p{other}").symlink_to(f"../../p{other}")
    for add in ((), ("w",)):
        command = guest_command(["ls"], GUEST_ONLY, Surroundings(folder=".", add=add))
        assert len(command.files) == count
        assert command.argv[2].count("ln -sfn ../../p") == count * (count - 1)
        assert command.remarks == ()


def test_a_virtual_environment_counts_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(luggage_folders, "MOST_FILES", 5)
    Path("venv/lib").mkdir(parents=True)
    for number in range(3):
        Path(f"venv/lib/{number}").write_text("")
    Path("venv/lib64").symlink_to("lib")
    command = guest_command(["ls"], GUEST_ONLY, Surroundings(folder="."))
    assert (len(command.files), command.remarks) == (3, ())
    for number in range(3):
        Path(f"dangling{number}").symlink_to("missing")
    command = guest_command(["ls"], GUEST_ONLY, Surroundings(folder="."))
    assert command.files == {}
    assert "more than 64 MiB or 5 files and links" in command.remarks[0]


def test_a_folder_may_be_deeper_than_the_stack_of_python(folder: Path) -> None:
    for _ in range(1200):
        Path("d").mkdir()
        os.chdir("d")
    Path("f").write_text("")
    os.chdir(folder)
    try:
        command = guest_command(["ls"], GUEST_ONLY, Surroundings(folder="."))
    finally:
        subprocess.run(["rm", "-r", "d"], check=True)  # pytest's clean-up is recursive
    assert names(command.files) == {f"folder/{'d/' * 1200}f"}


def test_links_and_empty_folders_are_added(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data/real").mkdir(parents=True)
    (tmp_path / "data/real/z").write_text("1")
    (tmp_path / "data/cur").symlink_to("real")
    (tmp_path / "data/out").symlink_to(tmp_path)
    (tmp_path / "empty").mkdir()
    add = (str(tmp_path / "data"), f"{tmp_path}/empty:logs")
    command = guest_command(["ls"], GUEST_ONLY, Surroundings(add=add))
    assert names(command.files) == {"folder/data/real/z"}
    assert (
        "mkdir -p /job/files/folder /job/files/folder/logs"
        " && ln -sfn real /job/files/folder/data/cur && cd"
    ) in command.argv[2]
    out = tmp_path / "data/out"
    assert command.remarks == (f"the link {out} stays here, as it leads to {tmp_path}",)


def test_many_links_that_stay_here_are_few_remarks(folder: Path) -> None:
    Path("w").mkdir()
    for number in range(2000):
        Path(f"w/{number:04}").symlink_to("/nowhere")
    command = guest_command(["ls"], GUEST_ONLY, Surroundings(add=("w",)))
    left = [remark.split()[2] for remark in command.remarks[:-1]]
    assert left == [f"w/{number:04}" for number in range(5)]
    assert command.remarks[-1] == "1995 more links stay here"


def test_too_many_empty_folders_stay_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(luggage_folders, "MOST_OF_NAMES", 20)
    for name in ("a", "b", "c"):
        Path(name).mkdir()
    Path("link").symlink_to("a")
    command = guest_command(["ls"], GUEST_ONLY, Surroundings(folder="."))
    assert command.remarks == ("3 empty folders and 1 links to folders stay here",)
    assert "mkdir -p /job/files/folder && cd" in command.argv[2]


def test_a_large_folder_stays_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(luggage_folders, "MOST_OF_FOLDER", 1000)
    Path("run.sh").write_text("#!/bin/sh\n")
    Path("run.sh").chmod(0o755)
    Path("large").write_bytes(bytes(1001))
    command = guest_command(["./run.sh"], GUEST_ONLY, Surroundings(add=("run.sh:x/y",)))
    assert names(command.files) == {"folder/x/y", "host/program/run.sh"}
    assert command.remarks[0].startswith("the current folder holds more than")
    monkeypatch.setattr(luggage, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="large: with it, more than 0 MiB would go to the guest"):
        guest_command(["ls"], GUEST_ONLY, Surroundings(add=("large",)))


@pytest.mark.parametrize("target", ["/etc/passwd", "../x", "a/../../x"])
def test_targets_stay_in_the_working_folder(folder: Path, target: str) -> None:
    Path("a").write_text("")
    with pytest.raises(UserError, match=r"--add: .* is not a path below the working folder"):
        guest_command(["ls"], GUEST_ONLY, Surroundings(add=(f"a:{target}",)))


def test_folders_are_added_whole(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data/.d").mkdir(parents=True)
    (tmp_path / "data/.d/x").write_text("1")
    command = guest_command(["ls"], GUEST_ONLY, Surroundings(add=(str(tmp_path / "data"),)))
    assert dict(command.files) == {"folder/data/.d/x": b"1"}
    with pytest.raises(UserError, match=r"missing: --add: no such"):
        guest_command(["ls"], GUEST_ONLY, Surroundings(add=("missing",)))


def test_surroundings_come_before_the_command() -> None:
    around = Surroundings(env={"A": "b c"}, folder="/tmp", stdin=b"in", timeout=2.5, returns=True)
    command = guest_command(["cat"], GUEST_ONLY, around)
    assert command.argv[:2] == ("sh", "-c")
    assert command.argv[2] == (
        "mkdir -p /job/files/folder && cd /tmp || exit 125;"
        " mkdir -p /job/out/files; OUT=/job/out/files; export OUT;"
        ' exec "$@" </job/files/stdin'
    )
    words = ("sh", "/job/files/with-timeout.sh", "250", "2.5", "env", "A=b c", "cat")
    assert command.argv[4:] == words
    assert command.files["stdin"] == b"in"


@pytest.mark.parametrize(
    ("seconds", "ended", "status"),
    [
        (0.1, "sleep 0.2; kill -KILL $$", 124),
        (1000.0, "kill -KILL $$", 137),
        (0.1, "sleep 0.2; exit 3", 3),
        (1000.0, "exit 124", 124),
    ],
)
def test_a_command_that_stays_when_its_time_is_over_has_timed_out(
    seconds: float, ended: str, status: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeout = folder / "timeout"  # timeout(1) dies by SIGKILL, too, if that ends the command
    timeout.write_text(f'#!/bin/sh\nshift 2; "$@"; {ended}\n')
    timeout.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    words = ["sh", "-c", "echo out; echo err >&2"]
    command = guest_command(words, GUEST_ONLY, Surroundings(timeout=seconds))
    (script,) = command.files.values()
    argv = ["sh", "-c", script.decode(), *command.argv[1:]]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "out\n", "err\n")


def preloading(words: list[str], preload: str, way: str, guest: set[str]) -> GuestCommand:
    if way == "starter":
        return guest_command(["env", f"LD_PRELOAD={preload}", *words], guest.__contains__)
    return guest_command(words, guest.__contains__, Surroundings(env={"LD_PRELOAD": preload}))


OF_HOST = "/job/files/host/lib"
OF_GUEST = {*IN_GUEST, "/usr/lib/x86_64-linux-gnu/libc.so.6", "/opt/libother.so"}


@pytest.mark.parametrize("way", ["option", "starter"])
def test_a_preloaded_library_goes_along(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """By path, by a relative path and by name; with what the guest lacks, for its programs."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    compiled(tmp_path / "libneeded.so", "-shared", "-fPIC", source="int y;\n")
    options = ("-shared", "-fPIC", f"-L{tmp_path}", "-Wl,--no-as-needed", "-lneeded")
    library = compiled(tmp_path / "libmine.so", *options, source="int x;\n")
    for name in (str(library), "libmine.so", "../libmine.so"):
        command = preloading(["ls"], f"{name}:/opt/libother.so", way, OF_GUEST)
        assert "LD_PRELOAD=/job/files/host/lib/libmine.so:/opt/libother.so" in command.argv
        assert "LD_LIBRARY_PATH=/job/files/host/lib" in command.argv
        taken = names(command.files) - {"host/lib/libm.so.6", "host/lib/libgcc_s.so.1"}
        assert {"host/lib/libmine.so", "host/lib/libneeded.so"} <= taken
        assert "host/lib/libc.so.6" not in taken
        assert command.files["host/lib/libmine.so"] == library.read_bytes()


@pytest.mark.parametrize("way", ["option", "starter"])
def test_a_library_is_preloaded_for_a_program_of_the_host_only(folder: Path, way: str) -> None:
    """The guest's `numactl` before it may have an older C library than this host."""
    compiled(folder / "prog")
    compiled(folder / "libmine.so", "-shared", "-fPIC", source="int x;\n")
    words = ["numactl", "-l", str(folder / "prog")]
    command = preloading(words, "./libmine.so", way, OF_GUEST)
    inside = command.argv.index("LD_PRELOAD=/job/files/host/lib/libmine.so")
    assert command.argv[inside - 2 : inside + 2 : 3] == ("-l", "/job/files/host/bin/prog")
    assert command.argv[inside - 1] == "env"  # what the program starts loads it, too
    before = command.argv[:inside]
    assert not any(re.match("LD_PRELOAD=.|LD_LIBRARY_PATH", word) for word in before)


@pytest.mark.parametrize("way", ["option", "starter"])
def test_a_script_preloads_the_guests_library_of_a_name(folder: Path, way: str) -> None:
    """The host has it too, but the interpreter is the guest's."""
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    for words in (["./run.sh"], ["sh", "run.sh"]):
        command = preloading(words, "libc.so.6", way, OF_GUEST)
        assert "LD_PRELOAD=libc.so.6" in command.argv
        assert names(command.files) == {"folder/run.sh"}


@pytest.mark.parametrize("way", ["option", "starter"])
def test_a_preloaded_library_is_searched_in_the_library_path(folder: Path, way: str) -> None:
    """In that of the guest's program; what goes along stands before it."""
    compiled(folder / "libmine.so", "-shared", "-fPIC", source="int x;\n")
    guest = OF_GUEST | {"/opt/lib/libg.so"}
    for preload, path in (("libg.so", "/opt/lib"), ("./libmine.so", f"{OF_HOST}:/opt/lib")):
        settings = {"LD_LIBRARY_PATH": "/opt/lib", "LD_PRELOAD": preload}
        before = [f"{name}={value}" for name, value in settings.items()]
        if way == "option":
            command = guest_command(["ls"], guest.__contains__, Surroundings(env=settings))
        else:
            command = guest_command(["env", *before, "ls"], guest.__contains__)
        paths = [word for word in command.argv if word.startswith("LD_LIBRARY_PATH=")]
        assert paths[-1] == f"LD_LIBRARY_PATH={path}"


def test_two_preloaded_libraries_of_one_name_are_refused(folder: Path) -> None:
    compiled(folder / "libmine.so", "-shared", "-fPIC", source="int x;\n")
    compiled(folder / "d/libmine.so", "-shared", "-fPIC", source="int y;\n")
    assert preloading(["ls"], f"./libmine.so:{folder}/libmine.so", "option", OF_GUEST)
    with pytest.raises(UserError, match=r"LD_PRELOAD: names two libraries libmine\.so"):
        preloading(["ls"], "./libmine.so:d/libmine.so", "option", OF_GUEST)


@pytest.mark.parametrize("way", ["option", "starter"])
@pytest.mark.parametrize("preload", ["/usr/lib/libjemaloc.so", "libjemaloc.so", "~/x.so", "./x.so"])
def test_a_library_that_cannot_be_preloaded_is_refused(
    folder: Path, preload: str, way: str
) -> None:
    compiled(folder / "prog")
    for program in ("ls", str(folder / "prog")):
        match = r"LD_PRELOAD: .* is no library of this host, nor of the guest"
        with pytest.raises(UserError, match=match) as error:
            preloading([program], preload, way, OF_GUEST)
        assert ("give its path" in str(error.value)) is ("/" not in preload)


def test_what_the_loader_left_out_is_quoted() -> None:
    """As glibc 2.36 writes it."""
    run = subprocess.run(
        ["/bin/true"],
        env={"LD_PRELOAD": "/missing.so"},
        capture_output=True,
        text=True,
        check=True,
    )
    with pytest.raises(WorkloadFailed) as error:
        require_preloaded("prog", f"a\n{run.stderr * 2}b\n")
    assert str(error.value) == f"prog ran without a library: {run.stderr.strip()}"
    require_preloaded("prog", "cannot be preloaded: ignored.\n")


def test_exit_codes_are_explained() -> None:
    around = Surroundings(timeout=3)
    text = explain_status(["ls"], around, 124)
    assert "ended after 3 s of guest time" in text and "ignores SIGTERM ends 5 s later" in text
    assert "the guest has no xyzzy" in explain_status(["xyzzy"], around, 127)
    text = explain_status(["sh", "-c", "./prog 5"], around, 127)
    assert "files that the text after -c names stay here; see --package and --add" in text
    assert "after -c" not in explain_status(["taskset", "-c", "0", "xyzzy"], around, 127)
    assert not explain_status(["ls"], Surroundings(), 124)
    assert not explain_status(["ls"], around, 1)
    text = explain_status(["perf", "bench", "--wrong"], around, 129)
    assert text == "exit code 129: a program was ended by SIGHUP, or it chose that status"
    assert not explain_status(["./x"], around, 255)
    assert not explain_status(["./x"], around, 125)
    inside = Surroundings(folder="/missing")
    assert "the guest has no folder /missing" in explain_status(["ls"], inside, 125)


def test_with_the_root_of_the_host_nothing_is_taken_along(folder: Path) -> None:
    compiled(folder / "prog")
    around = Surroundings(host_root=True, env={"A": "b"}, timeout=3.0, stdin=b"typed", returns=True)
    command = guest_command(["./prog", "a b"], GUEST_ONLY, around)
    assert names(command.files) == {"host-root.sh", "with-timeout.sh", "stdin"}
    assert command.argv[:3] == ("sh", "/job/files/host-root.sh", str(folder))
    assert command.argv[-5:] == ("3", "env", "A=b", "./prog", "a b")
    assert command.program == "prog"


def test_with_the_root_of_the_host_a_folder_is_the_hosts(folder: Path) -> None:
    (folder / "sub").mkdir()
    for name, inside in (("sub", f"{folder}/sub"), ("/usr", "/usr")):
        around = Surroundings(host_root=True, folder=name)
        assert guest_command(["./prog"], GUEST_ONLY, around).argv[2] == inside
    with pytest.raises(UserError, match="has all files of this host"):
        guest_command(["./prog"], GUEST_ONLY, Surroundings(host_root=True, add=("x",)))
    with pytest.raises(UserError, match="missing: --cwd: no such folder"):
        guest_command(["./prog"], GUEST_ONLY, Surroundings(host_root=True, folder="missing"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../..", "is not below the current folder"),
        ("sub/../..", "is not below the current folder"),
        ("missing", "no file that goes to the guest lies below 'missing'"),
        ("sub/a", "no file that goes to the guest lies below 'sub/a'"),
    ],
)
def test_a_working_folder_lies_in_what_goes_along(folder: Path, name: str, message: str) -> None:
    (folder / "sub/b").mkdir(parents=True)
    (folder / "sub/a").write_text("")
    assert guest_command(["ls"], GUEST_ONLY, Surroundings(folder="sub/b/..")).files
    added = Surroundings(folder="there/b", add=("sub/a:there/b/c",))
    assert "folder/there/b/c" in guest_command(["ls"], GUEST_ONLY, added).files
    with pytest.raises(UserError, match=f"--cwd: .*{message}"):
        guest_command(["ls"], GUEST_ONLY, Surroundings(folder=name))
