/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong tickets: each gives the documented error, links nothing, takes nothing away,
 * and the right ticket still works. The file behind a lease may be anything: whoever
 * shares our user can put it there.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "api.h"
#include "forge.h"
#include "sys.h"
#include "wire.h"

static struct shmstore *a, *b;
static struct shmstore_ticket good;

static void setup(void)
{
	a = scratch_store("a");
	b = scratch_store("b");
	cr_assert_eq(put_pattern(a, "k", 100000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 3600000, &good), 0);
}

/* The right one works still, and nothing is left over. */
static void teardown(void)
{
	cr_assert_eq(shmstore_adopt(b, KEY("k"), &good, SHMSTORE_VERIFY), 0);
	cr_assert_eq(get_pattern(b, "k", 100000, 1), 0);
	cr_assert_eq(shmstore_close(a), 0);
	cr_assert_eq(shmstore_close(b), 0);
	ensure_nothing_left();
}

static void refused(const struct shmstore_ticket *t, int error, const char *what)
{
	char text[SHMSTORE_TICKET_TEXT];
	struct shmstore_ticket parsed;

	for (int i = 0; i < 4; i++) {
		unsigned flags = (i & 1 ? SHMSTORE_VERIFY : 0) | (i & 2 ? SHMSTORE_REPLACE : 0);
		int r = shmstore_adopt(b, KEY("k"), t, flags);

		cr_assert_eq(r, error, "%s: %d (%s), not %d", what, r, shmstore_strerror(r), error);
		cr_assert_eq(count_in_store("b", "objects"), 0, "%s: something was linked", what);
		cr_assert_eq(count_in_store("b", "recycle"), 0, "%s: something was linked", what);
	}
	/* The same as text: it parses (it is well-formed) or not, and is refused all the same. */
	if (shmstore_ticket_format(t, text, sizeof(text)) == 0) {
		cr_assert_eq(shmstore_ticket_parse(text, &parsed), 0);
		cr_assert_eq(shmstore_adopt(b, KEY("k"), &parsed, 0), error);
	}
}

static struct shmstore_ticket with_path(const char *path)
{
	struct shmstore_ticket t = good;

	memset(t.path, 0, sizeof(t.path));
	snprintf(t.path, sizeof(t.path), "%s", path);
	return t;
}

static const char *lease_path(void)
{
	char name[SHMS_LEASE_NAME_SIZE], rest[SHMS_LEASE_NAME_SIZE + 16];

	shms_lease_text(shms_now_boot_ms() + 3600000, shms_nonce(), name);
	snprintf(rest, sizeof(rest), "handoff/%s", name);
	return scratch_store_path("a", rest);
}

TestSuite(bad_ticket, .init = setup, .fini = teardown, .timeout = 30);

/* ---- paths ----------------------------------------------------------------------------------- */

Test(bad_ticket, path_outside_the_partition_is_eperm)
{
	char path[SCRATCH_PATH + 100], copy[SCRATCH_PATH + 100];
	struct shmstore_ticket t;

	t = with_path("/etc/passwd");
	refused(&t, -EPERM, "/etc/passwd");
	t = with_path("/");
	refused(&t, -EPERM, "/");
	t = with_path(scratch_dir(NULL));
	refused(&t, -EPERM, "the directory above");
	snprintf(path, sizeof(path), "%s-similar/stores/a/handoff/1-0123456789abcdef",
		 scratch_partition_path());
	t = with_path(path);
	refused(&t, -EPERM, "a longer name");
	/* A right object, outside. */
	snprintf(copy, sizeof(copy), "%s/outside", scratch_dir(NULL));
	cr_assert_eq(link(good.path, copy), 0);
	t = with_path(copy);
	refused(&t, -EPERM, "an object outside");
	cr_assert_eq(unlink(copy), 0);
}

Test(bad_ticket, empty_relative_and_endless_paths_are_refused)
{
	struct shmstore_ticket t = with_path("");

	refused(&t, -EPERM, "empty");
	t = with_path("stores/a/handoff/x");
	refused(&t, -EPERM, "relative");
	t = good;
	memset(t.path, 'x', sizeof(t.path));
	refused(&t, -EINVAL, "no end");
	t = good;
	memset(t.path + strlen(t.path), '/', sizeof(t.path) - strlen(t.path));
	refused(&t, -EINVAL, "no end after a right beginning");
}

