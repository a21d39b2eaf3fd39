/* SPDX-License-Identifier: Apache-2.0 */
/* inbox: where leases for a user arrive. Squatted, wrecked by its user, half-made, full: nobody
 * else's leases suffer by it. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "beneath.h"
#include "broker.h"
#include "brokerscene.h"
#include "wire.h"

TestSuite(inbox, .init = scene_begin, .fini = scene_end);

static int squat(const char *how)
{
	if (strcmp(how, "directory") == 0)
		return mkdir(scene_below(WIRE_INBOX), 0777) != 0 ||
		       mkdir(scene_below(WIRE_INBOX "/60002"), 0777) != 0;
	if (strcmp(how, "symlink") == 0)
		return symlink("/tmp", scene_below(WIRE_INBOX));
	return mknod(scene_below(WIRE_INBOX), S_IFREG | 0666, 0);
}

Test(inbox, a_squatted_inbox_is_replaced)
{
	static const char *const how[] = {"directory", "symlink", "file"};
	struct stat st;

	for (size_t i = 0; i < 3; i++) {
		char *what;

		cr_assert_eq(asprintf(&what, "rm -rf %s", scene_below(WIRE_INBOX)) > 0, 1);
		cr_assert_eq(system(what), 0);
		free(what);
		cr_assert_eq(scene_as(THIRD, squat, how[i]), 0);
		scene_hand_over();
		cr_assert_eq(lstat(scene_below(WIRE_INBOX), &st), 0);
		cr_assert(S_ISDIR(st.st_mode) && st.st_uid == 0 && (st.st_mode & 07777) == 0755,
			  "%s", how[i]);
		cr_assert_eq(scene_as(RECEIVER, scene_adopt_only, "receiver"), i == 0 ? 0 : EEXIST);
	}
}

static int no_squatting(const char *arg)
{
	(void)arg;
	ENSURE(mkdir(scene_below(WIRE_INBOX "/60001"), 0700) < 0 && errno == EACCES);
	ENSURE(rename(scene_below(WIRE_INBOX), scene_below("mine")) < 0 && errno == EPERM);
	ENSURE(rmdir(scene_below(WIRE_INBOX)) < 0 && errno == EPERM);
	ENSURE(rename(scene_below(WIRE_INBOX "/60002"), scene_below("stores/mine")) < 0);
	ENSURE(open(scene_below(WIRE_INBOX "/60002"), O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 &&
	       errno == EACCES);
	ENSURE(open(scene_below(WIRE_INBOX "/60002/handoff"), O_RDONLY | O_DIRECTORY | O_CLOEXEC) <
		       0 &&
	       errno == EACCES);
	ENSURE(symlink("/etc/passwd", scene_below(WIRE_INBOX "/60002/handoff/x")) < 0 &&
	       errno == EACCES);
	return 0;
}

Test(inbox, an_inbox_is_out_of_reach_for_others)
{
	scene_hand_over();
	cr_assert_eq(scene_as(THIRD, no_squatting, NULL), 0);
	cr_assert_eq(scene_as(DONOR, no_squatting, NULL), 0);
}

static int wreck(const char *how)
{
	char handoff[2 * SCRATCH_PATH];

	snprintf(handoff, sizeof(handoff), "%s", scene_below(WIRE_INBOX "/60002/handoff"));
	if (strcmp(how, "symlink") == 0)
		return rename(handoff, scene_below(WIRE_INBOX "/60002/away")) != 0 ||
		       symlink("/tmp", handoff) != 0;
	if (strcmp(how, "open") == 0)
		return chmod(handoff, 0777);
	return unlink(scene_ticket->path) != 0 || rmdir(handoff) != 0;
}

static void empty_inbox(void)
{
	char *command;

	cr_assert_gt(
		asprintf(&command, "find %s -mindepth 1 -delete", scene_below(WIRE_INBOX "/60002")),
		0);
	cr_assert_eq(system(command), 0);
	free(command);
}

Test(inbox, a_receiver_who_wrecks_its_inbox_gets_nothing_and_harms_nobody)
{
	static const char *const how[] = {"symlink", "open", "removed"};
	struct broker_answer a;
	struct stat before, after;

	for (size_t i = 0; i < 3; i++) {
		scene_hand_over();
		cr_assert_eq(scene_as(RECEIVER, wreck, how[i]), 0);
		cr_assert_eq(scene_as(DONOR, scene_donate, NULL), 0);
		cr_assert_eq(stat("/tmp", &before), 0);
		cr_assert_eq(scene_broker(scene_ticket->path, &a), -EPERM, "%s", how[i]);
		cr_assert_eq(stat("/tmp", &after), 0);
		cr_assert_eq(before.st_nlink, after.st_nlink);
		cr_assert_eq(access(scene_ticket->path, F_OK), 0, "the donor's lease stays");
		/* Emptied, it is made anew. */
		empty_inbox();
		cr_assert_eq(scene_broker(scene_ticket->path, &a), 0, "%s", a.why);
		empty_inbox();
	}
}

