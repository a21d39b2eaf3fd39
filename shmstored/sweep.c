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
	int result;
};

static void run(struct scanner_job *job)
{
	struct sweep *s = (struct sweep *)(void *)((char *)job - offsetof(struct sweep, job));

	s->result = shmstore_partition_gc_plan(s->account->partition, 0, NULL, NULL, &s->report);
}

static void tell(struct account *a, const struct shmstore_gc_report *report)
{
	struct json_object *fields;

	a->host->counters.n_reaped += report->n_stores;
	if (report->freed)
		accountquota_room(a);
	if (!report->n_leases && !report->n_stores)
		return;
	fields = jsonmake_new();
	jsonmake_text(fields, "partition", a->path);
	jsonmake_u64(fields, "stores", report->n_stores);
	jsonmake_u64(fields, "leases", report->n_leases);
	jsonmake_u64(fields, "objects", report->n_objects);
	jsonmake_u64(fields, "freed", report->freed);
	events_emit(a->host->events, report->n_stores ? EVENT_STORE_REAPED : EVENT_LEASE_EXPIRED, a->path, fields);
}

static void done(struct scanner_job *job)
{
	struct sweep *s = (struct sweep *)(void *)((char *)job - offsetof(struct sweep, job));
	struct account *a = s->account;

	if (!a->closing && s->result == 0)
		tell(a, &s->report);
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
