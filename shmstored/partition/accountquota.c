/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accountquota.c: carries out what the quota decides, and tells it what happened.
 *
 * While somebody waits, the kernel is asked every POLL_NS whether there is room: a delete in
 * another process tells nobody. Between surveys the use of users and labels is an upper bound; a
 * survey that would free room (quota_stale()) is asked for, but never so often that surveys take
 * more than a tenth of the time.
 *
 * A restarted job must not be refused for its killed predecessor's bytes: where somebody died since
 * the last survey, a request that a limit refuses waits for one that is made right then, for less
 * than its client waits for an answer.
 */

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "account.h"
#include "config.h"
#include "conn.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "member.h"

#define WAITS_MAX   16u        /* threads of one process that may wait */
#define PLEDGE_NS   1000000000 /* a store that got what it needs has so long to use it */
#define POLL_NS     10000000   /* between looks for room while somebody waits */
#define LOOK_NS     800000000  /* a client waits a second for an answer (request.c) */
#define SURVEY_REST 10u        /* times its duration, until the next survey for the quota's sake */

/* ---- what the quota asks of us ---- */

static uint64_t kernel_most(void *arg)
{
	const struct accountquota *k = arg;
	struct statvfs fs;

	if (fstatvfs(k->account->fd, &fs) < 0 || !fs.f_blocks)
		return UINT64_MAX;
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

/* A file system without a limit says nothing: then what the ledgers said last. */
static uint64_t kernel_used(void *arg)
{
	const struct account_tick *t = &((struct accountquota *)arg)->account->tick;
	uint64_t used = kernel_most(arg);

	return used < UINT64_MAX ? used : t->size ? t->used : t->linked + t->pool + t->reserved;
}

static struct wire_credit *member_credit(UNUSED void *arg, struct quota_store *s)
{
	const struct member *m = quota_user(s);

	return m->credit;
}

static void member_share(UNUSED void *arg, struct quota_store *s, struct quota_share *ret)
{
	const struct member *m = quota_user(s);

	*ret = (struct quota_share){m->last.linked_bytes, m->last.pool_bytes,
				    m->last.reserved_bytes};
}

static void answer(UNUSED void *arg, struct quota_store *s, uint64_t serial, int error,
		   const struct quota_answer *a)
{
	const struct member *m = quota_user(s);
	struct wire_granted granted = {.granted = a->granted, .bytes = a->bytes};

	if (m->conn && error)
		accountquota_refuse(m->account, m->conn, serial, error, a);
	else if (m->conn)
		conn_send(m->conn, WIRE_GRANTED, serial, &granted, NULL, 0);
}

static void ask(UNUSED void *arg, struct quota_store *s, uint64_t bytes)
{
	struct member *m = quota_user(s);
	struct wire_ask body = {.bytes = bytes};

	m->asked_bytes = bytes;
	atomic_store_explicit(&m->credit->asked_bytes, bytes, memory_order_relaxed);
	/* Release: a reader of the number (acquire, shms_credit_tend()) sees the bytes. */
	atomic_fetch_add_explicit(&m->credit->asked_n, 1, memory_order_release);
	if (m->conn)
		conn_send(m->conn, WIRE_ASK, 0, &body, NULL, 0);
}

static void level(void *arg, const struct quota_line *line)
{
	struct accountquota *k = arg;
	struct json_object *o;
	char key[QUOTA_ID_MAX + 32];

	/* Back from refusals where no soft limit is set: nothing was crossed. */
	if (line->level == 0 && !line->soft)
		return;
	o = account_json(k->account);
	jsonmake_text(o, "kind", quota_kind_name(line->kind));
	fields_of(o, line, SAME(id), SAME(used), SAME(outstanding), SAME(hard), SAME(soft));
	if (line->level == 2)
		jsonmake_u64(o, "waiting", line->n_waiting);
	else
		jsonmake_text(o, "direction", line->level ? "up" : "down");
	snprintf(key, sizeof(key), "%s %s %d", quota_kind_name(line->kind), line->id, line->level);
	events_emit(k->account->host->events,
		    line->level == 2 ? EVENT_QUOTA_REFUSED : EVENT_WATERMARK, key, o);
}

static void liar(void *arg, struct quota_store *s, const char *what)
{
	struct accountquota *k = arg;
	const struct member *m = quota_user(s);
	struct json_object *o;

	if (member_is_taken_over(m)) {
		reaper_look(k->account, m->path);
		return;
	}
	o = jsonmake_new();
	log_say(LOG_WARNING, LOG_FIELDS(.object = m->path),
		"the totals in this store's page do not add up (%s): it is granted no more credit",
		what);
	fields_of(o, m, FIELD(path, "store"), SAME(pid), SAME(uid));
	jsonmake_text(o, "what", what);
	events_emit(k->account->host->events, EVENT_LIAR, m->path, o);
}

static bool spill(void *arg, uint64_t bytes)
{
	const struct accountquota *k = arg;

	return PART_ANY(k->account, spill, k->account, bytes);
}

static bool disk_full(void *arg)
{
	const struct account *a = ((const struct accountquota *)arg)->account;

	return PART_ANY(a, disk_full, a);
}

static uint64_t now(const struct accountquota *k)
{
	return loop_now(k->account->host->loop);
}

/* ---- the account's life ---- */

static void wake(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct accountquota *k = CONTAINER_OF(op, accountquota, timer);

	if (result != -ECANCELED)
		accountquota_room(k->account);
}

/* While somebody waits, we look again soon. */
static void arm(struct accountquota *k)
{
	uint64_t deadline = quota_deadline(k->account->quota), soon = now(k) + POLL_NS;

	if (deadline == UINT64_MAX || k->timer.busy)
		return;
	loop_timer(k->account->host->loop, &k->timer, deadline < soon ? deadline : soon, 0);
}

static void survey_done(struct account_wait *w, const struct survey *survey, int error)
{
	struct accountquota *k = CONTAINER_OF(w, accountquota, survey);

	w->not_before_ns = now(k) + (survey ? SURVEY_REST * survey->cost_ns : 0);
	if (error == -ECANCELED)
		return;
	if (k->look_again) {
		k->look_again = false;
		(void)account_survey(k->account, w);
	} else {
		quota_looked(k->account->quota, now(k));
	}
}

int accountquota_open(struct account *a)
{
	const struct config *c = a->host->config;
	const struct createqueue_config puts = {
		.mode = a->config->queue == CONFIG_QUEUE_HOST ? CREATEQUEUE_HOST
							      : CREATEQUEUE_FIRST,
		.grace = a->config->queue_grace_ns ? a->config->queue_grace_ns : UINT64_MAX,
		.per_client = a->config->queue_per_store,
		.max_bypass = a->config->queue_max_bypass,
	};
	const struct quota_config config = {
		.epoch = a->host->epoch,
		.credit = c->credit,
		.idle_ns = c->credit_idle_ns,
		.pledge_ns = PLEDGE_NS,
		.waits_max = WAITS_MAX,
		.puts = a->config->queue == CONFIG_QUEUE_LIMITS ? NULL : &puts,
	};
	struct accountquota *k = calloc(1, sizeof(*k));
	struct quota_ops ops = {kernel_used, member_credit, member_share, answer,
				ask,         level,         liar,         k,
				kernel_most, spill,         disk_full};
	int r;

	if (!k)
		return -ENOMEM;
	k->account = a;
	k->timer.fn = wake;
	k->survey.fn = survey_done;
	k->partition = k->applied = (struct quota_limits){QUOTA_DEFAULT, QUOTA_DEFAULT, 0};
	r = quota_new(&config, &ops, &a->quota);
	if (r < 0) {
		free(k);
		return r;
	}
	a->accountquota = k;
	r = accountquota_reload(a, NULL);
	if (r < 0)
		accountquota_close(a);
	return r;
}

void accountquota_close(struct account *a)
{
	struct accountquota *k = a->accountquota;

	if (!k)
		return;
	account_survey_cancel(a, &k->survey);
	a->quota = quota_free(a->quota);
	a->accountquota = NULL;
	loop_release(a->host->loop, &k->timer, k);
}

void accountquota_remove(struct member *m)
{
	struct quota_store *s = m->quota;

	if (!s)
		return;
	m->quota = NULL;
	/* At our end it goes on without us, and by what its page says. */
	if (m->account->closing)
		quota_forget(m->account->quota, s);
	else
		quota_remove(m->account->quota, s, now(m->account->accountquota));
}

void accountquota_left(struct account *a, const char *path, uid_t uid, const char *label,
		       uint64_t bytes)
{
	struct wire_credit c; /* a copy of its page's */
	int fd = pages_open(path);
	bool whole = fd >= 0 && pread(fd, &c, sizeof(c), WIRE_CREDIT_OFF) == (ssize_t)sizeof(c);

	if (fd >= 0)
		close(fd);
	quota_found(a->quota, uid, label ? label : "", bytes, whole ? &c : NULL);
}

void accountquota_freed(struct account *a, uint64_t books, uid_t uid, const char *label,
			uint64_t bytes)
{
	quota_freed(a->quota, books, uid, label ? label : "", bytes, now(a->accountquota));
	arm(a->accountquota);
}

/* ---- surveys ---- */

void accountquota_surveyed(struct account *a, const struct survey *survey)
{
	struct survey_label *labels = NULL;
	size_t n_labels = 0;

	if (!survey || survey_labels(survey, NULL, NULL, &labels, &n_labels) < 0) {
		quota_unmark(a->quota);
		return;
	}
	for (size_t i = 0; i < survey->n_users; i++) {
		const struct shmstore_user_books *b = &survey->users[i].books;
		char id[16];

		snprintf(id, sizeof(id), "%u", survey->users[i].uid);
		quota_rebase(a->quota, WIRE_LIMIT_USER, id,
			     b->linked + b->pool + b->ghosts + b->inflight);
	}
	for (size_t i = 0; i < n_labels; i++)
		quota_rebase(a->quota, WIRE_LIMIT_LABEL, labels[i].label,
			     labels[i].pss + labels[i].pool);
	free(labels);
	quota_rebased(a->quota, now(a->accountquota));
}

/* ---- time ---- */

void accountquota_tick(struct account *a)
{
	struct accountquota *k = a->accountquota;

	accountquota_apply_partition(k); /* its size may have changed */
	quota_tick(a->quota, now(k));
	if (quota_stale(a->quota))
		account_survey_seldom(a, &k->survey);
	arm(k);
}

void accountquota_room(struct account *a)
{
	struct accountquota *k = a->accountquota;

	quota_serve(a->quota, now(k));
	arm(k);
}

/* ---- for the arbiter ---- */

#define ASK_MOST 16 /* stores at a time */

/* The one with most that was not asked in this round. */
static struct member *largest_pool(struct account *a)
{
	struct member *found = NULL;

	for (struct member *m = a->members; m; m = m->next) {
		if (m->conn && m->credit && m->quota && !m->asked_bytes && m->last.pool_bytes &&
		    (!found || m->last.pool_bytes > found->last.pool_bytes))
			found = m;
	}
	return found;
}

void accountquota_ask_recycled(struct account *a, uint64_t bytes)
{
	struct accountquota *k = a->accountquota;
	struct member *m;

	for (m = bytes ? NULL : a->members; m; m = m->next) {
		if (m->asked_recycled && m->quota)
			ask(k, m->quota, 0);
		m->asked_recycled = false;
	}
	for (int i = 0; bytes && i < ASK_MOST && (m = largest_pool(a)) != NULL; i++) {
		uint64_t part = m->last.pool_bytes < bytes ? m->last.pool_bytes : bytes;

		m->asked_recycled = true;
		ask(k, m->quota, part);
		bytes -= part;
	}
}

/* ---- requests ---- */

/* Did somebody just die, whose end the loop has not seen yet? */
static bool anybody_ended(struct account *a)
{
	bool any = false;

	for (struct member *m = a->members; m; m = m->next) {
		struct pollfd p = {.fd = m->pidfd, .events = POLLIN};

		/* The lock tells what becomes of the store. */
		if (m->quota && m->pidfd >= 0 && poll(&p, 1, 0) == 1) {
			reaper_look(a, m->path);
			any = true;
		}
	}
	return any;
}

int accountquota_request(struct member *m, const struct quota_want *want, struct quota_answer *ret)
{
	struct account *a = m->account;
	struct accountquota *k = a->accountquota;
	struct quota_want look = *want;
	int r;

	r = quota_request(a->quota, m->quota, want, now(k), ret);
	if ((r == -ENOSPC || r == -EDQUOT) &&
	    (quota_unsure(a->quota) || reaper_busy(a) || anybody_ended(a))) {
		look.look = true;
		look.deadline_ns = now(k) + LOOK_NS;
		r = quota_request(a->quota, m->quota, &look, now(k), ret);
		k->look_again |= r == 1 && k->survey.waits;
		if (r == 1 && !k->survey.waits)
			(void)account_survey(a, &k->survey);
	}
	arm(k);
	return r;
}
