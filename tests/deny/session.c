/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session MODE PARTITION [DISK]: a user's session, a line for each step: "<step> ok <answer>", or
 * "<step> failed <errno> <the sentence>". Each answer is the same in every run, and does not depend
 * on how the library does it. tests/deny/run plays it under filters.
 *
 *   all    all that a user does; exit status 1 where a step failed
 *   tier   all that a user does with a disk tier in the directory DISK; exit status likewise
 *   dead   leaves a dead store with two objects
 *   hold   a live store, and one whose only object was deleted under a view; says "up" and waits
 *          for the end of its standard input
 *   put    a store of 32 MiB: 0, 3 where there is no room, 1 otherwise
 *   serve  a store of 64 MiB, which must be the daemon's; says "up" and waits
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api.h"

#define LARGE (UINT64_C(3) << 20)
#define SMALL UINT64_C(800)

static int n_failed;

/* r < 0: the step failed. True where it did not. */
static bool step(const char *name, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static bool step(const char *name, int r, const char *format, ...)
{
	const char *detail = shmstore_error_detail();
	va_list ap;

	if (r < 0) {
		n_failed++;
		printf("%s failed %d %s\n", name, -r, *detail ? detail : shmstore_strerror(r));
	} else {
		printf("%s ok ", name);
		va_start(ap, format);
		vprintf(format, ap);
		va_end(ap);
		putchar('\n');
	}
	fflush(stdout);
	return r >= 0;
}

/* Whether the key has those bytes, as a step. */
static void holds(const char *name, struct shmstore *s, const char *key, uint64_t size,
		  uint64_t seed)
{
	int r = get_pattern(s, key, size, seed);

	step(name, r, "%s", r == 0 ? "right" : "WRONG BYTES");
}

static int open_store(struct shmstore_partition *p, const char *name, unsigned flags,
		      uint32_t daemon, struct shmstore **ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

	o.flags = flags;
	o.daemon = daemon;
	o.pack_max = UINT64_C(1) << 20;
	return shmstore_open(p, name, &o, ret);
}

static void puts_and_gets(struct shmstore *s)
{
	step("put-large", put_pattern(s, "large", LARGE, 1, 0), "%s", "");
	step("put-small", put_pattern(s, "small", SMALL, 2, 0), "%s", "");
	holds("get-large", s, "large", LARGE, 1);
	holds("get-small", s, "small", SMALL, 2);
	step("seal", seal_pattern(s, "sealed", LARGE, 3, 0), "%s", "");
	holds("get-sealed", s, "sealed", LARGE, 3);
	step("replace", put_pattern(s, "sealed", LARGE, 4, SHMSTORE_REPLACE), "%s", "");
	holds("get-replaced", s, "sealed", LARGE, 4);
	step("delete", shmstore_delete(s, KEY("sealed")), "%s", "");
	step("put-again", put_pattern(s, "again", LARGE, 5, 0), "%s", "");
	holds("get-again", s, "again", LARGE, 5);
}

static void handed_over(struct shmstore_partition *p, struct shmstore *s, const char *key,
			uint64_t size, uint64_t seed)
{
	struct shmstore_ticket t;
	struct shmstore *other;
	char name[32];

	snprintf(name, sizeof(name), "handoff-%s", key);
	if (!step(name, shmstore_handoff(s, key, strlen(key), 60000, &t), "%s", "") ||
	    !step("open-other", open_store(p, "other", 0, SHMSTORE_DAEMON_OFF, &other), "%s", ""))
		return;
	snprintf(name, sizeof(name), "adopt-%s", key);
	if (step(name, shmstore_adopt(other, key, strlen(key), &t, 0), "%s", ""))
		holds("get-adopted", other, key, size, seed);
	step("close-other", shmstore_close(other), "%s", "");
}

static void readers(struct shmstore_partition *p)
{
	struct shmstore *s;

	if (!step("readonly", open_store(p, "a", SHMSTORE_OPEN_READONLY, SHMSTORE_DAEMON_OFF, &s),
		  "%s", ""))
		return;
	holds("readonly-large", s, "large", LARGE, 1);
	holds("readonly-small", s, "small", SMALL, 2);
	step("readonly-close", shmstore_close(s), "%s", "");
}

static int count_store(const struct shmstore_store_info *info, void *arg)
{
	(void)info;
	++*(int *)arg;
	return 0;
}

static int count_bad(const struct shmstore_verify_finding *f, void *arg)
{
	*(int *)arg += f->error != 0 && f->error != -EPERM;
	if (f->error == -EPERM) {
		printf("verify-all failed %d %s\n", EPERM, f->reason);
		n_failed++;
	}
	return 0;
}

static void looks(struct shmstore_partition *p, struct shmstore *s)
{
	struct shmstore_usage u;
	struct shmstore_view *v;
	int n = 0, r = shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u);

	step("usage", r, "stores %d objects %d residual %d", r ? 0 : (int)u.n_stores,
	     r ? 0 : (int)u.n_objects, r ? 0 : (int)u.residual);
	r = shmstore_partition_stores(p, count_store, &n);
	step("stores", r, "%d", n);
	step("objects", count_objects(s), "%d", count_objects(s));
	n = 0;
	r = shmstore_partition_verify(p, count_bad, &n);
	step("verify", r, "%d bad", n);
	if (!step("view", shmstore_get(s, KEY("again"), 0, &v), "%s", ""))
		return;
	if (step("delete-viewed", shmstore_delete(s, KEY("again")), "%s", "")) {
		r = shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u);
		step("ghost", r, "%s residual %d", !r && u.ghosts >= LARGE ? "there" : "MISSED",
		     r ? 0 : (int)u.residual);
	}
	shmstore_view_unref(v);
}

