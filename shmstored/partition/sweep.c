/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sweep.c: shmstore_partition_gc_plan() in a worker. Not in the idle one: gc holds the lock of a dead store while it takes it apart, and who
 * wants to open a store of that name must not wait for a processor to have nothing else to do.
 */
#include "sweep.h"

#include <errno.h>
#include <json-c/json.h>
#include <stddef.h>
#include <stdlib.h>

#include "account.h"
#include "accountquota.h"
#include "events.h"
#include "host.h"
#include "jsonmake.h"
#include "log.h"
#include "scanner.h"

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

static void run(struct scanner_job *job)
{
	struct sweep *s = CONTAINER_OF(job, sweep, job);

	s->result = shmstore_partition_gc_plan(s->account->partition, 0, on_action, s, &s->report);
}

static void tell(struct account *a, const struct sweep *s)
{
	const struct shmstore_gc_report *report = &s->report;
	struct json_object *fields;

	a->host->counters.n_reaped += s->n_taken;
	if (report->freed)
		accountquota_room(a);
	if (!report->n_leases && !s->n_taken)
		return;
	fields = jsonmake_new();
	jsonmake_text(fields, "partition", a->path);
	jsonmake_u64(fields, "stores", s->n_taken);
	jsonmake_u64(fields, "leases", report->n_leases);
	jsonmake_u64(fields, "objects", report->n_objects);
	jsonmake_u64(fields, "freed", report->freed);
	events_emit(a->host->events, s->n_taken ? EVENT_STORE_REAPED : EVENT_LEASE_EXPIRED, a->path, fields);
}

static void done(struct scanner_job *job)
{
	struct sweep *s = CONTAINER_OF(job, sweep, job);
	struct account *a = s->account;

	if (!a->closing && s->result == 0)
		tell(a, s);
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
	*s = (struct sweep){.job = {.run = run, .done = done}, .account = a, .result = -ECANCELED};
	scanner_submit(a->host->scanner, &s->job);
}
