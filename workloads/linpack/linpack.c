// SPDX-License-Identifier: GPL-2.0-only
/*
 * linpack THREADS N MOVED: solves a dense system of N linear equations, as Linpack does.
 *
 * LU factorisation with partial pivoting, blocked and right-looking: one thread factors a panel of
 * columns, then all threads bring the rest up to date, each its own blocks of columns (dealt out
 * like cards), and so on; between the steps they wait for each other. Each thread is the first to
 * write its columns; with MOVED above 0 it does so on the CPU of its number, is moved on by so many
 * CPUs, and from there on may run anywhere. The matrix is random, the same for the same N, and
 * stored by columns, with the right-hand side as a last column.
 *
 * Prints the time, Gflop/s counted as HPL counts (2/3 N^3 + 3/2 N^2), and HPL's scaled residual,
 * which has to be below 16.
 */
#define _GNU_SOURCE
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "shared.h"

#define BLOCK 16 /* columns of a panel */
#define MAX_THREADS 1024

static double *matrix; /* n + 1 columns of n */
static long n;
static int *pivots; /* the row that step i exchanged with row i */
static int thread_count, singular;
static pthread_barrier_t barrier;
static struct migration migration;

static double *column(long j)
{
	return matrix + j * n;
}

static double element(uint64_t *state)
{
	return (random_next(state) >> 11) / 9007199254740992.0 - 0.5;
}

static void fill_column(long j, double *target)
{
	uint64_t state = j + 1;

	for (long i = 0; i < n; i++)
		target[i] = element(&state);
}

static int owner(long j)
{
	return j / BLOCK % thread_count;
}

static void exchange(double *data, long i, long j)
{
	double kept = data[i];

	data[i] = data[j];
	data[j] = kept;
}

static void factor_panel(long first, long last)
{
	for (long k = first; k < last; k++) {
		double *pivot_column = column(k);
		long pivot = k;

		for (long i = k + 1; i < n; i++)
			if (fabs(pivot_column[i]) > fabs(pivot_column[pivot]))
				pivot = i;
		pivots[k] = pivot;
		if (pivot_column[pivot] == 0)
			singular = 1;
		for (long j = first; j < last; j++)
			exchange(column(j), k, pivot);
		for (long i = k + 1; i < n; i++)
			pivot_column[i] /= pivot_column[k];
		for (long j = k + 1; j < last; j++) {
			double *here = column(j), factor = here[k];

			for (long i = k + 1; i < n; i++)
				here[i] -= factor * pivot_column[i];
		}
	}
}

static void update_column(double *here, long first, long last)
{
	for (long k = first; k < last; k++)
		exchange(here, k, pivots[k]);
	for (long k = first; k < last; k++) {
		double *left = column(k), factor = here[k];

		for (long i = k + 1; i < n; i++)
			here[i] -= factor * left[i];
	}
}

static void *solve(void *argument)
{
	int number = (intptr_t)argument;

	prctl(PR_SET_NAME, "linpack");
	before_first_touch(&migration, number);
	for (long j = 0; j <= n; j++)
		if (owner(j) == number)
			fill_column(j, column(j));
	after_first_touch(&migration, number);
	for (long first = 0; first < n; first += BLOCK) {
		long last = first + BLOCK < n ? first + BLOCK : n;

		pthread_barrier_wait(&barrier);
		if (owner(first) == number)
			factor_panel(first, last);
		pthread_barrier_wait(&barrier);
		for (long j = last; j <= n; j++)
			if (owner(j) == number)
				update_column(column(j), first, last);
	}
	return NULL;
}

/* The last column is L^-1 P b by now; what is left of the solution is U x = that. */
static void substitute_back(double *x)
{
	memcpy(x, column(n), n * sizeof(*x));
	for (long k = n - 1; k >= 0; k--) {
		x[k] /= column(k)[k];
		for (long i = 0; i < k; i++)
			x[i] -= x[k] * column(k)[i];
	}
}

static double largest(const double *values)
{
	double most = 0;

	for (long i = 0; i < n; i++)
		most = fmax(most, fabs(values[i]));
	return most;
}

/* ||Ax - b|| / (eps (||A|| ||x|| + ||b||) n), all of them infinity norms (HPL_pdtest.c). */
static double scaled_residual(const double *x)
{
	double *difference = calloc(n, sizeof(double)), *rows = calloc(n, sizeof(double));
	double *values = calloc(n, sizeof(double));
	double of_b;

	if (!difference || !rows || !values)
		die("no memory");
	for (long j = 0; j < n; j++) {
		fill_column(j, values);
		for (long i = 0; i < n; i++) {
			difference[i] += values[i] * x[j];
			rows[i] += fabs(values[i]);
		}
	}
	fill_column(n, values);
	of_b = largest(values);
	for (long i = 0; i < n; i++)
		difference[i] -= values[i];
	return largest(difference) / (DBL_EPSILON * (largest(rows) * largest(x) + of_b) * n);
}

int main(int argc, char **argv)
{
	pthread_t threads[MAX_THREADS];
	double *x, seconds, residual;
	int64_t began;

	if (argc != 4)
		die("usage: linpack THREADS N MOVED");
	thread_count = parse_number("the number of threads", argv[1], 1, MAX_THREADS);
	n = parse_number("N", argv[2], 2, 100000);
	migration = parse_migration(argv[3]);
	matrix = mmap(NULL, n * (n + 1) * sizeof(double), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pivots = calloc(n, sizeof(*pivots));
	x = calloc(n, sizeof(*x));
	if (matrix == MAP_FAILED || !pivots || !x)
		die("no memory");
	pthread_barrier_init(&barrier, NULL, thread_count);
	mark("numalab: begin");
	began = now();
	for (long i = 0; i < thread_count; i++)
		if (pthread_create(threads + i, NULL, solve, (void *)(intptr_t)i))
			die("cannot start thread %ld", i);
	for (int i = 0; i < thread_count; i++)
		pthread_join(threads[i], NULL);
	substitute_back(x);
	seconds = (now() - began) / 1e9;
	mark("numalab: end");
	residual = singular ? INFINITY : scaled_residual(x);
	printf("linpack n %ld threads %d seconds %.3f gflops %.6f residual %.6f\n", n, thread_count,
	       seconds, (2.0 / 3 * n * n * n + 1.5 * n * n) / seconds / 1e9, residual);
	if (!(residual < 16))
		die("the solution is wrong");
	return 0;
}