Test(bad_ticket, dotdot_and_odd_components_are_eperm)
{
	const char *lease = strrchr(good.path, '/') + 1;
	static const char *const forms[] = {
		"%s/stores/a/handoff/../handoff/%s", "%s/stores/b/../a/handoff/%s",
		"%s/../part/stores/a/handoff/%s",    "%s/stores/a/./handoff/%s",
		"%s/stores//a/handoff/%s",           "%s//stores/a/handoff/%s",
		"%s/stores/a/handoff/%s/",           "%s/stores/a/handoff/%s/..",
		"%s/./stores/a/handoff/%s",
	};
	char path[SCRATCH_PATH + 200];

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		struct shmstore_ticket t;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(path, sizeof(path), forms[i], scratch_partition_path(), lease);
#pragma GCC diagnostic pop
		t = with_path(path);
		refused(&t, -EPERM, forms[i]);
	}
}

Test(bad_ticket, path_that_is_no_lease_is_eperm)
{
	static const char *const names[] = {"",
					    "/.shmstore",
					    "/stores",
					    "/stores/a",
					    "/stores/a/.store",
					    "/stores/a/handoff",
					    "/stores/a/recycle/0",
					    "/peers/x"};
	char path[SCRATCH_PATH + 200];
	struct shmstore_ticket t;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", scratch_partition_path(), names[i]);
		t = with_path(path);
		refused(&t, -EPERM, names[i]);
	}
	t = with_path(scratch_store_path("a", "handoff/not-a-lease"));
	cr_assert_eq(link(good.path, t.path), 0);
	refused(&t, -EPERM, "a right object under a name that is no lease's");
}

Test(bad_ticket, symlinks_are_refused_wherever_they_stand)
{
	char path[SCRATCH_PATH + 400], dir[SCRATCH_PATH + 200];
	struct shmstore_ticket t = with_path(lease_path());

	cr_assert_eq(symlink(good.path, t.path), 0);
	refused(&t, -EBADMSG, "the lease is a symlink to the right one");
	cr_assert_eq(unlink(t.path), 0);
	cr_assert_eq(symlink("/etc/passwd", t.path), 0);
	refused(&t, -EBADMSG, "the lease is a symlink out");
	cr_assert_eq(unlink(t.path), 0);
	snprintf(dir, sizeof(dir), "%s/stores/link", scratch_partition_path());
	cr_assert_eq(symlink("a", dir), 0);
	snprintf(path, sizeof(path), "%s/handoff/%s", dir, strrchr(good.path, '/') + 1);
	t = with_path(path);
	refused(&t, -EBADMSG, "a symlink on the way");
	cr_assert_eq(unlink(dir), 0);
}

/* ---- what stands there ----------------------------------------------------------------------- */

Test(bad_ticket, fifo_directory_socket_and_device_are_ebadmsg)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct shmstore_ticket t = with_path(lease_path());
	int fd;

	cr_assert_eq(mkfifo(t.path, 0600), 0);
	refused(&t, -EBADMSG, "fifo");
	cr_assert_eq(unlink(t.path), 0);
	cr_assert_eq(mkdir(t.path, 0700), 0);
	refused(&t, -EBADMSG, "directory");
	cr_assert_eq(rmdir(t.path), 0);
	cr_assert_lt(strlen(t.path), sizeof(address.sun_path));
	strcpy(address.sun_path, t.path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	refused(&t, -EBADMSG, "socket");
	close(fd);
	cr_assert_eq(unlink(t.path), 0);
	if (mknod(t.path, S_IFCHR | 0600, 0x103 /* /dev/null */) == 0) {
		refused(&t, -EBADMSG, "device");
		cr_assert_eq(unlink(t.path), 0);
	}
}

