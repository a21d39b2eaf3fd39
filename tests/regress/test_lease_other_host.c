/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gc in a container ended all leases of dead donors at once: where the container has a boot id of
 * its own (systemd-nspawn) or none (ProcSubset=pid), and where its time namespace has another
 * CLOCK_BOOTTIME. Leases that were made there ended as wrongly outside.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "api.h"
#include "page.h"
#include "sys.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"
#define SKIP    77

static int donate(void *arg)
{
	struct shmstore *s = scratch_store("donor");
	struct shmstore_ticket t;

	(void)arg;
	ENSURE(put_pattern(s, "x", 10000, 1, 0) == 0);
	ENSURE(shmstore_handoff(s, KEY("x"), 3600000, &t) == 0);
	return 0; /* dies with its store */
}

static int collect(void *arg)
{
	struct shmstore_gc_report r;

	(void)arg;
	ENSURE(shmstore_partition_gc(scratch_partition(), 0, &r) == 0);
	/* Opening any store sweeps, too. */
	ENSURE(shmstore_close(scratch_store("other")) == 0);
	return r.n_leases != 0;
}

static int adopt_it(void *arg)
{
	struct shmstore_ticket *t = arg;
	struct shmstore *s = scratch_store("receiver");

	ENSURE(shmstore_adopt(s, KEY("y"), t, 0) == 0);
	ENSURE(get_pattern(s, "y", 10000, 1) == 0);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

/* With that text for a boot id. */
static int with_boot_id(void *text)
{
	char path[] = "/tmp/shmstore-boot-XXXXXX";
	int fd, r;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return SKIP;
	fd = mkstemp(path);
	ENSURE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
	r = mount(path, BOOT_ID, NULL, MS_BIND, NULL);
	unlink(path);
	return r < 0 ? SKIP : collect(NULL);
}

static void outlives(int (*fn)(void *arg), void *arg)
{
	int r;

	shmstore_partition_unref(scratch_partition());
	cr_assert_eq(in_child(donate, NULL), 0);
	r = in_child(fn, arg);
	if (r == SKIP)
		cr_skip_test("needs root and its namespaces");
	cr_assert_eq(r, 0, "the lease was ended");
	cr_assert_eq(count_in_store("donor", "handoff"), 1);
}

Test(lease_other_host, outlives_a_gc_with_another_boot_id)
{
	char id[] = "01234567-89ab-4def-8123-456789abcdef\n";

	outlives(with_boot_id, id);
}

Test(lease_other_host, outlives_a_gc_that_sees_no_boot_id)
{
	char none[] = "";

	outlives(with_boot_id, none);
}

Test(lease_other_host, outlives_a_gc_in_another_time_namespace)
{
	outlives(day_ahead, &(struct day_ahead){.fn = collect});
}

static int hand(void *ticket)
{
	struct shmstore *s = scratch_store("donor");

	ENSURE(put_pattern(s, "x", 10000, 1, 0) == 0);
	/* A minute: where the clocks differ by a day it would be over long since, or not for a
	 * day. */
	ENSURE(shmstore_handoff(s, KEY("x"), 60000, ticket) == 0);
	return 0;
}

static int hand_and_print(void *path)
{
	struct shmstore_ticket t;
	FILE *f;

	hand(&t);
	f = fopen(path, "we");
	ENSURE(f && fwrite(&t, sizeof(t), 1, f) == 1 && fclose(f) == 0);
	return 0;
}

static void read_ticket(const char *path, struct shmstore_ticket *ret)
{
	FILE *f = fopen(path, "re");

	cr_assert(f && fread(ret, sizeof(*ret), 1, f) == 1);
	fclose(f);
	unlink(path);
}

Test(lease_other_host, is_as_long_in_every_time_namespace)
{
	char path[] = "/tmp/shmstore-ticket-XXXXXX";
	struct shmstore_ticket t;
	uint64_t expiry, now;
	int r;

	close(mkstemp(path));
	shmstore_partition_unref(scratch_partition());
	/* Made here, taken there. */
	cr_assert_eq(in_child(hand_and_print, path), 0);
	read_ticket(path, &t);
	r = in_child(day_ahead, &(struct day_ahead){.fn = adopt_it, .arg = &t});
	if (r == SKIP)
		cr_skip_test("needs root and time namespaces");
	cr_assert_eq(r, 0);
	/* Made there, taken here, and good for no longer than was said. */
	cr_assert_eq(in_child(day_ahead, &(struct day_ahead){.fn = hand_and_print, .arg = path}),
		     0);
	read_ticket(path, &t);
	expiry = strtoull(strrchr(t.path, '/') + 1, NULL, 10);
	now = shmstore_lease_clock_ms();
	cr_assert(expiry > now && expiry <= now + 60000);
	cr_assert_eq(in_child(adopt_it, &t), 0);
}

/* A disk outlives the boot: there the boot id is what says that a lease is over. */
Test(lease_other_host, of_another_boot_ends_on_a_disk)
{
	char path[] = "/var/tmp/shmstore-test-XXXXXX", page[64], command[64];
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore_gc_report r;
	struct shmstore_ticket t;
	uint8_t id[16] = {1};
	struct shmstore *s;
	struct statfs fs;
	int fd;

	if (statfs("/var/tmp", &fs) < 0 || fs.f_type == TMPFS_MAGIC)
		cr_skip_test("needs a disk at /var/tmp");
	cr_assert_not_null(mkdtemp(path));
	snprintf(command, sizeof(command), "rm -r %s", path);
	snprintf(page, sizeof(page), "%s/stores/donor/.store", path);
	cr_assert_eq(shmstore_partition_open(path, SHMSTORE_CREATE | SHMSTORE_ALLOW_DISK, &p), 0);
	o.keep = true;
	cr_assert_eq(shmstore_open(p, "donor", &o, &s), 0);
	cr_assert_eq(put_pattern(s, "x", 10000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("x"), 3600000, &t), 0);
	cr_assert_eq(shmstore_close(s), 0);
	cr_assert_eq(shmstore_partition_gc(p, 0, &r), 0);
	cr_assert_eq(r.n_leases, 0);
	fd = open(page, O_WRONLY | O_CLOEXEC);
	cr_assert_eq(pwrite(fd, id, sizeof(id), offsetof(struct shms_page, boot_id)), 16);
	close(fd);
	cr_assert_eq(shmstore_partition_gc(p, 0, &r), 0);
	cr_assert_eq(r.n_leases, 1);
	shmstore_partition_unref(p);
	cr_assert_eq(system(command), 0);
}
