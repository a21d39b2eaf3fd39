/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api.c: see api.h. The other process is a forked child that opens its own store (a forked store is
 * dead, so nothing else of the library is shared) and serves one request at a time over two pipes.
 * It ends when its request pipe does: no test leaves one.
 */
#include "api.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int put_pattern(struct shmstore *s, const char *key, uint64_t size, uint64_t seed, unsigned flags)
{
	unsigned char header[PATTERN_HEADER];
	struct iovec iov = {malloc(size ? size : 1), size};
	int r;

	ENSURE(iov.iov_base);
	pattern_fill(header, sizeof(header), seed + 1);
	pattern_fill(iov.iov_base, size, seed);
	r = shmstore_put(s, KEY(key), header, sizeof(header), &iov, 1, flags);
	free(iov.iov_base);
	return r;
}

int seal_pattern(struct shmstore *s, const char *key, uint64_t size, uint64_t seed, unsigned flags)
{
	struct shmstore_writer *w;
	size_t header_size;
	uint64_t buffer_size;
	int r = shmstore_create(s, KEY(key), PATTERN_HEADER, &size, 1, flags, &w);

	if (r < 0)
		return r;
	pattern_fill(shmstore_writer_header(w, &header_size), PATTERN_HEADER, seed + 1);
	ENSURE(header_size == PATTERN_HEADER);
	pattern_fill(shmstore_writer_buffer(w, 0, &buffer_size), size, seed);
	ENSURE(buffer_size == size);
	return shmstore_seal(w);
}

int view_pattern(const struct shmstore_view *v, uint64_t size, uint64_t seed)
{
	size_t header_size = 0;
	uint64_t buffer_size = 0;
	const void *header = shmstore_view_header(v, &header_size),
		   *buffer = shmstore_view_buffer(v, 0, &buffer_size);

	return shmstore_view_n_buffers(v) != 1 || header_size != PATTERN_HEADER ||
	       buffer_size != size ||
	       pattern_check(header, PATTERN_HEADER, seed + 1) != PATTERN_HEADER ||
	       pattern_check(buffer, size, seed) != size;
}

int get_pattern(struct shmstore *s, const char *key, uint64_t size, uint64_t seed)
{
	struct shmstore_view *v;
	int r = shmstore_get(s, KEY(key), 0, &v);

	if (r < 0)
		return r;
	r = view_pattern(v, size, seed);
	shmstore_view_unref(v);
	return r;
}

struct shmstore_view *get_view(struct shmstore *s, const char *key, unsigned flags)
{
	struct shmstore_view *v = NULL;
	int r = shmstore_get(s, KEY(key), flags, &v);

	if (r < 0)
		fprintf(stderr, "get %s: %s\n", key, shmstore_strerror(r));
	ENSURE(r == 0);
	return v;
}

void telling_fill(void *buffer, uint64_t size, uint64_t seed)
{
	ENSURE(size > sizeof(seed));
	memcpy(buffer, &seed, sizeof(seed));
	pattern_fill((char *)buffer + sizeof(seed), size - sizeof(seed), seed);
}

int telling_put(struct shmstore *s, const char *key, uint64_t size, uint64_t seed, unsigned flags)
{
	struct iovec iov = {malloc(size), size};
	int r;

	ENSURE(iov.iov_base);
	telling_fill(iov.iov_base, size, seed);
	r = shmstore_put(s, KEY(key), NULL, 0, &iov, 1, flags);
	free(iov.iov_base);
	return r;
}

void telling_check(const struct shmstore_view *v)
{
	uint64_t size, seed;
	const unsigned char *b = shmstore_view_buffer(v, 0, &size);

	ENSURE(size > sizeof(seed));
	memcpy(&seed, b, sizeof(seed));
	ENSURE(pattern_check(b + sizeof(seed), size - sizeof(seed), seed) == size - sizeof(seed));
}

static int count_one(const struct shmstore_object_info *info, void *arg)
{
	(void)info;
	++*(int *)arg;
	return 0;
}

int count_objects(struct shmstore *s)
{
	int n = 0, r = shmstore_foreach(s, count_one, &n);

	return r < 0 ? r : n;
}

static int count_one_packed(const struct shmstore_object_info *info, void *arg)
{
	*(int *)arg += info->packed;
	return 0;
}

int count_packed_objects(struct shmstore *s)
{
	int n = 0, r = shmstore_foreach(s, count_one_packed, &n);

	return r < 0 ? r : n;
}

static struct stat stat_of(const char *store, const char *key)
{
	char name[300];
	struct stat st;

	snprintf(name, sizeof(name), "objects/%s", key);
	ENSURE(stat(scratch_store_path(store, name), &st) == 0);
	return st;
}

uint64_t inode_of(const char *store, const char *key)
{
	return stat_of(store, key).st_ino;
}