Test(bad_ticket, sizes_that_are_not_the_files_are_ebadmsg)
{
	const struct {
		int64_t header, buffer;
	} deltas[] = {{1, 0},    {-1, 0},   {0, 1},        {0, -1},       {1, -1}, {-1, 1},
		      {64, -64}, {-64, 64}, {4096, -4096}, {-4096, 4096}, {64, 0}, {0, 4096}};
	const struct {
		uint64_t header, buffer;
	} sizes[] = {
		{0, 0},
		{UINT64_MAX, UINT64_MAX},
		{UINT64_MAX, 0},
		{0, UINT64_MAX},
		/* their sum wraps to the file's size */
		{UINT64_MAX, good.header_size + good.buffer_size + 1},
		{UINT64_MAX - 4095, good.header_size + good.buffer_size + 4096},
		{INT64_MAX, INT64_MAX},
		{good.header_size, UINT64_MAX - good.header_size + 1},
		{0, good.header_size + good.buffer_size},
		{good.header_size + good.buffer_size, 0},
		{good.buffer_size, good.header_size},
	};
	struct shmstore_ticket t = good;

	for (size_t i = 0; i < sizeof(deltas) / sizeof(deltas[0]); i++) {
		t.header_size = good.header_size + (uint64_t)deltas[i].header;
		t.buffer_size = good.buffer_size + (uint64_t)deltas[i].buffer;
		refused(&t, -EBADMSG, "off by a little");
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		t.header_size = sizes[i].header;
		t.buffer_size = sizes[i].buffer;
		refused(&t, -EBADMSG, "far off");
	}
}

/* ---- what the file holds: forged files under a lease's name ---------------------------------- */

static struct forged usual(void)
{
	static const uint64_t sizes[] = {100, 64, 5000};

	return forge_object("k", 1, 333, sizes, 3);
}

/* Writes f under a lease and expects error; the ticket's sizes are those of the file's
 * superblock unless total is given. */
static void forged_refused(struct forged *f, bool rehash, int error, const char *what)
{
	struct shmstore_ticket t = with_path(lease_path());

	if (rehash)
		forge_rehash(f);
	forge_write(f, t.path);
	t.header_size = f->layout.header_size;
	t.buffer_size = f->size - f->layout.header_size;
	refused(&t, error, what);
	t.header_size = forged_sb(f)->header_size;
	t.buffer_size = forged_sb(f)->buffer_size;
	cr_assert_lt(shmstore_adopt(b, KEY("k"), &t, 0), 0, "%s: with the liar's own sizes", what);
	cr_assert_eq(count_in_store("b", "objects"), 0);
	cr_assert_eq(unlink(t.path), 0);
	forge_free(f);
}

