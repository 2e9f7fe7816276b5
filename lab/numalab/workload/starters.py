"""Programs that start the one that is named among their words: `nice -n 1 ./program`."""

from collections.abc import Callable, Mapping, Sequence

MARKED = "/usr/lib/numalab/marked"  # writes the markers that measures look for
MARKED_TASK = "marked"  # its name, and that of the command's task until it executes
# By the options of one letter that take the next word. perf(1) has a command before its options.
_STARTERS: Mapping[str, str] = {
    **{"chrt": "TPD", "env": "uCS", "nice": "n", "numactl": "ipmMNCPw", "perf": "eoprtCFc"},
    **{"setsid": "", "stdbuf": "ioe", "strace": "oeEuPabIsSX", "taskset": "", "time": "fo"},
    "timeout": "ks",
}


def program_place(
    words: Sequence[str], in_guest: Callable[[str], bool], can_start: Callable[[str], bool]
) -> int:
    """Return which word of a command is its program, behind those that start it.

    `in_guest` tells whether the guest has a program, and `can_start` whether a word is a program of
    the guest or of this host: a starter's own arguments, such as a mask of CPUs, are none. Without
    any, the last starter is the program.
    """
    place = 0
    while words[place] == MARKED or (_name(words[place]) in _STARTERS and in_guest(words[place])):
        behind = _behind(words, place, can_start)
        if behind == len(words):
            break
        place = behind
    return place


def _behind(words: Sequence[str], place: int, can_start: Callable[[str], bool]) -> int:
    """Return which word the starter at this place starts; the number of words if none."""
    starter, place = words[place], place + 1
    if starter == MARKED:
        return place
    starter = _name(starter)
    place += starter == "perf"
    while place < len(words):
        word = words[place]
        if not word.startswith("-"):
            if can_start(word):
                return place
            place += 1
        else:
            place += 2 if len(word) == 2 and word[1] in _STARTERS[starter] else 1
    return len(words)


def _name(word: str) -> str:
    return word.rpartition("/")[2] if word.startswith("/") else word