uint64_t links_of(const char *store, const char *key)
{
	return stat_of(store, key).st_nlink;
}

/* ---- the other process ----------------------------------------------------------------------- */

enum op {
	OP_OPEN,
	OP_PUT,
	OP_GET,
	OP_HANDOFF,
	OP_ADOPT,
	OP_DELETE,
	OP_VIEW,
	OP_CHECK_VIEW,
	OP_UNVIEW,
	OP_DEMOTE,
	OP_PROMOTE,
	OP_LOCATE,
	OP_CLOSE
};

struct request {
	enum op op;
	unsigned flags;
	char key[128];
	uint64_t size, seed;
	struct shmstore_ticket ticket;
};
struct reply {
	int r;
	struct shmstore_ticket ticket;
};

/* False: the other one has ended. */
static bool transfer(int fd, void *data, size_t size, bool out)
{
	char *at = data;

	while (size) {
		ssize_t n = out ? write(fd, at, size) : read(fd, at, size);

		if (n == 0 && !out)
			return false;
		ENSURE(n > 0 || errno == EINTR);
		if (n > 0) {
			at += n;
			size -= (size_t)n;
		}
	}
	return true;
}

static int serve_one(struct shmstore **store, struct shmstore_view **view, const struct request *q,
		     struct reply *a)
{
	struct shmstore *s = *store;

	switch (q->op) {
	case OP_OPEN:
		*store = scratch_store(q->key);
		return 0;
	case OP_PUT:
		return put_pattern(s, q->key, q->size, q->seed, q->flags);
	case OP_GET:
		return get_pattern(s, q->key, q->size, q->seed);
	case OP_HANDOFF:
		return shmstore_handoff(s, KEY(q->key), q->size, &a->ticket);
	case OP_ADOPT:
		return shmstore_adopt(s, KEY(q->key), &q->ticket, q->flags);
	case OP_DELETE:
		return shmstore_delete(s, KEY(q->key));
	case OP_VIEW:
		return shmstore_get(s, KEY(q->key), q->flags, view);
	case OP_CHECK_VIEW:
		return view_pattern(*view, q->size, q->seed);
	case OP_UNVIEW:
		*view = shmstore_view_unref(*view);
		return 0;
	case OP_DEMOTE:
		return shmstore_demote(s, KEY(q->key), 0);
	case OP_PROMOTE:
		return shmstore_promote(s, KEY(q->key), q->flags);
	case OP_LOCATE:
		return shmstore_locate(s, KEY(q->key));
	case OP_CLOSE:
	default:
		return shmstore_close(s);
	}
}

static void serve(int in, int out)
{
	static struct request q;
	static struct reply a;
	struct shmstore_view *view = NULL;
	struct shmstore *s = NULL;

	do {
		if (!transfer(in, &q, sizeof(q), false))
			_exit(0); /* the test has ended */
		a.r = serve_one(&s, &view, &q, &a);
		transfer(out, &a, sizeof(a), true);
	} while (q.op != OP_CLOSE);
	_exit(0);
}

struct other other_fork(void)
{
	struct other o = {.store = ""};
	int in[2], out[2];

	shmstore_partition_unref(scratch_partition()); /* both sides have the same */
	fflush(NULL);
	ENSURE(pipe(in) == 0 && pipe(out) == 0);
	o.pid = fork();
	ENSURE(o.pid >= 0);
	if (o.pid == 0) {
		close(in[1]);
		close(out[0]);
		serve(in[0], out[1]);
	}
	close(in[0]);
	close(out[1]);
	o.to = in[1];
	o.from = out[0];
	return o;
}

static struct reply ask(struct other *o, struct request *q, const char *key)
{
	struct reply a;

	if (key) {
		ENSURE(strlen(key) < sizeof(q->key));
		strcpy(q->key, key);
	}
	transfer(o->to, q, sizeof(*q), true);
	ENSURE(transfer(o->from, &a, sizeof(a), false));
	return a;
}

void other_open(struct other *o, const char *store)
{
	snprintf(o->store, sizeof(o->store), "%s", store);
	ask(o, &(struct request){.op = OP_OPEN}, store);
}

struct other other_start(const char *store)
{
	struct other o = other_fork();

	other_open(&o, store);
	return o;
}

int other_put(struct other *o, const char *key, uint64_t size, uint64_t seed)
{
	return ask(o, &(struct request){.op = OP_PUT, .size = size, .seed = seed}, key).r;
}

int other_get(struct other *o, const char *key, uint64_t size, uint64_t seed)
{
	return ask(o, &(struct request){.op = OP_GET, .size = size, .seed = seed}, key).r;
}

