/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker looked at a lease's file, and then made it readable for the receiver. Where
 * the lease ended in between and was collected, the donor's next put was free to write into
 * that file: the receiver got what nobody had given it. The broker's O_PATH descriptor is
 * no open file to the donor's test.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "api.h"
#include "beneath.h"
#include "brokerscene.h"
#include "interpose.h"
#include "wire.h"

TestSuite(broker_lease_collected, .init = scene_begin, .fini = scene_end);

static int to_donor[2], from_donor[2];
static bool collect_first; /* before the access list is set, rather than after it */
static char lease[SHMSTORE_TICKET_PATH];

static void pass_on(int fd)
{
	ENSURE(write(fd, "", 1) == 1);
}

static void await(int fd)
{
	char c;

	ENSURE(read(fd, &c, 1) == 1);
}

/* The donor: hands over "k" and deletes its own, and when it is told so puts a secret. */
static int donor(const char *arg)
{
	struct shmstore *s = scene_store("donor");
	struct stat first, second;

	(void)arg;
	ENSURE(put_pattern(s, "first", SIZE, 6, 0) == 0 && shmstore_delete(s, KEY("first")) == 0);
	ENSURE(put_pattern(s, "k", SIZE, 7, 0) == 0);
	ENSURE(shmstore_handoff(s, KEY("k"), 60000, scene_ticket) == 0);
	ENSURE(stat(scene_ticket->path, &first) == 0);
	ENSURE(shmstore_delete(s, KEY("k")) == 0);
	pass_on(from_donor[1]);
	await(to_donor[0]);
	ENSURE(put_pattern(s, "secret", SIZE, 8, 0) == 0);
	ENSURE(stat(scene_below("stores/donor/objects/secret"), &second) == 0);
	pass_on(from_donor[1]);
	await(to_donor[0]);
	ENSURE(get_pattern(s, "secret", SIZE, 8) == 0);
	ENSURE(shmstore_close(s) == 0);
	/* The file of the lease is what the secret went to, or there was no race to see. */
	return first.st_ino == second.st_ino ? 0 : 1;
}

/* The lease ends and goes, as gc does it, and the donor puts. */
static void collect(void)
{
	if (!lease[0])
		return;
	ENSURE(unlink(lease) == 0);
	lease[0] = '\0';
	pass_on(to_donor[1]);
	await(from_donor[0]);
}

/* libacl calls it: it must see ours. */
__attribute__((visibility("default"))) int setxattr(const char *path, const char *name,
						    const void *value, size_t size, int flags)
{
	typedef int fn(const char *, const char *, const void *, size_t, int);
	bool acl = strcmp(name, "system.posix_acl_access") == 0;
	int r;

	if (acl && collect_first)
		collect();
	r = NEXT(fn *, "setxattr")(path, name, value, size, flags);
	if (acl && !collect_first)
		collect();
	return r;
}

static void begin(pid_t *ret_donor)
{
	cr_assert(pipe(to_donor) == 0 && pipe(from_donor) == 0);
	*ret_donor = fork();
	if (*ret_donor == 0) {
		/* Where the test fails it ends too. */
		close(to_donor[1]);
		close(from_donor[0]);
		_exit(scene_play(&(struct scene_part){DONOR, donor, NULL}));
	}
	await(from_donor[0]);
	snprintf(lease, sizeof(lease), "%s", scene_ticket->path);
}

static int end(pid_t donor_pid)
{
	int status;

	pass_on(to_donor[1]);
	cr_assert_eq(waitpid(donor_pid, &status, 0), donor_pid);
	cr_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void ensure_secret(mode_t mode)
{
	const char *file = scene_below("stores/donor/objects/secret");
	struct stat st;

	cr_assert_eq(scene_inbox_leases(RECEIVER), 0, "the receiver was given the secret");
	cr_assert(stat(file, &st) == 0 && (st.st_mode & 07777) == mode);
	cr_assert(getxattr(file, "system.posix_acl_access", NULL, 0) < 0 && errno == ENODATA,
		  "the receiver may read the secret");
}

Test(broker_lease_collected, between_the_check_and_the_access_list)
{
	struct broker_answer a;
	pid_t pid;

	collect_first = true;
	begin(&pid);
	cr_assert_eq(scene_broker(lease, &a), -ESTALE);
	ensure_secret(0400);
	cr_assert_eq(end(pid), 0);
}

/* The access list is there: the file is not written again, whoever takes the lease. */
Test(broker_lease_collected, after_the_access_list)
{
	struct broker_answer a;
	pid_t pid;

	begin(&pid);
	cr_assert_eq(scene_broker(lease, &a), -ESTALE);
	ensure_secret(0400);
	cr_assert_eq(end(pid), 1, "the secret has a file of its own");
}