static int dead(struct shmstore_partition *p)
{
	struct shmstore *s;
	int r = open_store(p, "dead", 0, SHMSTORE_DAEMON_OFF, &s);

	if (r < 0)
		return 1;
	put_pattern(s, "large", LARGE, 6, 0);
	put_pattern(s, "small", SMALL, 7, 0);
	return 0; /* and no close */
}

static void collects(struct shmstore_partition *p)
{
	struct shmstore_gc_report dry, run;
	int status = -1, r;
	pid_t child = fork();

	if (child == 0)
		_exit(dead(p));
	if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
		return;
	r = shmstore_partition_gc(p, SHMSTORE_GC_DRY_RUN, &dry);
	step("gc-dry", r, "stores %d", r ? 0 : (int)dry.n_stores);
	r = shmstore_partition_gc(p, 0, &run);
	step("gc", r, "stores %d", r ? 0 : (int)run.n_stores);
}

/* A store that stays gives back the memory of what it deleted. */
static void keeps(struct shmstore_partition *p)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_usage u = {0};
	struct shmstore *s;
	int r;

	o.daemon = SHMSTORE_DAEMON_OFF;
	o.keep = true;
	if (!step("open-kept", shmstore_open(p, "kept", &o, &s), "%s", ""))
		return;
	step("put-kept", put_pattern(s, "large", LARGE, 8, 0), "%s", "");
	step("delete-kept", shmstore_delete(s, KEY("large")), "%s", "");
	step("close-kept", shmstore_close(s), "%s", "");
	r = shmstore_partition_usage(p, 0, &u);
	step("kept-pool", r, "%s", u.pool ? "LEFT" : "none");
}

static int all(const char *path)
{
	struct shmstore_partition *p;
	struct shmstore *s;

	if (!step("partition", shmstore_partition_open(path, SHMSTORE_CREATE, &p), "%s", "") ||
	    !step("open", open_store(p, "a", 0, SHMSTORE_DAEMON_OFF, &s), "%s", ""))
		return 1;
	puts_and_gets(s);
	readers(p);
	handed_over(p, s, "large", LARGE, 1);
	handed_over(p, s, "small", SMALL, 2);
	looks(p, s);
	collects(p);
	step("close", shmstore_close(s), "%s", "");
	keeps(p);
	return n_failed ? 1 : 0;
}

static int count_damaged(const struct shmstore_verify_finding *f, void *arg)
{
	*(int *)arg += f->error != 0;
	return 0;
}

