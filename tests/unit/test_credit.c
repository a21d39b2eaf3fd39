/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credit: what is charged, settled, and counted as gone, by each call; that a limit holds while it
 * is taken away under racing threads; and the store's own limit.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sys/statvfs.h>

#include "api.h"
#include "fakedaemon.h"
#include "recycle.h"

enum {
	SIZE = 100000,
	BLOCKS = 26 * 4096 /* of such an object: a page of header, the buffer */
};

struct life {
	struct fake *f;
	struct shmstore *s;
	struct wire_credit *c;
};

/* A store with a daemon that grants room bytes, no more than what is needed at a time. */
static struct life begin(uint64_t room)
{
	struct shmstore_partition *p = scratch_partition();
	struct life l = {.f = fake_start(p, true, NULL, NULL)};

	l.f->room = room;
	l.f->ahead = 0;
	cr_assert_eq(shmstore_open(p, "a", NULL, &l.s), 0);
	l.c = fake_credit(l.f);
	shmstore_partition_unref(p);
	return l;
}

static void end(struct life *l)
{
	cr_assert_eq(shmstore_close(l->s), 0);
	fake_stop(l->f);
}

#define ENSURE_TOTALS(l, n_charged, n_fresh, n_last)                                             \
	do {                                                                                     \
		cr_assert_eq(atomic_load(&(l).c->charged), (uint64_t)(n_charged), "charged %zu", \
			     (size_t)atomic_load(&(l).c->charged));                              \
		cr_assert_eq(atomic_load(&(l).c->settled), atomic_load(&(l).c->charged),         \
			     "settled");                                                         \
		cr_assert_eq(atomic_load(&(l).c->fresh), (uint64_t)(n_fresh), "fresh %zu",       \
			     (size_t)atomic_load(&(l).c->fresh));                                \
		cr_assert_eq(atomic_load(&(l).c->last), (uint64_t)(n_last), "last %zu",          \
			     (size_t)atomic_load(&(l).c->last));                                 \
	} while (0)

/* ---- what counts ---- */

Test(credit, put_charges_and_settles_what_it_takes)
{
	struct life l = begin(1 << 30);

	cr_assert_eq(put_pattern(l.s, "k", SIZE, 1, 0), 0);
	ENSURE_TOTALS(l, BLOCKS, BLOCKS, 0);
	cr_assert_eq(put_pattern(l.s, "tiny", 1, 1, 0), 0);
	ENSURE_TOTALS(l, BLOCKS + 4096, BLOCKS + 4096, 0);
	end(&l);
}

