/* SPDX-License-Identifier: Apache-2.0 */
/*
 * storetool.c: a process for the integration tests to command: one partition, stores and views
 * under names that the test gives them, one command per line on standard input, one line of answer
 * each: "0 …" or "-ERRNO TEXT". It ends with its input.
 *
 *   storetool PARTITION
 *
 *   open NAME [keep] [adopt] [fresh] [readonly [anyuser]] [norecycle] [dir=PATH] [label=TEXT]
 *        [daemon=off|required] [wait=MS] [pack=BYTES]
 *                                the current store from now on
 *   close                        use NAME
 *   put KEY SIZE SEED [replace] [checksum] [wait] [pin] [noevict]
 *                                header of 24 bytes and one buffer, both patterns of SEED
 *   create KEY SIZE SEED         a writer, filled, left open          seal | abort
 *   get KEY SIZE SEED            gets, compares, lets go: "0 same" or "0 DIFFERENT"
 *   hold VIEW KEY [cow]          gets and keeps       check VIEW SIZE SEED
 *   write VIEW                   a byte of each page  drop VIEW
 *   alias VIEW KEY               puts what the view holds under another key
 *   handoff KEY MS [as_is]       "0 TICKET"           adopt KEY TICKET [replace] [verify]
 *   handoff_to KEY UID MS        the same for another user
 *   delete KEY                   contains KEY         list            "0 N KEY…"
 *   address TEXT                 peer TEXT            "0 NAME"
 *   usage                        of the store: "0 linked pss uss mapped n_objects n_views"
 *   books                        of the partition, full: "0 used linked ghosts pool inflight
 *                                foreign residual stores objects leases"
 *   gc                           "0 stores leases objects freed"
 *   flood N SIZE                 N puts of SIZE bytes, each deleted where it
 *                                succeeds: "0 n_ok n_enospc n_other"
 *   churn MS SEED [tier | until FILE]         for so long puts, gets, hands to itself, deletes
 *                                (demotes, promotes) at random: "0 n_ok n_refused n_other n_wrong"
 *   asked                        "0 REGISTERED BYTES"         dispatch         "0 REGISTERED"
 *   heed MS                      waits so long for the daemon to say something, and
 *                                dispatches: "0 SAID REGISTERED"
 *   tier PATH [max=BYTES] [min_free=BYTES] [level=N] [fsync]  gives the partition its disk tier
 *   tier_info                    "0 used demoted clean orphans n_demoted disk_free"
 *   demote KEY                   promote KEY [noevict]           pin KEY         unpin KEY
 *   locate KEY                   "0 memory", "0 tier" or "0 nowhere"
 *   prefetch N_THREADS KEY...    "0 n_there result..."
 *   evict BYTES [TO]             "0 n_objects freed n_clean"
 *   fork                         a child that sleeps, holding what it inherited: "0 PID"
 *   exit                         ends without closing anything
 */
#include "storetool.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <search.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "scratch.h"

enum {
	HEADER = 24,
	NAMES = 64
};

struct shmstore_partition *partition;
struct shmstore *store;
static struct shmstore_writer *writer;
static bool packs; /* the store has pack_max */
static struct {
	char name[32];
	struct shmstore_view *view;
} views[NAMES];

int answer(int r)
{
	if (r < 0)
		printf("%d %s %s %s\n", r, shmstore_strerror(r), shmstore_error_detail(),
		       shmstore_error_path());
	else
		printf("0\n");
	return r;
}

uint64_t number(const char *word)
{
	return strtoull(word, NULL, 10);
}

bool flag(char **words, const char *name)
{
	for (; *words; words++) {
		if (strcmp(*words, name) == 0)
			return true;
	}
	return false;
}

static struct shmstore_view **view_of(const char *name)
{
	for (size_t i = 0; i < NAMES; i++) {
		if (views[i].view && strcmp(views[i].name, name) == 0)
			return &views[i].view;
	}
	return NULL;
}

static bool same(const struct shmstore_view *v, uint64_t size, uint64_t seed)
{
	uint64_t got;
	size_t header;
	const void *h = shmstore_view_header(v, &header), *b = shmstore_view_buffer(v, 0, &got);

	return shmstore_view_n_buffers(v) == 1 && header == HEADER && got == size &&
	       pattern_check(h, HEADER, seed + 1) == HEADER && pattern_check(b, size, seed) == size;
}

