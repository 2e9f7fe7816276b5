"""Why a line of C has no code."""

import pytest

from numalab.reach.source_text import SourceText, parse_config

TEXT = """\
/* A comment
 * of two lines.
 */
#define TWICE(x) \\
	((x) * 2)

#ifdef CONFIG_SMP
int on_smp(void);
#else
int on_up(void);
#endif
#if defined(CONFIG_NUMA) && !defined(CONFIG_SMP)
int never(void);
#elif IS_ENABLED(CONFIG_NUMA)
int numa;
#endif
#if SOME_MACRO > 2
int unknown;
#endif
static int both(int a,
		int b)
{
	int sum; // comment
	sum = a +
		TWICE(b);
	if (a) /* ( */
		call("(;",
			b);
	return sum;
}
"""
SOURCE = SourceText(TEXT, parse_config("CONFIG_SMP=y\nCONFIG_NUMA=y\n# CONFIG_X is not set\n"))


@pytest.mark.parametrize(
    ("line", "reason", "out"),
    [
        (2, "comment", False),
        (4, "macro: its code belongs to the lines that use it", False),
        (5, "macro: its code belongs to the lines that use it", False),
        (6, "blank line", False),
        (7, "preprocessor directive", False),
        (8, "no instructions of its own", False),
        (10, "CONFIG_SMP is set", True),
        (13, "#if defined(CONFIG_NUMA) && !defined(CONFIG_SMP) is false", True),
        (15, "no instructions of its own", False),
        (18, "no instructions of its own", False),
        (23, "no instructions of its own", False),
    ],
)
def test_reason(line: int, reason: str, out: bool) -> None:
    why = SOURCE.reason(line)
    assert (why.text, why.compiled_out) == (reason, out)


@pytest.mark.parametrize(
    ("directive", "value", "reason"),
    [
        ("ifdef CONFIG_A", "m", "CONFIG_A is a module"),
        ("if defined(CONFIG_A)", "m", "CONFIG_A is a module"),
        ("if IS_BUILTIN(CONFIG_A)", "m", "CONFIG_A is a module"),
        ("if IS_ENABLED(CONFIG_A)", "m", None),
        ("if !IS_ENABLED(CONFIG_A)", "m", "CONFIG_A is a module"),
        ("ifndef CONFIG_A", "m", None),
        ("ifdef CONFIG_A_MODULE", "m", None),
        ("ifndef CONFIG_A_MODULE", "m", "CONFIG_A_MODULE is set"),
        ("ifdef CONFIG_A_MODULE", "y", "CONFIG_A_MODULE is not set"),
        ("ifdef CONFIG_A", "y", None),
        ("ifdef CONFIG_A", "300", None),
        ("if IS_BUILTIN(CONFIG_A)", "y", None),
        ("if IS_ENABLED(CONFIG_A)", "y", None),
        ("ifndef CONFIG_A", "y", "CONFIG_A is set"),
    ],
)
def test_a_module_is_not_part_of_the_kernel(directive: str, value: str, reason: str | None) -> None:
    why = SourceText(f"#{directive}\nint a;\n#endif\n", {"A": value}).reason(2)
    assert (why.text if why.compiled_out else None) == reason


@pytest.mark.parametrize("begin", ["", "#define TEXT \\\n"])
def test_a_string_of_two_lines_has_two_lines(begin: str) -> None:
    source, last = SourceText(f'{begin}"x\\\ny"\n/* comment */\nint b;\n', {}), 4 + bool(begin)
    assert [source.code(at) for at in (last - 1, last)] == ["", "int b;"]
    assert source.reason(last - 1).text == "comment"
    assert source.reason(last - 2) == source.reason(last - 3), "a macro goes on, too"


def test_both_lines_of_a_string_are_left_out() -> None:
    source = SourceText('#ifdef CONFIG_A\nchar *a = "x\\\ny";\n#endif\nint b;\n', {})
    out = [source.reason(line).compiled_out for line in range(1, 6)]
    assert out == [False, True, True, False, False]


@pytest.mark.parametrize(
    ("line", "rest"),
    [(20, (21, 22)), (21, (20, 22)), (25, (24,)), (24, (25,)), (28, (27,)), (29, ()), (30, ())],
)
def test_a_continued_line_belongs_to_its_statement(line: int, rest: tuple[int, ...]) -> None:
    assert SOURCE.statement(line) == rest


