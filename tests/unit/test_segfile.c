/* SPDX-License-Identifier: Apache-2.0 */
/* Segments as files: places, who is dead, what stays when somebody leaves,
 * memory before it is written. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"
#include "segfile.h"
#include "seglook.h"
#include "segments.h"
#include "segown.h"
#include "sys.h"

#define NOW  UINT64_C(1000000)
#define PAST (NOW + 100000) /* the leases' end, and later */

static const uint8_t owners[16] = "the owner's one", others[16] = "another store's";

static int directory(const char *name)
{
	int root = open(scratch_dir(NULL), O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;

	ENSURE(root >= 0 && (mkdirat(root, name, 0700) == 0 || errno == EEXIST));
	fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ENSURE(fd >= 0);
	close(root);
	return fd;
}

static void make(struct shms_segown *o, int dir, bool kept, uint64_t size)
{
	struct shms_segment_shape shape;

	ENSURE(shms_segment_shape(1000, 32, size, &shape) == 0);
	cr_assert_eq(shms_segown_create(dir, &shape, owners, kept, false, o), 0);
}

/* An object of size bytes of that seed. */
static uint32_t put(struct shms_segown *o, size_t size, uint64_t seed, uint32_t *ret_generation)
{
	uint8_t *buffer = malloc(size + 1);
	struct iovec iov = {buffer, size};
	struct shms_segobject what = {"key", 3, "meta", 4, &iov, 1, 0, NULL};
	uint32_t slot;
	bool full;

	pattern_fill(buffer, size, seed);
	cr_assert_eq(shms_segown_put(o, &what, NOW, &slot, ret_generation, &full), 0);
	free(buffer);
	return slot;
}

static bool is_there(const struct shms_segment *g, uint32_t slot, size_t size, uint64_t seed)
{
	struct shms_segslot s = shms_segslot_at(g, slot);
	struct shms_segpacked o;

	return shms_segpacked_read(g, &s, &o) == 0 && o.buffer_size == size &&
	       pattern_check(g->bytes + o.extent_off, size, seed) == size &&
	       memcmp(g->bytes + o.extent_off + o.metadata_off, "meta", 4) == 0;
}

static struct shms_segticket hand_off(struct shms_segown *o, uint32_t slot, uint32_t generation)
{
	struct shms_segslot s = shms_segslot_at(&o->file.segment, slot);
	struct shms_segticket t = {slot, generation, 0, PAST - 2000};

	cr_assert_eq(shms_segslot_handoff(&s, generation, 0, NOW, t.end_ms, &t.lease), 0);
	return t;
}

static int join(int from, const struct shms_segown *o, int dir, const uint8_t store[16], bool kept,
		struct shms_segfile *ret)
{
	return shms_segfile_join(from, o->file.name, o->file.segment.uuid, dir, store, kept, ret);
}

static void end(struct shms_segown *o, int dir)
{
	shms_segfile_leave(&o->file, dir, PAST);
	shms_segown_deinit(o);
	close(dir);
}

/* As gc does it. Returns how many places stores have then: those that live, and kept ones. */
static unsigned rescue(int dir, const char *name, bool *ret_orphan)
{
	struct shms_segrescued done;
	struct shms_seglook l;

	cr_assert_eq(shms_seglook_open(dir, name, true, &l), 0);
	shms_segrescue(&l, NULL, NOW, &done);
	shms_seglook_close(&l);
	return segment_places(dir, name, ret_orphan);
}

static uint64_t bits(const struct shms_segment *g, uint32_t slot)
{
	struct shms_segslot s = shms_segslot_at(g, slot);

	return shms_segword_load(s.holders);
}

/* Hints of so many slots have pages of their own, which nobody has touched
 * when the other store joins. */
Test(segfile, segment_of_many_slots_is_joined)
{
	int dir = directory("owner"), there = directory("other");
	struct shms_segment_shape shape;
	struct shms_segpacked p;
	uint32_t slot = 0, generation;
	struct shms_segticket t;
	struct shms_segown o;
	struct shms_segfile f;

	ENSURE(shms_segment_shape(62601, 32, 64 << 20, &shape) == 0);
	cr_assert_eq(shms_segown_create(dir, &shape, owners, false, false, &o), 0);
	for (uint64_t i = 0; i < 1000; i++)
		slot = put(&o, 10, i, &generation);
	cr_assert_eq(join(dir, &o, there, others, false, &f), 0);
	t = hand_off(&o, slot, generation);
	cr_assert_eq(segment_adopt(&f.segment, f.holder, false, &t, &p), 0);
	cr_assert(is_there(&f.segment, slot, 10, 999));
	shms_segfile_leave(&f, there, PAST);
	close(there);
	end(&o, dir);
}

Test(segfile, object_goes_from_store_to_store)
{
	bool orphan;
	static const size_t sizes[] = {0, 1, 1000, 65536, 70000, 1 << 20};
	int dir = directory("owner"), there = directory("other");
	struct shms_segown o;
	struct shms_segfile f;
	struct shms_segpacked p;

	make(&o, dir, false, 16 << 20);
	cr_assert_eq(join(dir, &o, there, others, false, &f), 0);
	cr_assert(f.holder == 1 && count_dir("/proc/self/fd") > 0);
	/* Three times: large ones are written by pwrite first, then through the map. */
	for (uint64_t i = 0; i < 18; i++) {
		uint32_t generation, slot = put(&o, sizes[i % 6], i, &generation);
		struct shms_segticket t = hand_off(&o, slot, generation);
		struct shms_segslot mine = shms_segslot_at(&o.file.segment, slot),
				    yours = shms_segslot_at(&f.segment, slot);

		cr_assert(shms_segslot_drop(&mine, 0, SHMS_SEGVIEWS_NONE));
		cr_assert_not(shms_segown_take_back(&o, slot, NOW)); /* a lease stands */
		cr_assert_eq(segment_adopt(&f.segment, f.holder, false, &t, &p), 0);
		cr_assert(is_there(&f.segment, slot, sizes[i % 6], i), "%lu", i);
		cr_assert(shms_segslot_drop(&yours, f.holder, SHMS_SEGVIEWS_NONE));
		cr_assert(shms_segown_take_back(&o, slot, NOW));
		cr_assert_eq(o.alloc.slots[slot].class, p.class);
	}
	cr_assert_eq(o.alloc.n_born, 5); /* 0 and 1 byte are of one class */
	cr_assert(shms_segown_unused(&o, NOW));
	shms_segfile_leave(&f, there, NOW);
	cr_assert_eq(rescue(dir, o.file.name, &orphan), 1);
	end(&o, dir);
	cr_assert_eq(count_dir(scratch_dir(NULL)), 2);
	cr_assert_eq(faccessat(there, f.name, F_OK, 0), -1);
	close(there);
}

Test(segfile, several_buffers_and_a_long_key_lie_where_they_are_told)
{
	int dir = directory("owner");
	char key[300], first[100], second[70000], metadata[1000];
	struct iovec iov[3] = {{first, sizeof(first)}, {NULL, 0}, {second, sizeof(second)}};
	uint8_t checksum[16] = "0123456789abcde";
	struct shms_segobject what = {
		key,     sizeof(key), metadata, sizeof(metadata), iov, 3, SHMS_SEGPACKED_CHECKSUM,
		checksum};
	struct shms_segown o;

	memset(key, 'k', sizeof(key));
	pattern_fill(first, sizeof(first), 1);
	pattern_fill(second, sizeof(second), 2);
	pattern_fill(metadata, sizeof(metadata), 3);
	make(&o, dir, false, 16 << 20);
	for (int use = 0; use < 4; use++) { /* by pwrite, and through the map */
		struct shms_segslot slot;
		struct shms_segpacked p;
		uint64_t sizes[3] = {0};
		uint32_t index, generation;
		const uint8_t *at;
		bool full;

		cr_assert_eq(shms_segown_put(&o, &what, NOW, &index, &generation, &full), 0);
		cr_assert_eq(index, 0);
		slot = shms_segslot_at(&o.file.segment, index);
		cr_assert_eq(shms_segpacked_read(&o.file.segment, &slot, &p), 0);
		cr_assert_eq(shms_segpacked_sizes(&o.file.segment, &p, sizes), 0);
		cr_assert(sizes[0] == 100 && sizes[1] == 0 && sizes[2] == 70000);
		at = o.file.segment.bytes + p.extent_off;
		cr_assert_eq(pattern_check(at, 100, 1), 100);
		cr_assert_eq(pattern_check(at + 128, 70000, 2), 70000);
		cr_assert_eq(pattern_check(at + p.metadata_off, 1000, 3), 1000);
		cr_assert_arr_eq(at + p.checksum_off, checksum, 16);
		cr_assert_arr_eq(at + p.key_off, key, sizeof(key));
		cr_assert(shms_segslot_drop(&slot, 0, SHMS_SEGVIEWS_NONE) &&
			  shms_segown_take_back(&o, index, NOW));
	}
	end(&o, dir);
}

/* Puts, adopts, and waits for its end, with the place's lock. */
static pid_t holder_process(const struct shms_segown *o, int from, int dir, bool kept,
			    struct shms_segticket *t, bool with_child)
{
	int pipe_fds[2];
	char byte = 0;
	pid_t pid;

	ENSURE(pipe(pipe_fds) == 0);
	pid = fork_bound(60);
	if (pid == 0) {
		struct shms_segfile f;
		struct shms_segpacked p;

		if (join(from, o, dir, others, kept, &f) == 0 &&
		    (!t || segment_adopt(&f.segment, f.holder, kept, t, &p) == 0)) {
			if (with_child && fork() == 0) {
				prctl(PR_SET_PDEATHSIG, 0);
				alarm(60);
				shms_segfile_fork_child(&f, true);
				byte = pattern_check(f.segment.bytes + p.extent_off, 1000, 7) ==
				       1000;
				ENSURE(write(pipe_fds[1], &byte, 1) == 1);
				close(pipe_fds[1]);
				pause();
				_exit(0);
			}
			byte = 1;
			ENSURE(with_child || write(pipe_fds[1], &byte, 1) == 1);
		}
		close(pipe_fds[1]);
		pause();
		_exit(0);
	}
	close(pipe_fds[1]);
	cr_assert_eq(read(pipe_fds[0], &byte, 1), 1);
	cr_assert_eq(byte, 1);
	close(pipe_fds[0]);
	return pid;
}

static void end_process(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

Test(segfile, dead_holder_is_recovered_and_a_living_or_stopped_one_is_not)
{
	bool orphan;
	int dir = directory("owner"), there = directory("other");
	struct shms_segrescued done;
	struct shms_segticket t;
	struct shms_segown o;
	uint32_t generation, slot;
	pid_t pid;

	make(&o, dir, false, 8 << 20);
	slot = put(&o, 1000, 7, &generation);
	t = hand_off(&o, slot, generation);
	pid = holder_process(&o, dir, there, false, &t, false);
	cr_assert_eq(bits(&o.file.segment, slot), 5); /* two names */
	cr_assert_eq(rescue(dir, o.file.name, &orphan), 2);
	kill(pid, SIGSTOP);
	cr_assert_eq(rescue(dir, o.file.name, &orphan), 2);
	cr_assert_eq(bits(&o.file.segment, slot), 5);
	end_process(pid);
	cr_assert(rescue(dir, o.file.name, &orphan) == 1 && !orphan);
	cr_assert_eq(bits(&o.file.segment, slot), 1);
	/* Its link, which nobody needs. */
	cr_assert_eq(shms_segrescue_unlink(there, o.file.name, others, NOW, false, &done), 0);
	close(there);
	end(&o, dir);
}

Test(segfile, child_that_inherited_views_keeps_its_dead_parents_place)
{
	bool orphan;
	int dir = directory("owner"), there = directory("other");
	struct shms_segrescued done;
	struct shms_segticket t;
	struct shms_segown o;
	uint32_t generation, slot;
	char path[64];
	pid_t pid, child = 0;
	FILE *file;

	make(&o, dir, false, 8 << 20);
	slot = put(&o, 1000, 7, &generation);
	t = hand_off(&o, slot, generation);
	pid = holder_process(&o, dir, there, false, &t, true);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%d", &child) != 1) {
		end_process(pid);
		cr_skip_test("/proc/PID/task/TID/children is not there");
	}
	fclose(file);
	end_process(pid);
	cr_assert_eq(rescue(dir, o.file.name, &orphan), 2);
	cr_assert_eq(bits(&o.file.segment, slot), 5);
	/* Nor does its store's removal take the place. */
	cr_assert_eq(shms_segrescue_unlink(there, o.file.name, others, NOW, false, &done), 1);
	kill(child, SIGKILL);
	for (int i = 0; i < 5000 && rescue(dir, o.file.name, &orphan) == 2; i++)
		usleep(1000); /* it is nobody's child: nobody here is told of its end */
	cr_assert_eq(bits(&o.file.segment, slot), 1);
	cr_assert_eq(shms_segrescue_unlink(there, o.file.name, others, NOW, false, &done), 0);
	close(there);
	end(&o, dir);
}

Test(segfile, kept_store_finds_what_it_had)
{
	bool orphan;
	int dir = directory("owner"), there = directory("other");
	struct shms_segrescued done;
	struct shms_segticket t;
	struct shms_segslot s;
	struct shms_segown o;
	struct shms_segfile f;
	uint32_t generation, slot;
	pid_t pid;

	make(&o, dir, true, 8 << 20);
	slot = put(&o, 1000, 7, &generation);
	t = hand_off(&o, slot, generation);
	pid = holder_process(&o, dir, there, true, &t, false);
	cr_assert_eq(shms_segfile_reopen(there, o.file.name, others, &f), -EBUSY); /* it lives */
	end_process(pid);
	rescue(dir, o.file.name, &orphan);
	cr_assert_eq(bits(&o.file.segment, slot), 5);
	cr_assert_eq(
		shms_segfile_reopen(there, o.file.name, (const uint8_t *)"a third store's", &f),
		-ENOENT);
	cr_assert_eq(shms_segfile_reopen(there, o.file.name, others, &f), 0);
	cr_assert_eq(f.holder, 1);
	cr_assert(is_there(&f.segment, slot, 1000, 7));
	/* The owner, too: closed, and back. */
	shms_segfile_close(&o.file);
	shms_segown_deinit(&o);
	{
		struct shms_segfile file;

		cr_assert_eq(shms_segfile_reopen(dir, f.name, owners, &file), 0);
		cr_assert_eq(file.holder, 0);
		cr_assert_eq(shms_segown_reopen(&file, dir, false, &o), 0);
	}
	cr_assert_eq(bits(&o.file.segment, slot), 5);
	cr_assert_neq(put(&o, 1000, 8, &generation), slot);
	cr_assert(is_there(&f.segment, slot, 1000, 7));
	s = shms_segslot_at(&o.file.segment, slot);
	shms_segslot_drop(&s, 0, SHMS_SEGVIEWS_NONE);
	/* Both stores go: the object with the last of them. */
	shms_segfile_close(&f);
	cr_assert_eq(shms_segrescue_unlink(there, o.file.name, others, NOW, false, &done), 0);
	cr_assert_eq(segment_places(dir, o.file.name, &orphan), 1);
	cr_assert(shms_segown_take_back(&o, slot, NOW));
	close(there);
	end(&o, dir);
}

Test(segfile, link_stays_while_a_lease_stands)
{
	bool orphan;
	int dir = directory("owner"), there = directory("other");
	struct shms_segrescued done;
	struct shms_segticket t;
	struct shms_segpacked p;
	struct shms_segown o;
	struct shms_segfile f;
	uint32_t generation, slot;

	make(&o, dir, false, 8 << 20);
	slot = put(&o, 1000, 7, &generation);
	t = hand_off(&o, slot, generation);
	shms_segfile_leave(&o.file, dir, NOW);
	shms_segown_deinit(&o);
	cr_assert_eq(shms_segrescue_unlink(dir, o.file.name, owners, NOW, false, &done), 1);
	cr_assert(segment_places(dir, o.file.name, &orphan) == 0 && orphan);
	/* The process that has the ticket gets the object. */
	cr_assert_eq(join(dir, &o, there, others, false, &f), 0);
	cr_assert_eq(segment_adopt(&f.segment, f.holder, false, &t, &p), 0);
	cr_assert(is_there(&f.segment, slot, 1000, 7));
	cr_assert_eq(shms_segrescue_unlink(dir, o.file.name, owners, NOW, false, &done), 0);
	cr_assert(is_there(&f.segment, slot, 1000, 7));
	cr_assert_eq(join(dir, &o, there, others, false, &f), -ESTALE);
	shms_segfile_leave(&f, there, NOW);
	cr_assert(faccessat(there, o.file.name, F_OK, 0) < 0 && errno == ENOENT);
	close(dir);
	close(there);
}

Test(segfile, orphan_comes_back_to_the_kernel_also_when_who_did_it_was_killed)
{
	bool orphan;
	int dir = directory("owner"), there = directory("other");
	struct shms_segslot s;
	struct shms_segown o;
	struct shms_segfile f;
	uint32_t generation, slot;

	make(&o, dir, false, 8 << 20);
	slot = put(&o, 200000, 7, &generation);
	cr_assert_eq(join(dir, &o, there, others, false, &f), 0);
	shms_segfile_close(&o.file);
	shms_segown_deinit(&o);
	/* Killed between the two changes of shms_segslot_free(). */
	rescue(there, f.name, &orphan);
	s = shms_segslot_at(&f.segment, slot);
	shms_segword_store(s.state, shms_segstate_make(SHMS_SEG_CLOSING, generation));
	cr_assert(rescue(there, f.name, &orphan) == 1 && orphan);
	cr_assert_eq(shms_segstate_of(shms_segword_load(s.state)), SHMS_SEG_FREE);
	shms_segfile_leave(&f, there, PAST);
	close(there);
	close(dir);
}

Test(segfile, dead_ones_place_is_taken_when_there_is_no_other)
{
	int dir = directory("owner"), there = directory("other");
	struct shms_segfile files[31], more;
	struct shms_segticket t;
	struct shms_segown o;
	uint32_t generation, slot;
	pid_t pid;

	make(&o, dir, false, 8 << 20);
	slot = put(&o, 1000, 7, &generation);
	t = hand_off(&o, slot, generation);
	pid = holder_process(&o, dir, there, false, &t, false);
	cr_assert_eq(bits(&o.file.segment, slot), 5);
	for (size_t i = 0; i < 30; i++)
		cr_assert_eq(join(dir, &o, there, others, false, &files[i]), 0);
	cr_assert_eq(join(dir, &o, there, others, false, &more), -EAGAIN);
	cr_assert_eq(shms_segment_control(&o.file.segment)->n_refused, 1);
	end_process(pid);
	cr_assert_eq(join(dir, &o, there, others, false, &more), 0);
	cr_assert_eq(more.holder, 1);
	cr_assert_eq(bits(&o.file.segment, slot), 1); /* not the dead one's name */
	for (size_t i = 0; i < 30; i++)
		shms_segfile_leave(&files[i], there, NOW);
	shms_segfile_leave(&more, there, NOW);
	close(there);
	end(&o, dir);
}

Test(segfile, what_is_no_segment_is_refused)
{
	int dir = directory("owner"), there = directory("other"), fd;
	char name[SHMS_SEGFILE_NAME], right[SHMS_SEGFILE_NAME];
	struct shms_seglook l;
	struct shms_segfile f;
	struct shms_segown o;
	uint8_t uuid[16] = "sixteen bytes..", byte = 0xff;

	make(&o, dir, false, 8 << 20);
	memcpy(right, o.file.name, sizeof(right));
	shms_segfile_name(uuid, name);
	cr_assert_eq(shms_segfile_join(dir, name, uuid, there, others, false, &f), -ESTALE);
	cr_assert_eq(linkat(dir, right, dir, name, 0), 0); /* under a name that is not its own */
	cr_assert_eq(shms_segfile_join(dir, name, uuid, there, others, false, &f), -EBADMSG);
	cr_assert_eq(shms_seglook_open(dir, name, false, &l), -EBADMSG);
	unlinkat(dir, name, 0);
	cr_assert_eq(symlinkat(right, dir, name), 0);
	cr_assert_eq(shms_segfile_join(dir, name, o.file.segment.uuid, there, others, false, &f),
		     -EBADMSG);
	cr_assert_eq(shms_seglook_open(dir, name, false, &l), -EBADMSG);
	unlinkat(dir, name, 0);
	cr_assert_eq(mkdirat(dir, name, 0700), 0);
	cr_assert_lt(shms_seglook_open(dir, name, false, &l), 0);
	unlinkat(dir, name, AT_REMOVEDIR);
	/* Of its own name, but cut, or with a hole where slots are told, or with another header. */
	fd = openat(dir, right, O_RDWR);
	put(&o, 1000, 7, &(uint32_t){0});
	cr_assert_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 4096), 0);
	cr_assert_eq(join(dir, &o, there, others, false, &f), -EBADMSG);
	cr_assert_eq(ftruncate(fd, (8 << 20) + 4096), 0);
	cr_assert_eq(join(dir, &o, there, others, false, &f), -EBADMSG);
	cr_assert_eq(ftruncate(fd, 8 << 20), 0);
	cr_assert_eq(pwrite(fd, &byte, 1, 60), 1);
	cr_assert_eq(join(dir, &o, there, others, false, &f), -EBADMSG);
	close(fd);
	close(there);
	end(&o, dir);
}

