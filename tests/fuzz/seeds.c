/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seeds.c: writes the first inputs of the fuzzers; run it when the format changes.
 *
 *   fuzz_seeds tests/fuzz/corpus
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors.h"
#include "engine.h"
#include "forge.h"
#include "peerlink.h"
#include "profile.h"
#include "scratch.h"
#include "segments.h"
#include "wire.h"

static void write_seed(const char *dir, const char *target, const char *name, const void *head,
		       size_t head_size, const struct forged *f)
{
	char path[1000];
	FILE *out;

	snprintf(path, sizeof(path), "%s/%s", dir, target);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/%s/%s", dir, target, name);
	out = fopen(path, "we");
	ENSURE(out);
	ENSURE(fwrite(head, 1, head_size, out) == head_size);
	ENSURE(!f || fwrite(f->file, 1, f->size, out) == f->size);
	fclose(out);
}

/* A message of each type, alone and after HELLO and REGISTER; see fuzz_wire.c for the form. */
static void write_wire_seeds(const char *dir)
{
	static const struct {
		const char *name, *tail;
		uint64_t body[7];
		uint8_t type, size; /* of the body */
	} messages[] = {
		{"hello", "", {1 | UINT64_C(1) << 32}, 1, 16},
		{"ping", "", {7}, 2, 8},
		{"register", "stores/a", {0}, 3, 24},
		{"grant", "", {4096, 65536, 0}, 4, 32},
		{"grant-wait", "", {UINT64_C(1) << 40, 0, 100, 1}, 4, 32},
		{"cancel", "", {10}, 5, 8},
		{"broker", "/dev/shm/p/stores/a/handoff/9-1", {4711}, 6, 8},
		{"bye", "", {0}, 7, 8},
		{"status", "", {1}, 8, 8},
		{"workers", "", {2}, 8, 8},
		{"quota", "", {3}, 8, 8},
		{"holders", "", {4}, 8, 8},
		{"events", "", {5}, 8, 8},
		{"history", "", {6}, 8, 8},
		{"watch", "store-came,client-dropped", {0}, 9, 8},
		{"set", "user.1.hard=1GiB", {0}, 10, 8},
		{"reap", "/dev/shm/p/stores/b", {0}, 11, 8},
		{"arbiter", "", {8}, 8, 8},
		{"arb-log", "", {9}, 8, 8},
		{"arb-knob", "/dev/shm/p", {1 | 1 << 16, 0, 7}, WIRE_ARB_ADMIN, 40},
		{"arb-inject",
		 "/dev/shm/p",
		 {2 | 1 << 16, UINT64_C(1) << 32 | 1, 1},
		 WIRE_ARB_ADMIN,
		 40},
		{"arb-cancel", "/dev/shm/p", {3, UINT64_C(1) << 32 | 1}, WIRE_ARB_ADMIN, 40},
		{"profile-begin", "c\nf\na#1", {1, 1}, WIRE_PROFILE, 40},
		{"profile-sample", "", {2, 1, 1 << 20}, WIRE_PROFILE, 40},
		{"profile-end", "", {3 | UINT64_C(7) << 32, 1, 1 << 20, 7, 9}, WIRE_PROFILE, 40},
		{"profile-estimate", "c\nf\na#2", {4, 0, 1 << 20}, WIRE_PROFILE, 40},
		{"profile-show", "", {1 | UINT64_C(0xffffffff) << 32}, WIRE_PROFILE_ADMIN, 24},
		{"profile-text", "", {2 | UINT64_C(0xffffffff) << 32}, WIRE_PROFILE_ADMIN, 24},
		{"profile-load",
		 "shmstore-profile 1\ncrc32c 257facc1\n",
		 {3 | UINT64_C(0xffffffff) << 32, 0, 35},
		 WIRE_PROFILE_ADMIN,
		 24},
		{"stage-query", "s", {0, 0, 0, 1, 4, 0}, WIRE_STAGE_QUERY, 48},
		{"stage-begin", "s", {0, 100}, WIRE_STAGE_BEGIN, 16},
		{"stage-end", "", {0}, WIRE_STAGE_END, 8},
		{"profile-reset", "", {4 | UINT64_C(0xfffffffe) << 32}, WIRE_PROFILE_ADMIN, 24},
		{"task-try",
		 "c\nf\na#1",
		 {1 | 5 << 16, UINT64_C(0xffffffff), 1 << 20},
		 WIRE_TASK_ADMIT,
		 40},
		{"task-until",
		 "",
		 {2 | 1 << 16, UINT64_C(0xffffffff), 1 << 20, 1, 1},
		 WIRE_TASK_ADMIT,
		 40},
		{"task-wait",
		 "",
		 {3 | UINT64_C(1) << 32, UINT64_C(0xffffffff), UINT64_C(1) << 40},
		 WIRE_TASK_ADMIT,
		 40},
		{"task-done", "", {1}, WIRE_TASK_DONE, 8},
		{"actor-place", "p", {1 << 20}, WIRE_ACTOR_PLACE, 16},
		{"actor-born", "a\nb", {0, 7, 7, 1 | UINT64_C(0xb0002) << 32}, WIRE_ACTOR_BORN, 32},
		{"actor-options",
		 "c\n\n3 copies=yes num=frac:0.5,min=1 selection=fixed:a,b "
		 "preempt-from-stale=timeout:9",
		 {0, 7, 7, 1 | UINT64_C(0xb0002) << 32},
		 WIRE_ACTOR_BORN,
		 32},
		{"actor-next", "", {0}, WIRE_ACTOR_NEXT, 8},
		{"actor-done", "axyz", {1, 0, 7, 1 | UINT64_C(1) << 32}, WIRE_ACTOR_DONE, 32},
		{"actor-call", "axyz", {1}, WIRE_ACTOR_CALL, 8},
		{"actor-move", "a\np", {0}, WIRE_ACTOR_MOVE, 8},
		{"task-runs",
		 "c\nf\na#1",
		 {1, 1 << 20, 2, UINT64_C(0xffffffff) | UINT64_C(7) << 32, 5},
		 WIRE_TASK_RUNS,
		 40},
	};
	/* Registered; registered and no administrator; without HELLO. */
	static const uint8_t modes[] = {4, 5, 2};
	char path[64];
	uint8_t head[600];

	for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++) {
		for (size_t k = 0; k < sizeof(modes); k++) {
			size_t tail = strlen(messages[i].tail), n = 0;

			head[n++] = modes[k];
			for (int twice = 0; twice < 2; twice++) {
				head[n++] = messages[i].type;
				head[n++] = (uint8_t)(messages[i].size + tail);
				head[n++] = 0;
				memcpy(head + n, messages[i].body, messages[i].size);
				memcpy(head + n + messages[i].size, messages[i].tail, tail);
				n += messages[i].size + tail;
			}
			snprintf(path, sizeof(path), "%s-%d", messages[i].name, modes[k]);
			write_seed(dir, "fuzz_wire", path, head, n, NULL);
		}
	}
}

