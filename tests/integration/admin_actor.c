/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin_actor.c: a process that owns a store and does what test_admin_*.py tell it, line by line:
 * so that the tests of shmstore-admin look at real owners, views, ghosts, writers and leases, and
 * can kill them. One command per line on standard input, words separated by one space; one line of
 * answer each: "ok", "ok VALUE" or "error ERRNO".
 *
 *   open NAME FLAGS [DIRECTORY]   flags: k = keep, r = with the recycling pool, m =
 *                                 small objects packed, - = none
 *   put KEY SIZE FLAGS            SIZE bytes of a pattern, one buffer; flags: s =
 *                                 checksum, p = pinned, - = none
 *   noise KEY SIZE                SIZE bytes that do not compress
 *   check KEY                     reads what "noise" wrote, as it must be
 *   fill PREFIX N SIZE            N objects of SIZE bytes, called PREFIX0, PREFIX1, ...
 *   put2 KEY HEADER A B           the text HEADER and buffers of A and B bytes
 *   get KEY                       a view, held until "drop"
 *   drop                          drops all views
 *   create KEY SIZE               a writer, held until the end
 *   delete KEY, pin KEY, unpin KEY, address TEXT, close
 *   handoff KEY MS                answers with the ticket
 *   adopt KEY TICKET
 */
#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VIEWS_MAX 256

static struct {
	struct shmstore_partition *partition;
	struct shmstore *store;
	struct shmstore_view *views[VIEWS_MAX];
	size_t n_views;
} actor;

static void *pattern(size_t size)
{
	unsigned char *data = malloc(size + 1);

	if (!data)
		abort();
	for (size_t i = 0; i < size; i++)
		data[i] = (unsigned char)(i * 7 + i / 251);
	return data;
}

static int do_open(const char *name, const char *flags, const char *directory)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

	o.keep = strchr(flags, 'k') != NULL;
	o.label = "actor";
	if (!strchr(flags, 'r'))
		o.recycle_max = 0;
	o.pack_max = strchr(flags, 'm') ? 65536 : 0;
	o.directory = directory;
	return shmstore_open(actor.partition, name, &o, &actor.store);
}

static int do_put(const char *key, size_t size, const char *flags)
{
	struct iovec buffer = {pattern(size), size};
	int r = shmstore_put(actor.store, key, strlen(key), NULL, 0, &buffer, 1,
			     (strchr(flags, 's') ? SHMSTORE_CHECKSUM : 0) |
				     (strchr(flags, 'p') ? SHMSTORE_PIN : 0));

	free(buffer.iov_base);
	return r;
}

/* Bytes that no compressor shrinks, and that the key alone tells again. */
static void *noise(const char *key, size_t size)
{
	uint64_t x = 88172645463325252u;
	unsigned char *data = malloc(size + 8);

	if (!data)
		abort();
	for (const char *c = key; *c; c++)
		x = x * 31 + (unsigned char)*c;
	for (size_t i = 0; i < size; i += 8) { /* xorshift64 */
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(data + i, &x, 8);
	}
	return data;
}

static int do_noise(const char *key, size_t size)
{
	struct iovec buffer = {noise(key, size), size};
	int r = shmstore_put(actor.store, key, strlen(key), NULL, 0, &buffer, 1, 0);

	free(buffer.iov_base);
	return r;
}

static int do_check(const char *key)
{
	struct shmstore_view *view;
	uint64_t size;
	int r = shmstore_get(actor.store, key, strlen(key), 0, &view);

	if (r < 0)
		return r;
	const void *data = shmstore_view_buffer(view, 0, &size);
	void *expected = noise(key, size);
	r = memcmp(data, expected, size) == 0 ? 0 : -EILSEQ;
	free(expected);
	shmstore_view_unref(view);
	return r;
}

static int do_fill(const char *prefix, size_t n, size_t size)
{
	struct iovec buffer = {pattern(size), size};
	char key[256];
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++) {
		int key_size = snprintf(key, sizeof(key), "%s%zu", prefix, i);
		r = shmstore_put(actor.store, key, (size_t)key_size, NULL, 0, &buffer, 1, 0);
	}
	free(buffer.iov_base);
	return r;
}

static int do_put2(const char *key, const char *header, size_t a, size_t b)
{
	struct iovec buffers[2] = {{pattern(a), a}, {pattern(b), b}};
	int r = shmstore_put(actor.store, key, strlen(key), header, strlen(header), buffers, 2, 0);

	free(buffers[0].iov_base);
	free(buffers[1].iov_base);
	return r;
}