Test(credit, nobody_counts_where_no_daemon_wrote)
{
	struct life l;

	fake_nowhere();
	l.s = scratch_store("a");
	cr_assert_eq(put_pattern(l.s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(l.s, KEY("k")), 0);
	shmstore_close(l.s);
	/* A page that has the limits, of a store that does not want to know. */
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();

	l = begin(1 << 30);
	shmstore_close(l.s);
	o.daemon = SHMSTORE_DAEMON_OFF;
	cr_assert_eq(shmstore_open(p, "b", &o, &l.s), 0);
	cr_assert_eq(put_pattern(l.s, "k", SIZE, 1, 0), 0);
	shmstore_partition_unref(p);
	end(&l);
}

Test(credit, recycled_put_and_alias_charge_nothing)
{
	struct life l = begin(BLOCKS);
	struct shmstore_view *v;
	struct iovec iov;
	uint64_t size;
	size_t header_size;

	cr_assert_eq(put_pattern(l.s, "k", SIZE, 1, 0), 0);
	for (int i = 0; i < 10; i++) {
		cr_assert_eq(shmstore_delete(l.s, KEY("k")), 0);
		cr_assert_eq(put_pattern(l.s, "k", SIZE, 1, 0), 0);
	}
	ENSURE_TOTALS(l, BLOCKS, BLOCKS, 0);
	v = get_view(l.s, "k", 0);
	iov.iov_base = shmstore_view_buffer(v, 0, &size);
	iov.iov_len = size;
	const void *header = shmstore_view_header(v, &header_size);
	cr_assert_eq(shmstore_put(l.s, KEY("alias"), header, header_size, &iov, 1, 0), 0);
	ENSURE_TOTALS(l, BLOCKS, BLOCKS, 0);
	shmstore_view_unref(v);
	end(&l);
}

Test(credit, failed_put_gives_its_charge_back)
{
	struct life l = begin(1 << 30);

	cr_assert_eq(put_pattern(l.s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(l.s, "k", SIZE, 2, 0), -EEXIST);
	ENSURE_TOTALS(l, BLOCKS, BLOCKS, 0);
	end(&l);
}

Test(credit, full_partition_gives_the_charge_back)
{
	scratch_dir("size=8m");
	if (!scratch_is_mount())
		cr_skip_test("no file system of a size of its own");
	struct life l = begin(1 << 30);
	cr_assert_eq(put_pattern(l.s, "k", 16 << 20, 1, 0), -ENOSPC);
	cr_assert_eq(seal_pattern(l.s, "k", 16 << 20, 1, 0), -ENOSPC);
	ENSURE_TOTALS(l, 0, 0, 0);
	end(&l);
}

Test(credit, writer_charges_and_abort_gives_back)
{
	struct life l = begin(1 << 30);
	struct shmstore_writer *w;
	uint64_t size = SIZE;

	cr_assert_eq(seal_pattern(l.s, "k", SIZE, 1, 0), 0);
	ENSURE_TOTALS(l, BLOCKS, BLOCKS, 0);
	cr_assert_eq(shmstore_create(l.s, KEY("w"), 24, &size, 1, 0, &w), 0);
	ENSURE_TOTALS(l, 2 * BLOCKS, 2 * BLOCKS, 0);
	shmstore_abort(w);
	ENSURE_TOTALS(l, 2 * BLOCKS, 2 * BLOCKS, BLOCKS);
	/* A key that is held is found out when it is sealed. */
	cr_assert_eq(seal_pattern(l.s, "k", SIZE, 1, 0), -EEXIST);
	ENSURE_TOTALS(l, 3 * BLOCKS, 3 * BLOCKS, 2 * BLOCKS);
	end(&l);
}

static uint64_t used(void)
{
	struct statvfs fs;

	cr_assert_eq(statvfs(scratch_partition_path(), &fs), 0);
	return (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
}

/* Under a limit of a user or label, fresh - last is what the store's memory
 * grew by: whatever it did. */
Test(credit, fresh_less_last_is_what_the_file_system_says)
{
	struct life l = begin(1 << 30);
	uint64_t before = used();
	struct shmstore_ticket t;
	char key[8];

	if (!scratch_is_mount())
		cr_skip_test("no file system of its own");
	atomic_store(&l.c->flags, WIRE_CREDIT_LAST);
	for (unsigned i = 0; i < 400; i++) {
		unsigned long long n = i * 2654435761u >> 7;

		snprintf(key, sizeof(key), "k%llu", n % 17);
		switch (n % 7) {
		case 0:
		case 1:
			put_pattern(l.s, key, n % 150000, i, SHMSTORE_REPLACE);
			break;
		case 2:
			put_pattern(l.s, key, n % 150000, i, 0);
			break;
		case 3:
			seal_pattern(l.s, key, n % 150000, i, n % 2 ? SHMSTORE_REPLACE : 0);
			break;
		case 4:
		case 5:
			shmstore_delete(l.s, KEY(key));
			break;
		default:
			/* Out and in again, over whatever there is. */
			if (shmstore_handoff(l.s, KEY(key), 60000, &t) == 0)
				cr_assert_eq(shmstore_adopt(l.s, KEY("k3"), &t, SHMSTORE_REPLACE),
					     0);
		}
		cr_assert_eq(used() - before, atomic_load(&l.c->fresh) - atomic_load(&l.c->last),
			     "step %u", i);
	}
	end(&l);
}

Test(credit, close_counts_what_it_gives_back)
{
	struct life l = begin(1 << 30);

	cr_assert_eq(put_pattern(l.s, "k", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(l.s, "l", SIZE, 1, 0), 0);
	shmstore_close(l.s);
	/* The page of the store is mapped still, as a daemon has it: and it went too. */
	cr_assert_eq(atomic_load(&l.c->last), 2 * BLOCKS + 4096);
	fake_stop(l.f);
}

/* ---- limits ---- */

Test(credit, refused_put_gives_the_pool_back_first)
{
	struct life l = begin(2 * BLOCKS);

	cr_assert_eq(put_pattern(l.s, "a", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(l.s, KEY("a")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 1);
	cr_assert_eq(put_pattern(l.s, "b", 3 * SIZE, 1, 0), -ENOSPC);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	end(&l);
}

Test(credit, store_limit_holds_for_put_create_and_adopt)
{
	struct life l = begin(1 << 30);
	struct shmstore *other = scratch_store("b");
	struct shmstore_ticket t;

	cr_assert_eq(put_pattern(other, "theirs", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(other, KEY("theirs"), 60000, &t), 0);
	atomic_store(&l.c->store_hard, 2 * BLOCKS);
	cr_assert_eq(put_pattern(l.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(seal_pattern(l.s, "2", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(l.s, "3", SIZE, 1, 0), -EDQUOT);
	cr_assert_eq(put_pattern(l.s, "3", 1, 1, 0), -EDQUOT);
	cr_assert_eq(seal_pattern(l.s, "3", 1, 1, 0), -EDQUOT);
	cr_assert_eq(shmstore_adopt(l.s, KEY("3"), &t, 0), -EDQUOT);
	cr_assert_eq(shmstore_delete(l.s, KEY("1")), 0);
	cr_assert_eq(shmstore_adopt(l.s, KEY("3"), &t, 0), 0, "the lease is good still");
	cr_assert_eq(get_pattern(l.s, "3", SIZE, 1), 0);
	/* Held already: takes no more than it did. */
	cr_assert_eq(shmstore_handoff(other, KEY("theirs"), 60000, &t), 0);
	cr_assert_eq(shmstore_adopt(l.s, KEY("3"), &t, 0), 0);
	cr_assert_eq(shmstore_delete(l.s, KEY("2")), 0);
	cr_assert_eq(put_pattern(l.s, "4", SIZE, 1, 0), 0);
	shmstore_close(other);
	end(&l);
}

/* A second link takes no memory: the store's sum counts an inode once, as the file system does. */
Test(credit, store_limit_counts_no_alias)
{
	struct life l = begin(1 << 30);
	struct shmstore_view *v;
	struct iovec iov;
	uint64_t size;
	size_t header_size;

	atomic_store(&l.c->store_hard, BLOCKS);
	cr_assert_eq(put_pattern(l.s, "1", SIZE, 1, 0), 0);
	v = get_view(l.s, "1", 0);
	iov.iov_base = shmstore_view_buffer(v, 0, &size);
	iov.iov_len = size;
	const void *header = shmstore_view_header(v, &header_size);
	cr_assert_eq(shmstore_put(l.s, KEY("2"), header, header_size, &iov, 1, 0), 0);
	cr_expect_eq(links_of("a", "1"), 2);
	cr_assert_eq(put_pattern(l.s, "3", SIZE, 1, 0), -EDQUOT);
	cr_assert_eq(shmstore_put(l.s, KEY("2"), header, header_size, &iov, 1, SHMSTORE_REPLACE),
		     0);
	/* The memory stays as long as one of the names does. */
	cr_assert_eq(shmstore_delete(l.s, KEY("1")), 0);
	cr_assert_eq(put_pattern(l.s, "3", SIZE, 1, 0), -EDQUOT);
	cr_assert_eq(shmstore_delete(l.s, KEY("2")), 0);
	cr_assert_eq(shmstore_delete(l.s, KEY("3")), -ENOENT);
	shmstore_view_unref(v);
	end(&l);
}

/* A file in the pool takes room like any, and gives way. */
Test(credit, store_limit_takes_the_pool)
{
	struct life l = begin(1 << 30);
	struct shmstore *other = scratch_store("b");
	struct shmstore_ticket t;

	atomic_store(&l.c->store_hard, 4 * BLOCKS);
	cr_assert_eq(put_pattern(other, "theirs", 35 * SIZE / 10, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(other, KEY("theirs"), 60000, &t), 0);
	cr_assert_eq(put_pattern(l.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(l.s, KEY("1")), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 1);
	cr_assert_eq(shmstore_adopt(l.s, KEY("3"), &t, 0), 0);
	cr_assert_eq(count_in_store("a", "recycle"), 0);
	cr_assert_eq(put_pattern(l.s, "4", SIZE, 1, 0), -EDQUOT);
	shmstore_close(other);
	end(&l);
}

static struct shms_slot *take_recycled(struct shmstore *s)
{
	const uint64_t size = SIZE;
	struct shms_layout layout;

	cr_assert(shms_layout_init(&layout, 1, 0, &size, 1, 0));
	return shms_recycle_take_for(s, 0, &size, &layout);
}

/* While it is written a file out of the pool is in none of the ledger's sums; it is memory
 * of the store all the same. */
Test(credit, store_limit_counts_a_file_being_recycled)
{
	struct life l = begin(1 << 30);
	struct shms_slot *slot;

	atomic_store(&l.c->store_hard, BLOCKS);
	cr_assert_eq(put_pattern(l.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(l.s, KEY("1")), 0);
	slot = take_recycled(l.s);
	cr_assert_not_null(slot);
	cr_assert_eq(put_pattern(l.s, "2", SIZE, 1, 0), -EDQUOT);
	cr_assert_eq(seal_pattern(l.s, "2", SIZE, 1, 0), -EDQUOT);
	shms_recycle_untake(l.s, slot);
	cr_assert_eq(put_pattern(l.s, "2", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(l.s, "3", 1, 1, 0), -EDQUOT);
	end(&l);
}

/* Its name went by somebody's hand: the file's memory goes with it. */
Test(credit, store_limit_forgets_a_recycled_file_that_is_gone)
{
	struct life l = begin(1 << 30);
	struct shms_slot *slot;

	atomic_store(&l.c->store_hard, BLOCKS);
	cr_assert_eq(put_pattern(l.s, "1", SIZE, 1, 0), 0);
	cr_assert_eq(shmstore_delete(l.s, KEY("1")), 0);
	slot = take_recycled(l.s);
	cr_assert_not_null(slot);
	shms_recycle_discard(l.s, slot);
	cr_assert_eq(put_pattern(l.s, "2", SIZE, 1, 0), 0);
	cr_assert_eq(put_pattern(l.s, "3", 1, 1, 0), -EDQUOT);
	end(&l);
}

struct eater {
	struct life *l;
	unsigned n;
	unsigned n_in, n_out;
};

static void *eat(void *arg)
{
	struct eater *e = arg;
	char key[32];

	for (unsigned i = 0; i < 200; i++) {
		snprintf(key, sizeof(key), "%u-%u", e->n, i);
		int r = put_pattern(e->l->s, key, SIZE, i, 0);

		if (r == 0)
			e->n_in++;
		else
			e->n_out++;
		cr_assert(r == 0 || r == -EDQUOT || r == -ENOSPC, "%d", r);
		if (r == 0 && i % 3)
			cr_assert_eq(shmstore_delete(e->l->s, KEY(key)), 0);
	}
	return NULL;
}

Test(credit, store_limit_holds_for_many_threads)
{
	struct life l = begin(UINT64_MAX);
	struct shmstore_store_usage u;
	struct eater e[4];
	pthread_t threads[4];
	char key[32];
	unsigned n = 0;

	atomic_store(&l.c->store_hard, 20 * BLOCKS + 5);
	for (unsigned i = 0; i < 4; i++) {
		e[i] = (struct eater){.l = &l, .n = i};
		pthread_create(&threads[i], NULL, eat, &e[i]);
	}
	for (unsigned i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(shmstore_usage(l.s, &u), 0);
	cr_assert_leq(u.linked, 20 * BLOCKS + 5);
	/* Threads that stood still may have held room to the end; alone, what
	 * fits is let in to the last. */
	do
		snprintf(key, sizeof(key), "last-%u", n++);
	while (put_pattern(l.s, key, SIZE, 0, 0) == 0);
	cr_assert_eq(shmstore_usage(l.s, &u), 0);
	cr_assert_eq(u.linked, 20 * BLOCKS, "what fits was refused");
	end(&l);
}

struct taker {
	struct shmstore *s;
	const char *key;
	struct shmstore_ticket t;
	pthread_barrier_t *both;
	int r;
};

static void *take(void *arg)
{
	struct taker *k = arg;

	pthread_barrier_wait(k->both);
	k->r = shmstore_adopt(k->s, KEY(k->key), &k->t, 0);
	return NULL;
}

Test(credit, store_limit_holds_for_racing_adopts)
{
	struct life l = begin(1 << 30);
	struct shmstore *other = scratch_store("b");
	pthread_barrier_t both;
	struct taker k[2] = {{.s = l.s, .key = "0", .both = &both},
			     {.s = l.s, .key = "1", .both = &both}};
	pthread_t threads[2];
	struct shmstore_store_usage u;

	pthread_barrier_init(&both, NULL, 2);
	atomic_store(&l.c->store_hard, BLOCKS);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(put_pattern(other, k[i].key, SIZE, 1, 0), 0);
	for (unsigned n = 0; n < 300; n++) {
		for (unsigned i = 0; i < 2; i++) {
			cr_assert_eq(shmstore_handoff(other, KEY(k[i].key), 60000, &k[i].t), 0);
			pthread_create(&threads[i], NULL, take, &k[i]);
		}
		for (unsigned i = 0; i < 2; i++)
			pthread_join(threads[i], NULL);
		cr_assert_eq(shmstore_usage(l.s, &u), 0);
		cr_assert_leq(u.linked, BLOCKS, "both were let in, round %u", n);
		for (unsigned i = 0; i < 2; i++) {
			cr_assert(k[i].r == 0 || k[i].r == -EDQUOT, "%d", k[i].r);
			if (k[i].r == 0)
				cr_assert_eq(shmstore_delete(l.s, KEY(k[i].key)), 0);
		}
	}
	/* Nothing stays booked. */
	cr_assert_eq(put_pattern(l.s, "2", SIZE, 1, 0), 0);
	pthread_barrier_destroy(&both);
	shmstore_close(other);
	end(&l);
}

/* The daemon takes credit back, again and again, while four threads charge it: never is
 * more charged than was booked. */
struct revoker {
	struct life *l;
	atomic_bool stop;
	uint64_t n_refused;
};

static void *charge_and_settle(void *arg)
{
	struct revoker *k = arg;
	struct wire_credit *c = k->l->c;
	uint64_t n = 0;

	while (!atomic_load_explicit(&k->stop, memory_order_relaxed)) {
		if (!wire_credit_charge(c, 4096))
			n++;
		else if (n % 5 == 0)
			wire_credit_uncharge(c, 4096);
		else
			wire_credit_settle(c, 4096, 4096);
		n++;
	}
	return NULL;
}

Test(credit, racing_threads_never_charge_more_than_was_booked)
{
	struct life l = begin(0);
	struct revoker k = {.l = &l};
	pthread_t threads[4];
	uint64_t booked = 0;

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, charge_and_settle, &k);
	for (unsigned i = 0; i < 20000; i++) {
		uint64_t settled;

		/* Gives, and takes back what is not spent. */
		booked = wire_credit_revoke(l.c, atomic_load(&l.c->granted) + (i % 7) * 4096);
		settled = atomic_load(&l.c->settled);
		cr_assert_leq(settled, booked, "settled %zu of %zu", (size_t)settled,
			      (size_t)booked);
		if (i % 3 == 0) {
			uint64_t charged = atomic_load(&l.c->charged);

			if (charged < booked)
				booked = wire_credit_revoke(l.c, charged);
			settled = atomic_load(&l.c->settled);
			cr_assert_leq(settled, booked, "after taking back: settled %zu of %zu",
				      (size_t)settled, (size_t)booked);
		}
	}
	atomic_store(&k.stop, true);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	cr_assert_leq(atomic_load(&l.c->settled), booked);
	cr_assert_leq(atomic_load(&l.c->charged), booked);
	end(&l);
}