/* One ARB of that flow. Returns what of the input is filled. */
static size_t add_arb(uint8_t *to, size_t n, const struct wire_arb *body, const char *tail)
{
	size_t tail_size = strlen(tail), size = sizeof(*body) + tail_size;

	to[n++] = WIRE_ARB;
	to[n++] = (uint8_t)size;
	to[n++] = 0;
	memcpy(to + n, body, sizeof(*body));
	memcpy(to + n + sizeof(*body), tail, tail_size);
	return n + size;
}

/* Each operation of the arbiter: after a task that has a context, memory and a pool,
 * with another one that waits. */
static void write_arb_seeds(const char *dir)
{
	static const struct {
		struct wire_arb body;
		const char *tail;
	} first[] = {
		{{.op = WIRE_ARB_TASK_BEGIN, .task = 1, .value = 5}, "a task"},
		{{.op = WIRE_ARB_BIND, .kind = 1, .context = 1}, "1"},
		{{.op = WIRE_ARB_BIND, .kind = 1, .context = 2}, "2"},
		{{.op = WIRE_ARB_BIND, .kind = 2, .context = 3}, "1,2"},
		{{.op = WIRE_ARB_POOL_CREATE, .pool = 2, .bytes = 1 << 20}, "own"},
		{{.op = WIRE_ARB_RESERVE,
		  .context = 1,
		  .pool = 2,
		  .reservation = 1,
		  .bytes = 1 << 19},
		 ""},
		{{.op = WIRE_ARB_RESERVE,
		  .context = 2,
		  .pool = 2,
		  .reservation = 2,
		  .bytes = 1 << 18},
		 ""},
		{{.op = WIRE_ARB_RESERVE,
		  .context = 2,
		  .pool = 2,
		  .reservation = 3,
		  .bytes = 1 << 19},
		 ""},
	};
	static const uint8_t modes[] = {4, 5};
	uint8_t head[2000];
	char name[64];

	for (size_t k = 0; k < sizeof(modes); k++) {
		for (uint16_t op = 1; op < WIRE_ARB_OP_END; op++) {
			const struct wire_arb body = {.op = op,
						      .kind = 1,
						      .context = op == WIRE_ARB_CANCEL ? 2 : 1,
						      .task = op == WIRE_ARB_TASK_END,
						      .pool = 2,
						      .reservation = op == WIRE_ARB_RESERVE ? 4 : 1,
						      .bytes = 4096,
						      .value = 1};
			size_t n = 0;

			head[n++] = modes[k];
			for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
				n = add_arb(head, n, &first[i].body, first[i].tail);
			n = add_arb(head, n, &body, op == WIRE_ARB_BIND ? "1" : "");
			snprintf(name, sizeof(name), "arb-%u-%d", op, modes[k]);
			write_seed(dir, "fuzz_wire", name, head, n, NULL);
		}
	}
}