GUARDS = """\
	if (mode &&
		!node_is_toptier(src) && !valid(last))
		return false;
	for (i = 0; i < n;
			i++)
		*p = first(a)
			+ second(b);
	list_for_each(p, head)
		++n;
	else if (a)
		return call(a,
				b);
	case 3:
		x = y;
"""


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        (1, (2,)), (2, (1,)), (3, ()), (4, (5,)), (5, (4,)), (6, (7,)), (7, (6,)), (8, ()),
        (9, ()), (10, ()), (11, (12,)), (12, (11,)), (14, ()),
    ],
)  # fmt: skip
def test_the_body_of_a_condition_is_another_statement(line: int, rest: tuple[int, ...]) -> None:
    """Else a body that never ran would have the count of its condition."""
    assert SourceText(GUARDS, {}).statement(line) == rest


BODIES = """\
	if (a &&
		b)
		return 1;
	if (c) {
		goto out;
	}
	if (d) {
		x = 1;
		return 2;
	}
	else if (e)
		break;
#ifdef X
	while (f)
		continue;
	if (g)
		y = 1;
	if (h) {
		return 1;
		z = 2;
	}
"""


@pytest.mark.parametrize(
    ("line", "head", "behind"),
    [
        (3, (1, 2), (4,)), (5, (4,), (7,)), (9, (), (11,)), (12, (11,), ()), (15, (), (16,)),
        (17, (), (18,)), (19, (), (20,)),
    ],
)  # fmt: skip
def test_a_body_that_leaves_has_a_condition(
    line: int, head: tuple[int, ...], behind: tuple[int, ...]
) -> None:
    source = SourceText(BODIES, {})
    assert (source.guard(line), source.after_guard(line)) == (head, behind)


STRAIGHT = """\
	do {
		if (a)
			return 1;
		int b;
		c = call(a,
			b);
	} while (c);
	if (a)
		continue;
	call();
	call();
out:
	call();
	if (b) {
		goto out;
	}
	call();
	if (c)
		call();
	for (;;) {
		if (d)
			break;
	}
	call();
"""


@pytest.mark.parametrize(
    ("line", "behind"), [(3, (4, 5, 6)), (9, (10, 11)), (15, (17, 18)), (22, (23,))]
)
def test_the_way_around_a_body_leads_to_all_that_runs_in_any_case(
    line: int, behind: tuple[int, ...]
) -> None:
    """The next statement may have no instruction, such as rcu_read_lock()."""
    assert SourceText(STRAIGHT, {}).after_guard(line) == behind


ENDS = """\
static ssize_t reset(struct file *file,
		size_t count)
{
	static atomic_t turn = ATOMIC_INIT(0);
	struct task_struct *g, *p __maybe_unused;
	unsigned long sizes[A + 1], size = A *
		sizeof_all * B;
	static const char *const names[] = {
		"a",
	};
	if (a) {
		int b = 1;

		call(a,
			b); /* why */
		return -EAGAIN;
	}
	if (b)
		call();
	return 0;
	if (c) {
		call();
out:
		goto done;
	}
	for (;;) {
		a++;
		break;
		else
			call();
		continue;
		WARN_ON_ONCE(IS_ENABLED(A) && b);
		return ret;
		call();
		return call(a);
		int c;
		return;
#ifdef A
		call();
#endif
		return;
		return;
	}
}
static void plain(void)
{
	a = b ? c :
		d;
	return a;
	default:
	call();
	return;
	static_branch_enable(&a);
	goto out;
	a * b = c;
}
static inline int one(void) { int a = 1; return a; }
"""


@pytest.mark.parametrize(
    ("line", "before"),
    [
        (16, (14, 15)), (20, ()), (24, ()), (28, (27,)), (31, ()), (33, ()), (35, ()), (37, ()),
        (41, ()), (42, ()), (27, ()), (49, ()), (52, (51,)), (54, (53,)),
    ],
)  # fmt: skip
def test_the_statement_that_runs_before_a_line_that_leaves(
    line: int, before: tuple[int, ...]
) -> None:
    """No way leads around it: no condition, label or directive is between them."""
    assert SourceText(ENDS, {}).statement_before(line) == before


