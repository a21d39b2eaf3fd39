/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker: a lease on its way from one user to another, and everything that the three users may try
 * meanwhile. Each user is a child with that uid; broker_run() is called by root, as shmstored does.
 * test_inbox.c: where it arrives.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <shmstore/inspect.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "api.h"
#include "beneath.h"
#include "brokerscene.h"

TestSuite(broker, .init = scene_begin, .fini = scene_end);

/* ---- the way it is meant --------------------------------------------------------------------- */

static int receive(const char *arg)
{
	struct shmstore *s = scene_store("receiver"), *second = scene_store("second");
	struct shmstore_view *v;
	struct shmstore_ticket t;
	struct stat st, copy;

	(void)arg;
	ENSURE(shmstore_adopt(s, KEY("x"), scene_ticket, SHMSTORE_VERIFY) == 0);
	ENSURE(shmstore_adopt(s, KEY("y"), scene_ticket, 0) == -ESTALE);
	ENSURE(get_pattern(s, "x", SIZE, 7) == 0);
	ENSURE(stat(scene_below("stores/receiver/objects/x"), &st) == 0 && st.st_uid == DONOR &&
	       st.st_nlink == 2);

	/* It cannot be linked again: neither handed on, nor adopted by its path, nor
	 * aliased; a put of it copies. */
	ENSURE(shmstore_handoff(s, KEY("x"), 1000, &t) == -EPERM);
	ENSURE(shmstore_handoff_to(s, KEY("x"), THIRD, 1000, &t) == -EPERM);
	ENSURE(count_dir(scene_below("stores/receiver/handoff")) == 0);
	t = *scene_ticket;
	snprintf(t.path, sizeof(t.path), "%s", scene_below("stores/receiver/objects/x"));
	ENSURE(shmstore_adopt(second, KEY("x"), &t, 0) == -EPERM);
	v = get_view(s, "x", 0);
	size_t header_size;
	const void *header = shmstore_view_header(v, &header_size);
	struct iovec iov = {.iov_base = shmstore_view_buffer(v, 0, NULL), .iov_len = SIZE};
	ENSURE(shmstore_put(s, KEY("copy"), header, header_size, &iov, 1, 0) == 0);
	ENSURE(stat(scene_below("stores/receiver/objects/copy"), &copy) == 0 &&
	       copy.st_uid == RECEIVER && copy.st_ino != st.st_ino);
	shmstore_view_unref(v);

	/* The books, and all that reads. */
	struct shmstore_store_usage usage;
	ENSURE(shmstore_usage(s, &usage) == 0 && usage.n_objects == 2);
	ENSURE(shmstore_delete(s, KEY("x")) == 0);
	ENSURE(count_dir(scene_below("stores/receiver/recycle")) == 0);
	ENSURE(shmstore_contains(s, KEY("x")) == 0);
	ENSURE(get_pattern(s, "copy", SIZE, 7) == 0);
	ENSURE(shmstore_close(second) == 0 && shmstore_close(s) == 0);
	return 0;
}

Test(broker, a_lease_arrives_and_its_object_is_the_donors_still)
{
	scene_hand_over();
	cr_assert_eq(count_dir(scene_below("stores/donor/handoff")), 0, "the donor's lease moved");
	cr_assert_eq(scene_inbox_leases(RECEIVER), 1);
	cr_assert_eq(scene_as(RECEIVER, receive, NULL), 0);
	cr_assert_eq(scene_inbox_leases(RECEIVER), 0);
}