#define FORGED(statement, rehash, error)                       \
	do {                                                   \
		struct forged f = usual();                     \
		struct shms_superblock *sb = forged_sb(&f);    \
		struct shms_entry *entry = forged_table(&f);   \
		(void)sb;                                      \
		(void)entry;                                   \
		statement;                                     \
		forged_refused(&f, rehash, error, #statement); \
	} while (0)

Test(bad_ticket, forged_object_that_is_right_is_taken)
{
	struct forged f = usual();
	struct shmstore_ticket t = with_path(lease_path());
	struct shmstore_view *v;

	forge_write(&f, t.path);
	t.header_size = f.layout.header_size;
	t.buffer_size = f.layout.buffer_size;
	cr_assert_eq(shmstore_adopt(b, KEY("forged"), &t, 0), 0,
		     "else the refusals below would prove nothing");
	v = get_view(b, "forged", 0);
	cr_assert_eq(shmstore_view_n_buffers(v), 3);
	cr_assert_eq(pattern_check(shmstore_view_buffer(v, 2, NULL), 5000, 102), 5000);
	shmstore_view_unref(v);
	cr_assert_eq(shmstore_delete(b, KEY("forged")), 0);
	forge_free(&f);
}

Test(bad_ticket, truncated_files_are_ebadmsg)
{
	static const size_t sizes[] = {0, 1, 7, 8, 127, 128, 129, 200, 536, 640, 1000, 5000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct forged f = usual();
		struct shmstore_ticket t = with_path(lease_path());

		cr_assert_lt(sizes[i], f.size);
		f.size = sizes[i];
		forge_write(&f, t.path);
		t.header_size = f.layout.header_size;
		t.buffer_size = f.layout.buffer_size;
		refused(&t, -EBADMSG, "the sizes of before");
		/* A ticket that knows of the truncation. */
		t.header_size = f.size < t.header_size ? f.size : t.header_size;
		t.buffer_size = f.size - t.header_size;
		refused(&t, -EBADMSG, "the sizes of now");
		cr_assert_eq(unlink(t.path), 0);
		forge_free(&f);
	}
}

Test(bad_ticket, wrong_magic_version_and_flags_are_told)
{
	FORGED(sb->magic[0] ^= 1, true, -EBADMSG);
	FORGED(memset(f.file, 0, 128), false, -EBADMSG);
	FORGED(memset(f.file, 0xff, f.size), false, -EBADMSG);
	FORGED(sb->version = 99, true, -ENOTSUP);
	FORGED(sb->incompat_flags = 4, true, -ENOTSUP);
	FORGED(sb->superblock_size = 64, true, -EBADMSG);
}

Test(bad_ticket, every_flipped_header_bit_is_told, .timeout = 120)
{
	struct shmstore_ticket t = with_path(lease_path());
	struct forged f = usual();
	size_t used = f.layout.metadata_off + 333;
	int fd;

	t.header_size = f.layout.header_size;
	t.buffer_size = f.layout.buffer_size;
	forge_write(&f, t.path);
	cr_assert_eq(chmod(t.path, 0600), 0);
	fd = open(t.path, O_RDWR | O_CLOEXEC);
	for (size_t bit = 0; bit < used * 8; bit++) {
		unsigned char byte = (unsigned char)(f.file[bit / 8] ^ (1u << bit % 8));
		int r;

		cr_assert_eq(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
		r = shmstore_adopt(b, KEY("k"), &t, 0);
		cr_assert(r == -EBADMSG || r == -ENOTSUP, "bit %zu: %d", bit, r);
		cr_assert_eq(pwrite(fd, &f.file[bit / 8], 1, (off_t)(bit / 8)), 1);
	}
	cr_assert_eq(count_in_store("b", "objects"), 0);
	close(fd);
	cr_assert_eq(unlink(t.path), 0);
	forge_free(&f);
}

Test(bad_ticket, lying_tables_are_ebadmsg)
{
	FORGED(entry[1].offset = entry[0].offset, true, -EBADMSG); /* overlap */
	FORGED(entry[0].size = 129, true, -EBADMSG);               /* overlap by one */
	FORGED(entry[1].offset += 1, true, -EBADMSG);              /* misaligned */
	FORGED(entry[2].offset += 32, true, -EBADMSG);             /* misaligned */
	FORGED(entry[0].offset += 64, true, -EBADMSG);             /* not at the header's end */
	FORGED(entry[2].offset += 64, true, -EBADMSG);             /* past the end */
	FORGED(entry[2].size += 1, true, -EBADMSG);                /* past the end by one */
	FORGED(entry[2].size = UINT64_MAX, true, -EBADMSG);        /* huge */
	FORGED(entry[2].size = UINT64_MAX - entry[2].offset + 1, true, -EBADMSG); /* wraps to 0 */
	FORGED(entry[2].offset = UINT64_MAX - 63, true, -EBADMSG);                /* huge */
	FORGED(entry[0].offset = 0, true, -EBADMSG); /* the superblock as a buffer */
	FORGED(entry[1].flags = 1, true, -EBADMSG);
}

Test(bad_ticket, lying_sizes_are_ebadmsg)
{
	FORGED(sb->header_size += 64, true, -EBADMSG);
	FORGED((sb->header_size += 64, sb->buffer_size -= 64), true, -EBADMSG);
	FORGED(sb->buffer_size = UINT64_MAX, true, -EBADMSG);
	FORGED((sb->header_size = UINT64_MAX - 63, sb->buffer_size = f.size + 64), true, -EBADMSG);
	FORGED(sb->metadata_size = UINT64_MAX, true, -EBADMSG);
	FORGED(sb->metadata_size = sb->header_size, true, -EBADMSG);
	FORGED(sb->key_size = UINT32_MAX, true, -EBADMSG);
	FORGED(sb->key_size = 4097, true, -EBADMSG);
	FORGED(sb->n_buffers = UINT32_MAX, true, -EBADMSG);
	FORGED(sb->n_buffers = 4, true, -EBADMSG);
	FORGED(sb->n_buffers = 0, true, -EBADMSG);
}

/* ---- leases ---------------------------------------------------------------------------------- */

Test(bad_ticket, expired_taken_and_invented_leases_are_estale)
{
	struct shmstore_ticket t, u;
	char name[SHMS_LEASE_NAME_SIZE], rest[SHMS_LEASE_NAME_SIZE + 16];

	t = with_path(lease_path());
	refused(&t, -ESTALE, "a lease that never was");
	shms_lease_text(shms_now_boot_ms(), shms_nonce(), name);
	snprintf(rest, sizeof(rest), "handoff/%s", name);
	t = with_path(scratch_store_path("a", rest));
	cr_assert_eq(link(good.path, t.path), 0);
	refused(&t, -ESTALE, "expired this very millisecond");
	shms_lease_text(0, shms_nonce(), name);
	snprintf(rest, sizeof(rest), "handoff/%s", name);
	t = with_path(scratch_store_path("a", rest));
	cr_assert_eq(link(good.path, t.path), 0);
	refused(&t, -ESTALE, "expired at boot");
	cr_assert_eq(shmstore_handoff(a, KEY("k"), 3600000, &u), 0);
	cr_assert_eq(shmstore_adopt(a, KEY("again"), &u, 0), 0);
	refused(&u, -ESTALE, "taken");
	t = with_path(scratch_store_path("gone", "handoff/99999999999999-0123456789abcdef"));
	refused(&t, -ESTALE, "of a store that is gone");
}

/* ---- other places and users ------------------------------------------------------------------ */

Test(bad_ticket, other_partition_is_eperm)
{
	char path[SCRATCH_PATH + 50];
	struct shmstore_partition *q;
	struct shmstore *s;
	struct shmstore_ticket t;

	snprintf(path, sizeof(path), "%s/second", scratch_dir(NULL));
	cr_assert_eq(shmstore_partition_open(path, SHMSTORE_CREATE, &q), 0);
	cr_assert_eq(shmstore_open(q, "s", NULL, &s), 0);
	cr_assert_eq(put_pattern(s, "k", 1000, 1, 0), 0);
	cr_assert_eq(shmstore_handoff(s, KEY("k"), 60000, &t), 0);
	refused(&t, -EPERM, "another partition of the same mount");
	cr_assert_eq(shmstore_adopt(s, KEY("k"), &t, 0), 0);
	cr_assert_eq(shmstore_close(s), 0);
	shmstore_partition_unref(q);
	snprintf(path, sizeof(path), "rm -rf %s/second", scratch_dir(NULL));
	cr_assert_eq(system(path), 0); /* NOLINT(concurrency-mt-unsafe) */
}

Test(bad_ticket, other_mount_within_is_exdev)
{
	char dir[SCRATCH_PATH + 100], path[SCRATCH_PATH + 200];
	struct shmstore_ticket t;
	struct forged f = usual();

	if (scratch_is_mount()) {
		snprintf(dir, sizeof(dir), "%s/stores/foreign", scratch_partition_path());
		cr_assert_eq(mkdir(dir, 0700), 0);
		cr_assert_eq(mount("tmpfs", dir, "tmpfs", 0, "size=1m"), 0);
		snprintf(path, sizeof(path), "%s/handoff", dir);
		cr_assert_eq(mkdir(path, 0700), 0);
		snprintf(path, sizeof(path), "%s/handoff/%s", dir, strrchr(lease_path(), '/') + 1);
		forge_write(&f, path);
		t = with_path(path);
		t.header_size = f.layout.header_size;
		t.buffer_size = f.layout.buffer_size;
		refused(&t, -EXDEV, "a mount within the partition");
		cr_assert_eq(umount(dir), 0);
		cr_assert_eq(rmdir(dir), 0);
	}
	forge_free(&f);
}

Test(bad_ticket, other_users_file_is_eperm)
{
	struct forged f = usual();
	struct shmstore_ticket t = with_path(lease_path());

	if (geteuid() == 0) {
		forge_write(&f, t.path);
		cr_assert_eq(chown(t.path, 65534, 65534), 0);
		t.header_size = f.layout.header_size;
		t.buffer_size = f.layout.buffer_size;
		refused(&t, -EPERM, "a file of another user");
		cr_assert_eq(unlink(t.path), 0);
	}
	forge_free(&f);
}
