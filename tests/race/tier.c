/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.c: threads (racing.h) put, get, hand on, delete, demote, promote, prefetch, pin and evict
 * overlapping keys of two stores, on a partition that is too small for what they hold. Objects say
 * themselves what they must hold; views are checked again after their keys were demoted, replaced
 * and deleted. Plain main(): runs under TSan too.
 *
 *   tier [rounds]
 */
#include <errno.h>
#include <stdatomic.h>

#include "api.h"
#include "racing.h"
#include "tiered.h"

enum {
	KEYS = 12
};

/* liburing maps and unmaps its rings by system calls that TSan does not see: the next thread's ring
 * at the same address looks shared. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:liburing.h\nrace:shms_ring_reap\n";
}

static struct shmstore *stores[2];
static struct shmstore_partition *partition;
static unsigned rounds = 300;
static _Atomic unsigned n_puts, n_views, n_demoted, n_promoted, n_full;

/* Is it a result that a move may have when seven others are at it? EPERM is a lease, or a pin;
 * ETIMEDOUT names that never rested. */
static bool moved(int r, _Atomic unsigned *count)
{
	*count += r == 0;
	n_full += r == -ENOSPC;
	if (r < 0 && r != -ENOENT && r != -EPERM && r != -ENOSPC && r != -ETIMEDOUT)
		fprintf(stderr, "%s: %s\n", shmstore_strerror(r), shmstore_error_detail());
	return r == 0 || r == -ENOENT || r == -EPERM || r == -ENOSPC || r == -ETIMEDOUT;
}

static void put(struct shmstore *s, const char *key, uint64_t random)
{
	static const uint64_t sizes[] = {100, 5000, 70000, 1500000, 4500000};
	unsigned flags =
		(random & 1024 ? SHMSTORE_REPLACE : 0) | (random & 0x3800 ? 0 : SHMSTORE_PIN);
	int r = telling_put(s, key, sizes[random % 5], random, flags);

	ENSURE(r == 0 || r == -ENOSPC || (r == -EEXIST && !(flags & SHMSTORE_REPLACE)));
	n_puts += r == 0;
	n_full += r == -ENOSPC;
}

static void pass_on(struct shmstore *from, struct shmstore *to, const char *key, const char *other,
		    bool as_is)
{
	struct shmstore_ticket t;
	int r = shmstore_handoff_flags(from, KEY(key), 60000, as_is ? SHMSTORE_AS_IS : 0, &t);

	ENSURE(r == 0 || r == -ENOENT || r == -ENOSPC);
	if (r == 0)
		ENSURE(shmstore_adopt(to, KEY(other), &t, SHMSTORE_REPLACE) == 0);
}

static void prefetch(struct shmstore *s, uint64_t random)
{
	char names[4][16];
	struct iovec keys[4];
	int results[4];

	for (unsigned i = 0; i < 4; i++) {
		snprintf(names[i], sizeof(names[i]), "k%u", (unsigned)(random >> (5 * i)) % KEYS);
		keys[i] = (struct iovec){names[i], strlen(names[i])};
	}
	ENSURE(shmstore_prefetch(s, keys, 4, 2, SHMSTORE_NO_EVICT, results) >= 0);
	for (unsigned i = 0; i < 4; i++)
		ENSURE(moved(results[i], &n_promoted));
}

static void evict(void)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	int r;

	what.bytes = 2 << 20;
	what.n_threads = 1;
	r = shmstore_partition_evict(partition, &what, NULL);
	ENSURE(r == 0 || r == 1 || r == -ENOSPC);
}

static void get(struct shmstore *s, const char *key, uint64_t random, struct shmstore_view **held)
{
	struct shmstore_view *v;
	int r = shmstore_get(s, KEY(key), random & 1 ? SHMSTORE_COW : 0, &v);

	ENSURE(r == 0 || r == -ENOENT || r == -ENOSPC);
	if (r < 0)
		return;
	telling_check(v);
	n_views++;
	if (*held) {
		telling_check(*held);
		shmstore_view_unref(*held);
	}
	*held = v;
}

static void one_round(uint64_t random, struct shmstore_view **held)
{
	struct shmstore *s = stores[random & 1], *t = stores[random >> 1 & 1];
	char key[16], other[16];
	int r;

	snprintf(key, sizeof(key), "k%u", (unsigned)(random >> 2 & 255) % KEYS);
	snprintf(other, sizeof(other), "k%u", (unsigned)(random >> 10 & 255) % KEYS);
	switch (random >> 20 & 15) {
	case 0:
	case 1:
	case 2:
		put(s, key, random >> 24);
		break;
	case 3:
		r = shmstore_delete(s, KEY(key));
		ENSURE(r == 0 || r == -ENOENT);
		break;
	case 4:
	case 5:
		pass_on(s, t, key, other, random >> 24 & 1);
		break;
	case 6:
	case 7:
	case 8:
		ENSURE(moved(shmstore_demote(s, KEY(key), 0), &n_demoted));
		break;
	case 9:
		ENSURE(moved(shmstore_promote(s, KEY(key), 0), &n_promoted));
		break;
	case 10:
		prefetch(s, random >> 24);
		break;
	case 11:
		evict();
		break;
	case 12:
		r = shmstore_pin(s, KEY(key), random >> 24 & 1);
		ENSURE(r == 0 || r == -ENOENT || r == -ENOSPC || r == -ETIMEDOUT);
		ENSURE(shmstore_locate(s, KEY(other)) >= 0);
		break;
	default:
		get(s, key, random >> 24, held);
	}
}

int main(int argc, char **argv)
{
	struct shmstore_view *held[RACERS];

	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 10);
	scratch_dir("size=48m");
	if (!tiered_begin(NULL)) {
		puts("no file system on disk: set SHMSTORE_TEST_DISK");
		return 77;
	}
	partition = scratch_partition();
	stores[0] = scratch_store("a");
	stores[1] = scratch_store("b");
	racing_run(one_round, rounds, held);
	ensure_books_close();
	ENSURE(shmstore_close(stores[0]) == 0 && shmstore_close(stores[1]) == 0);
	racing_end(held);
	shmstore_partition_unref(partition);
	ensure_nothing_left();
	ensure_tier_empty();
	printf("%u puts, %u views, %u demoted, %u promoted, %u full\n", n_puts, n_views, n_demoted,
	       n_promoted, n_full);
	ENSURE(n_puts > rounds / 10 && n_views > rounds / 10 && n_demoted > rounds / 10 &&
	       n_promoted > rounds / 10);
	return 0;
}
