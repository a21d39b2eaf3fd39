/* SPDX-License-Identifier: Apache-2.0 */
/* arb.h: what the subcommands of "shmstore-admin arb" share: its states, and the tables of contexts
 * and pools. */
#ifndef ARB_H
#define ARB_H

#include <stddef.h>

#include "admin.h"

struct json_object;

int cmd_arb_top(struct admin *a, int argc, char **argv);
int cmd_arb_inject(struct admin *a, int argc, char **argv);
int cmd_arb_cancel(struct admin *a, int argc, char **argv);
int cmd_arb_set(struct admin *a, int argc, char **argv);

/* The orders of contexts; the first one: who waits first, the longest first. */
#define ARB_N_ORDERS 5
extern const char *const arb_order_names[ARB_N_ORDERS];
/* A row of a command's options: which order, a size_t at off. */
#define ARB_SORT_ROW(off)                                                                     \
	{                                                                                     \
		"sort", 's', "COLUMN",                                                        \
			"state (default: who waits first), since, held, priority or store",   \
			OPTIONS_WORD, off, .words = arb_order_names, .n_words = ARB_N_ORDERS, \
	}

/* The contexts of a partition of the ARBITER document as a table. most: lines; 0 = all. narrow:
 * columns that may be left out are. Returns what was left out. */
size_t arb_print_contexts(const struct admin *a, const struct json_object *partition, size_t order,
			  size_t most, bool narrow);
/* Its pools, as "arb pools" and the head of "arb top" show them. */
void arb_print_pools(const struct admin *a, const struct json_object *partition, bool narrow);

#endif