static void do_open(char **w)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

	o.keep = flag(w + 2, "keep");
	o.flags = (flag(w + 2, "adopt") ? SHMSTORE_OPEN_ADOPT : 0) |
		  (flag(w + 2, "fresh") ? SHMSTORE_OPEN_FRESH : 0) |
		  (flag(w + 2, "readonly") ? SHMSTORE_OPEN_READONLY : 0);
	/* Root looks at users' stores, as an operator does. */
	if (flag(w + 2, "readonly") && (geteuid() == 0 || flag(w + 2, "anyuser")))
		o.flags |= SHMSTORE_OPEN_ANY_USER;
	if (flag(w + 2, "norecycle"))
		o.recycle_max = 0;
	for (char **x = w + 2; *x; x++) {
		if (strncmp(*x, "dir=", 4) == 0)
			o.directory = *x + 4;
		else if (strncmp(*x, "label=", 6) == 0)
			o.label = *x + 6;
		else if (strncmp(*x, "wait=", 5) == 0)
			o.wait_ms = number(*x + 5);
		else if (strncmp(*x, "pack=", 5) == 0)
			o.pack_max = number(*x + 5);
		else if (strcmp(*x, "daemon=off") == 0)
			o.daemon = SHMSTORE_DAEMON_OFF;
		else if (strcmp(*x, "daemon=required") == 0)
			o.daemon = SHMSTORE_DAEMON_REQUIRED;
		else if (strcmp(*x, "arbitrate") == 0)
			o.flags |= SHMSTORE_OPEN_ARBITRATE;
	}
	packs = o.pack_max != 0;
	answer(shmstore_open(partition, w[1], &o, &store));
}

static int put(const char *key, uint64_t size, uint64_t seed, unsigned flags)
{
	unsigned char header[HEADER];
	struct iovec iov = {malloc(size + 1), size};
	int r;

	ENSURE(iov.iov_base);
	pattern_fill(header, HEADER, seed + 1);
	pattern_fill(iov.iov_base, size, seed);
	r = shmstore_put(store, key, strlen(key), header, HEADER, &iov, 1, flags);
	free(iov.iov_base);
	return r;
}

static void do_put(char **w)
{
	answer(put(w[1], number(w[2]), number(w[3]),
		   (flag(w + 4, "replace") ? SHMSTORE_REPLACE : 0) |
			   (flag(w + 4, "checksum") ? SHMSTORE_CHECKSUM : 0) |
			   (flag(w + 4, "wait") ? SHMSTORE_WAIT : 0) |
			   (flag(w + 4, "pin") ? SHMSTORE_PIN : 0) |
			   (flag(w + 4, "noevict") ? SHMSTORE_NO_EVICT : 0)));
}

static void do_create(char **w)
{
	uint64_t size = number(w[2]), seed = number(w[3]);
	int r = shmstore_create(store, w[1], strlen(w[1]), HEADER, &size, 1, 0, &writer);

	if (r == 0) {
		pattern_fill(shmstore_writer_header(writer, NULL), HEADER, seed + 1);
		pattern_fill(shmstore_writer_buffer(writer, 0, NULL), size, seed);
	}
	answer(r);
}

static void do_get(char **w)
{
	struct shmstore_view *v;
	int r = shmstore_get(store, w[1], strlen(w[1]), SHMSTORE_VERIFY, &v);

	if (r < 0) {
		answer(r);
		return;
	}
	puts(same(v, number(w[2]), number(w[3])) ? "0 same" : "0 DIFFERENT");
	shmstore_view_unref(v);
}

static void do_hold(char **w)
{
	size_t i = 0;

	while (i < NAMES - 1 && views[i].view)
		i++;
	ENSURE(!views[i].view && strlen(w[1]) < sizeof(views[i].name));
	strcpy(views[i].name, w[1]);
	answer(shmstore_get(store, w[2], strlen(w[2]), flag(w + 3, "cow") ? SHMSTORE_COW : 0,
			    &views[i].view));
}

