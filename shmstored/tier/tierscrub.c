/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tierscrub.c: disk.scrub after the last one began (or the daemon did), at disk.scrub-rate,
 * by a thread that the processors and the disk serve last. It changes nothing and holds
 * nothing, so it may take its time.
 *
 * Each damaged file is an event of its own, up to FINDINGS_MAX of one scrub: a broken disk would
 * have one for each file. They are all counted.
 */
#include <errno.h>
#include <shmstore/inspect.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"
#include "clocks.h"
#include "config.h"
#include "host.h"
#include "log.h"
#include "loop.h"
#include "scanner.h"
#include "tierkeeper.h"

#define FINDINGS_MAX 64u

struct finding {
	char *path;
	char reason[160];
	int error;
};

struct tierscrub {
	struct scanner_job job;
	struct account *account;
	uint64_t began_ns; /* CLOCK_MONOTONIC; of the last one, or of the daemon */
	bool running, closed;
	_Atomic bool stop;
	struct tierscrub_view last; /* running and bytes are not in it */
	/* The worker's while running. */
	uint64_t rate;
	_Atomic uint64_t bytes; /* relaxed: a figure to look at */
	struct finding findings[FINDINGS_MAX];
	size_t n_findings;
	uint64_t n_files, n_damaged;
	int result;
};

/* ---- in the worker --------------------------------------------------------------------------- */

static int on_file(const struct shmstore_verify_finding *f, void *arg)
{
	struct tierscrub *k = arg;
	struct finding *to;

	k->n_files++;
	if (!f->error)
		return 0;
	k->n_damaged++;
	if (k->n_findings == FINDINGS_MAX)
		return 0;
	to = &k->findings[k->n_findings++];
	to->path = strdup(f->path);
	to->error = f->error;
	snprintf(to->reason, sizeof(to->reason), "%s", f->reason ? f->reason : "");
	return 0;
}

static int on_progress(uint64_t bytes, UNUSED uint64_t bytes_all, void *arg)
{
	struct tierscrub *k = arg;

	atomic_store_explicit(&k->bytes, bytes, memory_order_relaxed);
	return atomic_load_explicit(&k->stop, memory_order_relaxed) ||
	       scanner_stopping(k->account->host->scanner);
}

static void run(struct scanner_job *job)
{
	struct tierscrub *k = CONTAINER_OF(job, tierscrub, job);
	struct shmstore_tier_verify what = {.size = sizeof(what),
					    .rate = k->rate,
					    .fn = on_file,
					    .progress = on_progress,
					    .arg = k};

	k->result = shmstore_tier_verify(k->account->partition, &what);
}

/* ---- in the loop's thread -------------------------------------------------------------------- */

static void scrub_free(struct tierscrub *k)
{
	account_unref(k->account);
	free(k);
}

static void tell(struct tierscrub *k)
{
	for (size_t i = 0; i < k->n_findings; i++)
		tiersay_damage(k->account, k->findings[i].path, k->findings[i].reason,
			       k->findings[i].error);
	k->last.bytes_all += atomic_load_explicit(&k->bytes, memory_order_relaxed);
	if (k->result < 0) {
		if (k->result != -ECANCELED && k->result != -ENOENT)
			log_say(LOG_WARNING,
				LOG_FIELDS(.object = k->account->path, .error = k->result),
				"its disk tier could not be scrubbed; tried again when it is due");
		return;
	}
	k->last.time_ns = (int64_t)clock_ns(CLOCK_REALTIME);
	k->last.n_files = k->n_files;
	k->last.n_damaged = k->n_damaged;
	k->last.n_scrubs++;
}

static void done(struct scanner_job *job)
{
	struct tierscrub *k = CONTAINER_OF(job, tierscrub, job);

	k->running = false;
	if (!k->closed && !k->account->closing)
		tell(k);
	while (k->n_findings)
		free(k->findings[--k->n_findings].path);
	if (k->closed)
		scrub_free(k);
}

void tierscrub_tick(struct account *a, bool there)
{
	const struct config_disk *d = &a->config->disk;
	struct tierscrub *k = a->scrub;
	uint64_t now_ns = loop_clock();

	if (!k || !there || k->running || !d->scrub_ns || now_ns < k->began_ns + d->scrub_ns)
		return;
	k->began_ns = now_ns;
	k->rate = d->scrub_rate;
	k->n_files = k->n_damaged = 0;
	k->result = -ECANCELED; /* as long as it did not run */
	atomic_store_explicit(&k->bytes, 0, memory_order_relaxed);
	k->running = true;
	k->job = (struct scanner_job){.worker = SCANNER_SCRUB, .run = run, .done = done};
	scanner_submit(a->host->scanner, &k->job);
}

int tierscrub_open(struct account *a)
{
	struct tierscrub *k = calloc(1, sizeof(*k));

	if (!k)
		return -ENOMEM;
	account_ref(a);
	k->account = a;
	k->began_ns = loop_clock();
	a->scrub = k;
	return 0;
}

void tierscrub_close(struct account *a)
{
	struct tierscrub *k = a->scrub;

	if (!k)
		return;
	a->scrub = NULL;
	k->closed = true;
	atomic_store_explicit(&k->stop, true, memory_order_relaxed);
	if (!k->running)
		scrub_free(k);
}

void tierscrub_view(const struct account *a, struct tierscrub_view *ret)
{
	const struct tierscrub *k = a->scrub;

	*ret = k ? k->last : (struct tierscrub_view){0};
	if (!k || !k->running)
		return;
	ret->running = true;
	ret->bytes = atomic_load_explicit(&k->bytes, memory_order_relaxed);
}