static int do_get(const char *key)
{
	if (actor.n_views == VIEWS_MAX)
		return -12;
	int r = shmstore_get(actor.store, key, strlen(key), 0, &actor.views[actor.n_views]);
	actor.n_views += r == 0;
	return r;
}

static int do_drop(void)
{
	while (actor.n_views)
		shmstore_view_unref(actor.views[--actor.n_views]);
	return 0;
}

static int do_create(const char *key, uint64_t size)
{
	struct shmstore_writer *w; /* held, and never sealed: the process is killed with it */
	int r = shmstore_create(actor.store, key, strlen(key), 0, &size, 1, 0, &w);

	if (r == 0)
		memset(shmstore_writer_buffer(w, 0, NULL), 1, size);
	return r;
}

static int do_handoff(const char *key, uint64_t ms, char *ret_text)
{
	struct shmstore_ticket ticket;
	int r = shmstore_handoff(actor.store, key, strlen(key), ms, &ticket);

	return r < 0 ? r : shmstore_ticket_format(&ticket, ret_text, SHMSTORE_TICKET_TEXT);
}

static int do_adopt(const char *key, const char *text)
{
	struct shmstore_ticket ticket;
	int r = shmstore_ticket_parse(text, &ticket);

	return r < 0 ? r : shmstore_adopt(actor.store, key, strlen(key), &ticket, 0);
}

static int run(char *words[5], char *ret_text)
{
	const char *command = words[0];

	if (strcmp(command, "open") == 0)
		return do_open(words[1], words[2], words[3]);
	if (strcmp(command, "put") == 0)
		return do_put(words[1], strtoull(words[2], NULL, 10), words[3]);
	if (strcmp(command, "noise") == 0)
		return do_noise(words[1], strtoull(words[2], NULL, 10));
	if (strcmp(command, "check") == 0)
		return do_check(words[1]);
	if (strcmp(command, "fill") == 0)
		return do_fill(words[1], strtoull(words[2], NULL, 10),
			       strtoull(words[3], NULL, 10));
	if (strcmp(command, "put2") == 0)
		return do_put2(words[1], words[2], strtoull(words[3], NULL, 10),
			       strtoull(words[4], NULL, 10));
	if (strcmp(command, "get") == 0)
		return do_get(words[1]);
	if (strcmp(command, "drop") == 0)
		return do_drop();
	if (strcmp(command, "create") == 0)
		return do_create(words[1], strtoull(words[2], NULL, 10));
	if (strcmp(command, "delete") == 0)
		return shmstore_delete(actor.store, words[1], strlen(words[1]));
	if (strcmp(command, "pin") == 0 || strcmp(command, "unpin") == 0)
		return shmstore_pin(actor.store, words[1], strlen(words[1]), command[0] == 'p');
	if (strcmp(command, "address") == 0)
		return shmstore_set_address(actor.store, words[1]);
	if (strcmp(command, "handoff") == 0)
		return do_handoff(words[1], strtoull(words[2], NULL, 10), ret_text);
	if (strcmp(command, "adopt") == 0)
		return do_adopt(words[1], words[2]);
	if (strcmp(command, "close") == 0)
		return shmstore_close(actor.store);
	fprintf(stderr, "admin_actor: %s: no such command\n", command);
	exit(2); /* NOLINT(concurrency-mt-unsafe) */
}

int main(int argc, char **argv)
{
	static char line[SHMSTORE_TICKET_TEXT + 8192], text[SHMSTORE_TICKET_TEXT];

	if (argc != 2 || shmstore_partition_open(argv[1], 0, &actor.partition) < 0) {
		fputs("usage: admin_actor PARTITION\n", stderr);
		return 2;
	}
	while (fgets(line, sizeof(line), stdin)) {
		char *words[5] = {NULL}, *save = NULL;
		line[strcspn(line, "\n")] = '\0';
		size_t n = 0;
		for (char *w = strtok_r(line, " ", &save); w && n < 5;
		     w = strtok_r(NULL, " ", &save))
			words[n++] = w;
		if (!n)
			continue;
		text[0] = '\0';
		int r = run(words, text);
		if (r < 0)
			printf("error %d\n", -r);
		else
			printf("ok%s%s\n", text[0] ? " " : "", text);
		fflush(stdout);
	}
	do_drop();
	return 0;
}
