/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sparse file of one page whose header announced 2 GiB of metadata made everybody who looked at
 * it take, and read, 2 GiB: get, foreach, adopt, verify, and the surveys of the root daemon, who
 * look at what any user holds open.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"
#include "forge.h"

#define ANNOUNCED (SHMSTORE_HEADER_MAX - 4096)
#define MOST_KB   (64u << 10)

/* A page of memory that says that 2 GiB of metadata follow. */
static void arm(int fd)
{
	struct forged f = forge_object("x", 1, 100, NULL, 0);
	struct shms_superblock *sb = forged_sb(&f);

	sb->metadata_size = ANNOUNCED;
	sb->header_size = (f.layout.metadata_off + ANNOUNCED + 63) & ~(uint64_t)63;
	ENSURE(pwrite(fd, f.file, f.size, 0) == (ssize_t)f.size);
	ENSURE(ftruncate(fd, (off_t)sb->header_size) == 0);
	forge_free(&f);
}

static void bomb(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);

	ENSURE(fd >= 0);
	arm(fd);
	close(fd);
}

static uint64_t peak_kb(void)
{
	char line[256];
	unsigned long kb = 0;
	FILE *f = fopen("/proc/self/status", "re");

	ENSURE(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "VmHWM: %lu", &kb);
	fclose(f);
	ENSURE(kb);
	return kb;
}

static int get_it(void *arg)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_view *v;

	(void)arg;
	bomb(scratch_store_path("s", "objects/x"));
	ENSURE(shmstore_get(s, KEY("x"), 0, &v) == -EBADMSG);
	return peak_kb() > MOST_KB;
}

static int is_wrong(const struct shmstore_object_info *info, void *arg)
{
	*(int *)arg = info->error;
	return 0;
}

static int list_it(void *arg)
{
	struct shmstore *s = scratch_store("s");
	int error = 0;

	(void)arg;
	bomb(scratch_store_path("s", "objects/x"));
	ENSURE(shmstore_foreach(s, is_wrong, &error) == 0);
	ENSURE(error == -EBADMSG);
	return peak_kb() > MOST_KB;
}

static int adopt_it(void *arg)
{
	struct shmstore *s = scratch_store("s"), *donor = scratch_store("donor");
	struct shmstore_ticket t = {0};
	struct stat st;

	(void)arg;
	bomb(scratch_store_path("donor", "objects/x"));
	snprintf(t.path, sizeof(t.path), "%s/objects/x", shmstore_path(donor));
	ENSURE(stat(t.path, &st) == 0);
	t.header_size = (uint64_t)st.st_size;
	ENSURE(shmstore_adopt(s, KEY("y"), &t, 0) == -EBADMSG);
	ENSURE(shmstore_contains(s, KEY("y")) == 0);
	return peak_kb() > MOST_KB;
}

static int count_bad(const struct shmstore_verify_finding *finding, void *arg)
{
	*(int *)arg += finding->error == -EBADMSG;
	return 0;
}

static int verify_it(void *arg)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s = scratch_store("s");
	int n_bad = 0;

	(void)arg;
	(void)s;
	bomb(scratch_store_path("s", "objects/x"));
	ENSURE(shmstore_partition_verify(p, count_bad, &n_bad) == 0);
	ENSURE(n_bad == 1);
	return peak_kb() > MOST_KB;
}

static int count_holder(const struct shmstore_holder *holder, void *arg)
{
	*(int *)arg += holder->pid == getpid();
	return 0;
}

/* A file that never had a name: what it is only its bytes tell. */
static int survey_it(void *arg)
{
	struct shmstore_partition *p = scratch_partition();
	struct shmstore_survey survey = {.size = sizeof(survey), .holder = count_holder};
	struct shmstore_usage u;
	int n = 0, fd = open(scratch_dir(NULL), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	(void)arg;
	ENSURE(fd >= 0);
	arm(fd);
	survey.arg = &n;
	ENSURE(shmstore_partition_survey(p, &survey, &u) == 0);
	ENSURE(n == 1);
	n = 0;
	ENSURE(shmstore_partition_reconcile(p, count_holder, &n, &u) == 0);
	ENSURE(n == 1);
	return peak_kb() > MOST_KB;
}

static void check(int (*fn)(void *arg))
{
	scratch_dir(NULL);
	cr_assert_eq(in_child(fn, NULL), 0);
}

Test(header_bomb, get_takes_no_memory_that_is_not_there)
{
	check(get_it);
}

Test(header_bomb, foreach_takes_none)
{
	check(list_it);
}

Test(header_bomb, adopt_takes_none)
{
	check(adopt_it);
}

Test(header_bomb, verify_takes_none)
{
	check(verify_it);
}

Test(header_bomb, survey_and_reconcile_take_none)
{
	check(survey_it);
}

/* A large header that is there is believed, whether it is written or only reserved. */
Test(header_bomb, large_headers_are_read)
{
	struct shmstore *s = scratch_store("s");
	struct shmstore_writer *w;
	struct shmstore_view *v;
	size_t size = 32u << 20, n;
	char *header = malloc(size);

	pattern_fill(header, size, 3);
	cr_assert_eq(shmstore_put(s, KEY("put"), header, size, NULL, 0, 0), 0);
	v = get_view(s, "put", 0);
	cr_assert_eq(memcmp(shmstore_view_header(v, &n), header, size), 0);
	cr_assert_eq(n, size);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_create(s, KEY("made"), size, NULL, 0, 0, &w), 0);
	cr_assert_eq(shmstore_seal(w), 0);
	v = get_view(s, "made", 0);
	cr_assert_eq(((const char *)shmstore_view_header(v, &n))[size - 1], 0);
	cr_assert_eq(n, size);
	shmstore_view_unref(v);
	free(header);
	cr_assert_eq(shmstore_close(s), 0);
}
