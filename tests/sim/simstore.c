/* SPDX-License-Identifier: Apache-2.0 */
#include "simstore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "simproc.h"
#include "simtrace.h"

static const char *const parts[] = {SHMS_DIR_OBJECTS, SHMS_DIR_RECYCLE, SHMS_DIR_HANDOFF};
#define N_PARTS (sizeof(parts) / sizeof(parts[0]))

static void path_of(const struct simstore *s, const char *rest, char ret[400])
{
	snprintf(ret, 400, "%s/%s", s->path, rest);
}

static void object_path(const struct simstore *s, unsigned which, char ret[400])
{
	snprintf(ret, 400, "%s/" SHMS_DIR_OBJECTS "/k%u", s->path, which);
}

static void make_directory(const char *path, uid_t uid)
{
	SIM_ENSURE(mkdir(path, 0700) == 0);
	SIM_ENSURE(chown(path, uid, (gid_t)-1) == 0);
}

static int64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void simstore_open(struct simstore *s, const char *partition, const char *name, pid_t pid,
		   uid_t uid, const char *label)
{
	char path[400];

	*s = (struct simstore){.pid = pid, .uid = uid, .there = true};
	snprintf(s->name, sizeof(s->name), "%s", name);
	snprintf(s->path, sizeof(s->path), "%s/" SHMS_DIR_STORES "/%s", partition, name);
	make_directory(s->path, uid);
	for (size_t i = 0; i < N_PARTS; i++) {
		path_of(s, parts[i], path);
		make_directory(path, uid);
	}
	/* Under another name until it is whole: its readers see a locked page from the first on. */
	path_of(s, "new", path);
	s->lock_fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	SIM_ENSURE(s->lock_fd >= 0 && ftruncate(s->lock_fd, SHMS_PAGE_SIZE) == 0);
	SIM_ENSURE(fchown(s->lock_fd, uid, (gid_t)-1) == 0);
	SIM_ENSURE(flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0);
	s->page = mmap(NULL, SHMS_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, s->lock_fd, 0);
	SIM_ENSURE(s->page != MAP_FAILED);
	shms_page_fill(s->page, name, label, false);
	s->page->pid = (uint32_t)pid;
	s->page->uid = uid;
	s->page->start_time = simproc_start_time(pid);
	s->page->created_ns = real_ns();
	{
		char page[400];

		path_of(s, SHMS_PAGE_FILE, page);
		SIM_ENSURE(rename(path, page) == 0);
	}
}

bool simstore_charge(struct simstore *s, uint64_t bytes)
{
	if (s->charged || !atomic_load(&s->page->credit.epoch) ||
	    !wire_credit_charge(&s->page->credit, bytes))
		return false;
	s->charged = bytes;
	return true;
}

void simstore_uncharge(struct simstore *s)
{
	wire_credit_uncharge(&s->page->credit, s->charged);
	s->charged = 0;
}

void simstore_write(struct simstore *s)
{
	uint64_t n = s->charged;
	unsigned which = 0;
	char path[400];
	int fd;

	while (which < SIMSTORE_FILES_MAX && s->sizes[which])
		which++;
	if (which == SIMSTORE_FILES_MAX) {
		simstore_uncharge(s);
		return;
	}
	object_path(s, which, path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
	SIM_ENSURE(fd >= 0 && fchown(fd, s->uid, (gid_t)-1) == 0);
	if (posix_fallocate(fd, 0, (off_t)n) != 0)
		simtrace_fail("%s: the partition has no room for %llu bytes of credit", s->name,
			      (unsigned long long)n);
	close(fd);
	s->sizes[which] = n;
	s->bytes += n;
	s->charged = 0;
	wire_credit_settle(&s->page->credit, n, n);
	atomic_fetch_add(&s->page->ledger.put_n, 1);
	atomic_fetch_add(&s->page->ledger.put_bytes, n);
	atomic_fetch_add(&s->page->ledger.linked_n, 1);
	atomic_fetch_add(&s->page->ledger.linked_bytes, n);
}

bool simstore_delete(struct simstore *s, unsigned which)
{
	char path[400];
	uint64_t n;

	for (unsigned i = 0; i < SIMSTORE_FILES_MAX; i++) {
		unsigned at = (which + i) % SIMSTORE_FILES_MAX;

		n = s->sizes[at];
		if (!n)
			continue;
		object_path(s, at, path);
		SIM_ENSURE(unlink(path) == 0);
		s->sizes[at] = 0;
		s->bytes -= n;
		atomic_fetch_add(&s->page->credit.last, n);
		atomic_fetch_add(&s->page->ledger.delete_n, 1);
		atomic_fetch_add(&s->page->ledger.delete_bytes, n);
		atomic_fetch_sub(&s->page->ledger.linked_n, 1);
		atomic_fetch_sub(&s->page->ledger.linked_bytes, n);
		return true;
	}
	return false;
}

void simstore_give(struct simstore *s)
{
	struct wire_credit *c = &s->page->credit;
	uint64_t asked_n = atomic_load(&c->asked_n), before = s->bytes;

	if (asked_n == atomic_load(&c->given_n))
		return;
	while (before - s->bytes < atomic_load(&c->asked_bytes) && simstore_delete(s, 0))
		;
	atomic_fetch_add(&c->given_bytes, before - s->bytes);
	atomic_store(&c->given_n, asked_n);
}

static void let_go(struct simstore *s)
{
	munmap(s->page, SHMS_PAGE_SIZE);
	s->page = NULL;
	close(s->lock_fd);
	s->lock_fd = -1;
}

void simstore_close(struct simstore *s)
{
	char path[400];

	if (s->charged)
		simstore_uncharge(s);
	while (simstore_delete(s, 0))
		;
	for (size_t i = 0; i < N_PARTS; i++) {
		path_of(s, parts[i], path);
		SIM_ENSURE(rmdir(path) == 0);
	}
	path_of(s, SHMS_PAGE_FILE, path);
	SIM_ENSURE(unlink(path) == 0 && rmdir(s->path) == 0);
	s->there = false;
	let_go(s);
}

void simstore_abandon(struct simstore *s)
{
	s->charged = 0;
	let_go(s);
}

uint64_t simstore_outstanding(const struct simstore *s)
{
	const struct wire_credit *c;
	uint64_t granted, charged, settled;

	if (!s->page)
		return 0;
	c = &s->page->credit;
	granted = atomic_load(&c->granted);
	charged = atomic_load(&c->charged);
	settled = atomic_load(&c->settled);
	/* what was charged before credit was taken back stays charged */
	if (charged > granted)
		granted = charged;
	return granted == WIRE_UNLIMITED ? 0 : granted - settled;
}

uint64_t simstore_unspent(const struct simstore *s)
{
	uint64_t outstanding = simstore_outstanding(s);

	return outstanding > s->charged ? outstanding - s->charged : 0;
}

bool simstore_is_there(struct simstore *s)
{
	if (s->there && !s->page)
		s->there = access(s->path, F_OK) == 0;
	return s->there;
}