/* Commands on a held view. */
static void do_view(char **w)
{
	struct shmstore_view **v = view_of(w[1]);
	struct iovec iov;
	uint64_t size = 0;
	size_t header_size;
	char *b;

	ENSURE(v);
	b = shmstore_view_buffer(*v, 0, &size);
	switch (w[0][0]) {
	case 'c':
		puts(same(*v, number(w[2]), number(w[3])) ? "0 same" : "0 DIFFERENT");
		return;
	case 'w':
		for (uint64_t i = 0; i < size; i += 4096)
			b[i] = (char)~b[i];
		break;
	case 'a':
		iov = (struct iovec){b, size};
		{
			const void *header = shmstore_view_header(*v, &header_size);

			answer(shmstore_put(store, w[2], strlen(w[2]), header, header_size, &iov, 1,
					    0));
		}
		return;
	default:
		*v = shmstore_view_unref(*v);
	}
	answer(0);
}

static void do_handoff(char **w)
{
	char text[SHMSTORE_TICKET_TEXT];
	struct shmstore_ticket t;
	int r;

	if (strcmp(w[0], "handoff_to") == 0)
		r = shmstore_handoff_to(store, w[1], strlen(w[1]), (uid_t)number(w[2]),
					number(w[3]), &t);
	else
		r = shmstore_handoff_flags(store, w[1], strlen(w[1]), number(w[2]),
					   flag(w + 3, "as_is") ? SHMSTORE_AS_IS : 0, &t);

	if (r == 0)
		r = shmstore_ticket_format(&t, text, sizeof(text));
	if (r == 0)
		printf("0 %s\n", text);
	else
		answer(r);
}

static void do_adopt(char **w)
{
	struct shmstore_ticket t;
	int r = shmstore_ticket_parse(w[2], &t);

	if (r == 0)
		r = shmstore_adopt(store, w[1], strlen(w[1]), &t,
				   (flag(w + 3, "replace") ? SHMSTORE_REPLACE : 0) |
					   (flag(w + 3, "verify") ? SHMSTORE_VERIFY : 0));
	answer(r);
}

static int list_one(const struct shmstore_object_info *info, void *arg)
{
	fprintf(arg, " %.*s%s", (int)info->key_size, (const char *)info->key,
		info->error ? "(bad)" : "");
	return 0;
}

static void do_list(char **w)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);
	int r = shmstore_foreach(store, list_one, f);

	(void)w;
	fclose(f);
	if (r < 0)
		answer(r);
	else
		printf("0%s\n", text);
	free(text);
}

static void do_peer(char **w)
{
	char name[SHMSTORE_NAME_MAX + 1];
	int r = shmstore_peer_find(partition, w[1], name, sizeof(name));

	if (r == 0)
		printf("0 %s\n", name);
	else
		answer(r);
}

static void do_usage(char **w)
{
	struct shmstore_store_usage u;
	int r = shmstore_usage(store, &u);

	(void)w;
	if (r == 0)
		printf("0 %ju %ju %ju %ju %ju %ju\n", (uintmax_t)u.linked, (uintmax_t)u.pss,
		       (uintmax_t)u.uss, (uintmax_t)u.mapped, (uintmax_t)u.n_objects,
		       (uintmax_t)u.n_views);
	else
		answer(r);
}

static void do_books(char **w)
{
	struct shmstore_usage u;
	int r = shmstore_partition_usage(partition, SHMSTORE_USAGE_FULL, &u);

	(void)w;
	if (r == 0)
		printf("0 %ju %ju %ju %ju %ju %ju %jd %ju %ju %ju\n", (uintmax_t)u.used,
		       (uintmax_t)u.linked, (uintmax_t)u.ghosts, (uintmax_t)u.pool,
		       (uintmax_t)u.inflight, (uintmax_t)u.foreign, (intmax_t)u.residual,
		       (uintmax_t)u.n_stores, (uintmax_t)u.n_objects, (uintmax_t)u.n_leases);
	else
		answer(r);
}

static void do_gc(char **w)
{
	struct shmstore_gc_report g;
	int r = shmstore_partition_gc(partition, 0, &g);

	(void)w;
	if (r == 0)
		printf("0 %ju %ju %ju %ju\n", (uintmax_t)g.n_stores, (uintmax_t)g.n_leases,
		       (uintmax_t)g.n_objects, (uintmax_t)g.freed);
	else
		answer(r);
}

