"""The functions of a C file: which one a line is in."""

import pytest

from numalab.source.c_functions import called, enclosing_function, function_lines

MACRO = """\
#define TWICE(x) \\
	((x) * 2)

static int both(int a,
		int b)
{
	return a + b;
}
"""


@pytest.mark.parametrize(("line", "name"), [(7, "both"), (2, "TWICE"), (3, ""), (5, "both")])
def test_enclosing_function(line: int, name: str) -> None:
    assert enclosing_function(MACRO, line) == name


HEADS = """\
static int first(int a)
{
	return a;
}

static struct group *
second(struct domain *sd,
       int a)
{
	if (a)
		first(a);
	return NULL;
}
EXPORT_SYMBOL(second);
int value;
DECLARE_EVENT_CLASS(wakeup,

	TP_PROTO(int a),

	TP_fast_assign(
		__entry->a = a;
	)
);

DEFINE_EVENT(wakeup, waking,
	TP_PROTO(int a));

DEFINE_EVENT_CONDITION(wakeup,
	woken,
	TP_PROTO(int a)
);
/* nothing */
SYSCALL_DEFINE3(setattr, pid_t, pid,
		int, flags)
{
	if (a)
		first(a);
}
"""


@pytest.mark.parametrize(
    ("number", "name", "lines"),
    [
        (1, "first", range(1, 5)),
        (3, "first", range(1, 5)),
        (11, "second", range(7, 14)),
        (8, "second", range(7, 14)),
        (15, "", range(0)),
        (21, "DECLARE_EVENT_CLASS(wakeup)", range(16, 24)),
        (26, "DEFINE_EVENT(wakeup, waking)", range(25, 32)),
        (30, "DEFINE_EVENT_CONDITION(wakeup, woken)", range(28, 32)),
        (32, "", range(0)),
        (34, "SYSCALL_DEFINE3(setattr)", range(33, 39)),
        (37, "SYSCALL_DEFINE3(setattr)", range(33, 39)),
    ],
)
def test_the_lines_of_a_function(number: int, name: str, lines: range) -> None:
    assert enclosing_function(HEADS, number) == name
    assert function_lines(HEADS, number) == lines


def test_a_macro_that_makes_a_function_is_written_with_its_name() -> None:
    names = [called(enclosing_function(HEADS, number)) for number in (3, 37)]
    assert names == ["first()", "SYSCALL_DEFINE3(setattr)"]
