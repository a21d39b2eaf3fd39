/* SPDX-License-Identifier: Apache-2.0 */
/*
 * broker: a lease on its way from one user to another, and everything that the three users may try meanwhile. Each user is a child
 * with that uid; broker_run() is called by root, as shmstored does.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "acl.h"
#include "api.h"
#include "broker.h"
#include "inbox.h"
#include "leasename.h"
#include "wire.h"

enum {
	DONOR = 60001,
	RECEIVER = 60002,
	THIRD = 60003,
	SIZE = 300000,
};

static struct shmstore_partition *partition; /* root's own handle */
static int partition_fd;
static char path[SCRATCH_PATH];
static struct shmstore_ticket *ticket; /* shared with the children */

static void shared_partition(void)
{
	char *dir;

	if (geteuid() != 0)
		cr_skip("only root can be several users");
	cr_assert_neq(asprintf(&dir, "%s/shared", scratch_dir(NULL)), -1);
	cr_assert_eq(chmod(scratch_dir(NULL), 0755), 0);
	cr_assert_eq(shmstore_partition_open(dir, SHMSTORE_CREATE | SHMSTORE_SHARED, &partition), 0);
	snprintf(path, sizeof(path), "%s", shmstore_partition_path(partition));
	partition_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(partition_fd, 0);
	ticket = mmap(NULL, sizeof(*ticket), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(ticket, MAP_FAILED);
	free(dir);
}

static void gone(void)
{
	if (!partition)
		return;
	close(partition_fd);
	shmstore_partition_unref(partition);
}

TestSuite(broker, .init = shared_partition, .fini = gone);

/* ---- being somebody -------------------------------------------------------------------------------------------------- */

struct part {
	uid_t uid;
	int (*fn)(const char *arg);
	const char *arg;
};

static int play(void *arg)
{
	const struct part *p = arg;

	ENSURE(setgroups(0, NULL) == 0 && setresgid(p->uid, p->uid, p->uid) == 0 &&
	       setresuid(p->uid, p->uid, p->uid) == 0);
	return p->fn(p->arg);
}

/* What fn(arg) returns, as that user. */
static int as(uid_t uid, int (*fn)(const char *arg), const char *arg)
{
	return in_child(play, &(struct part){uid, fn, arg});
}

static struct shmstore *store(const char *name)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;
	struct shmstore_partition *p;
	struct shmstore *s;

	o.keep = true;
	o.daemon = SHMSTORE_DAEMON_OFF;
	ENSURE(shmstore_partition_open(path, 0, &p) == 0);
	ENSURE(shmstore_open(p, name, &o, &s) == 0);
	shmstore_partition_unref(p);
	return s;
}