/* One message of a peer, or of the other one (fuzz_peers.c). Returns what of the input is
 * filled. */
static size_t add_peers(uint8_t *to, size_t n, uint8_t type, const void *body, size_t size,
			const void *more, size_t more_size)
{
	to[n++] = type;
	to[n++] = (uint8_t)(size + more_size);
	to[n++] = (uint8_t)((size + more_size) >> 8);
	memcpy(to + n, body, size);
	if (more_size)
		memcpy(to + n + size, more, more_size);
	return n + size + more_size;
}

/* A file on its way: what it is, its bytes in two pieces. */
static size_t add_bulk(uint8_t *to, size_t n, uint32_t type, const void *meta, size_t n_meta,
		       const void *file, size_t size)
{
	const struct peerlink_bulk b = {.id = 1, .size = size, .type = type};
	const struct peerlink_chunk c = {.id = 1};

	n = add_peers(to, n, PEERS_BULK, &b, sizeof(b), meta, n_meta);
	n = add_peers(to, n, PEERS_CHUNK, &c, sizeof(c), file, size / 2);
	return add_peers(to, n, PEERS_CHUNK, &c, sizeof(c), (const char *)file + size / 2,
			 size - size / 2);
}

#define OTHER_PEER 0x40u

/* Each message of daemons to each other, of one peer and of both; a copy that comes, and
 * is to be begun; a profile. */
