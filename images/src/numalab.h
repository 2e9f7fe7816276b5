/* SPDX-License-Identifier: GPL-2.0-only */
/* What our programs share: how they fail, tell the time, read numbers, and mark the trace. */
#ifndef NUMALAB_H
#define NUMALAB_H

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MARKER "/sys/kernel/tracing/instances/lab/trace_marker"

__attribute__((noreturn, format(printf, 1, 2))) static inline void die(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	exit(1);
}

/* A whole decimal number within bounds, or the end of the program. */
static inline long parse_number(const char *what, const char *text, long least, long most)
{
	char *end;
	long number = strtol(text, &end, 10);

	if (end == text || *end || number < least || number > most)
		die("%s has to be %ld to %ld, not %s", what, least, most, text);
	return number;
}

/* Seconds, with a fraction, as nanoseconds. */
static inline int64_t parse_seconds(const char *text)
{
	char *end;
	double seconds = strtod(text, &end);

	if (end == text || *end || !(seconds > 0 && seconds <= 86400))
		die("a time has to be above 0 and at most 86400 seconds, not %s", text);
	return seconds * 1e9;
}

static inline int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static inline void sleep_ns(int64_t ns)
{
	struct timespec time = { ns / 1000000000, ns % 1000000000 };

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

/* Write a line into the trace. Without a recording there is nothing to mark, and no error; a
 * stopped one gives EBADF (tracing_mark_write()). */
static inline void mark(const char *text)
{
	int file = open(MARKER, O_WRONLY | O_CLOEXEC);

	if (file < 0)
		return;
	if (write(file, text, strlen(text)) < 0 && errno != EBADF)
		die("cannot write a trace marker: %s", strerror(errno));
	close(file);
}

/* A small random number generator (xorshift64*, Marsaglia and Vigna): the same on every host. */
static inline uint64_t random_next(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * 0x2545f4914f6cdd1dULL;
}

#endif
