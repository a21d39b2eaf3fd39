/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reaper.c: one struct reap for each path that may be dead, from the first sign until
 * nothing is left to do there.
 *
 *   look ──> lives ──> look again in 1, 2, 4 … ms for a moment, where its process is dead
 *   for some seconds; then forget
 *     |
 *     └───> dead ───> a worker reaps it ──> forget, or sleep until the first lease
 *     that stays ends, then look again
 *
 * The lock says which store is dead, here for the books (the credit of a dead store is free before
 * its memory is), and in the library, which takes the lock before it removes anything. A store that
 * was made anew under the path in between is safe therefore.
 */

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#include "account.h"
#include "clocks.h"
#include "fields.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "member.h"
#include "scanner.h"

#define MS            UINT64_C(1000000)
#define RETRY_MS      1u    /* the first time; then twice as long each time, up to */
#define RETRY_MS_MAX  256u  /* this, for */
#define RETRY_MS_LAST 5000u /* so long in all */
#define CLOSING_MS    250u  /* the same, where its process lives */

struct reap {
	struct scanner_job job;
	struct loop_op timer;
	struct account *account;
	struct reap *next;
	char *path;
	bool running;   /* the job is a worker's */
	bool wanted;    /* somebody has called for a look, which is not yet done */
	bool leased;    /* it was reaped but for its leases */
	uint64_t books; /* quota_books() when the job was submitted */
	bool over;      /* out of the list: freed when nothing of it is in flight */
	unsigned delay_ms, waited_ms;
	uint64_t coming; /* bytes that it had, and has still */
	/* The owner: from the member, or from the page, by the worker. dead: its lock was free. */
	bool known, dead;
	struct page_head owner;
	/* The worker's result. */
	int result;
	struct shmstore_gc_report report;
	uint64_t expiry_ms;
};

static void look(struct reap *r);

/* ---- the list -------------------------------------------------------------------------------- */

static void gone(void *object)
{
	struct reap *r = object;

	account_unref(r->account);
	free(r->path);
	free(r);
}

/* A worker that has it ends it later. */
static void end(struct reap *r)
{
	r->over = true;
	if (!r->running)
		loop_release_all(r->account->host->loop, (struct loop_op *const[]){&r->timer}, 1,
				 gone, r);
}

/* Nothing is left to do for it. */
static void finish(struct reap *r)
{
	if (r->account->reaps)
		LL_DELETE(r->account->reaps, r);
	end(r);
}

static void on_timer(struct loop_op *op, int result, UNUSED unsigned flags)
{
	struct reap *r = CONTAINER_OF(op, reap, timer);

	if (!r->running && (result == 0 || r->wanted))
		look(r);
}

static void sleep_until(struct reap *r, uint64_t due_ns)
{
	int e;

	if (r->timer.busy)
		return; /* it sleeps already */
	e = loop_timer(r->account->host->loop, &r->timer, due_ns, 0);
	if (e < 0) {
		log_say(LOG_WARNING, LOG_FIELDS(.object = r->path, .error = e),
			"no timer for a dead store: the next survey finds it");
		finish(r);
	}
}

/* The same, from the loop: the awaited event has come, or never will. */
static void over(struct reap *r)
{
	struct account *a = r->account;

	account_ref(a);
	finish(r);
	PART_EACH(a, reaped, a);
	account_unref(a);
}

/* ---- the work -------------------------------------------------------------------------------- */

/* In the worker: whose it is, from its page, while that is there. */
static void identify(struct reap *r)
{
	struct stat st;
	int fd = pages_open(r->path);

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && pages_read_head(fd, &r->owner) == 0) {
		r->known = true;
		r->owner.uid = st.st_uid; /* the kernel's word, not the page's */
	}
	close(fd);
}

static void run(struct scanner_job *job)
{
	struct reap *r = CONTAINER_OF(job, reap, job);

	if (!r->known && !r->leased)
		identify(r);
	r->report = (struct shmstore_gc_report){0};
	r->expiry_ms = UINT64_MAX;
	r->result = shmstore_partition_reap(r->account->partition, r->path, 0, NULL, NULL,
					    &r->report, &r->expiry_ms);
}

static struct json_object *describe(const struct reap *r)
{
	struct json_object *o = account_json(r->account);

	jsonmake_text(o, "path", r->path);
	if (r->known)
		fields_of(o, &r->owner, SAME(name), SAME(label), SAME(pid), SAME(uid));
	fields_of(o, &r->report, SAME(freed), NUMBER(objects), NUMBER(leases));
	jsonmake_flag(o, "leases_stay", r->expiry_ms != UINT64_MAX);
	return o;
}

