/* SPDX-License-Identifier: Apache-2.0 */
/*
 * health.c: a daemon is well while its loop is in time, its books are fresh and its
 * tiers' disks take what they should. Its watchers (a load balancer, systemd, the
 * page) get the reasons in words.
 */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>

#include "account.h"
#include "clocks.h"
#include "config.h"
#include "host.h"
#include "jsonmake.h"
#include "lateness.h"
#include "report.h"
#include "tierkeeper.h"

#define SECOND_NS INT64_C(1000000000)
#define LATE_NS   UINT64_C(1000000000)
#define STALE_NS  (30 * SECOND_NS) /* beyond three intervals of the survey */

/* A survey that does not come says that its books are not to be believed, whatever the reason. */
static void add_stale(const struct account *a, int64_t started_ns, int64_t now_ns,
		      struct json_object *reasons)
{
	int64_t allowed = 3 * (int64_t)a->config->survey_interval_ns + STALE_NS;
	int64_t age = now_ns - (a->survey ? a->survey->time_ns : started_ns);
	char text[512];

	if (!a->config->survey_interval_ns || age < allowed)
		return;
	snprintf(text, sizeof(text), "survey stale: %.400s: the last one is %" PRId64 " s old",
		 a->path, age / SECOND_NS);
	jsonmake_append_text(reasons, text);
}

/* Where a partition cannot be kept below its mark, puts are about to fail, or wait for the disk. */
static void add_tier(const struct account *a, struct json_object *reasons)
{
	struct tierkeeper_view t;
	char text[1024];

	tierkeeper_view(a, &t);
	if (t.state != TIERKEEPER_DISK_FULL && t.state != TIERKEEPER_UNAVAILABLE)
		return;
	/* A directory that is gone, a temporary one perhaps, with nothing that was in it,
	 * keeps nobody from anything. */
	if (t.state == TIERKEEPER_UNAVAILABLE && a->survey && !a->survey->usage.n_demoted)
		return;
	snprintf(text, sizeof(text), "disk tier %s: %.400s: %s", tierkeeper_state_name(t.state),
		 a->path, t.why);
	jsonmake_append_text(reasons, text);
}

struct json_object *health_make(const struct host *h, const struct lateness *l, bool *ret_well)
{
	struct json_object *o, *reasons;
	char text[128];
	bool well;

	jsonmake_begin();
	o = jsonmake_new();
	reasons = jsonmake_new_list();
	if (lateness_worst(l) > LATE_NS) {
		snprintf(text, sizeof(text), "loop late: by %.1f s within the last %u s",
			 (double)lateness_worst(l) / 1e9, LATENESS_RECENT);
		jsonmake_append_text(reasons, text);
	}
	if (h->draining)
		jsonmake_append_text(reasons, "the daemon is about to end");
	for (const struct account *a = h->accounts; a; a = a->next) {
		add_stale(a, h->started_ns, (int64_t)clock_ns(CLOCK_REALTIME), reasons);
		add_tier(a, reasons);
	}
	well = reasons && json_object_array_length(reasons) == 0;
	jsonmake_text(o, "status", well ? "ok" : "unwell");
	jsonmake_child(o, "reasons", reasons);
	*ret_well = well;
	return jsonmake_end(o);
}
