/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.h: from a checked packet to its handler, by wire.def. Handlers are in
 * req_<name>.c and know no io_uring. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "conn.h"
#include "profile.h"
#include "wire.h"

/* One packet of n bytes. Returns a conn_outcome or <0 (fatal). */
int dispatch(struct conn *c, const void *packet, size_t n);

/*
 * The handlers, one for each message from a client. body is the struct wire_<name>, a
 * private aligned copy; tail is NUL-terminated text of tail_size bytes, valid during
 * the call. Return as dispatch().
 */
#define DISPATCH_HANDLER(name)                                                         \
	int req_##name(struct conn *c, UNUSED uint64_t serial,                         \
		       UNUSED const struct wire_##name *body, UNUSED const char *tail, \
		       UNUSED size_t tail_size)
DISPATCH_HANDLER(hello);
DISPATCH_HANDLER(ping);
DISPATCH_HANDLER(register);
DISPATCH_HANDLER(grant);
DISPATCH_HANDLER(cancel);
DISPATCH_HANDLER(broker);
DISPATCH_HANDLER(bye);
DISPATCH_HANDLER(query);
DISPATCH_HANDLER(watch);
DISPATCH_HANDLER(set);
DISPATCH_HANDLER(reap);
DISPATCH_HANDLER(arb);
DISPATCH_HANDLER(arb_admin);
DISPATCH_HANDLER(profile);
DISPATCH_HANDLER(profile_admin);
DISPATCH_HANDLER(stage_query);
DISPATCH_HANDLER(stage_begin);
DISPATCH_HANDLER(stage_end);
DISPATCH_HANDLER(task_admit);
DISPATCH_HANDLER(task_done);
DISPATCH_HANDLER(task_runs);
DISPATCH_HANDLER(actor_place);
DISPATCH_HANDLER(actor_born);
DISPATCH_HANDLER(actor_next);
DISPATCH_HANDLER(actor_done);
DISPATCH_HANDLER(actor_call);
DISPATCH_HANDLER(actor_move);

/* The name of a kind of tasks, as requests have it in their tail. */
#define PROFILENAME_WRONG                                                                          \
	"a kind of tasks is a language, a function and a group, each of 255 bytes at most and in " \
	"a line of its "                                                                           \
	"own; only the group may be empty"

/* "LANG\nFUNC\nGROUP", cut in place, where ret points to. False: it is none. */
bool profilename_cut(char *text, struct profile_name *ret);

#endif