Test(segfile, memory_comes_before_it_is_written_and_goes_when_asked)
{
	int dir = directory("owner");
	struct shms_segsurvey books;
	struct shms_seglook l;
	struct shms_segslot s;
	struct shms_segown o;
	uint32_t slots[500], generation, n = 0;
	uint64_t freed;

	make(&o, dir, false, 64 << 20);
	for (n = 0; n < 500; n++)
		slots[n] = put(&o, n % 10 ? 5000 : 200000, n, &generation);
	for (n = 0; n < 500; n++) {
		s = shms_segslot_at(&o.file.segment, slots[n]);
		if (n % 100 < 50)
			cr_assert(shms_segslot_drop(&s, 0, SHMS_SEGVIEWS_NONE));
	}
	cr_assert_eq(shms_seglook_open(dir, o.file.name, false, &l), 0);
	shms_segsurvey(&l, (const uint8_t[16]){0}, NOW, &books);
	shms_seglook_close(&l);
	cr_assert_eq(books.n_linked, 250);
	cr_assert_eq(books.linked_bytes + books.ghosts_bytes + books.inflight_bytes +
			     books.pool_bytes,
		     l.n_blocks);
	freed = shms_segown_trim(&o, NOW);
	cr_assert_gt(freed, 250 * 4800 / 2 + 25 * 200000);
	for (n = 50; n < 500; n += n % 100 == 99 ? 51 : 1)
		cr_assert(is_there(&o.file.segment, slots[n], n % 10 ? 5000 : 200000, n), "%u", n);
	/* The same slots again: each gets memory before. */
	for (n = 0; n < 500; n++) {
		if (n % 100 < 50) {
			slots[n] = put(&o, n % 10 ? 5000 : 200000, n + 1000, &generation);
			cr_assert(is_there(&o.file.segment, slots[n], n % 10 ? 5000 : 200000,
					   n + 1000));
		}
	}
	cr_assert_eq(o.alloc.n_born, 500);
	end(&o, dir);
}

