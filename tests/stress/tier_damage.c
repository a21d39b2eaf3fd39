/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier_damage.c: objects are demoted, promoted, deleted, handed over, adopted and evicted
 * at random while their tier files are damaged in every way that a disk and its file
 * system can think of (damage.h).
 *
 *   tier_damage [-n operations] [-s seed] [-m megabytes]
 *
 * What each key of three stores holds is known, and which tier files are damaged. So every call's
 * answer is known before: the object with its bytes, or -EBADMSG with the path of the one file that
 * is damaged; never other bytes, and never -EBADMSG for an object that is whole, or whose memory is
 * still there. With few megabytes calls evict others, and map tier files where nothing more fits.
 * In the end nothing is left in memory or on disk.
 */
#include "tier_damage.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sandbox.h"

#define BOOKS 500u /* operations between two looks at the equations */
#define FLOOR 5u   /* each kind of damage must have been found so often, of 10,000 operations */

static int check_books(struct run *r)
{
	struct shmstore_usage u;
	uint64_t n_demoted = 0, on_disk = sandbox_tier_blocks(r->options->disk);
	for (unsigned i = 0; i < STORES * KEYS; i++)
		n_demoted += run_look(r, i / KEYS, i % KEYS).demoted;
	int rc = shmstore_partition_reconcile(r->p, NULL, NULL, &u);
	if (rc < 0 || u.residual)
		return run_fail(r, "reconcile: %d, residual %" PRId64, rc, u.residual);
	if (u.tier != on_disk || u.tier != u.tier_demoted + u.tier_clean + u.tier_orphans ||
	    u.n_demoted != n_demoted)
		return run_fail(r,
				"the tier's books: %" PRIu64 " = demoted %" PRIu64
				" + clean %" PRIu64 " + orphans %" PRIu64 ", on disk %" PRIu64
				"; %" PRIu64 " names demoted of %" PRIu64,
				u.tier, u.tier_demoted, u.tier_clean, u.tier_orphans, on_disk,
				u.n_demoted, n_demoted);
	return 0;
}

static int set_up(struct run *r)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	config.path = r->options->disk;
	int rc = shmstore_partition_open(r->path, SHMSTORE_CREATE, &r->p);
	if (rc == 0)
		rc = shmstore_tier_set(r->p, &config);
	if (rc == 0)
		rc = shmstore_partition_info(r->p, &info);
	if (rc < 0)
		return run_fail(r, "the partition and its tier: %d", rc);
	for (unsigned s = 0; s < STORES; s++)
		if (run_open(r, s, 0) < 0)
			return -1;
	/* The first demotion makes the directory. */
	char key[16];
	r->slots[0][0].content = (struct content){++r->next_seed, 1000};
	rc = content_put(r->stores[0], key, run_key(0, key), r->slots[0][0].content, 0);
	if (rc < 0 || run_demote(r, 0, 0) < 0)
		return run_fail(r, "the first object: %d", rc);
	snprintf(r->files, sizeof(r->files), "%s/%s/%u", r->options->disk, info.uuid,
		 (unsigned)getuid());
	r->book = damage_new(r->files, r->options->seed + 1);
	return r->book ? 0 : run_fail(r, "%s: %m", r->files);
}

static int take_down(struct run *r)
{
	while (r->n_tickets)
		if (run_adopt(r, 0, 0) < 0)
			return -1;
	for (unsigned i = 0; i < VIEWS; i++)
		r->held[i].view = shmstore_view_unref(r->held[i].view);
	for (unsigned i = 0; i < STORES * KEYS; i++) {
		char key[16];
		if (run_get(r, r->stores[i / KEYS], "get at the end", i / KEYS, i % KEYS) < 0)
			return -1;
		shmstore_delete(r->stores[i / KEYS], key, run_key(i % KEYS, key));
	}
	for (unsigned s = 0; s < STORES; s++) {
		int rc = shmstore_close(r->stores[s]);
		if (rc == 0 && run_open(r, s, SHMSTORE_OPEN_FRESH) == 0)
			rc = shmstore_close(r->stores[s]);
		if (rc < 0)
			return run_fail(r, "close s%u: %d", s, rc);
	}
	struct shmstore_usage u;
	int rc = shmstore_partition_gc(r->p, 0, NULL);
	if (rc == 0)
		rc = shmstore_partition_usage(r->p, 0, &u);
	size_t n_files = 0, n_damaged = 0;
	damage_count(r->book, &n_files, &n_damaged);
	if (rc < 0 || n_files || u.tier || u.n_stores || u.n_objects || u.pool || u.residual)
		return run_fail(r,
				"at the end (%d) %zu tier files (%zu damaged), %" PRIu64
				" objects of %" PRIu64 " bytes are left",
				rc, n_files, n_damaged, u.n_objects, u.linked);
	return 0;
}

