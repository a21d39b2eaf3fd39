/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile.c: a process of the same user writes anything into the segments and the
 * pages of stores that are at work.
 *
 *   hostile [-t seconds] [-s seed]
 *
 * Two stores share segments, hand each other objects and read each other by name; now and then
 * one is killed, and opened again over what is there then. The hostile process maps each of
 * their segments and their indexes as a whole, and changes words of the books and of extents at
 * random, so that any call may fail, and what they read may be wrong. But no call may crash,
 * hang, or return an error that is not of the closed list. Two other stores, which share
 * segments with each other only, must find every byte of theirs, and no error, though they are
 * under limits that a daemon left which is dead. In the end a store that was written into can be
 * opened, closed and collected.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "dice.h"
#include "failure.h"
#include "pagewords.h"
#include "sandbox.h"

#define PACK_MAX (UINT64_C(1) << 20)
#define KEYS     12u
#define LEASE_MS 500u
#define READS    20u   /* by one handle */
#define HANG_S   60u   /* more than any call takes */
#define WRITES   2000u /* into a segment, each time that it is mapped */

enum {
	HARMED = 2, /* stores 0 and 1 share segments into which is written */
	STORES = 4
};

struct mail {
	_Atomic bool full;
	struct shmstore_ticket ticket;
	char key[16];
	uint64_t seed;
};

struct shared {
	_Atomic bool stop;
	struct failure failure;
	_Atomic uint64_t next_seed, n_writes, n_ops[STORES], n_errors[STORES], n_bad;
	struct mail mail[STORES]; /* to each */
};

struct options {
	unsigned seconds;
	uint64_t seed;
};

static struct shared *sh;
static char partition[256];

/* ---- stores ---------------------------------------------------------------------------------- */

struct worker {
	unsigned id;
	struct dice dice;
	struct shmstore_partition *p;
	struct shmstore *s;
	uint64_t seeds[KEYS]; /* 0: none. Of a store that nobody harms */
};

static bool in_list(int rc)
{
	static const int list[] = {EINVAL,  ENOENT, EEXIST, EBUSY,     ENOSPC,   EDQUOT,
				   EBADMSG, EPERM,  ESTALE, EXDEV,     EMFILE,   ENOMEM,
				   ENOTSUP, EIO,    EFBIG,  ETIMEDOUT, ECANCELED};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		if (rc == -list[i])
			return true;
	return rc >= 0;
}

/* allowed: an error that the call has without harm, too. */
static void check(struct worker *w, const char *what, int rc, int allowed)
{
	sh->n_ops[w->id]++;
	sh->n_errors[w->id] += rc < 0;
	sh->n_bad += rc == -EBADMSG;
	if (!in_list(rc) || (w->id >= HARMED && rc < 0 && rc != allowed))
		failure_say(&sh->failure, "store %u: %s: %d (%s)", w->id, what, rc,
			    shmstore_error_detail());
}

/* All that the view shows is read, whatever it is. */
static void look(struct worker *w, unsigned k, struct shmstore_view *v, uint64_t seed)
{
	struct content c = {0, 0};
	const char *why = content_check(v, &c);

	for (size_t i = 0; i < shmstore_view_n_buffers(v); i++) {
		uint64_t size, sum = 0;
		const unsigned char *bytes = shmstore_view_buffer(v, i, &size);

		for (uint64_t at = 0; at < size; at += 64)
			sum += bytes[at];
		atomic_signal_fence(memory_order_seq_cst);
		(void)sum;
	}
	if (w->id >= HARMED && (why || c.seed != seed))
		failure_say(&sh->failure, "store %u: key %u: %s", w->id, k,
			    why ? why : "another object");
}

static void put(struct worker *w, unsigned k, const char *key)
{
	static const uint64_t sizes[] = {0, 100, 3000, 9000, 70000};
	struct content c = {++sh->next_seed, sizes[dice_draw(&w->dice, 5)]};
	int rc = content_put(w->s, key, strlen(key), c, SHMSTORE_REPLACE);

	check(w, "put", rc, 0);
	w->seeds[k] = rc == 0 ? c.seed : w->seeds[k];
}

static void get(struct worker *w, unsigned k, const char *key)
{
	struct shmstore_view *v;
	int rc =
		shmstore_get(w->s, key, strlen(key), dice_draw(&w->dice, 2) ? SHMSTORE_COW : 0, &v);

	check(w, "get", rc, w->seeds[k] ? 0 : -ENOENT);
	if (rc < 0)
		return;
	look(w, k, v, w->seeds[k]);
	shmstore_view_unref(v);
}