Test(inbox, an_inbox_that_was_being_made_is_finished)
{
	struct stat st;
	int fd;
	const char *why;

	/* Killed after the directory, after some of it was given away, after all of it was. */
	cr_assert_eq(mkdir(scene_below(WIRE_INBOX "/.making-60002"), 0700), 0);
	cr_assert_eq(inbox_open(scene_partition, scene_partition_fd, RECEIVER, &fd, &why), 0, "%s",
		     why);
	close(fd);
	cr_assert_eq(
		rename(scene_below(WIRE_INBOX "/60002"), scene_below(WIRE_INBOX "/.making-60002")),
		0);
	cr_assert_eq(inbox_open(scene_partition, scene_partition_fd, RECEIVER, &fd, &why), 0, "%s",
		     why);
	close(fd);
	cr_assert_eq(
		rename(scene_below(WIRE_INBOX "/60002"), scene_below(WIRE_INBOX "/.making-60002")),
		0);
	cr_assert_eq(chown(scene_below(WIRE_INBOX "/.making-60002"), 0, 0), 0);
	cr_assert_eq(chown(scene_below(WIRE_INBOX "/.making-60002/handoff"), 0, 0), 0);
	cr_assert_eq(inbox_open(scene_partition, scene_partition_fd, RECEIVER, &fd, &why), 0, "%s",
		     why);
	close(fd);
	cr_assert_eq(stat(scene_below(WIRE_INBOX "/60002/handoff"), &st), 0);
	cr_assert_eq(st.st_uid, RECEIVER);
	cr_assert_eq(stat(scene_below(WIRE_INBOX "/60002/.store"), &st), 0);
	cr_assert_eq(st.st_uid, RECEIVER);
	cr_assert_neq(access(scene_below(WIRE_INBOX "/.making-60002"), F_OK), 0);
	scene_hand_over();
	cr_assert_eq(scene_as(RECEIVER, scene_adopt_only, "receiver"), 0);
}

/* n leases of one donor in the open inbox. */
static void fill(int fd, unsigned n, uid_t donor, uint64_t expiry_ms)
{
	char lease[SHMS_LEASE_NAME_SIZE];

	for (unsigned i = 0; i < n; i++) {
		cr_assert_eq(leasename_make(expiry_ms, lease), 0);
		int file = openat(fd, lease, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0400);
		cr_assert_geq(file, 0);
		cr_assert_eq(fchown(file, donor, donor), 0);
		close(file);
	}
}

Test(inbox, no_donor_fills_an_inbox)
{
	uint64_t now = shmstore_lease_clock_ms(), later = now + 60000;
	struct broker_answer a;
	const char *why;
	int fd;

	cr_assert_eq(inbox_open(scene_partition, scene_partition_fd, RECEIVER, &fd, &why), 0, "%s",
		     why);
	fill(fd, INBOX_LEASES_DONOR_MAX - 1, DONOR, later);
	cr_assert_eq(inbox_room(fd, DONOR, now), 0);
	fill(fd, 1, DONOR, later);
	cr_assert_eq(inbox_room(fd, DONOR, now), -EDQUOT);
	cr_assert_eq(scene_as(DONOR, scene_donate, NULL), 0);
	cr_assert_eq(scene_broker(scene_ticket->path, &a), -EDQUOT);
	cr_assert_eq(access(scene_ticket->path, F_OK), 0);
	cr_assert_eq(inbox_room(fd, THIRD, now), 0, "others are not kept out");
	fill(fd, INBOX_LEASES_MAX - INBOX_LEASES_DONOR_MAX, THIRD, later);
	cr_assert_eq(inbox_room(fd, 4711, now), -EDQUOT, "but by all together");
	/* Time frees it. */
	cr_assert_eq(inbox_room(fd, DONOR, later + 1), 0);
	cr_assert_eq(scene_inbox_leases(RECEIVER), 0);
	close(fd);
	cr_assert_eq(scene_broker(scene_ticket->path, &a), 0, "%s", a.why);
}

Test(inbox, the_inbox_is_in_the_books_and_gc_ends_its_leases)
{
	char lease[2 * SCRATCH_PATH];
	struct shmstore_usage usage;
	struct shmstore_gc_report gc;

	scene_hand_over();
	cr_assert_eq(shmstore_partition_usage(scene_partition, 0, &usage), 0);
	cr_assert_eq(usage.n_leases, 1);
	cr_assert_eq(usage.n_stores, 2, "the donor's and the inbox");
	if (scratch_is_mount())
		cr_assert_eq(usage.residual, 0);
	cr_assert_eq(shmstore_partition_gc(scene_partition, 0, &gc), 0);
	cr_assert_eq(gc.n_leases, 0, "it has not ended");
	snprintf(lease, sizeof(lease), "%s",
		 scene_below(WIRE_INBOX "/60002/handoff/1-0123456789abcdef"));
	cr_assert_eq(rename(scene_ticket->path, lease), 0);
	cr_assert_eq(shmstore_partition_gc(scene_partition, 0, &gc), 0);
	cr_assert_eq(gc.n_leases, 1);
	cr_assert_eq(scene_inbox_leases(RECEIVER), 0);
}