void reaper_book(struct account *a, uint64_t books, const struct page_head *owner,
		 const struct shmstore_gc_report *report)
{
	uint64_t pages = report->n_stores * (uint64_t)sysconf(_SC_PAGESIZE);

	if (report->freed && owner)
		accountquota_freed(a, books, owner->uid, owner->label,
				   report->freed > pages ? report->freed - pages : 0);
	else if (report->freed)
		accountquota_room(a);
}

static void tell(struct reap *r)
{
	struct host *h = r->account->host;

	reaper_book(r->account, r->books, r->known ? &r->owner : NULL, &r->report);
	if (r->leased && r->report.n_leases)
		events_emit(h->events, EVENT_LEASE_EXPIRED, r->path, describe(r));
	if (!r->leased && (r->report.n_stores || r->report.n_objects || r->report.n_leases)) {
		h->counters.n_reaped++;
		events_emit(h->events, EVENT_STORE_REAPED, r->path, describe(r));
	}
}

static void retry(struct reap *r)
{
	if (r->waited_ms >= RETRY_MS_LAST) {
		log_say(LOG_WARNING, LOG_FIELDS(.object = r->path),
			"its owner's process is gone, but its lock is still held: left to the next "
			"survey");
		finish(r);
		return;
	}
	r->waited_ms += r->delay_ms;
	sleep_until(r, loop_clock() + r->delay_ms * MS);
	if (r->delay_ms < RETRY_MS_MAX)
		r->delay_ms *= 2;
}

static void done(struct scanner_job *job)
{
	struct reap *r = CONTAINER_OF(job, reap, job);
	struct account *a = r->account;
	struct member *m;
	uint64_t boot_ms;

	r->running = false;
	if (r->over || r->account->closing) {
		end(r);
		return;
	}
	if (r->result == 0) {
		tell(r);
		/* Before anybody's wish to look again: what goes next are leases that ended, though
		 * the store was reaped but now. */
		r->leased = r->expiry_ms != UINT64_MAX;
		r->dead = r->known;
		r->coming = 0;
	}
	if (r->wanted) {
		look(r);
		return;
	}
	switch (r->result) {
	case 0:
		if (r->expiry_ms == UINT64_MAX) {
			over(r);
			return;
		}
		/* The leases' clock goes on while the host sleeps: then we are late by that, until
		 * the next survey. */
		boot_ms = clock_ns(CLOCK_BOOTTIME) / MS;
		sleep_until(r, loop_clock() + MS +
				       (r->expiry_ms > boot_ms ? r->expiry_ms - boot_ms : 0) * MS);
		PART_EACH(a, reaped, a);
		return;
	case -EBUSY: /* somebody has opened it anew, or its owner is still dying */
		if (member_get(r->account, r->path, (uid_t)-1, &m) == 0)
			over(r);
		else
			retry(r);
		return;
	case -EMFILE:
	case -ENOMEM:
		retry(r);
		return;
	default:
		if (r->result != -ENOENT && r->result != -ECANCELED)
			log_say(LOG_WARNING, LOG_FIELDS(.object = r->path, .error = r->result),
				"a dead store could not be reaped");
		over(r);
		return;
	}
}

static void submit(struct reap *r)
{
	r->running = true;
	r->books = quota_books(r->account->quota);
	r->result = -ECANCELED; /* as long as it did not run */
	r->job = (struct scanner_job){.worker = SCANNER_REAP, .run = run, .done = done};
	scanner_submit(r->account->host->scanner, &r->job);
}

static void take_over(struct reap *r, const struct member *m)
{
	r->known = r->dead = true;
	r->owner = (struct page_head){.uid = m->uid,
				      .pid = (uint32_t)m->pid,
				      .start_time = m->start_time,
				      .created_ns = m->created_ns};
	snprintf(r->owner.label, sizeof(r->owner.label), "%s", m->label);
	snprintf(r->owner.name, sizeof(r->owner.name), "%s", m->name);
}

/* Not while its job runs. Frees r where there is nothing left to do. */
static void look(struct reap *r)
{
	struct member *m = member_find(r->account, r->path);

	r->wanted = false;
	if (!m) {
		submit(r);
		return;
	}
	switch (member_state(m)) {
	case MEMBER_LIVES:
		/* A store that closes ends its connection first, then frees its lock. */
		if (m->ended || (!m->conn && r->waited_ms < CLOSING_MS))
			retry(r);
		else
			over(r);
		return;
	case MEMBER_CLOSED:
		member_gone(m, m->ended ? "died" : "closed");
		/* its next owner, where it has one */
		(void)member_get(r->account, r->path, (uid_t)-1, &m);
		over(r);
		return;
	case MEMBER_DEAD:
	default:
		take_over(r, m);
		r->leased = false;
		member_gone(m, m->leaves ? "closed" : "died");
		submit(r);
		return;
	}
}