static void drop(struct worker *w, unsigned k, const char *key)
{
	check(w, "delete", shmstore_delete(w->s, key, strlen(key)), w->seeds[k] ? 0 : -ENOENT);
	w->seeds[k] = 0;
}

static void give(struct worker *w, unsigned k, const char *key)
{
	struct mail *to = &sh->mail[w->id ^ 1];
	int rc;

	if (to->full)
		return;
	rc = shmstore_handoff(w->s, key, strlen(key), LEASE_MS, &to->ticket);
	check(w, "handoff", rc, w->seeds[k] ? 0 : -ENOENT);
	memcpy(to->key, key, sizeof(to->key));
	to->seed = w->seeds[k];
	to->full = rc == 0;
}

static void take(struct worker *w)
{
	struct mail *mine = &sh->mail[w->id];
	int rc;

	if (!mine->full)
		return;
	rc = shmstore_adopt(w->s, mine->key, strlen(mine->key), &mine->ticket, SHMSTORE_REPLACE);
	check(w, "adopt", rc, -ESTALE); /* it took too long */
	if (rc == 0)
		w->seeds[strtoul(mine->key + 4, NULL, 10) % KEYS] = mine->seed;
	mine->full = false;
}

static int count(const struct shmstore_object_info *info, void *arg)
{
	*(uint64_t *)arg += info->key_size;
	return 0;
}

static int no_word(const struct shmstore_verify_finding *finding, void *arg)
{
	(void)finding;
	(void)arg;
	return 0;
}

/* Calls that look at all stores, the harmed ones, too. */
static void survey(struct worker *w)
{
	struct shmstore_usage usage;
	uint64_t n = 0;

	check(w, "foreach", shmstore_foreach(w->s, count, &n), 0);
	if (dice_draw(&w->dice, 8))
		return;
	check(w, "usage", shmstore_partition_usage(w->p, 0, &usage), 0);
	check(w, "verify", shmstore_partition_verify(w->p, no_word, NULL), 0);
	check(w, "gc", shmstore_partition_gc(w->p, 0, NULL), 0);
}

/* The other store of the pair, by its name: it may be gone just now, and its keys come and go. */
static void read_other(struct worker *w)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore *other;
	char name[16];
	int rc;

	snprintf(name, sizeof(name), "store-%u", w->id ^ 1);
	o.flags = SHMSTORE_OPEN_READONLY;
	rc = shmstore_open(w->p, name, &o, &other);
	check(w, "open to read", rc, -ENOENT);
	for (unsigned i = 0; rc == 0 && i < READS; i++) {
		struct shmstore_view *v;
		struct content c;
		char key[16];
		int got;

		snprintf(key, sizeof(key), "key-%u", (unsigned)dice_draw(&w->dice, KEYS));
		got = shmstore_get(other, key, strlen(key), 0, &v);
		check(w, "get of the other's", got, -ENOENT);
		if (got < 0)
			continue;
		if (content_check(v, &c) && w->id >= HARMED)
			failure_say(&sh->failure, "store %u reads a damaged %s", w->id, key);
		shmstore_view_unref(v);
	}
	if (rc == 0)
		check(w, "close to read", shmstore_close(other), 0);
}

/* As a daemon leaves a page that was killed: the limits are far off, and a put of
 * fresh memory asks how far. */
static void limit(const char *name)
{
	const uint64_t far = UINT64_C(400) << 20,
		       daemon[] = {1000000000, 0, WIRE_CREDIT_LAST, 0, 0, 0, 65536, far, far};
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/stores/%s/" WIRE_PAGE_FILE, partition, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	/* Its epoch last: who sees it sees the rest. */
	if (fd < 0 || pwrite(fd, daemon + 1, sizeof(daemon) - 8, WIRE_CREDIT_OFF + 8) < 0 ||
	    pwrite(fd, daemon, 8, WIRE_CREDIT_OFF) != 8)
		failure_say(&sh->failure, "%s: no limits", path);
	close(fd);
}

static int open_store(struct worker *w)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	char name[16];
	int rc;

	snprintf(name, sizeof(name), "store-%u", w->id);
	o.pack_max = PACK_MAX;
	o.keep = w->id % 2 == 0;
	while ((rc = shmstore_open(w->p, name, &o, &w->s)) == -EBUSY && !sh->stop)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	check(w, "open", rc, 0);
	if (rc == 0 && w->id >= HARMED)
		limit(name);
	return rc;
}