static void write_peers_seeds(const char *dir)
{
	static const uint8_t says[] = {ACTORS_LIVE, ACTORS_DEAD, ACTORS_COPY, ACTORS_GONE,
				       ACTORS_RECOVER};
	static const char profile[] = "shmstore-profile 1\ncrc32c 257facc1\n";
	const struct actors_say_free room = {.free = 1 << 20};
	const struct actors_say far = {.version = 7, .bytes = 100, .name = "f", .home = "b"};
	const struct actors_say_call asks = {.id = 3, .name = "a"};
	const struct actors_say_answer answers = {.id = 1, .how = WIRE_ACTOR_OK};
	const struct peerlink_answer taken = {.id = 1};
	const struct actors_say_state state = {
		.version = 7,
		.header_size = 64,
		.buffer_size = 36,
		.said = {.step_ms = 1000, .at_once = 1, .level = 4, .flags = 3},
		.name = "f"};
	const struct actors_say_state child = {
		.version = 1, .header_size = 64, .buffer_size = 36, .name = "c", .parent = "a"};
	const uint64_t user = 0;
	static const char options[] =
		"4294967295 num=explicit:2 retry=0 preempt-from-stale=maxage:9";
	char with[sizeof(state) + sizeof(options) - 1];
	const char bytes[100] = {0};
	uint8_t head[4000];
	char name[32];
	size_t n;

	for (uint8_t mode = 0; mode < 8; mode += 4) {
		for (size_t i = 0; i < sizeof(says); i++) {
			head[0] = mode;
			n = add_peers(head, 1, ACTORS_FREE, &room, sizeof(room), NULL, 0);
			n = add_peers(head, n, says[i], &far, sizeof(far), NULL, 0);
			n = add_peers(head, n, says[i] | OTHER_PEER, &far, sizeof(far), NULL, 0);
			n = add_peers(head, n, 0, "f", 1, NULL, 0);
			n = add_peers(head, n, ACTORS_ANSWER, &answers, sizeof(answers), "x", 1);
			n = add_peers(head, n, PEERS_ANSWER, &taken, sizeof(taken), NULL, 0);
			snprintf(name, sizeof(name), "say-%u-%u", says[i], mode);
			write_seed(dir, "fuzz_peers", name, head, n, NULL);
		}
		n = add_bulk(head, 1, ACTORS_STATE, &state, sizeof(state), bytes, sizeof(bytes));
		n = add_peers(head, n, ACTORS_COPY | OTHER_PEER, &far, sizeof(far), NULL, 0);
		n = add_peers(head, n, ACTORS_RECOVER | OTHER_PEER, &far, sizeof(far), NULL, 0);
		n = add_peers(head, n, ACTORS_CALL | OTHER_PEER, &asks, sizeof(asks), "x", 1);
		snprintf(name, sizeof(name), "copy-%u", mode);
		write_seed(dir, "fuzz_peers", name, head, n, NULL);
	}
	memcpy(with, &state, sizeof(state));
	memcpy(with + sizeof(state), options, sizeof(options) - 1);
	n = add_bulk(head, 1, ACTORS_STATE, with, sizeof(with), bytes, sizeof(bytes));
	n = add_peers(head, n, ACTORS_RECOVER | OTHER_PEER, &far, sizeof(far), NULL, 0);
	write_seed(dir, "fuzz_peers", "options", head, n, NULL);
	n = add_peers(head, 1, ACTORS_CALL, &asks, sizeof(asks), "x", 1);
	n = add_bulk(head, n, ACTORS_STATE, &child, sizeof(child), bytes, sizeof(bytes));
	write_seed(dir, "fuzz_peers", "call", head, n, NULL);
	n = add_bulk(head, 1, PEERS_PROFILES, &user, sizeof(user), profile, sizeof(profile) - 1);
	write_seed(dir, "fuzz_peers", "profile", head, n, NULL);
}

static void stored(struct shms_job *job)
{
	ENSURE(job->error == 0);
}

/* Tier files as the engine writes them: of noise, of sorted numbers, of text; see
 * fuzz_tier.c for the form. */
static void write_tier_seed(const char *dir, const char *name, const void *object, size_t size)
{
	struct shms_tier_object o = {
		.id = 1, .header_size = size, .key = name, .key_size = 5, .level = 1};
	struct shms_engine *e;
	struct shms_tier_header h;
	struct shms_job job = {.object_fd = memfd_create("object", MFD_CLOEXEC),
			       .tier_fd = memfd_create("tier", MFD_CLOEXEC),
			       .header = &h,
			       .done = stored};
	struct forged f = {0};
	char path[64];

	ENSURE(job.object_fd >= 0 && job.tier_fd >= 0);
	ENSURE(pwrite(job.object_fd, object, size, 0) == (ssize_t)size);
	ENSURE(shms_tier_header_init(&h, &o) == 0);
	ENSURE(shms_engine_new(&(struct shms_engine_options){.no_ring = true}, &e) == 0);
	shms_engine_store(e, &job);
	shms_engine_free(e);
	f.size = h.sb->file_size;
	f.file = malloc(f.size);
	ENSURE(f.file && pread(job.tier_fd, f.file, f.size, 0) == (ssize_t)f.size);
	for (char mode = 0; mode < 8; mode += 7) {
		snprintf(path, sizeof(path), "%s-%d", name, mode);
		write_seed(dir, "fuzz_tier", path, &mode, 1, &f);
	}
	free(f.file);
	shms_tier_header_deinit(&h);
	close(job.object_fd);
	close(job.tier_fd);
}

