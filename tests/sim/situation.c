/* SPDX-License-Identifier: Apache-2.0 */
/*
 * situation.c: the generator of the RAPIDS Monte Carlo test, in the order of random numbers that
 * the project's reference figures were made with: another order would be other situations, and
 * their figures could not be compared.
 */
#include "situation.h"

#include <inttypes.h>

#define CHANGE  0.05 /* of sizes, with a template */
#define SKEW    2u
#define GIVE_UP 0.40 /* how often memory is given back where both are possible */

static void make_task(struct twister *random, const struct situation_rules *rules,
		      struct situation_task *ret)
{
	uint64_t work_ns = rules->work_max_ms
				   ? twister_below(random, (uint64_t)rules->work_max_ms * 1000000)
				   : 0;
	uint64_t max = (uint64_t)rules->task_max_mib << 20, used = 0;
	uint32_t n = 1 + (uint32_t)twister_below(random, rules->slots_max), n_taken = 0, n_out = 0;
	double weights[SITUATION_SLOTS_MAX], sum = 0;
	struct {
		uint32_t slot;
		uint64_t bytes;
	} out[SITUATION_SLOTS_MAX];

	for (uint32_t i = 0; i < n; i++) {
		weights[i] = 1e-5 + twister_real(random);
		sum += weights[i];
	}
	for (uint32_t i = 0; i < 2 * n; i++) {
		struct situation_op *op = &ret->ops[i];

		if (n_taken < n && used < max && (n_out == 0 || twister_real(random) > GIVE_UP)) {
			*op = (struct situation_op){.slot = n_taken,
						    .bytes = 1 + twister_below(random, max - used)};
			op->work_ns = (uint64_t)((double)work_ns * weights[n_taken] / sum);
			out[n_out].slot = n_taken++;
			out[n_out++].bytes = op->bytes;
			used += op->bytes;
		} else {
			uint32_t k = (uint32_t)twister_below(random, n_out);

			*op = (struct situation_op){.slot = out[k].slot};
			used -= out[k].bytes;
			n_out--;
			for (; k < n_out; k++)
				out[k] = out[k + 1];
		}
	}
	ret->n_ops = 2 * n;
	ret->n_slots = n;
}

static void vary_task(struct twister *random, const struct situation_rules *rules,
		      const struct situation_task *like, struct situation_task *ret)
{
	*ret = *like;
	for (uint32_t i = 0; i < ret->n_ops; i++) {
		struct situation_op *op = &ret->ops[i];
		double factor, bytes;

		if (op->bytes == 0)
			continue;
		factor = (1.0 - 2.0 * twister_real(random)) * CHANGE;
		if (rules->vary_by)
			factor = 1.0 + factor;
		bytes = factor * (double)op->bytes;
		op->bytes = bytes < 1 ? 1 : (uint64_t)bytes;
	}
}

void situation_make(struct twister *random, const struct situation_rules *rules,
		    struct situation *ret)
{
	struct situation_task *skewed;

	ret->n_tasks = rules->n_tasks;
	for (uint32_t i = 0; i < rules->n_tasks; i++) {
		if (rules->use_template && i > 0)
			vary_task(random, rules, &ret->tasks[0], &ret->tasks[i]);
		else
			make_task(random, rules, &ret->tasks[i]);
	}
	if (!rules->skewed)
		return;
	skewed = &ret->tasks[twister_below(random, rules->n_tasks)];
	for (uint32_t i = 0; i < skewed->n_ops; i++)
		skewed->ops[i].bytes *= SKEW;
}

uint64_t situation_work_ns(const struct situation *s)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < s->n_tasks; i++) {
		for (uint32_t k = 0; k < s->tasks[i].n_ops; k++)
			sum += s->tasks[i].ops[k].work_ns;
	}
	return sum;
}

void situation_print(const struct situation *s, FILE *f)
{
	fputs("S\n", f);
	for (uint32_t i = 0; i < s->n_tasks; i++) {
		const struct situation_task *t = &s->tasks[i];

		fputs("T\n", f);
		for (uint32_t k = 0; k < t->n_ops; k++) {
			const struct situation_op *op = &t->ops[k];

			if (op->bytes)
				fprintf(f, "A %u %" PRIu64 " %" PRIu64 "\n", op->slot, op->bytes,
					op->work_ns);
			else
				fprintf(f, "F %u\n", op->slot);
		}
	}
}
