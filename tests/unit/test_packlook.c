/* SPDX-License-Identifier: Apache-2.0 */
/* Packed objects as a process without a place sees them, while their owner goes on. */
#include <criterion/criterion.h>

#include "pack.h"
#include "packs.h"

#define N 4u

/* Too long for a slot, so that they stand behind the bytes of their objects. */
static const char *const keys[2][N] = {
	{"the first key of an object of that slot", "the second, longer than a slot has room for",
	 "the third key of an object of that slot", "the fourth one of these"},
	{"another one, which is not as long", "what came instead of the second key",
	 "what came for the third", "and one more that came instead of the fourth"},
};
static const unsigned sizes[2] = {1000, 1010};

struct looking {
	struct shms_pack *p;
	unsigned n_seen;
	unsigned of[2][N]; /* how often each was told */
};

/* Takes all objects away but the first one, and puts others into their slots. */
static void use_again(struct shms_pack *p)
{
	for (unsigned i = 1; i < N; i++)
		cr_assert_eq(drop(p, keys[0][i]), 0);
	for (unsigned i = 1; i < N; i++)
		cr_assert_eq(put(p, keys[1][i], sizes[1] + i, N + i, false), 0);
}

/* The look has a copy of all slots when it tells of the first one. */
static int see(const struct shms_packlook *o, void *arg)
{
	struct looking *l = arg;
	bool known = false;

	for (unsigned i = 0; i < 2 * N; i++) {
		const char *key = keys[i / N][i % N];

		if (o->key_size != strlen(key) || memcmp(o->key, key, o->key_size) != 0)
			continue;
		known = true;
		l->of[i / N][i % N]++;
		cr_assert_eq(o->object.buffer_size, sizes[i / N] + i % N);
	}
	cr_assert(known, "a key that nobody put: %.*s", (int)o->key_size, (const char *)o->key);
	if (l->n_seen++ == 0)
		use_again(l->p);
	return 0;
}

Test(packlook, slot_that_is_used_again_meanwhile)
{
	/* A reader without a place sees the objects of kept places; those of a store always are. */
	struct looking l = {.p = open_pack("a", true)};

	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(put(l.p, keys[0][i], sizes[0] + i, i, false), 0);
	cr_assert_eq(shms_packlook(l.p->options.dir_fd, l.p->options.uuid, NULL, 0, see, &l), 0);
	for (unsigned i = 0; i < N; i++) {
		cr_assert_eq(l.of[0][i], i == 0);
		cr_assert_eq(l.of[1][i], i != 0);
	}
	close_pack(l.p);
}
