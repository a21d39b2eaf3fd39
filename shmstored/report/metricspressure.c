/* SPDX-License-Identifier: Apache-2.0 */
/* metricspressure.c: sums first, then every term with its source, then the gate. */
#include "metricspressure.h"

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

static void write_gate(const struct metric_out *o, const struct pressure *p)
{
	static const struct metric closed = {"shmstore_gate_closed",
					     "",
					     "1 while no more work may begin.",
					     false,
					     FORM_U64,
					     0},
				   flips = COUNTER("gate_flips", "", "Times that the gate closed or opened.");
	const uint64_t is = p->gate.closed;

	if (!p->gated)
		return;
	write_count(o, &closed, &is);
	write_count(o, &flips, &p->gate.n_flips);
}

void metricspressure_write(const struct metric_out *o, const struct pressure *p)
{
	static const struct metric processes = {"shmstore_memory_processes",
						"",
						"Registered processes.",
						false,
						FORM_U64,
						0},
				   samples = COUNTER("memory_samples", "", "Looks at the host's memory."),
				   unknown = COUNTER("memory_unknown_samples", "",
						     "Of them, those that did not find out what is used of how much."),
				   cost = {"shmstore_memory_sampling_seconds",
					   "seconds",
					   "Processor time that the looks took.",
					   true,
					   FORM_NS,
					   0};
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
	write_gate(o, p);
}
