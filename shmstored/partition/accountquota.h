/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accountquota.h: the limits of one partition under watch: between the pure quota.h, and the
 * pages, connections, events and surveys of its account. Loop's thread only. Nothing of it
 * blocks, but for one fstatvfs().
 */
#ifndef ACCOUNTQUOTA_H
#define ACCOUNTQUOTA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "account.h"
#include "quota.h"

struct conn;

/* a->host, a->config, a->path and a->fd are set; no member is there yet. Makes a->quota with the
 * configured limits. 0, -errno. */
int accountquota_open(struct account *a);
/* No member is there any more. Idempotent. */
void accountquota_close(struct account *a);
/* a->config was replaced: its limits and watermarks take the place of the earlier configuration's
 * (NULL: there was none); limits set at run time stay. */
int accountquota_reload(struct account *a, const struct config_partition *before);

/* It died or closed. Its page is still mapped; clears m->quota. Before a reap
 * of it starts. Idempotent. */
void accountquota_remove(struct member *m);
/* At the daemon's start a scan found the store of a dead owner at path. bytes: what its ledger says
 * that it takes, linked + pool. */
void accountquota_left(struct account *a, const char *path, uid_t uid, const char *label,
		       uint64_t bytes);
/*
 * A reap freed so much of what that dead store had (struct shmstore_gc_report.freed). books:
 * quota_books() of the time when it was submitted: a survey that ends meanwhile may
 * have seen these files, or not.
 */
void accountquota_freed(struct account *a, uint64_t books, uid_t uid, const char *label,
			uint64_t bytes);

/* Each second, after a->tick is read. */
void accountquota_tick(struct account *a);
/* Memory may have come free: waiting requests are looked at again. Cheap; as often as you like. */
void accountquota_room(struct account *a);

/*
 * Asks stores for their recycled files, of the largest pool first, until these are bytes; 0: not
 * any more. A store's request from the limits replaces it.
 */
void accountquota_ask_recycled(struct account *a, uint64_t bytes);

/* A survey is published (NULL: it failed). */
void accountquota_surveyed(struct account *a, const struct survey *survey);

/*
 * A limit at run time: "[PARTITION ]KEY=VALUE". PARTITION may be left out where there is one
 * only. KEY: limit, soft, user.UID.limit, user.UID.soft (UID: a number, a name or *),
 * label.NAME.limit, label.NAME.soft, store.NAME.limit, store.NAME.soft. VALUE: a size as in
 * shmstored.conf(5) ("4GiB"; "50%" for the partition's), "none", or "default" (what * says; for
 * the partition what was configured). Emits EVENT_LIMIT_SET. 0; -EINVAL, -ENOENT (no such
 * partition), -ENOMEM with a sentence in ret_reason.
 */
int accountquota_set(struct host *h, const char *assignment, char *ret_reason, size_t size);

/* ---- what its files share, and the requests for credit ------------------------------------ */

struct accountquota {
	struct account *account;
	struct quota_limits partition; /* as configured or set; the watermarks are not in it */
	struct quota_limits applied;   /* with them */
	struct loop_op timer;
	struct account_wait survey; /* that we asked for */
	bool look_again; /* requests came meanwhile that wait for one which begins after them */
};

/* The partition's limits and watermarks, where they changed or its size did. */
int accountquota_apply_partition(struct accountquota *k);

/* Has a part that puts could wait for no room on its disk? */
bool accountquota_disk_full(const struct account *a);
/* As quota_request(), of a registered member. */
int accountquota_request(struct member *m, const struct quota_want *want, struct quota_answer *ret);
/* A request that waited has ended. */
void accountquota_answer(struct member *m, uint64_t serial, int error,
			 const struct quota_answer *a);
/* REFUSED, with a sentence that says which limit, how much of it is used, and who
 * can help. As conn_send(). */
int accountquota_refuse(struct account *a, struct conn *c, uint64_t serial, int error,
			const struct quota_answer *why);

#endif