static void write_tier_seeds(const char *dir)
{
	static uint64_t words[2500];
	static uint32_t halves[5000];
	static char text[20000];
	static unsigned char noise[5000];

	for (uint32_t i = 0; i < 2500; i++)
		words[i] = (i ? words[i - 1] : UINT64_C(1) << 40) + i * 2654435761u % 300;
	for (uint32_t i = 0; i < 5000; i++)
		halves[i] = (i ? halves[i - 1] : 1u << 20) + i * 2654435761u % 300;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = "an object of a store "[(i * 7 + i / 1000) % 21];
	pattern_fill(noise, sizeof(noise), 3);
	write_tier_seed(dir, "words", words, sizeof(words));
	write_tier_seed(dir, "halves", halves, sizeof(halves));
	for (uint64_t i = 0; i < 2500; i++)
		words[i] = i * 2654435761u % 300;
	write_tier_seed(dir, "small", words, sizeof(words));
	write_tier_seed(dir, "texts", text, sizeof(text));
	write_tier_seed(dir, "noise", noise, sizeof(noise));
	write_tier_seed(dir, "short", noise, 100);
}

static void write_text(const char *dir, const char *target, const char *name, uint8_t mode,
		       const char *text, size_t n)
{
	char *all = malloc(n + 1);

	ENSURE(all);
	all[0] = (char)mode;
	memcpy(all + 1, text, n);
	write_seed(dir, target, name, all, n + 1, NULL);
	free(all);
}

/* A profile with 0, 1 and several kinds: as it is, and without its sum,
 * which the fuzzer puts there. */
static void write_profile_seeds(const char *dir)
{
	static const struct profile_name names[] = {
		{"c", "f", ""}, {"python", "join one", "Tables#7"}, {"shmstore", "stage:load", ""}};
	struct profile *p = profile_new(8);

	ENSURE(p);
	for (size_t i = 0; i <= sizeof(names) / sizeof(names[0]); i++) {
		char name[32], *text, *sum;
		size_t n;

		for (size_t k = 0; i && k < 3 * i; k++) {
			const struct profile_task task = {.used = {1000 * k, k, 9 * k},
							  .has = {true, k % 2, k % 3},
							  .life_ms = 10 + k,
							  .phases = {1, 2, 3, 4, 5, 6, 7, k},
							  .n_phases = PROFILE_PHASES};

			ENSURE(profile_feed(p, &names[i - 1], &task) == 0);
		}
		if (i == 2)
			ENSURE(profile_killed(p, &names[1], 12345) == 0 &&
			       profile_preempted(p, &names[0]) == 0);
		text = profile_text(p, &n);
		ENSURE(text);
		sum = strstr(text, "crc32c ");
		snprintf(name, sizeof(name), "whole-%zu", i);
		write_text(dir, "fuzz_profile", name, 0, text, n);
		for (uint8_t mode = 1; mode < 4; mode += 2) {
			snprintf(name, sizeof(name), "fixed-%zu-%u", i, mode);
			write_text(dir, "fuzz_profile", name, mode, text, (size_t)(sum - text));
		}
		free(text);
	}
	profile_free(p);
}

/* Texts of kernels, whole and odd; see fuzz_memtext.c for the first byte. */
static void write_memtext_seeds(const char *dir)
{
	static const struct {
		const char *name, *text;
		uint8_t mode;
	} texts[] = {
		{"meminfo",
		 "MemTotal:       16303248 kB\nMemFree:         1024000 kB\nMemAvailable:    "
		 "8151624 kB\nBuffers: 20 "
		 "kB\nCached:  30 kB\n"
		 "Shmem:   7 kB\nSwapTotal:   2097148 kB\nSwapFree:   2097000 kB\n",
		 0},
		{"meminfo-old",
		 "MemTotal: 100 kB\nMemFree: 9 kB\nBuffers: 1 kB\nCached: 50 kB\nShmem: 40 kB\n",
		 0},
		{"meminfo-cut", "MemTotal: 16303248 kB\nMemAvailable: 81", 0},
		{"stat-1", "cache 9\ntotal_inactive_file 123\ntotal_active_file 456\n", 1},
		{"stat-2",
		 "anon 5\ninactive_file 123456\nactive_file 18446744073709551615\nshmem 7\n", 2},
		{"path-1", "11:memory:/user.slice/a\n10:cpu,cpuacct:/\n0::/\n", 3},
		{"path-2", "0::/system.slice/x.service\n", 4},
		{"path-out", "0::/../../other\n", 4},
		{"status",
		 "Name:\ta\nVmSwap:\t      12 kB\nRssAnon:\t    4096 kB\nRssFile:\t 1 kB\n", 5},
		{"events", "low 0\nhigh 12\nmax 3\noom 1\noom_kill 1\n", 6},
		{"limit", "9223372036854771712\n", 7},
		{"max", "max\n", 7},
		{"number", "1073741824\n", 7},
	};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		write_text(dir, "fuzz_memtext", texts[i].name, texts[i].mode, texts[i].text,
			   strlen(texts[i].text));
}

