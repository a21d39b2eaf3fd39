/* SPDX-License-Identifier: Apache-2.0 */
/* metricspressure.c: sums first, then every term with its source, then the gate and who asks it. */
#include "metricspressure.h"

#include "admit.h"
#include "host.h"
#include "preempt.h"
#include "pressure.h"

#define MEMORY(name, help)                                                          \
	{                                                                           \
		"shmstore_memory_" name "_bytes", "bytes", help, false, FORM_I64, 0 \
	}
#define COUNTER(name, unit, help)                               \
	{                                                       \
		"shmstore_" name, unit, help, true, FORM_U64, 0 \
	}

static void write_amount(const struct metric_out *o, const struct metric *m, struct amount a)
{
	metric_family(o, m);
	if (a.known)
		metric_sample(o, m, &a.bytes, LABELS(NULL));
}

static void write_count(const struct metric_out *o, const struct metric *m, const uint64_t *n)
{
	metric_family(o, m);
	metric_sample(o, m, n, LABELS(NULL));
}

static void write_sums(const struct metric_out *o, const struct pressure *p)
{
	static const struct metric total = MEMORY("total",
						  "What may be used of the host's memory: the tightest limit."),
				   used = MEMORY("used", "What is used of it."),
				   private = MEMORY(
					   "private",
					   "Of it, private memory of registered processes and their descendants."),
				   store = MEMORY("store", "Of it, what the partitions under watch have."),
				   other = MEMORY("other", "Of it, all else."),
				   gate = MEMORY("gate", "From here on no more work begins."),
				   low = MEMORY("low", "Down to here before more begins again."),
				   kill = MEMORY("kill", "Above this, tasks are preempted.");
	const bool limited = p->limited;

	write_amount(o, &total, p->total);
	write_amount(o, &used, p->used);
	write_amount(o, &private, p->private);
	write_amount(o, &store, p->store);
	write_amount(o, &other, p->other);
	write_amount(o, &gate, limited ? amount_of(p->limits.gate) : AMOUNT_UNKNOWN);
	write_amount(o, &low, limited ? amount_of(p->limits.low) : AMOUNT_UNKNOWN);
	write_amount(o, &kill, limited ? amount_of(p->limits.kill) : AMOUNT_UNKNOWN);
}

static void write_terms(const struct metric_out *o, const struct pressure *p)
{
	static const struct metric term =
		MEMORY("term", "What the host's and each cgroup's files say, as far as they could be read.");

	metric_family(o, &term);
	for (size_t i = 0; i < p->reading.n_levels; i++) {
		const struct memsource_level *l = &p->reading.levels[i];

		for (size_t k = 0; k < l->n_terms; k++)
			if (l->terms[k].state == MEMSOURCE_READ)
				metric_sample(o, &term, &l->terms[k].bytes,
					      LABELS("source", l->path, "term", l->terms[k].name));
	}
}

#define GATE(name, unit, form, help) METRIC(form, "shmstore_gate_" name, unit, help)

static void write_gate(const struct metric_out *o, const struct pressure *p)
{
	static const struct metric closed = GATE("closed", "", FORM_U64, "1 while no more work may begin."),
				   flips = COUNTER("gate_flips", "", "Times that the gate closed or opened.");
	const uint64_t is = p->gate.closed;

	if (!p->gated)
		return;
	write_count(o, &closed, &is);
	write_count(o, &flips, &p->gate.n_flips);
}

static void write_line(const struct metric_out *o, const struct admit *a)
{
	static const struct metric running = GATE("running", "", FORM_U64, "Tasks that were let in and run."),
				   waiting = GATE("waiting", "", FORM_U64, "Tasks that wait at the gate."),
				   oldest = GATE("oldest_wait_seconds", "seconds", FORM_NS,
						 "How long the longest of them waits."),
				   reserved = GATE("reserved_bytes", "bytes", FORM_U64,
						   "Private memory that is expected of those that run."),
				   cap = GATE("cap_bytes", "bytes", FORM_U64, "How much of it may be expected now."),
				   admitted = COUNTER("gate_admitted", "", "Tasks that were let in."),
				   progress = COUNTER("gate_progress", "",
						      "Of them, those let in because nothing else ran."),
				   refused =
					   COUNTER("gate_refused", "", "Tasks that were not let in, and did not wait."),
				   timed_out = COUNTER("gate_timed_out", "", "Tasks that waited in vain.");
	struct admit_books b;
	uint64_t oldest_ns;

	if (!a)
		return;
	admit_books(a, &b);
	oldest_ns = b.oldest_ms * 1000000;
	write_count(o, &running, &b.line.n_running);
	write_count(o, &waiting, &b.line.n_waiting);
	write_count(o, &oldest, &oldest_ns);
	write_count(o, &reserved, &b.reserved);
	write_count(o, &cap, &b.cap);
	write_count(o, &admitted, &b.line.n_admitted);
	write_count(o, &progress, &b.line.n_progress);
	write_count(o, &refused, &b.line.n_refused);
	write_count(o, &timed_out, &b.line.n_timed_out);
}

static void write_preempt(const struct metric_out *o, const struct preempt *p)
{
	static const struct metric notices = COUNTER("preempt_notices", "", "Processes that were asked to stop."),
				   terms = COUNTER("preempt_terms", "", "Of them, those sent SIGTERM."),
				   kills = COUNTER("preempt_kills", "", "Of them, those sent SIGKILL."),
				   stuck = COUNTER("preempt_stuck", "", "Of them, those that did not die of it."),
				   gone = COUNTER("preempt_gone", "", "Of them, those that died."),
				   yielded = COUNTER("preempt_yielded", "", "Those that ended their tasks, and live."),
				   spared = COUNTER("preempt_spared", "", "Those that the need passed by.");
	struct preempt_counts c;

	if (!p)
		return;
	preempt_counts(p, &c);
	write_count(o, &notices, &c.n_notices);
	write_count(o, &terms, &c.n_terms);
	write_count(o, &kills, &c.n_kills);
	write_count(o, &stuck, &c.n_stuck);
	write_count(o, &gone, &c.n_gone);
	write_count(o, &yielded, &c.n_yielded);
	write_count(o, &spared, &c.n_spared);
}

void metricspressure_write(const struct metric_out *o, const struct host *h)
{
	const struct pressure *p = h->pressure;
	static const struct metric
		processes = {"shmstore_memory_processes", "", "Registered processes.", false, FORM_U64, 0},
		samples = COUNTER("memory_samples", "", "Looks at the host's memory."),
		unknown = COUNTER("memory_unknown_samples", "",
				  "Of them, those that did not find out what is used of how much."),
		cost = {"shmstore_memory_sampling_seconds",
			"seconds",
			"Processor time that the looks took.",
			true,
			FORM_NS,
			0},
		times = COUNTER("memory_above_kill", "", "Times that more was used than the kill threshold."),
		above = {"shmstore_memory_above_kill_seconds",
			 "seconds",
			 "How long more was used than that.",
			 true,
			 FORM_NS,
			 0};
	const uint64_t above_ns = p ? pressure_above_ns(p) : 0;
	uint64_t n;

	if (!p)
		return;
	n = p->procs.n;
	write_sums(o, p);
	write_terms(o, p);
	write_count(o, &processes, &n);
	write_count(o, &samples, &p->n_samples);
	write_count(o, &unknown, &p->n_unknown);
	write_count(o, &cost, &p->cost_ns);
	write_count(o, &times, &p->n_above);
	write_count(o, &above, &above_ns);
	write_gate(o, p);
	write_line(o, h->admit);
	write_preempt(o, h->preempt);
}