static int play(struct run *r)
{
	if (set_up(r) < 0)
		return -1;
	for (uint64_t n = 0; n < r->options->n; n++) {
		enum op op = run_draw_op(r);
		if (run_op(r, op) < 0 || !run_one_file(r) ||
		    (n % BOOKS == 0 && check_books(r) < 0)) {
			printf("     operation %" PRIu64 " of seed %" PRIu64 ": %s\n", n,
			       r->options->seed, op_name[op]);
			return -1;
		}
		if (run_draw(r, 8) == 0)
			r->n_done[damage_one(r->book)]++;
	}
	if (check_books(r) < 0 || take_down(r) < 0)
		return -1;
	for (unsigned d = DAMAGE_NONE + 1; d < N_DAMAGES && r->options->n >= 10000; d++)
		if (r->n_found[d] < FLOOR)
			return run_fail(
				r, "%s was found %" PRIu64 " times only: this test tests nothing",
				damage_name[d], r->n_found[d]);
	return 0;
}

static int body(const char *mount, void *arg)
{
	static struct run r;
	r.options = arg;
	r.random = r.options->seed * 0x9e3779b97f4a7c15ull | 1;
	snprintf(r.path, sizeof(r.path), "%s/partition", mount);
	content_reserve(LARGE_MAX);
	play(&r);
	uint64_t done = 0, found_all = 0;
	for (unsigned op = 0; op < N_OPS; op++)
		printf("     %-10s %8" PRIu64 "\n", op_name[op], r.n_ops[op]);
	for (unsigned d = DAMAGE_NONE + 1; d < N_DAMAGES; d++) {
		printf("     %-26s %6" PRIu64 " done, met %6" PRIu64 " times\n", damage_name[d],
		       r.n_done[d], r.n_found[d]);
		done += r.n_done[d];
		found_all += r.n_found[d];
	}
	printf("tier damage: seed %" PRIu64 ", %u MiB: %" PRIu64 " damages, met %" PRIu64
	       " times, each reported; %" PRIu64 " gets mapped the tier file, %" PRIu64
	       " objects were found resident, %" PRIu64 " damaged clean copies were written anew\n",
	       r.options->seed, r.options->megabytes, done, found_all, r.n_aside, r.n_resident,
	       r.n_rewritten);
	printf("tier damage: %u passed, %u failed\n", !r.failed, r.failed);
	return r.failed;
}

static error_t on_option(int key, char *arg, struct argp_state *state)
{
	struct options *o = state->input;
	switch (key) {
	case 'n':
		o->n = strtoull(arg, NULL, 10);
		return 0;
	case 's':
		o->seed = strtoull(arg, NULL, 10);
		return 0;
	case 'm':
		o->megabytes = (unsigned)strtoul(arg, NULL, 10);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int main(int argc, char **argv)
{
	static const struct argp_option known[] = {
		{"operations", 'n', "N", 0, "How many (10000)", 0},
		{"seed", 's', "N", 0, "Of the random numbers (the time)", 0},
		{"megabytes", 'm', "N", 0, "Of the partition (256; with 24 calls must evict)", 0},
		{0},
	};
	static const struct argp argp = {known, on_option, NULL, "Damages tier files.",
					 NULL,  NULL,      NULL};
	struct options options = {.n = 10000, .seed = (uint64_t)time(NULL), .megabytes = 256};
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	options.disk = sandbox_disk();
	if (!options.disk) {
		printf("SKIP no directory on a disk: %s\n", strerror(errno));
		return 77;
	}
	char mount_options[64];
	snprintf(mount_options, sizeof(mount_options), "size=%um,huge=within_size",
		 options.megabytes);
	return sandbox_run(mount_options, body, &options);
}