/* The donor has an object "k" and a lease of it, whose ticket is in *ticket. */
static int donate(const char *arg)
{
	struct shmstore *s = store("donor");

	(void)arg;
	ENSURE(put_pattern(s, "k", SIZE, 7, SHMSTORE_REPLACE | SHMSTORE_CHECKSUM) == 0);
	ENSURE(shmstore_handoff(s, KEY("k"), 60000, ticket) == 0);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

static void ask_for(struct broker_ask *ask, const char *named)
{
	*ask = (struct broker_ask){.partition = partition,
				   .partition_fd = partition_fd,
				   .store = "stores/donor",
				   .from = DONOR,
				   .to = RECEIVER};
	snprintf(ask->path, sizeof(ask->path), "%s", named);
}

static int broker(const char *named, struct broker_answer *ret)
{
	struct broker_ask ask;

	ask_for(&ask, named);
	*ret = (struct broker_answer){0};
	return broker_run(&ask, ret);
}

/* From the donor's lease to the ticket of the receiver's. */
static void hand_over(void)
{
	struct broker_answer a;

	cr_assert_eq(as(DONOR, donate, NULL), 0);
	cr_assert_eq(broker(ticket->path, &a), 0, "%s", a.why);
	cr_assert_lt(snprintf(ticket->path, sizeof(ticket->path), "%s/%s", path, a.path), SHMSTORE_TICKET_PATH);
}

static int inbox_leases(uid_t uid)
{
	char dir[SCRATCH_PATH];

	snprintf(dir, sizeof(dir), "%s/" WIRE_INBOX "/%u/handoff", path, uid);
	return count_dir(dir);
}

static const char *below(const char *rest)
{
	static char joined[4][2 * SCRATCH_PATH];
	static unsigned next;
	char *to = joined[next++ % 4];

	snprintf(to, sizeof(joined[0]), "%s/%s", path, rest);
	return to;
}

/* ---- the way it is meant --------------------------------------------------------------------------------------------- */

static int receive(const char *arg)
{
	struct shmstore *s = store("receiver"), *second = store("second");
	struct shmstore_view *v;
	struct shmstore_ticket t;
	struct stat st, copy;

	(void)arg;
	ENSURE(shmstore_adopt(s, KEY("x"), ticket, SHMSTORE_VERIFY) == 0);
	ENSURE(shmstore_adopt(s, KEY("y"), ticket, 0) == -ESTALE);
	ENSURE(get_pattern(s, "x", SIZE, 7) == 0);
	ENSURE(stat(below("stores/receiver/objects/x"), &st) == 0 && st.st_uid == DONOR && st.st_nlink == 2);

	/* It cannot be linked again: neither handed on, nor adopted by its path, nor aliased; a put of it copies. */
	ENSURE(shmstore_handoff(s, KEY("x"), 1000, &t) == -EPERM);
	ENSURE(shmstore_handoff_to(s, KEY("x"), THIRD, 1000, &t) == -EPERM);
	ENSURE(count_dir(below("stores/receiver/handoff")) == 0);
	t = *ticket;
	snprintf(t.path, sizeof(t.path), "%s", below("stores/receiver/objects/x"));
	ENSURE(shmstore_adopt(second, KEY("x"), &t, 0) == -EPERM);
	v = get_view(s, "x", 0);
	size_t header_size;
	const void *header = shmstore_view_header(v, &header_size);
	struct iovec iov = {.iov_base = shmstore_view_buffer(v, 0, NULL), .iov_len = SIZE};
	ENSURE(shmstore_put(s, KEY("copy"), header, header_size, &iov, 1, 0) == 0);
	ENSURE(stat(below("stores/receiver/objects/copy"), &copy) == 0 && copy.st_uid == RECEIVER &&
	       copy.st_ino != st.st_ino);
	shmstore_view_unref(v);

	/* The books, and all that reads. */
	struct shmstore_store_usage usage;
	ENSURE(shmstore_usage(s, &usage) == 0 && usage.n_objects == 2);
	ENSURE(shmstore_delete(s, KEY("x")) == 0);
	ENSURE(count_dir(below("stores/receiver/recycle")) == 0);
	ENSURE(shmstore_contains(s, KEY("x")) == 0);
	ENSURE(get_pattern(s, "copy", SIZE, 7) == 0);
	ENSURE(shmstore_close(second) == 0 && shmstore_close(s) == 0);
	return 0;
}

Test(broker, a_lease_arrives_and_its_object_is_the_donors_still)
{
	hand_over();
	cr_assert_eq(count_dir(below("stores/donor/handoff")), 0, "the donor's lease moved");
	cr_assert_eq(inbox_leases(RECEIVER), 1);
	cr_assert_eq(as(RECEIVER, receive, NULL), 0);
	cr_assert_eq(inbox_leases(RECEIVER), 0);
}

static int write_attacks(const char *arg)
{
	struct shmstore *s = store("receiver");
	struct shmstore_view *v;
	char proc[64];
	int fd;

	(void)arg;
	ENSURE(shmstore_adopt(s, KEY("x"), ticket, 0) == 0);
	const char *file = below("stores/receiver/objects/x");
	ENSURE(open(file, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(open(file, O_WRONLY | O_TRUNC | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(chmod(file, 0600) < 0 && errno == EPERM);
	ENSURE(truncate(file, 0) < 0 && errno == EACCES);
	ENSURE(chown(file, RECEIVER, RECEIVER) < 0 && errno == EPERM);
	ENSURE(link(file, below("stores/receiver/objects/z")) < 0 && errno == EPERM);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	ENSURE(fd >= 0);
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
	ENSURE(open(proc, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(ftruncate(fd, 0) < 0 && fchmod(fd, 0600) < 0 && write(fd, "x", 1) < 0);
	ENSURE(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
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
	hand_over();
	cr_assert_eq(as(RECEIVER, write_attacks, NULL), 0);
}

static int try_to_take(const char *arg)
{
	struct shmstore *s = store(arg);
	int r = shmstore_adopt(s, KEY("x"), ticket, 0);

	ENSURE(open(ticket->path, O_RDONLY | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(shmstore_close(s) == 0);
	return -r;
}

Test(broker, nobody_else_can_take_it)
{
	hand_over();
	cr_assert_eq(as(THIRD, try_to_take, "third"), EPERM);
	cr_assert_eq(as(DONOR, try_to_take, "donor"), EPERM, "nor the donor itself");
	cr_assert_eq(as(RECEIVER, receive, NULL), 0);
}

static int put_again(const char *arg)
{
	struct shmstore *s = store("donor");
	struct stat first, second;

	(void)arg;
	ENSURE(stat(below("stores/donor/objects/k"), &first) == 0 && first.st_nlink == 1);
	ENSURE((first.st_mode & 07777) == 0440);
	ENSURE(shmstore_delete(s, KEY("k")) == 0);
	ENSURE(put_pattern(s, "k", SIZE, 8, 0) == 0);
	ENSURE(stat(below("stores/donor/objects/k"), &second) == 0 && (second.st_mode & 07777) == 0400);
	ENSURE(getxattr(below("stores/donor/objects/k"), ACL_ATTRIBUTE, NULL, 0) < 0 && errno == ENODATA);
	ENSURE(shmstore_close(s) == 0);
	return 0;
}

static int drop_inbox(const char *arg)
{
	(void)arg;
	return unlink(ticket->path) == 0 ? 0 : errno;
}

Test(broker, a_file_that_was_handed_over_is_not_written_again)
{
	hand_over();
	cr_assert_eq(as(RECEIVER, drop_inbox, NULL), 0);
	cr_assert_eq(as(DONOR, put_again, NULL), 0);
}

/* ---- handing on ------------------------------------------------------------------------------------------------------- */

static int adopt_only(const char *arg)
{
	struct shmstore *s = store(arg);
	int r = shmstore_adopt(s, KEY("x"), ticket, 0);

	if (r == 0)
		r = get_pattern(s, "x", SIZE, 7);
	ENSURE(shmstore_close(s) == 0);
	return -r;
}

Test(broker, a_received_object_goes_to_stores_of_the_same_user_only)
{
	struct broker_ask ask;
	struct broker_answer a;

	hand_over();
	cr_assert_eq(as(RECEIVER, adopt_only, "receiver"), 0);

	/* To the receiver's own inbox, as an object that stays. */
	ask_for(&ask, below("stores/receiver/objects/x"));
	snprintf(ask.store, sizeof(ask.store), "stores/receiver");
	ask.from = ask.to = RECEIVER;
	ask.lease_ms = 60000;
	cr_assert_eq(broker_run(&ask, &a), 0, "%s", a.why);
	snprintf(ticket->path, sizeof(ticket->path), "%s", below(a.path));
	cr_assert_eq(as(RECEIVER, adopt_only, "second"), 0);
	cr_assert_eq(as(RECEIVER, adopt_only, "second"), ESTALE);

	/* To a third user: also not where the receiver got a lease of it somehow. */
	char lease[LEASENAME_SIZE], named[2 * SCRATCH_PATH];
	cr_assert_eq(leasename_make(leasename_now_ms() + 60000, lease), 0);
	snprintf(named, sizeof(named), "%s/stores/receiver/handoff/%s", path, lease);
	cr_assert_eq(link(below("stores/receiver/objects/x"), named), 0);
	ask_for(&ask, named);
	snprintf(ask.store, sizeof(ask.store), "stores/receiver");
	ask.from = RECEIVER;
	ask.to = THIRD;
	cr_assert_eq(broker_run(&ask, &a), -EPERM);
	cr_assert_eq(inbox_leases(THIRD), -ENOENT);
}

/* ---- what is no lease of the sender's --------------------------------------------------------------------------------- */

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
	[TRICK_OTHERS_STORE] = {"a path in another's store", EPERM},
	[TRICK_NO_LEASE_NAME] = {"a name that is no lease's", EPERM},
	[TRICK_OBJECT] = {"an object", EPERM},
	[TRICK_ABOVE] = {"a path with ..", EPERM},
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
	uint64_t ms = leasename_now_ms();

	(void)arg;
	snprintf(named, sizeof(named), "%s", ticket->path);
	snprintf(plain, sizeof(plain), "%.*s", (int)(strrchr(named, '/') - named), named);
	switch (current) {
	case TRICK_OTHERS_STORE:
		snprintf(ticket->path, sizeof(ticket->path), "%s/stores/third/handoff/%s", path,
			 strrchr(named, '/') + 1);
		return 0;
	case TRICK_NO_LEASE_NAME:
		snprintf(ticket->path, sizeof(ticket->path), "%s/k", plain);
		return rename(named, ticket->path) != 0;
	case TRICK_OBJECT:
		snprintf(ticket->path, sizeof(ticket->path), "%s/stores/donor/objects/k", path);
		return 0;
	case TRICK_ABOVE:
		snprintf(ticket->path, sizeof(ticket->path), "%s/../handoff/..", plain);
		return 0;
	case TRICK_EXPIRED:
	case TRICK_TOO_LONG:
		ms = current == TRICK_EXPIRED ? 1 : ms + 30 * UINT64_C(86400000);
		snprintf(expired, sizeof(expired), "%llu-0123456789abcdef", (unsigned long long)ms);
		snprintf(ticket->path, sizeof(ticket->path), "%s/%s", plain, expired);
		return rename(named, ticket->path) != 0;
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
		return rename(plain, below("stores/donor/away")) != 0 || symlink("away", plain) != 0;
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

	current = *which;
	cr_assert_eq(as(DONOR, donate, NULL), 0);
	cr_assert_eq(as(DONOR, trick, NULL), 0, "%s", TRICKS[*which].name);
	if (*which == TRICK_OTHERS_FILE)
		cr_assert_eq(chown(ticket->path, THIRD, THIRD), 0);
	cr_assert_eq(broker(ticket->path, &a), -TRICKS[*which].error, "%s: %s", TRICKS[*which].name, a.why);
	cr_assert_not_null(a.why);
	cr_assert_leq(inbox_leases(RECEIVER), 0, "%s", TRICKS[*which].name);
}

/* ---- swapped during the call ------------------------------------------------------------------------------------------- */

/* Swaps the lease with a symlink, a FIFO and a file of its own that is not to be handed over, until it is killed. */
static int swap(const char *arg)
{
	static const char *const others[] = {"/link", "/fifo", "/private"};
	char dir[2 * SCRATCH_PATH], other[2 * SCRATCH_PATH + 16];
	int fd;

	(void)arg;
	snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(ticket->path, '/') - ticket->path), ticket->path);
	ENSURE(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && chdir(dir) == 0);
	ENSURE(symlink("/etc/shadow", "link") == 0 && mkfifo("fifo", 0400) == 0);
	fd = open("private", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	ENSURE(fd >= 0 && fchmod(fd, 0622) == 0); /* writable: a file that would be refused */
	for (unsigned i = 0;; i++) {
		snprintf(other, sizeof(other), "%s%s", dir, others[i % 3]);
		renameat2(AT_FDCWD, other, AT_FDCWD, ticket->path, RENAME_EXCHANGE);
		renameat2(AT_FDCWD, other, AT_FDCWD, ticket->path, RENAME_EXCHANGE);
	}
}

Test(broker, what_is_swapped_meanwhile_does_not_arrive, .timeout = 120)
{
	char file[2 * SCRATCH_PATH];
	struct part part = {DONOR, swap, NULL};
	struct shmstore_ticket donated;
	struct broker_answer a;
	unsigned n_done = 0, n_refused = 0;
	struct stat st, object;
	pid_t pid;

	cr_assert_eq(as(DONOR, donate, NULL), 0);
	donated = *ticket;
	cr_assert_eq(stat(donated.path, &object), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0)
		_exit(play(&part));
	alarm(100);
	while (n_done < 20 || n_refused < 20) {
		if (broker(donated.path, &a) < 0) {
			n_refused++;
			continue;
		}
		n_done++;
		snprintf(file, sizeof(file), "%s", below(a.path));
		cr_assert_eq(lstat(file, &st), 0);
		cr_expect(S_ISREG(st.st_mode) && st.st_ino == object.st_ino, "something else arrived");
		/* Back to where it came from. The donor may have it under another name by now; then there is nothing to do. */
		cr_assert_eq(link(file, donated.path) == 0 || errno == EEXIST, 1);
		unlink(file);
	}
	alarm(0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	cr_assert_eq(stat(below("stores/donor/objects/k"), &st), 0);
	cr_assert_eq(st.st_ino, object.st_ino);
}

/* ---- the inbox ---------------------------------------------------------------------------------------------------------- */

static int squat(const char *how)
{
	if (strcmp(how, "directory") == 0)
		return mkdir(below(WIRE_INBOX), 0777) != 0 || mkdir(below(WIRE_INBOX "/60002"), 0777) != 0;
	if (strcmp(how, "symlink") == 0)
		return symlink("/tmp", below(WIRE_INBOX));
	return mknod(below(WIRE_INBOX), S_IFREG | 0666, 0);
}

Test(broker, a_squatted_inbox_is_replaced)
{
	static const char *const how[] = {"directory", "symlink", "file"};
	struct stat st;

	for (size_t i = 0; i < 3; i++) {
		char *what;

		cr_assert_eq(asprintf(&what, "rm -rf %s", below(WIRE_INBOX)) > 0, 1);
		cr_assert_eq(system(what), 0);
		free(what);
		cr_assert_eq(as(THIRD, squat, how[i]), 0);
		hand_over();
		cr_assert_eq(lstat(below(WIRE_INBOX), &st), 0);
		cr_assert(S_ISDIR(st.st_mode) && st.st_uid == 0 && (st.st_mode & 07777) == 0755, "%s", how[i]);
		cr_assert_eq(as(RECEIVER, adopt_only, "receiver"), i == 0 ? 0 : EEXIST);
	}
}

static int no_squatting(const char *arg)
{
	(void)arg;
	ENSURE(mkdir(below(WIRE_INBOX "/60001"), 0700) < 0 && errno == EACCES);
	ENSURE(rename(below(WIRE_INBOX), below("mine")) < 0 && errno == EPERM);
	ENSURE(rmdir(below(WIRE_INBOX)) < 0 && errno == EPERM);
	ENSURE(rename(below(WIRE_INBOX "/60002"), below("stores/mine")) < 0);
	ENSURE(open(below(WIRE_INBOX "/60002"), O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(open(below(WIRE_INBOX "/60002/handoff"), O_RDONLY | O_DIRECTORY | O_CLOEXEC) < 0 && errno == EACCES);
	ENSURE(symlink("/etc/passwd", below(WIRE_INBOX "/60002/handoff/x")) < 0 && errno == EACCES);
	return 0;
}

Test(broker, an_inbox_is_out_of_reach_for_others)
{
	hand_over();
	cr_assert_eq(as(THIRD, no_squatting, NULL), 0);
	cr_assert_eq(as(DONOR, no_squatting, NULL), 0);
}

static int wreck(const char *how)
{
	char handoff[2 * SCRATCH_PATH];

	snprintf(handoff, sizeof(handoff), "%s", below(WIRE_INBOX "/60002/handoff"));
	if (strcmp(how, "symlink") == 0)
		return rename(handoff, below(WIRE_INBOX "/60002/away")) != 0 || symlink("/tmp", handoff) != 0;
	if (strcmp(how, "open") == 0)
		return chmod(handoff, 0777);
	return unlink(ticket->path) != 0 || rmdir(handoff) != 0;
}

static void empty_inbox(void)
{
	char *command;

	cr_assert_gt(asprintf(&command, "find %s -mindepth 1 -delete", below(WIRE_INBOX "/60002")), 0);
	cr_assert_eq(system(command), 0);
	free(command);
}

Test(broker, a_receiver_who_wrecks_its_inbox_gets_nothing_and_harms_nobody)
{
	static const char *const how[] = {"symlink", "open", "removed"};
	struct broker_answer a;
	struct stat before, after;

	for (size_t i = 0; i < 3; i++) {
		hand_over();
		cr_assert_eq(as(RECEIVER, wreck, how[i]), 0);
		cr_assert_eq(as(DONOR, donate, NULL), 0);
		cr_assert_eq(stat("/tmp", &before), 0);
		cr_assert_eq(broker(ticket->path, &a), -EPERM, "%s", how[i]);
		cr_assert_eq(stat("/tmp", &after), 0);
		cr_assert_eq(before.st_nlink, after.st_nlink);
		cr_assert_eq(access(ticket->path, F_OK), 0, "the donor's lease stays");
		/* Emptied, it is made anew. */
		empty_inbox();
		cr_assert_eq(broker(ticket->path, &a), 0, "%s", a.why);
		empty_inbox();
	}
}

Test(broker, an_inbox_that_was_being_made_is_finished)
{
	struct stat st;
	int fd;
	const char *why;

	/* Killed after the directory, after some of it was given away, after all of it was. */
	cr_assert_eq(mkdir(below(WIRE_INBOX "/.making-60002"), 0700), 0);
	cr_assert_eq(inbox_open(partition, partition_fd, RECEIVER, &fd, &why), 0, "%s", why);
	close(fd);
	cr_assert_eq(rename(below(WIRE_INBOX "/60002"), below(WIRE_INBOX "/.making-60002")), 0);
	cr_assert_eq(inbox_open(partition, partition_fd, RECEIVER, &fd, &why), 0, "%s", why);
	close(fd);
	cr_assert_eq(rename(below(WIRE_INBOX "/60002"), below(WIRE_INBOX "/.making-60002")), 0);
	cr_assert_eq(chown(below(WIRE_INBOX "/.making-60002"), 0, 0), 0);
	cr_assert_eq(chown(below(WIRE_INBOX "/.making-60002/handoff"), 0, 0), 0);
	cr_assert_eq(inbox_open(partition, partition_fd, RECEIVER, &fd, &why), 0, "%s", why);
	close(fd);
	cr_assert_eq(stat(below(WIRE_INBOX "/60002/handoff"), &st), 0);
	cr_assert_eq(st.st_uid, RECEIVER);
	cr_assert_eq(stat(below(WIRE_INBOX "/60002/.store"), &st), 0);
	cr_assert_eq(st.st_uid, RECEIVER);
	cr_assert_neq(access(below(WIRE_INBOX "/.making-60002"), F_OK), 0);
	hand_over();
	cr_assert_eq(as(RECEIVER, adopt_only, "receiver"), 0);
}

/* n leases of one donor in the open inbox. */
static void fill(int fd, unsigned n, uid_t donor, uint64_t expiry_ms)
{
	char lease[LEASENAME_SIZE];

	for (unsigned i = 0; i < n; i++) {
		cr_assert_eq(leasename_make(expiry_ms, lease), 0);
		int file = openat(fd, lease, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0400);
		cr_assert_geq(file, 0);
		cr_assert_eq(fchown(file, donor, donor), 0);
		close(file);
	}
}

Test(broker, no_donor_fills_an_inbox)
{
	uint64_t now = leasename_now_ms(), later = now + 60000;
	struct broker_answer a;
	const char *why;
	int fd;

	cr_assert_eq(inbox_open(partition, partition_fd, RECEIVER, &fd, &why), 0, "%s", why);
	fill(fd, INBOX_LEASES_DONOR_MAX - 1, DONOR, later);
	cr_assert_eq(inbox_room(fd, DONOR, now), 0);
	fill(fd, 1, DONOR, later);
	cr_assert_eq(inbox_room(fd, DONOR, now), -EDQUOT);
	cr_assert_eq(as(DONOR, donate, NULL), 0);
	cr_assert_eq(broker(ticket->path, &a), -EDQUOT);
	cr_assert_eq(access(ticket->path, F_OK), 0);
	cr_assert_eq(inbox_room(fd, THIRD, now), 0, "others are not kept out");
	fill(fd, INBOX_LEASES_MAX - INBOX_LEASES_DONOR_MAX, THIRD, later);
	cr_assert_eq(inbox_room(fd, 4711, now), -EDQUOT, "but by all together");
	/* Time frees it. */
	cr_assert_eq(inbox_room(fd, DONOR, later + 1), 0);
	cr_assert_eq(inbox_leases(RECEIVER), 0);
	close(fd);
	cr_assert_eq(broker(ticket->path, &a), 0, "%s", a.why);
}

Test(broker, the_inbox_is_in_the_books_and_gc_ends_its_leases)
{
	char lease[2 * SCRATCH_PATH];
	struct shmstore_usage usage;
	struct shmstore_gc_report gc;

	hand_over();
	cr_assert_eq(shmstore_partition_usage(partition, 0, &usage), 0);
	cr_assert_eq(usage.n_leases, 1);
	cr_assert_eq(usage.n_stores, 2, "the donor's and the inbox");
	if (scratch_is_mount())
		cr_assert_eq(usage.residual, 0);
	cr_assert_eq(shmstore_partition_gc(partition, 0, &gc), 0);
	cr_assert_eq(gc.n_leases, 0, "it has not ended");
	snprintf(lease, sizeof(lease), "%s", below(WIRE_INBOX "/60002/handoff/1-0123456789abcdef"));
	cr_assert_eq(rename(ticket->path, lease), 0);
	cr_assert_eq(shmstore_partition_gc(partition, 0, &gc), 0);
	cr_assert_eq(gc.n_leases, 1);
	cr_assert_eq(inbox_leases(RECEIVER), 0);
}
