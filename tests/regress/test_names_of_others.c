/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names that somebody else took first: a store opened for reading by its name, and the default
 * partition, were whoever's they were, and what Python reads there is run. Another user's store
 * wants a flag now; a partition that nobody named must be the caller's or root's.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api.h"

#define EVE    54321
#define VICTIM 54322

static char shared[512], taken[600];

static void become(uid_t uid)
{
	ENSURE(setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0);
}

static void open_up(const char *directory)
{
	char path[1024];
	struct dirent *e;
	DIR *dir = opendir(directory);

	ENSURE(dir && chmod(directory, 0755) == 0);
	while ((e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, e->d_name);
		if (e->d_type == DT_DIR)
			open_up(path);
		else
			ENSURE(chmod(path, 0444) == 0);
	}
	closedir(dir);
}

/* Eve's store, for all to read, under a name that others will ask for; and a directory where the
 * default partition is looked for. */
static int eve(void *arg)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *s;

	(void)arg;
	become(EVE);
	o.keep = true;
	ENSURE(shmstore_partition_open(shared, 0, &p) == 0);
	ENSURE(shmstore_open(p, "results", &o, &s) == 0);
	ENSURE(put_pattern(s, "x", 10000, 1, 0) == 0);
	ENSURE(shmstore_close(s) == 0);
	snprintf(taken, sizeof(taken), "%s/stores/results", shared);
	open_up(taken);
	return 0;
}

static int eve_takes_the_default(void *arg)
{
	(void)arg;
	become(EVE);
	ENSURE(mkdir(taken, 0777) == 0 && chmod(taken, 0777) == 0);
	return 0;
}

static int victim_reads(void *arg)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore_view *v;
	struct shmstore *s, *own;

	(void)arg;
	become(VICTIM);
	ENSURE(shmstore_partition_open(shared, 0, &p) == 0);
	o.flags = SHMSTORE_OPEN_READONLY;
	ENSURE(shmstore_open(p, "results", &o, &s) == -EPERM);
	o.directory = "stores/results";
	ENSURE(shmstore_open(p, "results", &o, &s) == -EPERM);
	o.directory = NULL;
	/* Asked for, it is read, and says whose it is. */
	o.flags |= SHMSTORE_OPEN_ANY_USER;
	ENSURE(shmstore_open(p, "results", &o, &s) == 0);
	ENSURE(get_pattern(s, "x", 10000, 1) == 0);
	v = get_view(s, "x", 0);
	ENSURE(shmstore_view_uid(v) == EVE);
	shmstore_view_unref(v);
	ENSURE(shmstore_close(s) == 0);
	/* Our own store of that name is found, wherever it is. */
	o.flags = 0;
	o.directory = "mine";
	ENSURE(shmstore_open(p, "results", &o, &own) == 0);
	ENSURE(put_pattern(own, "x", 10000, 2, 0) == 0);
	o.flags = SHMSTORE_OPEN_READONLY;
	o.directory = NULL;
	ENSURE(shmstore_open(p, "results", &o, &s) == 0);
	ENSURE(get_pattern(s, "x", 10000, 2) == 0);
	v = get_view(s, "x", 0);
	ENSURE(shmstore_view_uid(v) == VICTIM);
	shmstore_view_unref(v);
	ENSURE(shmstore_close(s) == 0);
	o.flags = SHMSTORE_OPEN_ANY_USER; /* of others' stores there is nothing but reading */
	ENSURE(shmstore_open(p, "other", &o, &s) == -EINVAL);
	ENSURE(shmstore_close(own) == 0);
	return 0;
}

static int victim_goes_home(void *arg)
{
	struct shmstore_partition *p;

	(void)arg;
	become(VICTIM);
	ENSURE(setenv("SHMSTORE_PARTITION", taken, 1) == 0);
	ENSURE(shmstore_partition_open(NULL, 0, &p) == -EPERM);
	ENSURE(shmstore_partition_open(NULL, SHMSTORE_CREATE, &p) == -EPERM);
	ENSURE(count_dir(taken) == 0);
	ENSURE(shmstore_partition_open(taken, SHMSTORE_CREATE | SHMSTORE_TRUSTED, &p) == -EPERM);
	/* Root's, or one's own, is taken for granted. */
	ENSURE(setenv("SHMSTORE_PARTITION", shared, 1) == 0);
	ENSURE(shmstore_partition_open(NULL, 0, &p) == 0);
	shmstore_partition_unref(p);
	return 0;
}

static void make_shared(void)
{
	struct shmstore_partition *p;

	if (geteuid() != 0)
		cr_skip_test("needs root, to be several users");
	snprintf(shared, sizeof(shared), "%s/shared", scratch_dir(NULL));
	cr_assert_eq(chmod(scratch_dir(NULL), 01777), 0);
	cr_assert_eq(shmstore_partition_open(shared, SHMSTORE_CREATE | SHMSTORE_SHARED, &p), 0);
	shmstore_partition_unref(p);
}

Test(names_of_others, a_store_that_somebody_else_made_is_not_read_by_its_name)
{
	make_shared();
	cr_assert_eq(in_child(eve, NULL), 0);
	cr_assert_eq(in_child(victim_reads, NULL), 0);
}

Test(names_of_others, a_default_partition_that_somebody_else_made_is_refused)
{
	make_shared();
	snprintf(taken, sizeof(taken), "%s/shmstore-%d", scratch_dir(NULL), VICTIM);
	cr_assert_eq(in_child(eve_takes_the_default, NULL), 0);
	cr_assert_eq(in_child(victim_goes_home, NULL), 0);
}
