/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tier.c: opening a user's part of the disk tier, the engines that its calls share, and the tier's
 * configuration.
 *
 * The directories are looked at before they are believed: ours (or, for root, the user's) and
 * nobody else's to write. A tier whose disk is gone or read-only opens as far as it can: what
 * lies there can be read still.
 */
#include "tier.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <shmstore/shmstore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "alloc.h"
#include "cleanup.h"
#include "detail.h"
#include "engine.h"
#include "page.h"
#include "partition.h"
#include "sys.h"
#include "tierscan.h"

bool shms_tier_there(const struct shmstore_partition *p)
{
	return shms_lookup(p->fd, SHMS_DIR_TIER "/" SHMS_TIER_CONFIG) == 0;
}

/* Opens, and where it is missing makes, the directory called name for uid alone. */
static int own_directory(int parent, const char *name, uid_t uid)
{
	bool made = mkdirat(parent, name, 0700) == 0;
	struct stat st;
	int error = made ? 0 : errno, r;
	_fd_ int fd = shms_open_dir(parent, name);

	if (fd == -ENOTDIR)
		return -EPERM; /* a link, or a file: not ours, whoever put it there */
	if (fd < 0)
		return fd == -ENOENT && error ? -error : fd;
	if (made && uid != geteuid() && fchown(fd, uid, (gid_t)-1) < 0)
		return -errno;
	r = fstat(fd, &st) < 0 ? -errno : 0;
	if (r == 0 && (st.st_uid != uid || (st.st_mode & 022)))
		r = -EPERM;
	return r < 0 ? r : shms_take_fd(&fd);
}

/* Tries what the file system can do. A read-only one counts as able: nothing is written there. */
static void probe(struct shms_tier *t)
{
	int fd = openat(t->files_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0400);

	t->unnamed = fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT &&
				 errno != EPERM && errno != ENOSYS);
	t->direct = true;
	if (fd < 0)
		return;
	t->direct = fcntl(fd, F_SETFL, O_DIRECT) == 0;
	shms_close_fd(fd);
}

static int open_files(struct shms_tier *t)
{
	char name[16];
	_fd_ int directory = shms_tierscan_root(t->p, &t->config);

	if (directory < 0)
		return shms_detail(shms_error(directory), t->config.path,
				   "the directory of the disk tier, %s, cannot be used: %s; is its "
				   "file system mounted? The objects that are there are not lost",
				   t->config.path, strerror(-directory));
	snprintf(name, sizeof(name), "%u", (unsigned)t->uid);
	t->files_fd = own_directory(directory, name, t->uid);
	if (t->files_fd < 0)
		return shms_detail(shms_error(t->files_fd), t->config.path,
				   "%s/%s/%s cannot be used: %s", t->config.path, t->p->uuid, name,
				   strerror(-t->files_fd));
	t->files_path = shms_printed("%s/%s/%s", t->config.path, t->p->uuid, name);
	if (!t->files_path)
		return -ENOMEM;
	probe(t);
	return 0;
}