/* From the loop, not from here: the caller may be in the midst of what it does with its members. */
static void call(struct reap *r)
{
	r->wanted = true;
	r->delay_ms = RETRY_MS;
	r->waited_ms = 0;
	if (r->running)
		return;
	if (r->timer.busy)
		loop_cancel(r->account->host->loop, &r->timer);
	else
		sleep_until(r, loop_clock());
}

/* The bytes of a store that ended; 0 for one that is kept, or lives. */
static uint64_t left_behind(struct account *a, const char *path)
{
	struct member *m = member_find(a, path);

	if (!m || (m->conn && !m->ended && !m->ending))
		return 0;
	member_refresh(m);
	return m->keep ? 0 : m->last.linked_bytes + m->last.reserved_bytes + m->last.pool_bytes;
}

bool reaper_busy(const struct account *a)
{
	const struct reap *r = a->reaps;

	while (r && !r->running && !r->wanted)
		r = r->next;
	return r;
}

uint64_t reaper_coming(const struct account *a)
{
	uint64_t sum = 0;

	for (const struct reap *r = a->reaps; r; r = r->next)
		sum += r->coming;
	return sum;
}

static struct reap *find(const struct account *a, const char *path)
{
	struct reap *r = a->reaps;

	while (r && strcmp(r->path, path) != 0)
		r = r->next;
	return r;
}

bool reaper_knows_dead(const struct account *a, const char *path, const struct page_head *owner)
{
	const struct reap *r = find(a, path);

	return r && r->dead && r->owner.start_time == owner->start_time &&
	       r->owner.created_ns == owner->created_ns;
}

void reaper_look(struct account *a, const char *path)
{
	struct reap *r;

	if (a->closing)
		return;
	r = find(a, path);
	if (r) {
		r->coming = left_behind(a, path);
		call(r);
		return;
	}
	r = calloc(1, sizeof(*r));
	if (r)
		r->path = strdup(path);
	if (!r || !r->path) {
		free(r);
		log_say(LOG_WARNING, LOG_FIELDS(.object = path, .error = -ENOMEM),
			"a dead store is left to the next survey");
		return;
	}
	account_ref(a);
	r->account = a;
	r->timer.fn = on_timer;
	r->delay_ms = RETRY_MS;
	r->coming = left_behind(a, path);
	LL_PREPEND(a->reaps, r);
	call(r);
}

void reaper_close(struct account *a)
{
	while (a->reaps)
		finish(a->reaps);
}

/*
 * shmstore_partition_gc_plan() of a whole partition, in a worker. Not in the idle one: gc holds the
 * lock of a dead store while it takes it apart, and who wants to open a store of that name must not
 * wait for a processor to have nothing else to do.
 */
struct sweep {
	struct scanner_job job;
	struct account *account;
	struct shmstore_gc_report report;
	uint64_t n_taken; /* dead stores, those whose leases stay included */
	int result;
};

static int on_action(const struct shmstore_gc_action *action, void *arg)
{
	struct sweep *s = arg;

	if (action->what == SHMSTORE_GC_STORE && !action->error)
		s->n_taken++;
	return 0;
}

static void sweep_run(struct scanner_job *job)
{
	struct sweep *s = CONTAINER_OF(job, sweep, job);

	s->result = shmstore_partition_gc_plan(s->account->partition, 0, on_action, s, &s->report);
}

static void sweep_tell(struct account *a, const struct sweep *s)
{
	const struct shmstore_gc_report *report = &s->report;
	struct json_object *fields;

	a->host->counters.n_reaped += s->n_taken;
	if (report->freed)
		accountquota_room(a);
	if (!report->n_leases && !s->n_taken)
		return;
	fields = account_json(a);
	jsonmake_u64(fields, "stores", s->n_taken);
	fields_of(fields, report, NUMBER(leases), NUMBER(objects), SAME(freed));
	events_emit(a->host->events, s->n_taken ? EVENT_STORE_REAPED : EVENT_LEASE_EXPIRED, a->path,
		    fields);
}

static void sweep_done(struct scanner_job *job)
{
	struct sweep *s = CONTAINER_OF(job, sweep, job);
	struct account *a = s->account;

	if (!a->closing && s->result == 0)
		sweep_tell(a, s);
	else if (!a->closing && s->result != -ECANCELED)
		log_say(LOG_WARNING, LOG_FIELDS(.object = a->path, .error = s->result),
			"gc failed; tried again after the next survey");
	free(s);
	account_unref(a);
}

void sweep_start(struct account *a)
{
	struct sweep *s = calloc(1, sizeof(*s));

	if (!s)
		return; /* the next survey tries again */
	account_ref(a);
	*s = (struct sweep){
		.job = {.run = sweep_run, .done = sweep_done}, .account = a, .result = -ECANCELED};
	scanner_submit(a->host->scanner, &s->job);
}
