/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_adopt.c: shmstore_adopt() of arbitrary tickets and files, on a real file system.
 *
 * Input: a byte of mode, a byte n, n bytes of text, the rest is the content of a file that stands
 * under a lease's name in the donor's handoff/. The ticket is that lease with the sizes that the
 * content claims (OWN_TICKET), or the text, with the partition's path put before its path where it
 * begins with '~'. The invariants: the result is of the closed list; on an error nothing was
 * linked; on success the object can be got and read to its last byte.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "forge.h"

enum {
	OWN_TICKET = 1,
	FIX_HASH = 2,
	FIX_FRAME = 4,
	REPLACE = 8,
	VERIFY = 16,
	LONG_KEY = 32,
};

#define LEASE "handoff/9999999999999-0123456789abcdef"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct shmstore *donor, *receiver;
static char lease[SCRATCH_PATH + 100], long_key[400];
static unsigned long n_adopted, n_parsed, n_refused;

static void report(void)
{
	fprintf(stderr, "accepted: %lu, refused: %lu, texts that parse: %lu\n", n_adopted,
		n_refused, n_parsed);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct shmstore_ticket t;

	(void)argc;
	(void)argv;
	donor = scratch_store("a");
	receiver = scratch_store("b");
	snprintf(lease, sizeof(lease), "%s", scratch_store_path("a", LEASE));
	memset(long_key, 'L', sizeof(long_key));
	/* Two right ones that a lucky text may name. */
	ENSURE(put_pattern(donor, "k", 100, 1, 0) == 0);
	ENSURE(shmstore_handoff(donor, KEY("k"), 3600000, &t) == 0);
	atexit(report);
	return 0;
}

/* Writes the file; returns what it says of its sizes. */
static void write_lease(const uint8_t *data, size_t size, uint8_t mode, struct shmstore_ticket *ret)
{
	struct forged f = {.size = size};
	struct shms_superblock *sb;

	f.file = malloc(size ? size : 1);
	ENSURE(f.file);
	memcpy(f.file, data, size);
	sb = forged_sb(&f);
	if ((mode & FIX_FRAME) && size >= sizeof(*sb)) {
		memcpy(sb->magic, SHMS_FORMAT_MAGIC, sizeof(sb->magic));
		sb->version = SHMS_FORMAT_VERSION;
		sb->superblock_size = sizeof(*sb);
		sb->incompat_flags = 0;
		if (sb->header_size > size)
			sb->header_size %= size + 1;
		sb->buffer_size = size - sb->header_size;
	}
	if ((mode & FIX_HASH) && size >= sizeof(*sb))
		forge_rehash(&f);
	ret->header_size = size >= sizeof(*sb) ? sb->header_size : 0;
	ret->buffer_size = size >= sizeof(*sb) ? sb->buffer_size : size;
	unlink(lease);
	forge_write(&f, lease);
	free(f.file);
}

static bool read_text(const uint8_t *data, size_t size, struct shmstore_ticket *ret)
{
	char text[SCRATCH_PATH + 600], cut[257], back[SHMSTORE_TICKET_TEXT];
	struct shmstore_ticket again;
	char *home;
	int r;

	memcpy(cut, data, size);
	cut[size] = '\0';
	home = strchr(cut, '~');
	if (home)
		snprintf(text, sizeof(text), "%.*s%s%s", (int)(home - cut), cut,
			 scratch_partition_path(), home + 1);
	else
		snprintf(text, sizeof(text), "%s", cut);
	r = shmstore_ticket_parse(text, ret);
	ENSURE(r == 0 || r == -EBADMSG);
	if (r < 0)
		return false;
	n_parsed++;
	/* One ticket has one text. */
	ENSURE(shmstore_ticket_format(ret, back, sizeof(back)) == 0 && strcmp(back, text) == 0);
	ENSURE(shmstore_ticket_parse(back, &again) == 0 && strcmp(again.path, ret->path) == 0);
	return true;
}

static void use(const void *key, size_t key_size)
{
	struct shmstore_view *v;
	uint64_t sum = 0;

	ENSURE(shmstore_get(receiver, key, key_size, 0, &v) == 0);
	for (size_t i = 0; i < shmstore_view_n_buffers(v); i++) {
		uint64_t n;
		const unsigned char *b = shmstore_view_buffer(v, i, &n);

		for (uint64_t k = 0; k < n; k++)
			sum += b[k];
	}
	__asm__ volatile("" : : "r"(sum));
	shmstore_view_unref(v);
	ENSURE(count_objects(receiver) == 1);
	ENSURE(shmstore_delete(receiver, key, key_size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct shmstore_ticket t;
	const char *key = "k";
	size_t key_size = 1, n;
	unsigned flags;
	uint8_t mode;
	int r;

	if (size < 2)
		return 0;
	mode = data[0];
	n = data[1] < size - 2 ? data[1] : size - 2;
	write_lease(data + 2 + n, size - 2 - n, mode, &t);
	strcpy(t.path, lease);
	if (!(mode & OWN_TICKET) && !read_text(data + 2, n, &t))
		return 0;
	if (mode & LONG_KEY) {
		key = long_key;
		key_size = sizeof(long_key);
	}
	flags = (mode & REPLACE ? SHMSTORE_REPLACE : 0) | (mode & VERIFY ? SHMSTORE_VERIFY : 0);
	r = shmstore_adopt(receiver, key, key_size, &t, flags);
	ENSURE(r == 0 || r == -EPERM || r == -EBADMSG || r == -ESTALE || r == -EXDEV ||
	       r == -ENOTSUP || r == -EINVAL);
	if (r == 0) {
		n_adopted++;
		ENSURE(strncmp(t.path, scratch_partition_path(),
			       strlen(scratch_partition_path())) == 0);
		use(key, key_size);
	} else {
		n_refused++;
	}
	ENSURE(count_in_store("b", "objects") == 0);
	return 0;
}
