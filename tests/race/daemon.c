/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon.c: six threads put, wait for room, delete and ask what is owed in one store, while a
 * daemon grants little at a time, takes unspent credit back, asks for memory, dies and comes again.
 * Every put succeeds or is refused by the limit; contents are right; at the end what was charged
 * was settled, and no more than was granted. Plain main(): runs under TSan too.
 *
 *   daemon [rounds]
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "api.h"
#include "fakedaemon.h"

enum {
	THREADS = 6,
	KEYS = 4
};

static struct shmstore *store;
static unsigned rounds = 300;
static _Atomic unsigned n_put, n_refused, n_running = THREADS;

static void *work(void *arg)
{
	unsigned number = (unsigned)(uintptr_t)arg;
	char key[32];

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t size = (i * 2654435761u >> 8) % 200000, bytes;
		bool seal = i % 5 == 0;
		int r;

		snprintf(key, sizeof(key), "%u-%u", number, i % KEYS);
		r = (seal ? seal_pattern : put_pattern)(
			store, key, size, i, SHMSTORE_REPLACE | (i % 3 ? 0 : SHMSTORE_WAIT));
		ENSURE(r == 0 || r == -ENOSPC || r == -EDQUOT || r == -ETIMEDOUT);
		if (r == 0) {
			n_put++;
			ENSURE(get_pattern(store, key, size, i) == 0);
		} else {
			n_refused++;
		}
		if (i % 2) {
			r = shmstore_delete(store, KEY(key));
			ENSURE(r == 0 || r == -ENOENT);
		}
		ENSURE(shmstore_asked(store, &bytes) >= 0);
		if (number == 0 && i % 16 == 0)
			ENSURE(shmstore_daemon_dispatch(store) >= 0);
	}
	n_running--;
	return NULL;
}

static struct fake *begin(struct shmstore_partition *p)
{
	struct fake *f = fake_start(p, true, NULL, NULL);

	f->room = 300000;
	f->ahead = 65536;
	return f;
}

int main(int argc, char **argv)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	pthread_t threads[THREADS];
	struct wire_credit *c;
	struct fake *f;
	unsigned turn = 0;

	if (argc > 1)
		rounds = (unsigned)atoi(argv[1]);
	f = begin(p);
	o.wait_ms = 20;
	ENSURE(shmstore_open(p, "a", &o, &store) == 0);
	c = fake_credit(f);
	for (uintptr_t i = 0; i < THREADS; i++)
		ENSURE(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
	while (n_running) {
		turn++;
		fake_give(f, 200000);
		/* Takes back what is not spent; the fake and we are one daemon, that
		 * does not grant in between. */
		if (turn % 4 == 0 && !f->n_waiting)
			wire_credit_revoke(c, atomic_load(&c->charged));
		if (turn % 8 == 0) {
			atomic_store(&c->asked_bytes, turn % 16 ? 100000 : 0);
			atomic_fetch_add(&c->asked_n, 1);
		}
		if (turn % 64 == 0) {
			fake_stop(f);
			f = begin(p);
			atomic_store(&c->epoch, f->epoch);
		}
		/* a pace: they put meanwhile */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ENSURE(n_put > 0);
	ENSURE(atomic_load(&c->charged) == atomic_load(&c->settled));
	ENSURE(shmstore_close(store) == 0);
	fake_stop(f);
	printf("%u put, %u refused\n", n_put, n_refused);
	shmstore_partition_unref(p);
	shmstore_partition_unref(p);
	return 0;
}