/* The part of a segment behind its fixed header (fuzz_segment.c): control, records, hints, slots;
 * its objects are held, promised and free. */
static void write_segment_seeds(const char *dir)
{
	char name[32];

	for (uint32_t n = 0; n < 6; n++) {
		struct shms_segment g = segment_in_memory(1 + n * 7, n % 2 ? 64 : 32, 10 * 4096);
		struct shms_segalloc a;
		struct forged f = {.file = (void *)(g.books + 4096), .size = 5 * 4096 - 2};
		char head[] = {(char)(1 + n % 3), (char)(n * 7), (char)(n % 2)};

		ENSURE(shms_segalloc_init(&a, &g) == 0);
		for (uint32_t i = 0; i <= n * 3; i++) {
			uint32_t generation, index = segment_put(&a, 64 + i * 50, 'a', &generation),
					     lease;
			struct shms_segslot slot = shms_segslot_at(&g, index);

			if (i % 3 == 1)
				ENSURE(shms_segslot_handoff(&slot, generation, i, 0, 10000,
							    &lease) == 0);
			if (i % 3 == 2 &&
			    shms_segslot_drop(&slot, SHMS_SEG_OWNER, SHMS_SEGVIEWS_NONE))
				ENSURE(shms_segslot_free(&slot, 0));
		}
		snprintf(name, sizeof(name), "segment-%u", n);
		write_seed(dir, "fuzz_segment", name, head, sizeof(head), &f);
		shms_segalloc_deinit(&a);
		free(g.books);
	}
}

int main(int argc, char **argv)
{
	static const uint64_t sizes[][5] = {
		{0}, {1}, {100, 64, 5000}, {0, 0, 0}, {70000}, {1, 2, 3, 4, 5}, {64, 64, 64, 64}};
	static const size_t n_buffers[] = {0, 1, 3, 3, 1, 5, 4};
	static const char *const texts[] = {
		"shmstore1:128:0:~/stores/a/handoff/9999999999999-0123456789abcdef",
		"shmstore1:4096:18446744073709551615:~/stores/a/objects/k",
		"shmstore1:192:100:~/stores/a/../b/handoff/5-0123456789abcdef",
		"shmstore1:1:2:~/%20%FF",
	};
	char name[32], head[300];

	ENSURE(argc == 2);
	mkdir(argv[1], 0755);
	write_wire_seeds(argv[1]);
	write_arb_seeds(argv[1]);
	write_peers_seeds(argv[1]);
	write_tier_seeds(argv[1]);
	write_profile_seeds(argv[1]);
	write_memtext_seeds(argv[1]);
	write_segment_seeds(argv[1]);
	for (size_t i = 0; i < 7; i++) {
		struct forged f =
			forge_object("a key", i % 3 ? 5 : 0, i * 37, sizes[i], n_buffers[i]);

		for (int mode = i == 4 ? 3 : 0; mode < 4; mode += 3) { /* the large one once */
			snprintf(name, sizeof(name), "object-%zu-%d", i, mode);
			head[0] = (char)mode;
			write_seed(argv[1], "fuzz_format", name, head, 1, &f);
			head[0] = (char)(1 | (mode ? 2 | 4 : 16));
			head[1] = 0;
			write_seed(argv[1], "fuzz_adopt", name, head, 2, &f);
		}
		snprintf(name, sizeof(name), "text-%zu", i);
		if (i < 4) {
			head[0] = (char)(i * 8);
			head[1] = (char)strlen(texts[i]);
			strcpy(head + 2, texts[i]);
			write_seed(argv[1], "fuzz_adopt", name, head, 2 + strlen(texts[i]), &f);
		}
		forge_free(&f);
	}
	return 0;
}