static void work(unsigned id, uint64_t seed)
{
	struct worker w = {.id = id, .dice.state = seed};

	alarm(HANG_S);
	if (shmstore_partition_open(partition, 0, &w.p) < 0)
		_exit(1);
	if (open_store(&w) < 0)
		_exit(0);
	while (!sh->stop && !sh->failure.is) {
		unsigned k = (unsigned)dice_draw(&w.dice, KEYS);
		char key[16] = "";

		alarm(HANG_S);
		snprintf(key, sizeof(key), "key-%u", k);
		switch (dice_draw(&w.dice, 12)) {
		case 0:
		case 1:
		case 2:
			put(&w, k, key);
			break;
		case 3:
		case 4:
			drop(&w, k, key);
			break;
		case 5:
		case 6:
			give(&w, k, key);
			break;
		case 7:
		case 8:
			take(&w);
			break;
		case 9:
			if (dice_draw(&w.dice, 20) == 0)
				survey(&w);
			else if (dice_draw(&w.dice, 4) == 0)
				read_other(&w);
			break;
		default:
			get(&w, k, key);
		}
	}
	check(&w, "close", shmstore_close(w.s), 0);
	shmstore_partition_unref(w.p);
	_exit(0);
}

/* ---- the hostile process --------------------------------------------------------------------- */

/* Words that mean something are likelier to do harm than others. */
static uint64_t word(struct dice *d)
{
	switch (dice_draw(d, 4)) {
	case 0:
		return dice_draw(d, 16);
	case 1:
		return UINT64_MAX - dice_draw(d, 4);
	default:
		return dice_bits(d);
	}
}

static void write_word(_Atomic uint64_t *at, struct dice *d)
{
	if (dice_draw(d, 2))
		*at = word(d);
	else
		*at ^= UINT64_C(1) << dice_draw(d, 64);
	sh->n_writes++;
}

/*
 * A page's identity is left alone most times: who cannot read it believes nothing else of it. No
 * single bits: a false number that could be true of bytes under way is believed (docs/security.md).
 */
static void scribble_page(_Atomic uint64_t *words, struct dice *d)
{
	for (unsigned i = 0; i < WRITES / 20; i++, sh->n_writes++)
		words[dice_draw(d, 64) ? 256 + dice_draw(d, 256) : dice_draw(d, 256)] = word(d);
}

/* The books are at the begin: most of what is written goes there. */
static void scribble(const char *path, struct dice *d)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	_Atomic uint64_t *words;
	void *map;

	if (fd < 0)
		return; /* it is gone */
	if (fstat(fd, &st) < 0 || st.st_size < 4096) {
		close(fd);
		return;
	}
	map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return;
	words = map;
	if (st.st_size == 4096)
		scribble_page(words, d);
	for (unsigned i = 0; i < WRITES && !sh->stop && st.st_size > 4096; i++) {
		uint64_t n = (uint64_t)st.st_size / 8, books = n / 16, at = 0;

		switch (dice_draw(d, 64)) {
		case 0:
			at = dice_draw(d, 12); /* the header */
			break;
		case 1:
			at = dice_draw(d, n);
			break;
		case 2:
		case 3:
		case 4:
			at = 512 + dice_draw(d, 264); /* the control words and the records */
			break;
		default:
			at = 512 + dice_draw(d, books);
		}
		write_word(&words[at], d);
	}
	munmap(map, (size_t)st.st_size);
}

static void harm(unsigned id, struct dice *d)
{
	char directory[300], path[600];
	struct dirent *e;
	DIR *dir;

	snprintf(directory, sizeof(directory), "%s/stores/store-%u/segments", partition, id);
	dir = opendir(directory);
	while (dir && (e = readdir(dir)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
		if (e->d_name[0] != '.')
			scribble(path, d);
	}
	if (dir)
		closedir(dir);
	snprintf(path, sizeof(path), "%s/stores/store-%u/index", partition, id);
	scribble(path, d);
	snprintf(path, sizeof(path), "%s/stores/store-%u/" WIRE_PAGE_FILE, partition, id);
	scribble(path, d);
}

static void be_hostile(uint64_t seed)
{
	struct dice d = {.state = seed};

	while (!sh->stop && !sh->failure.is) {
		harm((unsigned)dice_draw(&d, HARMED), &d);
		/* They are to do some work between. */
		nanosleep(&(struct timespec){.tv_nsec = (long)dice_draw(&d, 20000000)}, NULL);
	}
	_exit(0);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static pid_t start(int id, uint64_t seed)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (id < 0)
			be_hostile(seed);
		else
			work((unsigned)id, seed);
	}
	return pid;
}