static void do_flood(char **w)
{
	uint64_t n = number(w[1]), size = number(w[2]), n_ok = 0, n_full = 0, n_other = 0;
	struct iovec iov = {calloc(1, size), size};

	ENSURE(iov.iov_base);
	for (uint64_t i = 0; i < n; i++) {
		int r = shmstore_put(store, "flood", 5, NULL, 0, &iov, 1, 0);

		n_ok += r == 0;
		n_full += r == -ENOSPC;
		n_other += r != 0 && r != -ENOSPC;
		if (r == 0)
			ENSURE(shmstore_delete(store, "flood", 5) == 0);
		else
			ENSURE(shmstore_contains(store, "flood", 5) == 0);
	}
	free(iov.iov_base);
	printf("0 %ju %ju %ju\n", (uintmax_t)n_ok, (uintmax_t)n_full, (uintmax_t)n_other);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* One random thing with one of eight keys. Returns the call's, 1: wrong bytes. seeds: what
 * each key holds, 0 = nothing. */
/* A packed object that gets another key is copied: if there is no room for that, its lease stays,
 * and the test waits for its end. */
#define LEASE_MS (packs ? 3000 : 60000)

static int churn_once(uint64_t x, uint64_t seeds[8], bool tier)
{
	uint64_t n = x % 8, seed = x | 1, size = seed % 400000;
	char key[16], other[16];
	struct shmstore_ticket t;
	struct shmstore_view *v;
	int r;

	snprintf(key, sizeof(key), "c%ju", (uintmax_t)n);
	snprintf(other, sizeof(other), "c%ju", (uintmax_t)(x / 8 % 8));
	if (tier && seeds[n] && x / 1024 % 2) {
		if (x / 2048 % 2)
			return shmstore_promote(store, key, strlen(key), 0);
		r = shmstore_demote(store, key, strlen(key), 0);
		return r == -EPERM ? 0 : r; /* a lease, or a store that is only coming into being */
	}
	switch (seeds[n] ? x / 64 % 4 : 3) {
	case 0:
		r = shmstore_delete(store, key, strlen(key));
		seeds[n] = r == 0 ? 0 : seeds[n];
		return r;
	case 1:
		r = shmstore_get(store, key, strlen(key), 0, &v);
		if (r == 0) {
			r = !same(v, seeds[n] % 400000, seeds[n]);
			shmstore_view_unref(v);
		}
		return r;
	case 2:
		r = shmstore_handoff_flags(store, key, strlen(key), LEASE_MS,
					   tier && x / 4096 % 2 ? SHMSTORE_AS_IS : 0, &t);
		if (r == 0)
			r = shmstore_adopt(store, other, strlen(other), &t, SHMSTORE_REPLACE);
		if (r == 0)
			seeds[x / 8 % 8] = seeds[n];
		return r;
	default:
		r = put(key, size, seed, SHMSTORE_REPLACE);
		seeds[n] = r == 0 ? seed : seeds[n];
		return r;
	}
}

/* For so many ms; with "until" at least that, and until the file of that name is there. */
static void do_churn(char **w)
{
	const char *file = w[3] && strcmp(w[3], "until") == 0 ? w[4] : NULL;
	uint64_t end = now_ms() + number(w[1]), x = number(w[2]) * 2654435761u + 1;
	uint64_t seeds[8] = {0}, n_ok = 0, n_refused = 0, n_other = 0, n_wrong = 0;

	while (now_ms() < end || (file && access(file, F_OK) < 0)) {
		int r;

		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		r = churn_once(x, seeds, flag(w + 3, "tier"));
		if (r < 0 && !n_refused && !n_other) /* for who reads why the test failed */
			fprintf(stderr, "churn: %s: %s\n", shmstore_strerror(r),
				shmstore_error_detail());
		n_ok += r == 0;
		n_refused += r == -ENOSPC || r == -EDQUOT || (packs && r == -ESTALE);
		n_wrong += r == 1;
		n_other += r < 0 && r != -ENOSPC && r != -EDQUOT && !(packs && r == -ESTALE);
	}
	printf("0 %ju %ju %ju %ju\n", (uintmax_t)n_ok, (uintmax_t)n_refused, (uintmax_t)n_other,
	       (uintmax_t)n_wrong);
}

static void do_asked(char **w)
{
	uint64_t bytes = 0;
	int r = w[0][0] == 'a' ? shmstore_asked(store, &bytes) : shmstore_daemon_dispatch(store);

	if (r < 0)
		answer(r);
	else
		printf("0 %d %ju\n", r, (uintmax_t)bytes);
}

/* Waits for the daemon's next message, as an event loop does, and dispatches it. */
static void do_heed(char **w)
{
	struct pollfd said = {.fd = shmstore_daemon_fd(store), .events = POLLIN};
	int r = poll(&said, 1, (int)number(w[1]));

	ENSURE(said.fd >= 0 && r >= 0);
	printf("0 %d %d\n", r, shmstore_daemon_dispatch(store));
}

static void do_fork(char **w)
{
	pid_t pid = fork();

	(void)w;
	ENSURE(pid >= 0);
	if (pid == 0) {
		/* The pipes that it inherited would hide our end from the test. */
		close(0);
		close(1);
		for (;;)
			pause();
	}
	printf("0 %d\n", (int)pid);
}

static void do_simple(char **w)
{
	size_t n = w[1] ? strlen(w[1]) : 0;

	if (strcmp(w[0], "close") == 0) {
		answer(shmstore_close(store));
		store = NULL;
	} else if (strcmp(w[0], "delete") == 0) {
		answer(shmstore_delete(store, w[1], n));
	} else if (strcmp(w[0], "address") == 0) {
		answer(shmstore_set_address(store, w[1]));
	} else if (strcmp(w[0], "seal") == 0) {
		answer(shmstore_seal(writer));
	} else if (strcmp(w[0], "abort") == 0) {
		shmstore_abort(writer);
		answer(0);
	} else if (strcmp(w[0], "contains") == 0) {
		int r = shmstore_contains(store, w[1], n);

		if (r < 0)
			answer(r);
		else
			printf("0 %d\n", r);
	} else {
		_exit(0); /* exit */
	}
}

static const struct {
	const char *name;
	size_t n_words;
	void (*fn)(char **words);
} commands[] = {
	{"open", 2, do_open},       {"put", 4, do_put},
	{"create", 4, do_create},   {"get", 4, do_get},
	{"hold", 3, do_hold},       {"check", 4, do_view},
	{"write", 2, do_view},      {"alias", 3, do_view},
	{"drop", 2, do_view},       {"handoff", 3, do_handoff},
	{"adopt", 3, do_adopt},     {"list", 1, do_list},
	{"peer", 2, do_peer},       {"usage", 1, do_usage},
	{"books", 1, do_books},     {"gc", 1, do_gc},
	{"flood", 3, do_flood},     {"fork", 1, do_fork},
	{"close", 1, do_simple},    {"delete", 2, do_simple},
	{"contains", 2, do_simple}, {"address", 2, do_simple},
	{"seal", 1, do_simple},     {"abort", 1, do_simple},
	{"exit", 1, do_simple},     {"handoff_to", 4, do_handoff},
	{"churn", 3, do_churn},     {"asked", 1, do_asked},
	{"dispatch", 1, do_asked},  {"tier", 2, do_tier},
	{"heed", 2, do_heed},       {"tier_info", 1, do_tier_info},
	{"demote", 2, do_move},     {"promote", 2, do_move},
	{"pin", 2, do_move},        {"unpin", 2, do_move},
	{"locate", 2, do_locate},   {"prefetch", 3, do_prefetch},
	{"evict", 2, do_evict},
};

static bool execute(char *line)
{
	char *words[STORETOOL_WORDS + 1] = {NULL}, *rest = line;
	size_t n = 0;

	while (n < STORETOOL_WORDS && (words[n] = strsep(&rest, " \n")) != NULL) {
		if (*words[n])
			n++;
	}
	words[n] = NULL;
	for (size_t i = 0; n && i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(commands[i].name, words[0]) == 0 && n >= commands[i].n_words) {
			commands[i].fn(words);
			return true;
		}
	}
	return false;
}

int main(int argc, char **argv)
{
	char *line = NULL;
	size_t size = 0;
	int r;

	if (argc != 2)
		return 2;
	setlinebuf(stdout);
	r = shmstore_partition_open(argv[1], SHMSTORE_CREATE, &partition);
	if (answer(r) < 0)
		return 1;
	while (getline(&line, &size, stdin) > 0) {
		if (!execute(line)) {
			fprintf(stderr, "storetool: not understood: %s\n", line);
			return 2;
		}
	}
	free(line);
	for (size_t i = 0; i < NAMES; i++)
		shmstore_view_unref(views[i].view);
	shmstore_abort(NULL);
	r = shmstore_close(store);
	shmstore_partition_unref(partition);
	return r < 0;
}
