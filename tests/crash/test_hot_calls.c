/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hot_calls.c: how many system calls the operations make that programs make most, each on a
 * tmpfs of each huge= mode. A call takes as long as all the rest of such an operation that is not a
 * copy, so that one more shows where a clock on a busy host does not: on huge=within_size, the mode
 * that the documentation recommends, an fstat() of each small object that was put cost 8 %.
 */
#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox.h"
#include "tracer.h"

#define SMALL 1024u
#define DEEP  32u /* operations of a kind before the one that is counted */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

struct scene {
	struct shmstore *fresh, *pooled, *other;
	struct shmstore_ticket ticket;
	char bytes[SMALL];
	char key[16]; /* of this turn */
};

static int put(struct shmstore *s, struct scene *x)
{
	struct iovec buffer = {x->bytes, sizeof(x->bytes)};

	return shmstore_put(s, x->key, strlen(x->key), NULL, 0, &buffer, 1, 0);
}

static int drop(struct shmstore *s, struct scene *x)
{
	return shmstore_delete(s, x->key, strlen(x->key));
}

static int do_put(struct scene *x)
{
	return put(x->fresh, x);
}

static int do_put_pooled(struct scene *x)
{
	return put(x->pooled, x);
}

static int do_create(struct scene *x)
{
	uint64_t size = SMALL;
	struct shmstore_writer *w;
	int r = shmstore_create(x->fresh, x->key, strlen(x->key), 0, &size, 1, 0, &w);

	if (r < 0)
		return r;
	memcpy(shmstore_writer_buffer(w, 0, NULL), x->bytes, SMALL);
	return shmstore_seal(w);
}

static int do_get(struct scene *x)
{
	struct shmstore_view *v;
	int r = shmstore_get(x->fresh, x->key, strlen(x->key), 0, &v);

	if (r == 0)
		shmstore_view_unref(v);
	return r;
}

static int do_delete(struct scene *x)
{
	return drop(x->fresh, x);
}

static int do_handoff(struct scene *x)
{
	return shmstore_handoff(x->fresh, x->key, strlen(x->key), 60000, &x->ticket);
}

static int do_adopt(struct scene *x)
{
	return shmstore_adopt(x->other, x->key, strlen(x->key), &x->ticket, 0);
}

static int after_pooled(struct scene *x)
{
	return drop(x->pooled, x);
}

static int after_adopt(struct scene *x)
{
	int r = drop(x->other, x);

	return r < 0 ? r : drop(x->fresh, x);
}

static int before_adopt(struct scene *x)
{
	int r = do_put(x);

	return r < 0 ? r : do_handoff(x);
}

static const struct operation {
	const char *name;
	int (*before)(struct scene *x); /* not counted; may be NULL, as after */
	int (*what)(struct scene *x);
	int (*after)(struct scene *x);
	unsigned most;
} operations[] = {
	{"put", NULL, do_put, do_delete, 4}, /* openat, pwritev, linkat, close */
	{"put into the pool", NULL, do_put_pooled, after_pooled,
	 9}, /* four for the file lease, fstat twice, renameat2 */
	{"create and seal", NULL, do_create, do_delete, 9},
	{"get", do_put, do_get, do_delete, 6},  /* openat, lseek, pread, mmap, close, munmap */
	{"delete", do_put, do_delete, NULL, 1}, /* unlinkat */
	{"handoff", do_put, do_handoff, do_delete, 1}, /* linkat */
	{"adopt", before_adopt, do_adopt, after_adopt, 8},
};

/* The child that is traced: exit status 0 where every call succeeded. */
static int play(const char *path, const struct operation *o)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct scene x = {0};
	int r;

	options.daemon = SHMSTORE_DAEMON_OFF;
	if (shmstore_partition_open(path, SHMSTORE_CREATE, &p) < 0 ||
	    shmstore_open(p, "pooled", &options, &x.pooled) < 0 ||
	    shmstore_open(p, "other", &options, &x.other) < 0)
		return 1;
	options.recycle_max = 0;
	if (shmstore_open(p, "fresh", &options, &x.fresh) < 0)
		return 1;
	for (unsigned i = 0; i <= DEEP; i++) {
		snprintf(x.key, sizeof(x.key), "key-%u", i);
		r = o->before ? o->before(&x) : 0;
		if (i == DEEP)
			tracer_begin();
		r = r == 0 ? o->what(&x) : r;
		if (i == DEEP)
			tracer_end();
		r = r == 0 && o->after ? o->after(&x) : r;
		if (r < 0) {
			fprintf(stderr, "%s: %s\n", o->name, shmstore_strerror(r));
			return 1;
		}
	}
	shmstore_close(x.fresh);
	shmstore_close(x.pooled);
	shmstore_close(x.other);
	shmstore_partition_unref(p);
	return 0;
}

static int count_one(const char *path, const struct operation *o)
{
	static struct tracer_result result;
	const struct tracer_plan plan = {.mode = TRACER_COUNT};
	unsigned tries = 0;

	/* A put may also look whether the store is there still, once in 20 ms (shms_there()), which
	 * a busy host brings about. */
	do {
		pid_t pid = fork();
		int r;

		if (pid == 0)
			_exit(tracer_child(NULL) < 0 ? 1 : play(path, o));
		r = pid < 0 ? -errno : tracer_run(pid, &plan, 20000, &result);
		if (r < 0 || !result.ended || result.status != 0) {
			printf("FAIL %s: %d, status 0x%x\n", o->name, r, (unsigned)result.status);
			return 1;
		}
	} while (result.n_calls > o->most && ++tries < 5);
	if (result.n_calls > o->most) {
		printf("FAIL %s makes %u system calls instead of %u:", o->name, result.n_calls,
		       o->most);
		for (unsigned i = 0; i < result.n_calls; i++)
			printf(" %llu", (unsigned long long)result.calls[i].nr);
		printf("\n");
		return 1;
	}
	printf("ok   %s: %u\n", o->name, result.n_calls);
	return 0;
}

static int count_all(const char *path, void *arg)
{
	unsigned n_failed = 0;

	printf("%s\n", (const char *)arg);
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
		n_failed += (unsigned)count_one(path, &operations[i]);
	fflush(stdout);
	return n_failed != 0;
}

int main(void)
{
	static char modes[][64] = {"size=64m,huge=never", "size=64m,huge=within_size",
				   "size=64m,huge=advise"};
	int status = 0, r;

#ifdef SANITIZED
	printf("skipped: the sanitizer makes calls of its own\n");
	return 77;
#endif
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		r = sandbox_run(modes[i], count_all, modes[i]);
		if (r == 77)
			return 77;
		status |= r;
	}
	printf("%s\n", status ? "hot_calls: failed" : "hot_calls: passed");
	return status ? 1 : 0;
}