int other_handoff(struct other *o, const char *key, uint64_t lease_ms, struct shmstore_ticket *ret)
{
	struct reply a = ask(o, &(struct request){.op = OP_HANDOFF, .size = lease_ms}, key);

	*ret = a.ticket;
	return a.r;
}

int other_adopt(struct other *o, const char *key, const struct shmstore_ticket *t)
{
	return ask(o, &(struct request){.op = OP_ADOPT, .ticket = *t}, key).r;
}

int other_delete(struct other *o, const char *key)
{
	return ask(o, &(struct request){.op = OP_DELETE}, key).r;
}

int other_view(struct other *o, const char *key, unsigned flags)
{
	return ask(o, &(struct request){.op = OP_VIEW, .flags = flags}, key).r;
}

int other_check_view(struct other *o, uint64_t size, uint64_t seed)
{
	return ask(o, &(struct request){.op = OP_CHECK_VIEW, .size = size, .seed = seed}, NULL).r;
}

int other_unview(struct other *o)
{
	return ask(o, &(struct request){.op = OP_UNVIEW}, NULL).r;
}

int other_demote(struct other *o, const char *key)
{
	return ask(o, &(struct request){.op = OP_DEMOTE}, key).r;
}

int other_promote(struct other *o, const char *key, unsigned flags)
{
	return ask(o, &(struct request){.op = OP_PROMOTE, .flags = flags}, key).r;
}

int other_locate(struct other *o, const char *key)
{
	return ask(o, &(struct request){.op = OP_LOCATE}, key).r;
}

int other_close(struct other *o)
{
	int r = ask(o, &(struct request){.op = OP_CLOSE}, NULL).r;

	close(o->to);
	close(o->from);
	waitpid(o->pid, NULL, 0);
	return r;
}

bool lock_held(const char *store)
{
	int fd = open(scratch_store_path(store, ".store"), O_RDONLY);
	bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;

	if (fd >= 0)
		close(fd);
	return held;
}

static bool lock_free(void *store)
{
	return !lock_held(store);
}

void await_dead(const char *store)
{
	ENSURE(wait_until(lock_free, (void *)(uintptr_t)store, 20000));
}

void other_kill(struct other *o)
{
	kill(o->pid, SIGKILL);
	waitpid(o->pid, NULL, 0);
	if (o->store[0])
		await_dead(o->store);
	close(o->to);
	close(o->from);
}

/* ---- books ----------------------------------------------------------------------------------- */

struct shmstore_usage ensure_books_close(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage u;
	int r = shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u);

	if (r < 0)
		fprintf(stderr, "no books: %s: %s\n", shmstore_strerror(r),
			shmstore_error_detail());
	ENSURE(r == 0);
	if (scratch_is_mount() && u.residual != 0)
		fprintf(stderr,
			"used %llu = linked %llu + ghosts %llu + pool %llu + inflight %llu + "
			"foreign %llu + residual "
			"%lld\n",
			(unsigned long long)u.used, (unsigned long long)u.linked,
			(unsigned long long)u.ghosts, (unsigned long long)u.pool,
			(unsigned long long)u.inflight, (unsigned long long)u.foreign,
			(long long)u.residual);
	ENSURE(!scratch_is_mount() || u.residual == 0);
	ENSURE(u.tier == u.tier_demoted + u.tier_clean + u.tier_orphans);
	shmstore_partition_unref(p);
	return u;
}

static int print_store(const struct shmstore_store_info *info, void *arg)
{
	(void)arg;
	fprintf(stderr, "left: store %s at %s\n", info->name ? info->name : "?", info->path);
	return 0;
}

void ensure_nothing_left(void)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_usage u;
	char path[SCRATCH_PATH + 64];

	ENSURE(shmstore_partition_gc(p, 0, NULL) == 0);
	u = ensure_books_close();
	if (u.n_stores)
		shmstore_partition_stores(p, print_store, NULL);
	ENSURE(u.n_stores == 0 && u.n_objects == 0 && u.n_leases == 0);
	ENSURE(u.pool == 0);
	ENSURE(!scratch_is_mount() ||
	       (u.ghosts == 0 && u.inflight == 0 && u.used <= 4 * (uint64_t)sysconf(_SC_PAGESIZE)));
	snprintf(path, sizeof(path), "%s/stores", scratch_partition_path());
	ENSURE(count_dir(path) == 0);
	snprintf(path, sizeof(path), "%s/peers", scratch_partition_path());
	ENSURE(count_dir(path) == 0);
	shmstore_partition_unref(p);
}

struct shmstore *packing_store(const char *store, uint64_t pack_max, bool keep)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *s = NULL;

	o.keep = keep;
	o.pack_max = pack_max;
	o.recycle_max = 0;
	ENSURE(shmstore_open(scratch_partition(), store, &o, &s) == 0);
	return s;
}
