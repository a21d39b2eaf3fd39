/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of peers. */
#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "api.h"

static const char *find(const char *address)
{
	static char name[SHMSTORE_NAME_MAX + 1];
	struct shmstore_partition *p = scratch_partition();
	int r = shmstore_peer_find(p, address, name, sizeof(name));

	shmstore_partition_unref(p);
	cr_assert(r == 0 || r == -ENOENT, "%d", r);
	return r == 0 ? name : NULL;
}

Test(peer, live_store_is_found_by_its_address)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");
	struct shmstore_partition *p = scratch_partition();
	char name[2];

	cr_assert_null(find("tcp://10.0.0.1:1"));
	cr_assert_eq(shmstore_set_address(a, "tcp://10.0.0.1:1"), 0);
	cr_assert_eq(shmstore_set_address(b, "tcp://10.0.0.1:2"), 0);
	cr_assert_str_eq(find("tcp://10.0.0.1:1"), "a");
	cr_assert_str_eq(find("tcp://10.0.0.1:2"), "b");
	cr_assert_null(find("tcp://10.0.0.1:3"));
	cr_assert_eq(shmstore_peer_find(p, "tcp://10.0.0.1:1", NULL, 0), 0);
	cr_assert_eq(shmstore_peer_find(p, "tcp://10.0.0.1:1", name, 1), -EINVAL);
	cr_assert_eq(shmstore_peer_find(p, "tcp://10.0.0.1:1", name, 2), 0);
	cr_assert_eq(shmstore_set_address(a, "inproc://x"), 0);
	cr_assert_null(find("tcp://10.0.0.1:1"), "the earlier one is withdrawn");
	cr_assert_str_eq(find("inproc://x"), "a");
	cr_assert_eq(shmstore_set_address(a, ""), 0);
	cr_assert_null(find("inproc://x"));
	cr_assert_eq(shmstore_close(b), 0);
	cr_assert_null(find("tcp://10.0.0.1:2"));
	cr_assert_eq(shmstore_close(a), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(peer, arguments_are_checked)
{
	struct shmstore *a = scratch_store("a");
	struct shmstore_partition *p = scratch_partition();
	char address[300], name[300];

	memset(address, 'x', sizeof(address));
	address[256] = '\0';
	cr_assert_eq(shmstore_set_address(a, address), -EINVAL);
	cr_assert_eq(shmstore_peer_find(p, address, name, sizeof(name)), -EINVAL);
	address[255] = '\0';
	cr_assert_eq(shmstore_set_address(a, address), 0);
	cr_assert_str_eq(find(address), "a");
	cr_assert_eq(shmstore_set_address(a, NULL), -EINVAL);
	cr_assert_eq(shmstore_set_address(NULL, "x"), -EINVAL);
	cr_assert_eq(shmstore_peer_find(p, NULL, name, sizeof(name)), -EINVAL);
	cr_assert_eq(shmstore_peer_find(p, "", name, sizeof(name)), -EINVAL);
	cr_assert_eq(shmstore_peer_find(NULL, "x", name, sizeof(name)), -EINVAL);
	cr_assert_eq(shmstore_peer_find(p, "x", NULL, 5), -EINVAL);
	cr_assert_eq(shmstore_close(a), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

static int die_with_address(void *arg)
{
	struct shmstore *s = scratch_store("dead");

	(void)arg;
	if (shmstore_set_address(s, "tcp://h:9") != 0)
		return 1;
	raise(SIGKILL);
	return 0;
}

Test(peer, dead_peer_is_not_found_and_its_entry_is_gcs)
{
	struct shmstore_gc_report report;

	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(die_with_address, NULL), 1000 + SIGKILL);
	cr_assert_null(find("tcp://h:9"));
	cr_assert_eq(shmstore_partition_gc(scratch_partition(), 0, &report), 0);
	cr_assert_eq(report.n_stores, 1);
	ensure_nothing_left();
}

Test(peer, address_taken_over_by_another_store_is_that_ones)
{
	struct shmstore *a = scratch_store("a"), *b = scratch_store("b");

	cr_assert_eq(shmstore_set_address(a, "tcp://h:1"), 0);
	cr_assert_eq(shmstore_set_address(b, "tcp://h:1"), 0);
	cr_assert_str_eq(find("tcp://h:1"), "b");
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_str_eq(find("tcp://h:1"), "b", "the first one's end takes nothing away");
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

Test(peer, store_outside_stores_is_found)
{
	struct shmstore_options options = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p = scratch_partition();
	struct shmstore *s;

	options.directory = "elsewhere";
	cr_assert_eq(shmstore_open(p, "a", &options, &s), 0);
	cr_assert_eq(shmstore_set_address(s, "tcp://h:1"), 0);
	cr_assert_str_eq(find("tcp://h:1"), "a");
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(p);
	ensure_nothing_left();
}

Test(peer, forged_entries_mislead_nobody)
{
	struct shmstore *a = scratch_store("a");
	char path[SCRATCH_PATH + 100], entry[SCRATCH_PATH + 200], command[3 * SCRATCH_PATH];
	static const char *const targets[] = {
		"/etc",           "../../../etc", "../stores/../stores/a",
		"../stores/none", "../stores",    "x"};

	cr_assert_eq(shmstore_set_address(a, "tcp://h:1"), 0);
	snprintf(path, sizeof(path), "%s/peers", scratch_partition_path());
	cr_assert_eq(count_dir(path), 1);
	snprintf(command, sizeof(command), "ls %s", path);
	{
		FILE *f = popen(command, "re");
		char name[64];

		cr_assert_not_null(f);
		cr_assert_eq(fscanf(f, "%63s", name), 1);
		pclose(f);
		snprintf(entry, sizeof(entry), "%s/%s", path, name);
	}
	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		const char *found;

		cr_assert_eq(unlink(entry), 0);
		cr_assert_eq(symlink(targets[i], entry), 0);
		found = find("tcp://h:1");
		cr_assert(found == NULL || strcmp(found, "a") == 0, "%s", targets[i]);
	}
	cr_assert_eq(unlink(entry), 0);
	cr_assert_eq(shmstore_close(a), 0);
	ensure_nothing_left();
}

/* In a shared partition another user may make a page that says what it likes. */
Test(peer, store_of_another_user_is_no_answer_whatever_its_page_says)
{
	struct shmstore *a;

	if (geteuid() != 0)
		cr_skip("only root can give a store away");
	a = scratch_store("a");
	cr_assert_eq(shmstore_set_address(a, "tcp://10.0.0.1:1"), 0);
	cr_assert_str_eq(find("tcp://10.0.0.1:1"), "a");
	cr_assert_eq(chown(shmstore_path(a), 60001, (gid_t)-1), 0);
	cr_assert_null(find("tcp://10.0.0.1:1"));
	cr_assert_eq(chown(shmstore_path(a), 0, (gid_t)-1), 0);
	cr_assert_str_eq(find("tcp://10.0.0.1:1"), "a");
	cr_assert_eq(shmstore_close(a), 0);
	ensure_nothing_left();
}