static int open_part(struct shms_tier *t)
{
	char name[16];
	struct stat st;
	_fd_ int tier_fd = shms_open_dir(t->p->fd, SHMS_DIR_TIER);

	if (tier_fd < 0)
		return tier_fd == -ENOENT ? -ENOENT : shms_error(tier_fd);
	if (fstatat(tier_fd, SHMS_TIER_CONFIG, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return shms_error(errno);
	t->config_inode = st.st_ino;
	snprintf(name, sizeof(name), "%u", (unsigned)t->uid);
	t->dir_fd = own_directory(tier_fd, name, t->uid);
	if (t->dir_fd < 0)
		return shms_detail(shms_error(t->dir_fd), t->p->path,
				   "%s/tier/%s cannot be used: %s", t->p->path, name,
				   strerror(-t->dir_fd));
	return 0;
}

int shms_tier_open(struct shmstore_partition *p, uid_t uid, struct shms_tier **ret)
{
	struct shms_tier *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->p = p;
	t->uid = uid;
	t->dir_fd = t->files_fd = -1;
	t->pid = getpid();
	pthread_mutex_init(&t->lock, NULL);
	pthread_mutex_init(&t->room.lock, NULL);
	shms_turns_init(&t->turns);
	r = shms_tier_config_read(p, &t->config);
	if (r == 0)
		r = open_part(t);
	if (r == 0)
		r = open_files(t);
	if (r < 0) {
		shms_tier_close(t);
		return r;
	}
	*ret = t;
	return 0;
}

struct shms_tier *shms_tier_close(struct shms_tier *t)
{
	if (!t)
		return NULL;
	shms_tier_close(t->older);
	for (size_t i = 0; i < SHMS_TIER_ENGINES; i++)
		shms_engine_free(t->engines[i]);
	shms_tierroom_close(t);
	shms_close_fd(t->dir_fd);
	shms_close_fd(t->files_fd);
	free(t->files_path);
	shms_turns_deinit(&t->turns);
	pthread_mutex_destroy(&t->room.lock);
	pthread_mutex_destroy(&t->lock);
	free(t);
	return NULL;
}

int shms_tier_own(struct shmstore_partition *p, struct shms_tier **ret)
{
	struct shms_tier *t;
	struct stat st;
	int r = 0;

	SHMS_HELD(&p->tier_lock);
	/* Also where the tier was set again since that was opened. */
	if (!p->tier ||
	    (fstatat(p->fd, SHMS_DIR_TIER "/" SHMS_TIER_CONFIG, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	     st.st_ino != p->tier->config_inode)) {
		r = shms_tier_open(p, geteuid(), &t);
		if (r == 0) {
			t->kept = true;
			t->older = p->tier;
			p->tier = t;
			p->tier_close = shms_tier_close;
		} else if (p->tier) {
			r = 0; /* the one that worked until now */
		}
	}
	*ret = p->tier;
	return r;
}

int shms_tier_of(struct shmstore_partition *p, uid_t uid, struct shms_tier **ret)
{
	return uid == geteuid() ? shms_tier_own(p, ret) : shms_tier_open(p, uid, ret);
}

void shms_tier_done(struct shms_tier *t)
{
	if (!t->kept)
		shms_tier_close(t);
}

void shms_tier_forked(struct shmstore_partition *p)
{
	/* Each lock guards a pointer, which is whole at every moment. */
	pthread_mutex_init(&p->tier_lock, NULL);
	shms_turns_init(&p->making);
	for (struct shms_tier *t = p->tier; t; t = t->older) {
		pthread_mutex_init(&t->lock, NULL);
		shms_turns_init(&t->turns);
		shms_tierroom_forked(t);
	}
}

struct shms_engine *shms_tier_engine(struct shms_tier *t)
{
	struct shms_engine *e = NULL;

	pthread_mutex_lock(&t->lock);
	if (t->pid != getpid()) {
		/* A child's: its parent's engines are not to be used here. */
		for (size_t i = 0; i < SHMS_TIER_ENGINES; i++) {
			shms_engine_free(t->engines[i]);
			t->engines[i] = NULL;
		}
		t->pid = getpid();
	}
	for (size_t i = 0; i < SHMS_TIER_ENGINES && !e; i++) {
		e = t->engines[i];
		t->engines[i] = NULL;
	}
	pthread_mutex_unlock(&t->lock);
	if (!e && shms_engine_new(&(struct shms_engine_options){0}, &e) < 0)
		return NULL;
	return e;
}

void shms_tier_engine_back(struct shms_tier *t, struct shms_engine *e)
{
	pthread_mutex_lock(&t->lock);
	for (size_t i = 0; i < SHMS_TIER_ENGINES && e; i++) {
		if (!t->engines[i]) {
			t->engines[i] = e;
			e = NULL;
		}
	}
	pthread_mutex_unlock(&t->lock);
	shms_engine_free(e);
}

/* How this process moves bytes to and from the disk, asked once by trying it: a seccomp
 * filter shows in no other way. */
static char said[160] = "plain: no memory to try io_uring with";

static void try_it(void)
{
	struct shms_engine *e;

	if (shms_engine_new(&(struct shms_engine_options){0}, &e) < 0)
		return;
	snprintf(said, sizeof(said), "%s", shms_engine_io(e));
	shms_engine_free(e);
}

const char *shmstore_tier_io(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, try_it);
	return said;
}

/* ---- the configuration ----------------------------------------------------------------------- */

/*
 * The tier's configuration as it lies in the partition: a line per value, fixed in form, so that a
 * damaged file is told from a short one. It decides where a user's objects are written, so only the
 * partition's owner, or root, may have said it.
 */

#define TITLE    "shmstore tier 1"
#define TEXT_MAX 8192

int shms_tier_config_format(const struct shms_tier_config *c, char *ret_text, size_t size)
{
	int n = snprintf(ret_text, size,
			 TITLE "\npath %s\nmax %" PRIu64 "\nmin-free %" PRIu64
			       "\nlevel %d\nfsync %d\nhigh %u\nlow %u\n",
			 c->path, c->max, c->min_free, c->level, c->fsync ? 1 : 0, c->high, c->low);

	return n > 0 && (size_t)n < size ? 0 : -EINVAL;
}

/* The value of the line "<word> <value>" at *at, which goes on to the next
 * line. NULL: it is another one. */
static const char *take_line(char **at, const char *word)
{
	size_t n = strlen(word);
	char *value = *at + n + 1, *end;

	if (strncmp(*at, word, n) != 0 || (*at)[n] != ' ')
		return NULL;
	end = strchr(value, '\n');
	if (!end || end == value)
		return NULL;
	*end = '\0';
	*at = end + 1;
	return value;
}

static bool take_number(char **at, const char *word, uint64_t most, uint64_t *ret)
{
	const char *value = take_line(at, word);
	char *end;

	if (!value || value[0] < '0' || value[0] > '9')
		return false;
	errno = 0;
	*ret = strtoull(value, &end, 10);
	return !errno && *end == '\0' && *ret <= most;
}

int shms_tier_config_parse(char *text, struct shms_tier_config *ret)
{
	struct shms_tier_config c = {0};
	uint64_t level, sync, high, low;
	char *at = text + sizeof(TITLE);
	const char *path;

	if (strncmp(text, TITLE "\n", sizeof(TITLE)) != 0)
		return strncmp(text, "shmstore tier ", 14) == 0 ? -ENOTSUP : -EBADMSG;
	path = take_line(&at, "path");
	if (!path || path[0] != '/' || strlen(path) >= sizeof(c.path))
		return -EBADMSG;
	memcpy(c.path, path, strlen(path) + 1);
	if (!take_number(&at, "max", UINT64_MAX, &c.max) ||
	    !take_number(&at, "min-free", UINT64_MAX, &c.min_free) ||
	    !take_number(&at, "level", 19, &level) || !take_number(&at, "fsync", 1, &sync) ||
	    !take_number(&at, "high", 100, &high) || !take_number(&at, "low", 100, &low) ||
	    *at != '\0' || low >= high)
		return -EBADMSG;
	c.level = (int)level;
	c.fsync = sync != 0;
	c.high = (unsigned)high;
	c.low = (unsigned)low;
	*ret = c;
	return 0;
}

static int read_named(const struct shmstore_partition *p, const char *path,
		      struct shms_tier_config *ret)
{
	char text[TEXT_MAX];
	struct stat st, owner;
	int r;
	_fd_ int fd = openat(p->fd, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? -ENOENT : shms_error(errno);
	if (fstat(fd, &st) < 0 || fstat(p->fd, &owner) < 0)
		return shms_error(errno);
	if (!S_ISREG(st.st_mode) || (st.st_uid != owner.st_uid && st.st_uid != 0) ||
	    (st.st_mode & 022))
		return shms_detail(-EPERM, p->path,
				   "%s/tier/config: not written by the partition's owner", p->path);
	r = shms_read_whole(fd, text, sizeof(text));
	if (r < 0 && r != -EBADMSG)
		return r;
	if (r == 0)
		r = shms_tier_config_parse(text, ret);
	if (r < 0)
		return shms_detail(r, p->path,
				   "%s/tier/config cannot be read: %s; set the tier again", p->path,
				   r == -ENOTSUP ? "another version wrote it" : "it is damaged");
	return 0;
}

int shms_tier_config_read(const struct shmstore_partition *p, struct shms_tier_config *ret)
{
	return read_named(p, SHMS_DIR_TIER "/" SHMS_TIER_CONFIG, ret);
}

int shms_tier_config_read_left(const struct shmstore_partition *p, struct shms_tier_config *ret)
{
	return read_named(p, SHMS_DIR_TIER "/" SHMS_TIER_CONFIG_NEW, ret);
}

/* ---- references ------------------------------------------------------------------------------ */

/*
 * The tier's locks: files and directories are flocked while a few names change. A
 * stopped holder must not stop others for ever, so each lock is tried for a time.
 */

/* Bytes of the lock's file: the next in turn; the one that evicts for a put. */
enum {
	NEXT,
	FOR_PUT
};

/* One step: in a queue first the right to be the next one, by a lock on a byte, then the
 * file's lock. 0, -EBUSY, -errno. */
static int step(int fd, bool queue, bool *io_next)
{
	int r = queue && !*io_next ? shms_lock_bytes(fd, F_WRLCK, NEXT, 1) : 0;

	if (r < 0)
		return r == -EAGAIN ? -EBUSY : shms_error(r);
	*io_next = true;
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EBUSY : shms_error(errno);
	}
	if (queue)
		(void)shms_lock_bytes(fd, F_UNLCK, NEXT, 1);
	return 0;
}

static int lock(int fd, bool queue, uint64_t end, int (*tick)(void *arg), void *arg)
{
	struct timespec pause = {.tv_nsec = 50000};
	bool next = false;
	int r;

	while ((r = step(fd, queue, &next)) == -EBUSY) {
		if (shms_now_mono_ns() >= end)
			return r;
		if (tick && tick(arg))
			return -ECANCELED;
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 1000000)
			pause.tv_nsec *= 2;
	}
	return r;
}

int shms_tier_flock(int fd, unsigned wait_ms)
{
	return lock(fd, false, wait_ms ? shms_now_mono_ns() + wait_ms * 1000000ull : 0, NULL, NULL);
}

static int open_lock(const struct shms_tier *t)
{
	_fd_ int fd =
		shms_openat(t->dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);

	/* Root's hand, the user's file: they share the lock. */
	if (fd < 0 || (t->uid != geteuid() && fchown(fd, t->uid, (gid_t)-1) < 0))
		return shms_error(errno);
	return shms_take_fd(&fd);
}

int shms_tier_lock(struct shms_tier *t, unsigned wait_ms, int (*tick)(void *arg), void *arg,
		   int *ret_fd)
{
	uint64_t ns = wait_ms * 1000000ull, end = shms_now_mono_ns() + ns;
	int fd, r;

	if (!shms_turns_take(&t->turns, ns, tick, arg))
		return shms_now_mono_ns() < end ? -ECANCELED : -EBUSY;
	fd = open_lock(t);
	r = fd < 0 ? fd : lock(fd, true, end, tick, arg);
	atomic_store_explicit(&t->stuck, r == -EBUSY, memory_order_relaxed);
	if (r < 0) {
		shms_close_fd(fd);
		shms_turns_end(&t->turns);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

int shms_tier_unlock(struct shms_tier *t, int fd)
{
	if (fd < 0)
		return -1;
	(void)shms_lock_bytes(fd, F_UNLCK, FOR_PUT, 1);
	shms_unlock_fd(fd);
	shms_turns_end(&t->turns);
	return -1;
}

void shms_tier_for_put(int fd)
{
	(void)shms_lock_bytes(fd, F_WRLCK, FOR_PUT, 1);
}

void shms_tier_after_put(struct shms_tier *t, unsigned wait_ms)
{
	_fd_ int fd = open_lock(t);
	uint64_t end = shms_now_mono_ns() + wait_ms * 1000000ull;
	struct timespec pause = {.tv_nsec = 50000};

	while (fd >= 0 && !atomic_load_explicit(&t->stuck, memory_order_relaxed)) {
		struct flock lock = {
			.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = FOR_PUT, .l_len = 1};

		if (fcntl(fd, F_OFD_GETLK, &lock) < 0 || lock.l_type == F_UNLCK)
			return;
		atomic_store_explicit(&t->stuck, shms_now_mono_ns() >= end, memory_order_relaxed);
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 400000)
			pause.tv_nsec *= 2;
	}
}

int shms_tier_lock_names(int objects_fd)
{
	int r = shms_tier_flock(objects_fd, 0);
	bool asked = r == -EBUSY;

	/* The owner's threads leave it free for some microseconds only,
	 * between two of their calls. */
	for (unsigned ms = 0; r == -EBUSY && ms < SHMS_TIER_NAMES_MS; ms += SHMS_TIER_ASK_MS) {
		shms_move_ask(objects_fd, true);
		r = shms_tier_flock(objects_fd, SHMS_TIER_ASK_MS);
	}
	if (asked)
		shms_move_ask(objects_fd, false);
	if (r == 0)
		shms_move_settle(objects_fd);
	return r == -EBUSY ? shms_tier_names_held() : r;
}

int shms_tier_names_held(void)
{
	return shms_detail(-ETIMEDOUT, NULL,
			   "another process has held the store's names for a second: it was "
			   "stopped in the middle of a demotion, or the host is very busy");
}

bool shms_tier_settle_names(int storefd)
{
	_locked_ int objects_fd = shms_open_dir(storefd, SHMS_DIR_OBJECTS);

	if (objects_fd < 0 || shms_tier_flock(objects_fd, 0) < 0)
		return false;
	shms_move_settle(objects_fd);
	return true;
}

void shms_tier_unlock_names(int objects_fd)
{
	flock(objects_fd, LOCK_UN);
}
