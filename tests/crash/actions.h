/* SPDX-License-Identifier: Apache-2.0 */
/* actions.h: what the tables of scenarios are made of: keys, contents, what is prepared
 * (setup_) and what is run (run_). */
#ifndef ACTIONS_H
#define ACTIONS_H

#include <string.h>

#include "scenario.h"

/* Keys too long for a file name: hashed names, with sidecars where the
 * object carries another key. */
#define X50   "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
#define X300  X50 X50 X50 X50 X50 X50
#define LONG1 "long-1-" X300
#define LONG2 "long-2-" X300

#define TINY(seed)          \
	{                   \
		(seed), 900 \
	}
#define MID(seed)              \
	{                      \
		(seed), 200000 \
	}
#define LARGE(seed)             \
	{                       \
		(seed), 3000000 \
	}
#define EMPTY(seed)       \
	{                 \
		(seed), 0 \
	}

#define LEASE_MS 300u

#define KEY(k) (k), strlen(k)

#define A_STAYS                   \
	{                         \
		VICTIM, "a", 1, 1 \
	}

/* Prepares: what fails is the scenario's message. */
void must(struct world *w, const char *what, int rc);
/* For the survivor to adopt in the end. */
void take_ticket(struct world *w, struct shmstore_ticket *t);

void setup_pool(struct world *w);
void setup_pool_tiny(struct world *w);
void setup_slots(struct world *w);
void setup_view_a(struct world *w);
void setup_writer(struct world *w);
void setup_handoff(struct world *w);
void setup_address(struct world *w);
void setup_long_alias(struct world *w);
void setup_renamed(struct world *w);
void setup_everything(struct world *w);
/* Small objects of which one in STRANDED_EVERY stays, each in a page of its own; and somebody
 * wants the store's memory. */
#define STRANDED       16384u
#define STRANDED_EVERY 32u
void setup_stranded(struct world *w);
void setup_reader(struct world *w); /* IS_READ: the survivor's handle knows the index of now */
int run_put(struct world *w);
int run_put_view(struct world *w);
int run_create_seal(struct world *w);
int run_create_abort(struct world *w);
int run_seal(struct world *w);
int run_get(struct world *w);
int run_handoff(struct world *w);
int run_adopt(struct world *w);
int run_delete(struct world *w);
int run_close(struct world *w);
int run_open(struct world *w);
int run_open_readonly(struct world *w);
int run_address(struct world *w);
int run_peer_find(struct world *w);
int run_gc(struct world *w);
int run_usage(struct world *w);
int run_list(struct world *w);
int run_list_dead(struct world *w); /* the three objects of DEAD, by a handle that can only read */
/* two objects of the survivor, and its list, by a handle that can only read */
int run_read(struct world *w);
int run_partition(struct world *w);

#endif