/* killed: it may have been. Returns whether it was. */
static bool reap(const char *what, unsigned id, pid_t pid, bool killed)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	if (status != 0 && !(killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL))
		failure_say(&sh->failure, "%s %u ended with status 0x%x", what, id,
			    (unsigned)status);
	return status != 0;
}

static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static void play(const struct options *o)
{
	struct dice d = {.state = o->seed};
	time_t end = now() + (time_t)o->seconds;
	pid_t hostile = start(-1, dice_bits(&d)), pids[STORES];

	for (unsigned i = 0; i < STORES; i++)
		pids[i] = start((int)i, dice_bits(&d));
	while (now() < end && !sh->failure.is) {
		unsigned i = (unsigned)dice_draw(&d, HARMED);

		/* at any moment */
		nanosleep(&(struct timespec){.tv_nsec = (long)dice_draw(&d, 100000000)}, NULL);
		kill(pids[i], SIGKILL);
		reap("store", i, pids[i], true);
		sh->mail[i].full = false;
		pids[i] = start((int)i, dice_bits(&d));
	}
	sh->stop = true;
	reap("hostile process", 0, hostile, false);
	for (unsigned i = 0; i < STORES; i++)
		reap("store", i, pids[i], false);
}

/* They can be opened, and taken apart; verify says what it says. */
static void collect(void)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct worker w = {.id = 0};
	char name[16];

	if (shmstore_partition_open(partition, 0, &w.p) < 0)
		_exit(1);
	o.flags = SHMSTORE_OPEN_FRESH;
	for (unsigned i = 0; i < STORES; i++) {
		int rc;

		snprintf(name, sizeof(name), "store-%u", i);
		rc = shmstore_open(w.p, name, &o, &w.s);
		check(&w, "open", rc, 0);
		if (rc == 0)
			check(&w, "close", shmstore_close(w.s), 0);
	}
	check(&w, "gc", shmstore_partition_gc(w.p, 0, NULL), 0);
	shmstore_partition_unref(w.p);
	_exit(0);
}

static int body(const char *mount, void *arg)
{
	struct shmstore_partition *p;
	pid_t pid;

	snprintf(partition, sizeof(partition), "%s/partition", mount);
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (sh == MAP_FAILED || shmstore_partition_open(partition, SHMSTORE_CREATE, &p) < 0)
		return 2;
	shmstore_partition_unref(p);
	play(arg);
	pid = fork();
	if (pid == 0) {
		alarm(HANG_S);
		collect();
	}
	reap("the end's process", 0, pid, false);
	printf("hostile: seed %llu: %llu words written; the harmed: %llu + %llu calls, %llu + %llu "
	       "errors; the others: "
	       "%llu + %llu calls, "
	       "%llu + %llu errors; %llu times -EBADMSG\n",
	       (unsigned long long)((const struct options *)arg)->seed,
	       (unsigned long long)sh->n_writes, (unsigned long long)sh->n_ops[0],
	       (unsigned long long)sh->n_ops[1], (unsigned long long)sh->n_errors[0],
	       (unsigned long long)sh->n_errors[1], (unsigned long long)sh->n_ops[2],
	       (unsigned long long)sh->n_ops[3], (unsigned long long)sh->n_errors[2],
	       (unsigned long long)sh->n_errors[3], (unsigned long long)sh->n_bad);
	if (!sh->failure.is && (!sh->n_writes || !sh->n_bad || !sh->n_ops[2] || !sh->n_ops[3]))
		failure_say(&sh->failure,
			    "nothing was harmed, or nobody worked: the test says nothing");
	if (sh->failure.is)
		printf("FAIL hostile: %s\n", sh->failure.message);
	printf("hostile: %u passed, %u failed\n", !sh->failure.is, sh->failure.is);
	return sh->failure.is ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct options o = {.seconds = 5, .seed = (uint64_t)time(NULL)};
	int option;

	while ((option = getopt(argc, argv, "t:s:")) != -1) {
		if (option == 't')
			o.seconds = (unsigned)strtoul(optarg, NULL, 10);
		else if (option == 's')
			o.seed = strtoull(optarg, NULL, 10);
		else
			return 2;
	}
	return sandbox_run("size=512m", body, &o);
}