def test_what_has_no_code_of_its_own() -> None:
    """gcc has beginnings of statements for declarations; their address is that of other code."""
    source = SourceText(ENDS, {})
    lines = [line for line in (*range(1, 21), *range(45, 58)) if not source.can_run(line)]
    assert lines == [2, 3, 4, 5, 8, 46]
    assert [source.head(line) for line in (1, 2, 4)] == [(1, 2, 3), (1, 2, 3), ()]


def test_options_that_are_not_set_leave_lines_out() -> None:
    source = SourceText("#ifdef CONFIG_SCHED_CORE\nint a;\n#endif\n", {})
    assert source.reason(2).text == "CONFIG_SCHED_CORE is not set"


@pytest.mark.parametrize("text", ["#if ((((", "#if && ||", "#if defined", "#endif\n#else", "#if"])
def test_a_broken_directive_is_unknown(text: str) -> None:
    assert not SourceText(f"{text}\nint a;\n", {}).reason(2).compiled_out


EVENT = """\
TRACE_EVENT(first,
	TP_PROTO(int a),
	TP_STRUCT__entry(
		__array(char, comm, 16)
	),
	TP_printk("(%s", __entry->comm) /* ( */
);
SYSCALL_DEFINE2(call, int, a,
		int, b)
{
	struct level level = {
		.mask = a,
		.flags = (struct flags){
			.numa = b,
		},
#ifdef X
		.name = "}",

#endif
	};
	if (a) {
		list[i++] = (struct level){ .mask = 1,
			.numa = b };
	}
	for (;;) {
		call(a,
			b);
	}
	return a;
}
"""


@pytest.mark.parametrize(
    ("line", "rest"),
    [
        (2, ()), (4, ()), (6, ()), (12, (13, 11)), (13, (12, 11)), (14, (13, 12, 11)), (15, (14,)),
        (17, (11,)), (18, ()), (19, ()), (20, ()), (23, (22,)), (26, (27,)), (27, (26,)), (29, ()),
    ],
)  # fmt: skip
def test_a_line_without_code_is_part_of_its_statement(line: int, rest: tuple[int, ...]) -> None:
    """Of an initializer, too; not of the call of a macro that makes an event."""
    assert SourceText(EVENT, {}).whole(line) == rest


def test_the_code_of_an_event_belongs_to_its_first_line() -> None:
    source = SourceText(EVENT, {})
    reasons = [source.reason(line).text for line in (1, 2, 5, 6, 7, 12)]
    none, first = "no instructions of its own", "its code belongs to line 1, which calls the macro"
    assert reasons == [none, first, first, first, first, none]


OFF = """\
void run(void)
{
	if (IS_ENABLED(CONFIG_A) && (a <
		b))
		call(1,
			2);
	else
		call(3);
	if (a) {
		call(4);
	} else if (IS_ENABLED(CONFIG_A)) {
		for (;;) {
			/* why */
			call(5);
		}
	} else {
		call(6);
	}
	if (!IS_ENABLED(CONFIG_B))
		while (a)
			call(7);
	if (IS_ENABLED(CONFIG_A) || b)
		call(8);
	if (IS_ENABLED(CONFIG_B)) {
		call(9);
	}
	if (0)
		call(10);
	if (!(a && IS_ENABLED(CONFIG_A) && b)) {
		call(11);
	}
}
void after(void)
{
	call(12);
}
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (3, ""), (5, "CONFIG_A is not set"), (6, "CONFIG_A is not set"), (8, ""), (10, ""),
        (11, ""), (12, "CONFIG_A is not set"), (13, "comment"), (14, "CONFIG_A is not set"),
        (15, "CONFIG_A is not set"), (16, ""), (17, ""), (20, "CONFIG_B is set"),
        (21, "CONFIG_B is set"), (23, ""), (25, ""), (28, ""), (30, ""), (35, ""),
    ],
)  # fmt: skip
def test_the_configuration_leaves_out_the_body_of_a_condition(line: int, reason: str) -> None:
    why = SourceText(OFF, {"B": "y"}).reason(line)
    assert why.compiled_out is reason.startswith("CONFIG_")
    assert why.text == (reason or "no instructions of its own")
