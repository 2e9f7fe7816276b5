/*
 * Tables of numbers in files: a header of eight little-endian 64-bit numbers, and rows of such.
 *
 *   header   magic, version, columns, nodes, slice in ns, rows, rows left out, 0
 *
 * `rows` is 0 in a table that was not finished: then the file's size says it.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */
#ifndef NUMALAB_TABLE_H
#define NUMALAB_TABLE_H

#include "config.h"

enum { PS_OF_NS = 1000 };

struct table {
	FILE *file; /* NULL: nobody wants it */
	uint64_t columns, rows, left_out;
};

/* Writes the header; of a finished table once more, with its length. */
void table_header(struct table *table, const struct config *config, bool finished);
/* Empties a file; true without one. */
bool table_empty(FILE *file);
/* Appends a row of `columns` numbers, unless there are as many as there may be. */
void table_put(struct table *table, uint64_t max_rows, const uint64_t *row);

#endif