/* A put takes its slot before it takes memory; what the slot says is of the object before. */
Test(segfile, a_put_that_has_no_memory_yet_has_no_bytes_in_the_books)
{
	int dir = directory("owner");
	struct shms_segsurvey books;
	struct shms_seglook l;
	struct shms_segown o;
	uint32_t slots[20], generation;

	make(&o, dir, false, 64 << 20);
	for (unsigned i = 0; i < 20; i++)
		slots[i] = put(&o, 200000, i, &generation);
	for (unsigned i = 0; i < 20; i++) {
		struct shms_segslot s = shms_segslot_at(&o.file.segment, slots[i]);

		cr_assert(i == 7 || shms_segslot_drop(&s, 0, SHMS_SEGVIEWS_NONE));
	}
	cr_assert_gt(shms_segown_trim(&o, NOW), 19 * 200000);
	for (unsigned i = 0; i < 20; i++) {
		struct shms_segslot s = shms_segslot_at(&o.file.segment, slots[i]);

		cr_assert(i == 7 || shms_segslot_begin(&s, &generation) == 0);
	}
	cr_assert_eq(shms_seglook_open(dir, o.file.name, false, &l), 0);
	shms_segsurvey(&l, (const uint8_t[16]){0}, NOW, &books);
	shms_seglook_close(&l);
	cr_assert_eq(books.n_inflight, 19);
	cr_assert_eq(books.n_linked, 1);
	cr_assert_geq(books.linked_bytes, 200000);
	cr_assert_eq(books.linked_bytes + books.ghosts_bytes + books.inflight_bytes +
			     books.pool_bytes,
		     l.n_blocks);
	end(&o, dir);
}
