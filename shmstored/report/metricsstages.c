/* SPDX-License-Identifier: Apache-2.0 */
/* metricsstages.c: a family for each number, a sample for each partition. */
#include "metricsstages.h"

#include "account.h"
#include "config.h"
#include "host.h"
#include "report_parts.h"
#include "stages.h"

struct scene {
	struct report_stages_sums sums;
	uint64_t n_queries, n_begun, n_waited, n_degraded, wait_ns;
};

static const struct metric of_stages[] = {
	{"shmstore_stage_total_bytes", "bytes", "What workers may have together, private and shared.", false, FORM_I64,
	 offsetof(struct scene, sums.total)},
	{"shmstore_stage_held_bytes", "bytes", "What workers have of it.", false, FORM_I64,
	 offsetof(struct scene, sums.held)},
	{"shmstore_stage_workers", "", "Workers that asked for a stage so far.", false, FORM_U64,
	 offsetof(struct scene, sums.n_sessions)},
	{"shmstore_stage_running", "", "Of them, those in a stage.", false, FORM_U64,
	 offsetof(struct scene, sums.n_running)},
	{"shmstore_stage_waiting", "", "Of them, those that wait to begin one.", false, FORM_U64,
	 offsetof(struct scene, sums.n_waiting)},
	{"shmstore_stage_degraded", "", "Of them, those that have less than their profile says.", false, FORM_U64,
	 offsetof(struct scene, sums.n_degraded)},
	{"shmstore_stage_queries", "", "Profiles asked for.", true, FORM_U64, offsetof(struct scene, n_queries)},
	{"shmstore_stage_begun", "", "Stages begun.", true, FORM_U64, offsetof(struct scene, n_begun)},
	{"shmstore_stage_waits", "", "Stages that had to wait for what others held.", true, FORM_U64,
	 offsetof(struct scene, n_waited)},
	{"shmstore_stage_begun_degraded", "", "Stages begun with less than their profile says.", true, FORM_U64,
	 offsetof(struct scene, n_degraded)},
	{"shmstore_stage_wait_seconds", "seconds", "Time that stages waited before they began.", true, FORM_NS,
	 offsetof(struct scene, wait_ns)},
};

void metricsstages_write(const struct metric_out *o, const struct account *accounts)
{
	if (!accounts || !accounts->host->config->stage.rules.enabled)
		return;
	for (size_t i = 0; i < sizeof(of_stages) / sizeof(of_stages[0]); i++) {
		metric_family(o, &of_stages[i]);
		for (const struct account *a = accounts; a; a = a->next) {
			const struct stages *t = a->stages;
			struct scene s = {.n_queries = t->n_queries,
					  .n_begun = t->n_begun,
					  .n_waited = t->n_waited,
					  .n_degraded = t->n_degraded,
					  .wait_ns = t->wait_ns};

			report_stages_sums(t, &s.sums);
			metric_sample(o, &of_stages[i], &s, LABELS("partition", a->path));
		}
	}
}