static void tier_books(struct shmstore_partition *p)
{
	struct shmstore_tier_verify v = {.size = sizeof(v), .fn = count_damaged};
	struct shmstore_tier_info info;
	struct shmstore_usage u;
	int n = 0, r;

	v.arg = &n;
	r = shmstore_tier_info(p, &info);
	step("tier-info", r, "orphans %d closes %d", r ? 0 : (int)info.n_orphans,
	     r ? 0 : info.used == info.demoted + info.clean + info.orphans);
	r = shmstore_tier_verify(p, &v);
	step("tier-verify", r, "%d bad", n);
	r = shmstore_partition_usage(p, SHMSTORE_USAGE_FULL, &u);
	step("tier-usage", r, "objects %d residual %d closes %d", r ? 0 : (int)u.n_objects,
	     r ? 0 : (int)u.residual,
	     r ? 0 : u.tier == u.tier_demoted + u.tier_clean + u.tier_orphans);
}

/* A step that moves a key: its answer is where that is afterwards. */
static void moved(const char *name, int r, struct shmstore *s, const char *key)
{
	int at = r < 0 ? 0 : shmstore_locate(s, KEY(key));

	step(name, r, "%s",
	     at == SHMSTORE_IN_MEMORY ? "memory"
	     : at == SHMSTORE_IN_TIER ? "tier"
				      : "NOWHERE");
}

static void moves(struct shmstore *s)
{
	char large[] = "large", small[] = "small";
	const struct iovec keys[] = {{large, strlen(large)}, {small, strlen(small)}};
	int results[2] = {0, 0}, n;

	moved("demote-large", shmstore_demote(s, KEY("large"), 0), s, "large");
	moved("demote-small", shmstore_demote(s, KEY("small"), 0), s, "small");
	n = shmstore_prefetch(s, keys, 2, 0, 0, results);
	/* Which has a code for each key, and no sentence. */
	step("prefetch", n < 0 ? n : 0, "%s",
	     n == (results[0] == 0) + (results[1] == 0) ? "right" : "WRONG NUMBER");
	moved("demote-again", shmstore_demote(s, KEY("large"), 0), s, "large");
	holds("get-demoted", s, "large", LARGE, 1);
	holds("get-small", s, "small", SMALL, 2);
	moved("demote-clean", shmstore_demote(s, KEY("large"), 0), s, "large");
	moved("promote", shmstore_promote(s, KEY("large"), 0), s, "large");
	holds("get-promoted", s, "large", LARGE, 1);
	step("pin", shmstore_pin(s, KEY("large"), true), "%s", "");
	step("unpin", shmstore_pin(s, KEY("large"), false), "%s", "");
}

/* The partition has a quarter of a GiB. */
static void puts_more_than_there_is(struct shmstore *s)
{
	char key[2] = "1";
	int r = 0;

	for (; r == 0 && key[0] <= '4'; key[0]++)
		r = put_pattern(s, key, UINT64_C(80) << 20, 6, 0);
	step("put-full", r, "%s", "");
	for (; key[0] >= '1'; key[0]--)
		shmstore_delete(s, KEY(key));
}

static void given_from_tier(struct shmstore_partition *p, struct shmstore *s)
{
	struct shmstore_ticket t;
	struct shmstore *other;

	step("put-given", put_pattern(s, "given", LARGE, 3, 0), "%s", "");
	moved("demote-given", shmstore_demote(s, KEY("given"), 0), s, "given");
	if (!step("handoff-as-is",
		  shmstore_handoff_flags(s, KEY("given"), 60000, SHMSTORE_AS_IS, &t), "%s", "") ||
	    !step("open-other", open_store(p, "other", 0, SHMSTORE_DAEMON_OFF, &other), "%s", ""))
		return;
	if (step("adopt-as-is", shmstore_adopt(other, KEY("given"), &t, 0), "%s", ""))
		holds("get-given", other, "given", LARGE, 3);
	step("close-other", shmstore_close(other), "%s", "");
}

