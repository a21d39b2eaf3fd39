/* SPDX-License-Identifier: Apache-2.0 */
/* metricshost.c: memory pressure: sums first, then every term with its source, then
 * the gate and who asks it. */
#include <dirent.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "gate.def"
#include "host.h"
#include "metricswrite.h"
#include "pressure.h"
#include "process.h"

#define OF      struct amount
#define METRICS "shmstore_memory_"
static const struct field of_sums[] = {
	GAUGE(bytes, NULL, "total_bytes",
	      "What may be used of the host's memory: the tightest limit."),
	GAUGE(bytes, NULL, "used_bytes", "What is used of it."),
	GAUGE(bytes, NULL, "private_bytes",
	      "Of it, private memory of registered processes and their descendants."),
	GAUGE(bytes, NULL, "store_bytes", "Of it, what the partitions under watch have."),
	GAUGE(bytes, NULL, "other_bytes", "Of it, all else."),
	GAUGE(bytes, NULL, "gate_bytes", "From here on no more work begins."),
	GAUGE(bytes, NULL, "low_bytes", "Down to here before more begins again."),
	GAUGE(bytes, NULL, "kill_bytes", "Above this, tasks are preempted."),
};
#undef OF
#define OF struct memsource_term
static const struct field of_term[] = {
	GAUGE(bytes, NULL, "term_bytes",
	      "What the host's and each cgroup's files say, as far as they could be read.")};
#undef OF
#define OF struct pressure
static const struct field of_samples[] = {
	COUNTER(n_samples, NULL, "samples", "Looks at the host's memory."),
	COUNTER(n_unknown, NULL, "unknown_samples",
		"Of them, those that did not find out what is used of how much."),
	METRIC(FIELD_NS, true, cost_ns, NULL, "sampling_seconds",
	       "Processor time that the looks took."),
	COUNTER(n_above, NULL, "above_kill", "Times that more was used than the kill threshold."),
};
#undef METRICS
#undef OF

static void write_sums(struct metric_out *o, const struct pressure *p)
{
	const struct amount limits[] = {{p->limited, p->limits.gate},
					{p->limited, p->limits.low},
					{p->limited, p->limits.kill}};
	const struct amount *const sums[] = {&p->total, &p->used,   &p->private, &p->store,
					     &p->other, &limits[0], &limits[1],  &limits[2]};

	for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++) {
		if (sums[i]->known)
			metric_add(o, sums[i], LABELS(NULL));
		metric_rows(o, &of_sums[i], 1);
	}
	for (size_t i = 0; i < p->reading.n_levels; i++) {
		const struct memsource_level *l = &p->reading.levels[i];

		for (size_t k = 0; k < l->n_terms; k++)
			if (l->terms[k].state == MEMSOURCE_READ)
				metric_add(o, &l->terms[k],
					   LABELS("source", l->path, "term", l->terms[k].name));
	}
	metric_table(o, of_term);
}

void metricspressure_write(struct metric_out *o, const struct host *h)
{
	const struct pressure *p = h->pressure;
	struct admit_books line;
	struct preempt_counts preempted;
	uint64_t above_ns;

	if (!p)
		return;
	above_ns = pressure_above_ns(p);
	write_sums(o, p);
	metric_number(o, "shmstore_memory_processes", false, "Registered processes.", p->procs.n);
	metric_one(o, of_samples, p);
	metric_add(o, &above_ns, LABELS(NULL));
	metric_as(o, FIELD_NS, true, "shmstore_memory_above_kill_seconds",
		  "How long more was used than that.");
	if (p->gated) {
		metric_number(o, "shmstore_gate_closed", false, "1 while no more work may begin.",
			      p->gate.closed);
		metric_number(o, "shmstore_gate_flips", true,
			      "Times that the gate closed or opened.", p->gate.n_flips);
	}
	if (h->admit) {
		admit_books(h->admit, &line);
		metric_one(o, of_line, &line);
	}
	if (h->preempt) {
		preempt_counts(h->preempt, &preempted);
		metric_one(o, of_preempted, &preempted);
	}
}

/*
 * The daemon's own process as Prometheus's client libraries tell it: process_*. Read
 * from /proc/self when somebody asks; what cannot be read is left out.
 */

/* In seconds with two decimals. */
static void write_hundredths(const struct metric_out *o, const char *name, const char *help,
			     bool counter, uint64_t value)
{
	metric_begin(o, name, counter ? "counter" : "gauge", help);
	fprintf(o->file, "%s%s %" PRIu64 ".%02" PRIu64 "\n", name, counter ? "_total" : "",
		value / 100, value % 100);
}

static void write_descriptors(struct metric_out *o)
{
	struct rlimit limit;
	struct dirent *e;
	uint64_t n = 0;
	DIR *dir = opendir("/proc/self/fd");

	if (dir) {
		while ((e = readdir(dir)) != NULL)
			n += e->d_name[0] != '.';
		closedir(dir);
		/* Without the one that was just open. */
		metric_number(o, "process_open_fds", false, "Open file descriptors.", n - 1);
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		metric_number(o, "process_max_fds", false, "File descriptors that it may open.",
			      limit.rlim_cur);
}

/* 0: the text does not have it. */
static uint64_t number(const char *text, enum procstat_field field)
{
	const char *at = procstat_find(text, field);

	return at ? strtoull(at, NULL, 10) : 0;
}

void metricsself_write(struct metric_out *o, int64_t started_ns)
{
	uint64_t ticks = (uint64_t)sysconf(_SC_CLK_TCK), page = (uint64_t)sysconf(_SC_PAGESIZE),
		 cpu;
	FILE *f = fopen("/proc/self/stat", "re");
	char text[PROCSTAT_MAX];
	size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;

	if (f)
		fclose(f);
	text[n] = '\0';
	if (number(text, PROCSTAT_RESIDENT_PAGES) && ticks) {
		cpu = number(text, PROCSTAT_USER_TICKS) + number(text, PROCSTAT_SYSTEM_TICKS);
		write_hundredths(o, "process_cpu_seconds", "Processor time, of user and system.",
				 true, cpu * 100 / ticks);
		metric_number(o, "process_threads", false, "Threads.",
			      number(text, PROCSTAT_THREADS));
		metric_number(o, "process_virtual_memory_bytes", false, "Address space.",
			      number(text, PROCSTAT_BYTES));
		metric_number(o, "process_resident_memory_bytes", false, "Memory that is resident.",
			      number(text, PROCSTAT_RESIDENT_PAGES) * page);
	}
	write_hundredths(o, "process_start_time_seconds", "When it began, since the epoch.", false,
			 (uint64_t)started_ns / 10000000);
	write_descriptors(o);
}
