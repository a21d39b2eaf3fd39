/* SPDX-License-Identifier: Apache-2.0 */
/*
 * seeds.c: writes the first inputs of the fuzzers; run it when the format changes.
 *
 *   fuzz_seeds tests/fuzz/corpus
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "forge.h"
#include "scratch.h"

static void write_seed(const char *dir, const char *target, const char *name, const void *head, size_t head_size,
		       const struct forged *f)
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
		uint64_t body[4];
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
	for (size_t i = 0; i < 7; i++) {
		struct forged f = forge_object("a key", i % 3 ? 5 : 0, i * 37, sizes[i], n_buffers[i]);

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
