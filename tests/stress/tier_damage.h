/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_damage.h: what the damage test knows: what each key of three stores holds, which tickets and
 * views are held, which tier files are damaged; and so what each call must answer.
 */
#ifndef TIER_DAMAGE_H
#define TIER_DAMAGE_H

#include <shmstore/inspect.h>
#include <shmstore/shmstore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "content.h"
#include "damage.h"

#define STORES    3
#define KEYS      16
#define TICKETS   8
#define VIEWS     4
#define LARGE_MAX (9u << 20)
#define RUN_PATH  600

struct slot {
	struct content content; /* seed 0: nothing */
	bool pinned;
};

struct ticket {
	struct shmstore_ticket ticket;
	struct content content;
	bool pinned;
};

struct held {
	struct shmstore_view *view;
	struct content content;
};

enum op {
	OP_PUT,
	OP_GET,
	OP_PEEK, /* get through a read-only handle */
	OP_PROMOTE,
	OP_PREFETCH,
	OP_DEMOTE,
	OP_EVICT,
	OP_DELETE,
	OP_HANDOFF,
	OP_ADOPT,
	OP_PIN,
	OP_HOLD,
	OP_GC,
	OP_REOPEN,
	N_OPS,
};
extern const char *const op_name[N_OPS];

struct options {
	uint64_t n, seed;
	unsigned megabytes;
	const char *disk;
};

struct run {
	const struct options *options;
	char path[256], files[512];
	struct shmstore_partition *p;
	struct shmstore *stores[STORES];
	struct slot slots[STORES][KEYS];
	struct ticket tickets[TICKETS];
	size_t n_tickets;
	struct held held[VIEWS];
	struct damage_book *book;
	uint64_t random, next_seed;
	uint64_t n_ops[N_OPS], n_done[N_DAMAGES], n_found[N_DAMAGES], n_aside, n_resident,
		n_rewritten;
	bool failed;
};

/* Where an object of a store is, as the names say. */
struct place {
	bool demoted, clean, resident;
	uint64_t id;              /* demoted or clean */
	enum damage_kind damaged; /* its tier file */
};

/* ---- what must be: tier_model.c ---- */

uint64_t run_draw(struct run *r, uint64_t n);
/* The first one is shown. -1. */
__attribute__((format(printf, 2, 3))) int run_fail(struct run *r, const char *format, ...);
size_t run_key(unsigned k, char ret[16]);
/* Where the name is. Returns ret. */
const char *run_path(const struct run *r, unsigned s, unsigned k, char ret[RUN_PATH]);
struct place run_look(struct run *r, unsigned s, unsigned k);
struct content run_new_content(struct run *r);
/* The answer that a call must give which needs the object's bytes. */
int run_expected(const struct run *r, unsigned s, unsigned k, const struct place *p);
/* Compares a call's answer with that, and a damage's report. 0, -1. */
int run_check(struct run *r, const char *what, unsigned s, unsigned k, const struct place *p,
	      int rc);
/* Prints where every name of this object is, for who has to find out why they differ. */
void run_show(struct run *r, const struct content *c);
/* Are the names in memory that have one tier file one file? */
bool run_one_file(struct run *r);
/*
 * Do all names and tickets of an object lead to one file? It may become two, each with a tier file
 * of its own: demoted by names in memory that know no good tier file of it, while other names are
 * stubs of a damaged one, or of one that only they know.
 */
bool run_is_one(struct run *r, const struct content *c);
bool run_leased(const struct run *r, const struct content *c);
/* Was it right to refuse an object of this size? */
bool run_refused(struct run *r, int rc, uint64_t size);

/* ---- what is done: tier_ops.c. 0, or -1 after run_fail() ---- */

enum op run_draw_op(struct run *r);
int run_op(struct run *r, enum op op);
/* flags: SHMSTORE_OPEN_FRESH: the kept store is to go with its next end. */
int run_open(struct run *r, unsigned s, unsigned flags);
int run_get(struct run *r, struct shmstore *handle, const char *what, unsigned s, unsigned k);
int run_demote(struct run *r, unsigned s, unsigned k);
int run_adopt(struct run *r, unsigned s, unsigned k);

#endif