static int write_attacks(const char *arg)
{
	struct shmstore *s = scene_store("receiver");
	struct shmstore_view *v;
	char proc[64];
	int fd;

	(void)arg;
	ENSURE(shmstore_adopt(s, KEY("x"), scene_ticket, 0) == 0);
	const char *file = scene_below("stores/receiver/objects/x");
	ENSURE(open(file, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(open(file, O_WRONLY | O_TRUNC | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(chmod(file, 0600) < 0 && errno == EPERM);
	ENSURE(truncate(file, 0) < 0 && errno == EACCES);
	ENSURE(chown(file, RECEIVER, RECEIVER) < 0 && errno == EPERM);
	ENSURE(link(file, scene_below("stores/receiver/objects/z")) < 0 && errno == EPERM);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	ENSURE(fd >= 0);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	ENSURE(open(proc, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(ftruncate(fd, 0) < 0 && fchmod(fd, 0600) < 0 && write(fd, "x", 1) < 0);
	ENSURE(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED &&
	       errno == EACCES);
	ENSURE(fcntl(fd, F_SETLEASE, F_RDLCK) < 0);
	close(fd);
	v = get_view(s, "x", 0);
	uintptr_t page = (uintptr_t)shmstore_view_buffer(v, 0, NULL) & ~(uintptr_t)4095;
	ENSURE(mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) < 0 && errno == EACCES);
	shmstore_view_unref(v);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

Test(broker, the_receiver_cannot_write)
{
	scene_hand_over();
	cr_assert_eq(scene_as(RECEIVER, write_attacks, NULL), 0);
}

static int donate_pinned(const char *arg)
{
	int r = scene_donate(arg);

	ENSURE(chmod(scene_below("stores/donor/objects/k"), 01400) == 0);
	return r;
}

static int receive_it(const char *arg)
{
	struct shmstore *s = scene_store("receiver");

	(void)arg;
	ENSURE(shmstore_adopt(s, KEY("x"), scene_ticket, 0) == 0);
	ENSURE(get_pattern(s, "x", SIZE, 7) == 0);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

/* The sticky bit, which says that an object is pinned, was taken for a wrong mode: -EBADMSG. */
Test(broker, a_pinned_object_arrives_too)
{
	struct broker_answer answer;
	struct stat st;

	cr_assert_eq(scene_as(DONOR, donate_pinned, NULL), 0);
	cr_assert_eq(scene_broker(scene_ticket->path, &answer), 0, "%s", answer.why);
	snprintf(scene_ticket->path, sizeof(scene_ticket->path), "%s/%s", scene_path, answer.path);
	cr_assert_eq(scene_as(RECEIVER, receive_it, NULL), 0);
	cr_assert(stat(scene_below("stores/donor/objects/k"), &st) == 0 && (st.st_mode & S_ISVTX),
		  "pinned still");
}

static int try_to_take(const char *arg)
{
	struct shmstore *s = scene_store(arg);
	int r = shmstore_adopt(s, KEY("x"), scene_ticket, 0);

	ENSURE(open(scene_ticket->path, O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(shmstore_close(s) == 0);
	return -r;
}

Test(broker, nobody_else_can_take_it)
{
	scene_hand_over();
	cr_assert_eq(scene_as(THIRD, try_to_take, "third"), EPERM);
	cr_assert_eq(scene_as(DONOR, try_to_take, "donor"), EPERM, "nor the donor itself");
	cr_assert_eq(scene_as(RECEIVER, receive, NULL), 0);
}

static int put_again(const char *arg)
{
	struct shmstore *s = scene_store("donor");
	struct stat first, second;

	(void)arg;
	ENSURE(stat(scene_below("stores/donor/objects/k"), &first) == 0 && first.st_nlink == 1);
	ENSURE((first.st_mode & 07777) == 0440);
	ENSURE(shmstore_delete(s, KEY("k")) == 0);
	ENSURE(put_pattern(s, "k", SIZE, 8, 0) == 0);
	ENSURE(stat(scene_below("stores/donor/objects/k"), &second) == 0 &&
	       (second.st_mode & 07777) == 0400);
	ENSURE(getxattr(scene_below("stores/donor/objects/k"), "system.posix_acl_access", NULL, 0) <
		       0 &&
	       errno == ENODATA);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

static int drop_inbox(const char *arg)
{
	(void)arg;
	return unlink(scene_ticket->path) == 0 ? 0 : errno;
}

Test(broker, a_file_that_was_handed_over_is_not_written_again)
{
	scene_hand_over();
	cr_assert_eq(scene_as(RECEIVER, drop_inbox, NULL), 0);
	cr_assert_eq(scene_as(DONOR, put_again, NULL), 0);
}

/* ---- handing on ------------------------------------------------------------------------------ */

Test(broker, a_received_object_goes_to_stores_of_the_same_user_only)
{
	struct broker_ask ask;
	struct broker_answer a;

	scene_hand_over();
	cr_assert_eq(scene_as(RECEIVER, scene_adopt_only, "receiver"), 0);

	/* To the receiver's own inbox, as an object that stays. */
	scene_ask_for(&ask, scene_below("stores/receiver/objects/x"));
	snprintf(ask.store, sizeof(ask.store), "stores/receiver");
	ask.from = ask.to = RECEIVER;
	ask.lease_ms = 60000;
	cr_assert_eq(broker_run(&ask, &a), 0, "%s", a.why);
	snprintf(scene_ticket->path, sizeof(scene_ticket->path), "%s", scene_below(a.path));
	cr_assert_eq(scene_as(RECEIVER, scene_adopt_only, "second"), 0);
	cr_assert_eq(scene_as(RECEIVER, scene_adopt_only, "second"), ESTALE);

	/* To a third user: also not where the receiver got a lease of it somehow. */
	char lease[SHMS_LEASE_NAME_SIZE], named[2 * SCRATCH_PATH];
	cr_assert_eq(leasename_make(shmstore_lease_clock_ms() + 60000, lease), 0);
	snprintf(named, sizeof(named), "%s/stores/receiver/handoff/%s", scene_path, lease);
	cr_assert_eq(link(scene_below("stores/receiver/objects/x"), named), 0);
	scene_ask_for(&ask, named);
	snprintf(ask.store, sizeof(ask.store), "stores/receiver");
	ask.from = RECEIVER;
	ask.to = THIRD;
	cr_assert_eq(broker_run(&ask, &a), -EPERM);
	cr_assert_eq(scene_inbox_leases(THIRD), -ENOENT);
}

/* ---- what is no lease of the sender's -------------------------------------------------------- */

enum trick {
	TRICK_OTHERS_STORE,
	TRICK_NO_LEASE_NAME,
	TRICK_OBJECT,
	TRICK_ABOVE,
	TRICK_EXPIRED,
	TRICK_TOO_LONG,
	TRICK_ABSENT,
	TRICK_SYMLINK,
	TRICK_FIFO,
	TRICK_DIRECTORY,
	TRICK_OTHERS_FILE,
	TRICK_WRITABLE,
	TRICK_HANDOFF_SYMLINK,
	N_TRICKS,
};

static const struct {
	const char *name;
	int error;
} TRICKS[N_TRICKS] = {
	[TRICK_OTHERS_STORE] = {"a scene_path in another's store", EPERM},
	[TRICK_NO_LEASE_NAME] = {"a name that is no lease's", EPERM},
	[TRICK_OBJECT] = {"an object", EPERM},
	[TRICK_ABOVE] = {"a scene_path with ..", EPERM},
	[TRICK_EXPIRED] = {"an expired lease", ESTALE},
	[TRICK_TOO_LONG] = {"a lease of a month", EINVAL},
	[TRICK_ABSENT] = {"a lease that is not there", ESTALE},
	[TRICK_SYMLINK] = {"a symlink", EBADMSG},
	[TRICK_FIFO] = {"a FIFO", EBADMSG},
	[TRICK_DIRECTORY] = {"a directory", EBADMSG},
	[TRICK_OTHERS_FILE] = {"another's file", EPERM},
	[TRICK_WRITABLE] = {"a file that all may write to", EBADMSG},
	[TRICK_HANDOFF_SYMLINK] = {"handoff/ as a symlink", ESTALE},
};

static enum trick current;

/* Names such a lease in *ticket, and makes it as the donor. */
static int trick(const char *arg)
{
	char expired[64], named[2 * SCRATCH_PATH], plain[2 * SCRATCH_PATH];
	uint64_t ms = shmstore_lease_clock_ms();

	(void)arg;
	snprintf(named, sizeof(named), "%s", scene_ticket->path);
	snprintf(plain, sizeof(plain), "%.*s", (int)(strrchr(named, '/') - named), named);
	switch (current) {
	case TRICK_OTHERS_STORE:
		snprintf(scene_ticket->path, sizeof(scene_ticket->path),
			 "%s/stores/third/handoff/%s", scene_path, strrchr(named, '/') + 1);
		return 0;
	case TRICK_NO_LEASE_NAME:
		snprintf(scene_ticket->path, sizeof(scene_ticket->path), "%s/k", plain);
		return rename(named, scene_ticket->path) != 0;
	case TRICK_OBJECT:
		snprintf(scene_ticket->path, sizeof(scene_ticket->path),
			 "%s/stores/donor/objects/k", scene_path);
		return 0;
	case TRICK_ABOVE:
		snprintf(scene_ticket->path, sizeof(scene_ticket->path), "%s/../handoff/..", plain);
		return 0;
	case TRICK_EXPIRED:
	case TRICK_TOO_LONG:
		ms = current == TRICK_EXPIRED ? 1 : ms + 30 * UINT64_C(86400000);
		snprintf(expired, sizeof(expired), "%llu-0123456789abcdef", (unsigned long long)ms);
		snprintf(scene_ticket->path, sizeof(scene_ticket->path), "%s/%s", plain, expired);
		return rename(named, scene_ticket->path) != 0;
	case TRICK_ABSENT:
		return unlink(named) != 0;
	case TRICK_SYMLINK:
		return unlink(named) != 0 || symlink("/etc/passwd", named) != 0;
	case TRICK_FIFO:
		return unlink(named) != 0 || mkfifo(named, 0400) != 0;
	case TRICK_DIRECTORY:
		return unlink(named) != 0 || mkdir(named, 0700) != 0;
	case TRICK_WRITABLE:
		return chmod(named, 0666) != 0;
	case TRICK_HANDOFF_SYMLINK:
		return rename(plain, scene_below("stores/donor/away")) != 0 ||
		       symlink("away", plain) != 0;
	case TRICK_OTHERS_FILE:
	case N_TRICKS:
	default:
		return 0;
	}
}

ParameterizedTestParameters(broker, a_path_that_is_no_lease_of_the_senders_is_refused)
{
	static enum trick tricks[N_TRICKS];

	for (size_t i = 0; i < N_TRICKS; i++)
		tricks[i] = (enum trick)i;
	return cr_make_param_array(enum trick, tricks, N_TRICKS);
}

ParameterizedTest(enum trick *which, broker, a_path_that_is_no_lease_of_the_senders_is_refused)
{
	struct broker_answer a;
	struct stat before, after;

	cr_assert_eq(stat("/etc/passwd", &before), 0);
	current = *which;
	cr_assert_eq(scene_as(DONOR, scene_donate, NULL), 0);
	cr_assert_eq(scene_as(DONOR, trick, NULL), 0, "%s", TRICKS[*which].name);
	if (*which == TRICK_OTHERS_FILE)
		cr_assert_eq(chown(scene_ticket->path, THIRD, THIRD), 0);
	cr_assert_eq(scene_broker(scene_ticket->path, &a), -TRICKS[*which].error, "%s: %s",
		     TRICKS[*which].name, a.why);
	cr_assert_not_null(a.why);
	cr_assert_leq(scene_inbox_leases(RECEIVER), 0, "%s", TRICKS[*which].name);
	cr_assert_eq(stat("/etc/passwd", &after), 0);
	cr_assert(after.st_ino == before.st_ino && after.st_mode == before.st_mode &&
		  after.st_ctime == before.st_ctime);
}

/* ---- swapped during the call ----------------------------------------------------------------- */

/* Swaps the lease with a symlink, a FIFO and a file of its own that is not to be handed
 * over, until it is killed. */
static int swap(const char *arg)
{
	static const char *const others[] = {"/link", "/fifo", "/private"};
	char dir[2 * SCRATCH_PATH], other[2 * SCRATCH_PATH + 16];
	int fd;

	(void)arg;
	snprintf(dir, sizeof(dir), "%.*s",
		 (int)(strrchr(scene_ticket->path, '/') - scene_ticket->path), scene_ticket->path);
	ENSURE(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && chdir(dir) == 0);
	ENSURE(symlink("/etc/shadow", "link") == 0 && mkfifo("fifo", 0400) == 0);
	fd = open("private", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ENSURE(fd >= 0 && fchmod(fd, 0622) == 0); /* writable: a file that would be refused */
	for (unsigned i = 0;; i++) {
		snprintf(other, sizeof(other), "%s%s", dir, others[i % 3]);
		renameat2(AT_FDCWD, other, AT_FDCWD, scene_ticket->path, RENAME_EXCHANGE);
		renameat2(AT_FDCWD, other, AT_FDCWD, scene_ticket->path, RENAME_EXCHANGE);
	}
}

Test(broker, what_is_swapped_meanwhile_does_not_arrive, .timeout = 120)
{
	char file[2 * SCRATCH_PATH];
	struct scene_part part = {DONOR, swap, NULL};
	struct shmstore_ticket donated;
	struct broker_answer a;
	unsigned n_done = 0, n_refused = 0;
	struct stat st, object;
	pid_t pid;

	cr_assert_eq(scene_as(DONOR, scene_donate, NULL), 0);
	donated = *scene_ticket;
	cr_assert_eq(stat(donated.path, &object), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0)
		_exit(scene_play(&part));
	alarm(100);
	while (n_done < 20 || n_refused < 20) {
		if (scene_broker(donated.path, &a) < 0) {
			n_refused++;
			continue;
		}
		n_done++;
		snprintf(file, sizeof(file), "%s", scene_below(a.path));
		cr_assert_eq(lstat(file, &st), 0);
		cr_expect(S_ISREG(st.st_mode) && st.st_ino == object.st_ino,
			  "something else arrived");
		/* Back to where it came from. The donor may have it under another name by now;
		 * then there is nothing to do. */
		cr_assert_eq(link(file, donated.path) == 0 || errno == EEXIST, 1);
		unlink(file);
	}
	alarm(0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cr_assert_eq(stat(scene_below("stores/donor/objects/k"), &st), 0);
	cr_assert_eq(st.st_ino, object.st_ino);
}
