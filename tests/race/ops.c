/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ops.c: beside a process that takes their memory, threads (racing.h) put, replace, get, hand off,
 * adopt, delete, list and ask for usage with overlapping keys in two stores; then the stores are
 * closed while views live. Contents tell their own seed, so that every view can be checked; a view
 * is also checked again after its key was replaced, deleted and its file perhaps recycled. Plain
 * main(): runs under TSan too.
 *
 *   ops [rounds]
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"
#include "gc.h"
#include "partition.h"
#include "racing.h"

enum {
	KEYS = 6
};

static struct shmstore *stores[2];
static unsigned rounds = 400;
static _Atomic unsigned n_puts, n_views, n_adopts;

static void put(struct shmstore *s, const char *key, uint64_t random, bool seal)
{
	static const uint64_t sizes[] = {100, 5000, 70000, 70500, 150000};
	uint64_t size = sizes[random % 5];
	unsigned flags = random & 1024 ? SHMSTORE_REPLACE : 0;
	struct shmstore_writer *w;
	int r;

	if (seal) {
		r = shmstore_create(s, KEY(key), 0, &size, 1, flags, &w);
		ENSURE(r == 0);
		telling_fill(shmstore_writer_buffer(w, 0, NULL), size, random);
		if (random & 2048) {
			shmstore_abort(w);
			return;
		}
		r = shmstore_seal(w);
	} else {
		r = telling_put(s, key, size, random, flags);
	}
	ENSURE(r == 0 || (r == -EEXIST && !(flags & SHMSTORE_REPLACE)));
	n_puts += r == 0;
}

static void pass_on(struct shmstore *from, struct shmstore *to, const char *key, const char *other,
		    bool replace)
{
	struct shmstore_ticket t;
	int r = shmstore_handoff(from, KEY(key), 60000, &t);

	ENSURE(r == 0 || r == -ENOENT);
	if (r < 0)
		return;
	r = shmstore_adopt(to, KEY(other), &t, replace ? SHMSTORE_REPLACE : 0);
	ENSURE(r == 0 || (r == -EEXIST && !replace));
	n_adopts += r == 0;
	if (r < 0)
		/* an unused lease would stay */
		ENSURE(shmstore_adopt(to, KEY(other), &t, SHMSTORE_REPLACE) == 0);
}

static void alias(struct shmstore *s, const struct shmstore_view *v, const char *key)
{
	uint64_t size;
	struct iovec iov = {shmstore_view_buffer(v, 0, &size), 0};
	int r;

	iov.iov_len = size;
	r = shmstore_put(s, KEY(key), NULL, 0, &iov, 1, 0);
	ENSURE(r == 0 || r == -EEXIST);
}

static int count_one(const struct shmstore_object_info *info, void *arg)
{
	ENSURE(info->error == 0);
	++*(unsigned *)arg;
	return 0;
}

static void one_round(uint64_t random, struct shmstore_view **held)
{
	struct shmstore *s = stores[random & 1], *t = stores[random >> 1 & 1];
	struct shmstore_store_usage usage;
	struct shmstore_view *v;
	char key[16], other[16];
	unsigned n = 0;
	int r;

	snprintf(key, sizeof(key), "k%u", (unsigned)(random >> 2) % KEYS);
	snprintf(other, sizeof(other), "k%u", (unsigned)(random >> 7) % KEYS);
	switch (random >> 12 & 15) {
	case 0:
	case 1:
	case 2:
	case 3:
		put(s, key, random, false);
		break;
	case 4:
		put(s, key, random, true);
		break;
	case 5:
	case 6:
		r = shmstore_delete(s, KEY(key));
		ENSURE(r == 0 || r == -ENOENT);
		break;
	case 7:
	case 8:
		pass_on(s, t, key, other, random >> 20 & 1);
		break;
	case 9:
		r = shmstore_foreach(s, count_one, &n);
		ENSURE(r == 0);
		ENSURE(shmstore_usage(s, &usage) == 0);
		break;
	case 10:
		r = shmstore_contains(s, KEY(key));
		ENSURE(r == 0 || r == 1);
		ENSURE(shmstore_set_address(s, random >> 20 & 1 ? "tcp://a:1" : "tcp://b:2") == 0);
		break;
	default:
		r = shmstore_get(s, KEY(key), random >> 20 & 1 ? SHMSTORE_COW : 0, &v);
		ENSURE(r == 0 || r == -ENOENT);
		if (r < 0)
			break;
		telling_check(v);
		n_views++;
		if (random >> 21 & 1)
			alias(s, v, other);
		if (*held) {
			telling_check(*held);
			shmstore_view_unref(*held);
		}
		*held = v;
	}
}

/* Another process takes what the two stores have for no object, again and
 * again, while they use it. */
static pid_t taker(void)
{
	pid_t pid = fork_bound(0);
	bool again;

	while (pid == 0) {
		atomic_store(&scratch_partition()->vain_ms, 0);
		(void)shms_pool_take(scratch_partition(), geteuid(), 0, &again);
		usleep(200);
	}
	return pid;
}

int main(int argc, char **argv)
{
	struct shmstore_view *held[RACERS];
	pid_t pid;

	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 10);
	scratch_partition();
	pid = taker();
	stores[0] = scratch_store("a");
	stores[1] = scratch_store("b");
	racing_run(one_round, rounds, held);
	ENSURE(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
	ensure_books_close();
	ENSURE(shmstore_close(stores[0]) == 0 && shmstore_close(stores[1]) == 0);
	racing_end(held);
	ensure_nothing_left();
	printf("%u puts, %u adoptions, %u views\n", n_puts, n_adopts, n_views);
	ENSURE(n_puts > rounds / 10 && n_views > rounds / 10 && n_adopts > rounds / 20);
	return 0;
}