static int tier(const char *path, const char *disk)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	struct shmstore_evict evict = SHMSTORE_EVICT_INIT;
	struct shmstore_partition *p;
	struct shmstore *s;

	config.path = disk;
	config.fsync = true;
	if (!step("partition", shmstore_partition_open(path, SHMSTORE_CREATE, &p), "%s", "") ||
	    !step("tier-set", shmstore_tier_set(p, &config), "%s", "") ||
	    !step("open", open_store(p, "a", 0, SHMSTORE_DAEMON_OFF, &s), "%s", ""))
		return 1;
	step("put-large", put_pattern(s, "large", LARGE, 1, 0), "%s", "");
	step("put-small", put_pattern(s, "small", SMALL, 2, 0), "%s", "");
	moves(s);
	given_from_tier(p, s);
	step("put-evicted", put_pattern(s, "evicted", LARGE, 4, 0), "%s", "");
	evict.bytes = LARGE;
	step("evict", shmstore_partition_evict(p, &evict, NULL), "%s", "");
	holds("get-evicted", s, "evicted", LARGE, 4);
	moved("demote-replaced", shmstore_demote(s, KEY("large"), 0), s, "large");
	tier_books(p);
	config.fsync = false;
	step("tier-set-again", shmstore_tier_set(p, &config), "%s", "");
	puts_more_than_there_is(s);
	step("replace", put_pattern(s, "large", LARGE, 5, SHMSTORE_REPLACE), "%s", "");
	holds("get-replaced", s, "large", LARGE, 5);
	moved("demote-deleted", shmstore_demote(s, KEY("large"), 0), s, "large");
	step("delete", shmstore_delete(s, KEY("large")), "%s", "");
	step("close", shmstore_close(s), "%s", "");
	return n_failed ? 1 : 0;
}

static int up_and_wait(void)
{
	char c;

	puts("up");
	fflush(stdout);
	return read(STDIN_FILENO, &c, 1) < 0;
}

static int hold(struct shmstore_partition *p)
{
	struct shmstore *live, *ghost;

	if (open_store(p, "live", 0, SHMSTORE_DAEMON_OFF, &live) < 0 ||
	    open_store(p, "ghost", 0, SHMSTORE_DAEMON_OFF, &ghost) < 0 ||
	    put_pattern(live, "large", LARGE, 1, 0) < 0 ||
	    put_pattern(live, "small", SMALL, 2, 0) < 0 ||
	    put_pattern(ghost, "large", LARGE, 3, 0) < 0 || !get_view(ghost, "large", 0) ||
	    shmstore_delete(ghost, KEY("large")) < 0)
		return 1;
	return up_and_wait();
}

static int put(struct shmstore_partition *p)
{
	struct shmstore *s;
	int r = open_store(p, "over", 0, SHMSTORE_DAEMON_AUTO, &s);

	if (r < 0)
		return 1;
	r = put_pattern(s, "large", UINT64_C(32) << 20, 1, 0);
	shmstore_close(s);
	return r == 0 ? 0 : r == -ENOSPC || r == -EDQUOT ? 3 : 1;
}

static int serve(struct shmstore_partition *p)
{
	struct shmstore *s;

	return open_store(p, "served", 0, SHMSTORE_DAEMON_REQUIRED, &s) < 0 ||
			       put_pattern(s, "large", UINT64_C(64) << 20, 1, 0) < 0
		       ? 1
		       : up_and_wait();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*fn)(struct shmstore_partition *p);
	} modes[] = {{"dead", dead}, {"hold", hold}, {"put", put}, {"serve", serve}};
	struct shmstore_partition *p;

	if (argc == 3 && strcmp(argv[1], "all") == 0)
		return all(argv[2]);
	if (argc == 4 && strcmp(argv[1], "tier") == 0)
		return tier(argv[2], argv[3]);
	for (size_t i = 0; argc == 3 && i < sizeof(modes) / sizeof(*modes); i++) {
		if (strcmp(argv[1], modes[i].name) == 0)
			return shmstore_partition_open(argv[2], SHMSTORE_CREATE, &p) < 0
				       ? 1
				       : modes[i].fn(p);
	}
	fputs("usage: session all|dead|hold|put|serve PARTITION, or tier PARTITION DISK\n", stderr);
	return 2;
}
