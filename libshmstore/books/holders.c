/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holders.c: one scan of /proc for files of one device without a name.
 *
 * Model: a ghost is an inode, a hold is one process's share in it. Of every process come first its
 * maps, then its descriptors. A line of maps is looked at only if its device is ours and it ends in
 * " (deleted)"; that still may be one deleted name of several, so the link count decides: by stat
 * through /proc/PID/map_files (privileged) or /proc/PID/fd (own processes). Where neither is
 * allowed the bytes are what the mappings cover of the file, and shms_holders_named() sorts out
 * those that live on elsewhere.
 *
 * A file made by O_TMPFILE keeps the name "#<inode>" in the eyes of who made it, also after it was
 * linked. So a file is a writer in flight only if nobody knows it by another name and it is no
 * complete object: one that is was published, then deleted, and its first owner still has it (the
 * instant between the last byte and the link apart).
 *
 * A deleted object that somebody still maps is a ghost also where its owner keeps the file for
 * recycling: it has a name in recycle/ then, and is told from the pool's own by a mapping that is
 * not the owner's writable one.
 *
 * A process whose first thread has ended while others run shows empty maps; its
 * other threads are asked then.
 */
#include "holders.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "alloc.h"
#include "cleanup.h"
#include "name.h"
#include "object.h"
#include "page.h"
#include "partition.h"
#include "sys.h"

#define MAPS_BUFFER ((size_t)256 * 1024)

/* The process at hand. */
struct process {
	struct shms_holders *h;
	pid_t pid;
	uid_t uid;
	int fd;            /* /proc/PID */
	bool no_map_files; /* refused: do not try again */
	bool unreadable;
	bool empty;      /* its maps are */
	char device[32]; /* as maps spell it */
	char *buffer;    /* MAPS_BUFFER bytes */
	char command[SHMS_HOLD_COMMAND];
};

/* ---- mappings -------------------------------------------------------------------------------- */

/*
 * Most lines of most processes are of other devices, so the device is looked at first and the
 * numbers are read last. Pure.
 */

#define UUID_DIGITS 32

static const char DELETED[] = " (deleted)";

/* Is the last directory of the path of that name, which begins with a slash? *ret_name: what is
 * behind it. */
static bool is_in_dir(const char *path, size_t length, const char *parent, const char **ret_name)
{
	const char *slash = memrchr(path, '/', length);
	size_t n = strlen(parent);

	*ret_name = slash ? slash + 1 : path;
	return slash && (size_t)(slash - path) >= n && memcmp(slash - n, parent, n) == 0;
}

/* Is path that of a file in a store's recycle/? */
static bool path_is_recycled(const char *path, size_t length)
{
	const char *name;

	return is_in_dir(path, length, "/" SHMS_DIR_RECYCLE, &name);
}

/* Its name is a uuid: its owner also maps it by the name that the kernel gave it before. */
static bool is_segment(const char *path, size_t length)
{
	const char *name, *end = path + length;

	if (!is_in_dir(path, length, "/" SHMS_DIR_SEGMENTS, &name) || end - name != UUID_DIGITS)
		return false;
	while (name < end && strchr("0123456789abcdef", *name))
		name++;
	return name == end;
}

bool shms_mapping_deleted(const char *path, size_t *io_length)
{
	size_t n = sizeof(DELETED) - 1;

	if (*io_length <= n || memcmp(path + *io_length - n, DELETED, n) != 0)
		return false;
	*io_length -= n;
	return true;
}

/* The start of field number n (from 0) of a line whose fields are set apart by one space. */
static const char *field(const char *line, const char *end, int n)
{
	const char *s = line;

	for (; s && n > 0; n--) {
		s = memchr(s, ' ', (size_t)(end - s));
		s = s ? s + 1 : NULL;
	}
	return s;
}

bool shms_mapping_parse(const char *line, size_t length, const char *device,
			struct shms_mapping *ret)
{
	/* "start-end perms offset device inode   path" */
	const char *end = line + length, *perms, *offset, *dev = field(line, end, 3);
	struct shms_mapping m = {0};
	size_t n = strlen(device);
	char *rest;

	if (!dev || (size_t)(end - dev) <= n || memcmp(dev, device, n) != 0)
		return false;
	m.ino = strtoull(dev + n, &rest, 10);
	m.path = memchr(rest, '/', (size_t)(end - rest));
	if (!m.path)
		return false;
	m.path_length = (size_t)(end - m.path);
	m.deleted = shms_mapping_deleted(m.path, &m.path_length);
	m.recycled = !m.deleted && path_is_recycled(m.path, m.path_length);
	m.segment = is_segment(m.path, m.path_length);
	if (!m.deleted && !m.recycled && !m.segment)
		return false;
	perms = field(line, end, 1);
	offset = field(line, end, 2);
	if (offset - perms != 5)
		return false;
	m.start = strtoul(line, &rest, 16);
	if (*rest != '-')
		return false;
	m.end = strtoul(rest + 1, NULL, 16);
	m.writer = perms[1] == 'w' && perms[3] == 's';
	m.offset = strtoull(offset, NULL, 16);
	if (m.end <= m.start)
		return false;
	*ret = m;
	return true;
}

/* ---- ghosts and holds ------------------------------------------------------------------------ */

static struct shms_ghost *ghost_get(struct shms_holders *h, uint64_t ino)
{
	struct shms_ghost *g;

	HASH_FIND(hh, h->ghosts, &ino, sizeof(ino), g);
	if (g)
		return g;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	g->ino = ino;
	HASH_ADD(hh, h->ghosts, ino, sizeof(ino), g);
	if (!g->hh.tbl) {
		free(g);
		return NULL;
	}
	h->n_unsure++;
	return g;
}

/* A new hold of the process at hand. */
static struct shms_hold *hold_new(struct process *p, const char *path, size_t path_length)
{
	struct shms_holders *h = p->h;
	struct shms_hold *hold;

	if (SHMS_GROW(h->holds, h->holds_size, h->n_holds, 1) < 0)
		return NULL;
	hold = &h->holds[h->n_holds];
	*hold = (struct shms_hold){.pid = p->pid, .uid = p->uid};
	hold->path = strndup(path, path_length);
	if (!hold->path)
		return NULL;
	memcpy(hold->command, p->command, sizeof(hold->command));
	h->n_holds++;
	return hold;
}

/* The hold of the process at hand, made where it is the first sight. */
static struct shms_hold *hold_get(struct process *p, struct shms_ghost *g, const char *path,
				  size_t path_length)
{
	struct shms_hold *hold;

	if (g->last_pid == p->pid)
		return &p->h->holds[g->last];
	hold = hold_new(p, path, path_length);
	if (!hold)
		return NULL;
	hold->ghost = g;
	if (!g->owned && !g->last_pid)
		g->uid = p->uid;
	g->last_pid = p->pid;
	g->last = p->h->n_holds - 1;
	return hold;
}

/* The key that the last name tells: only an entry of objects/ has one. */
static void key_of_path(struct shms_ghost *g, const char *path, size_t length)
{
	unsigned char key[SHMS_NAME_SIZE];
	char name[SHMS_NAME_SIZE];
	const char *last;
	size_t n, key_size;

	if (!is_in_dir(path, length, "/" SHMS_DIR_OBJECTS, &last))
		return;
	n = (size_t)(path + length - last);
	if (n >= sizeof(name))
		return;
	memcpy(name, last, n);
	name[n] = '\0';
	if (shms_name_decode(name, key, &key_size) != SHMS_NAME_PLAIN)
		return;
	g->key = malloc(key_size + 1);
	if (!g->key)
		return;
	memcpy(g->key, key, key_size);
	g->key_size = key_size;
}

/* Reads the object's header, to find its key and whether it is complete. */
static void look_inside(struct process *p, struct shms_ghost *g, const char *proc_path)
{
	struct shms_glance glance;
	struct stat st;

	g->looked = true;
	_fd_ int fd = openat(p->fd, proc_path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != g->ino || st.st_dev != p->h->device ||
	    shms_header_glance(&glance, fd, &st) < 0)
		return;
	g->published = true;
	if (p->h->keys && !g->key) {
		g->key = malloc(glance.key_size + 1);
		if (g->key) {
			g->key_size = glance.key_size;
			memcpy(g->key, glance.key, g->key_size);
		}
	}
}

/* Identifies the file by its name, and, where that leaves questions, by its content. The key of the
 * name comes first: an object adopted or aliased under another key has its first one inside. */
static void identify(struct process *p, struct shms_ghost *g, const char *proc_path,
		     const char *path, size_t length)
{
	const char *slash = memrchr(path, '/', length), *name = slash ? slash + 1 : path;

	/* "#<inode>" is what the kernel calls a file made by O_TMPFILE. */
	if (name == path + length || *name != '#')
		g->published = true;
	if (p->h->keys && !g->key)
		key_of_path(g, path, length);
	if ((g->exact || g->pooled) && !g->looked && (!g->published || (p->h->keys && !g->key)))
		look_inside(p, g, proc_path);
}

/* Asks the kernel about what proc_path (below /proc/PID) leads to. Does not wait for servers of
 * network file systems. 0 or -errno. */
static int ask(const struct process *p, const char *proc_path, struct statx *ret)
{
	int flags = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT;

	unsigned mask =
		STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_INO | STATX_BLOCKS;

	if (statx(p->fd, proc_path, flags, mask, ret) < 0)
		return -errno;
	return makedev(ret->stx_dev_major, ret->stx_dev_minor) == p->h->device ? 0 : -EXDEV;
}

/* Takes what the kernel says over into g. */
static void settle(struct shms_holders *h, struct shms_ghost *g, const struct statx *stx)
{
	if (!g->exact && !g->named)
		h->n_unsure--;
	g->exact = stx->stx_nlink == 0;
	g->named = stx->stx_nlink != 0;
	g->pooled = stx->stx_nlink == 1;
	g->bytes = stx->stx_blocks * 512;
	g->owned = true;
	g->uid = stx->stx_uid;
}

/* ---- maps ------------------------------------------------------------------------------------ */

/* Notes who maps a segment: the walk finds out whether it has views of what nobody has by name. */
static int on_segment(struct process *p, const struct shms_mapping *m)
{
	struct shms_hold *hold;

	for (size_t i = p->h->n_holds; i > 0 && p->h->holds[i - 1].pid == p->pid; i--) {
		if (!p->h->holds[i - 1].ghost && p->h->holds[i - 1].ino == m->ino)
			return 0;
	}
	hold = hold_new(p, m->path, m->path_length);
	if (!hold)
		return -ENOMEM;
	hold->ino = m->ino;
	return 0;
}

static int on_unnamed(struct process *p, const struct shms_mapping *m)
{
	struct shms_ghost *g = ghost_get(p->h, m->ino);
	char name[64];
	struct statx stx;
	struct shms_hold *hold;

	if (!g)
		return -ENOMEM;
	if (m->recycled && !g->exact) {
		p->h->n_unsure -= !g->named;
		g->named = g->pooled = true;
	}
	if (g->named && (!g->pooled || m->writer))
		return 0;
	snprintf(name, sizeof(name), "map_files/%lx-%lx", m->start, m->end);
	if (!g->exact && !g->pooled && !p->no_map_files) {
		int r = ask(p, name, &stx);
		if (r == 0 && stx.stx_ino == m->ino)
			settle(p->h, g, &stx);
		else if (r == -EPERM || r == -EACCES)
			p->no_map_files = true;
		else
			return 0; /* unmapped since */
		if (g->named && (!g->pooled || m->writer))
			return 0;
	}
	if (!g->exact && !g->pooled && m->offset + (m->end - m->start) > g->bytes)
		g->bytes = m->offset + (m->end - m->start);
	hold = hold_get(p, g, m->path, m->path_length);
	if (!hold)
		return -ENOMEM;
	hold->mapped += m->end - m->start;
	hold->reads |= !m->writer;
	g->read |= !m->writer;
	identify(p, g, name, m->path, m->path_length);
	return 0;
}

/* Takes the whole lines out of the first *io_have bytes of the buffer;
 * leaves the rest at its start. */
static int take_lines(struct process *p, size_t *io_have)
{
	char *at = p->buffer, *end = p->buffer + *io_have, *newline;
	struct shms_mapping m;
	int r = 0;

	while (r == 0 && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
		*newline = '\0';
		if (shms_mapping_parse(at, (size_t)(newline - at), p->device, &m)) {
			r = m.segment ? on_segment(p, &m) : 0;
			if (r == 0 && (!m.segment || m.deleted))
				r = on_unnamed(p, &m);
		}
		at = newline + 1;
	}
	*io_have = (size_t)(end - at);
	memmove(p->buffer, at, *io_have);
	return r;
}

/* Out of means ends the scan; a process that ended or may not be looked into does not. */
static int excuse(struct process *p, int error)
{
	if (error == EMFILE || error == ENFILE || error == ENOMEM)
		return shms_error(error);
	if (error == EACCES || error == EPERM)
		p->unreadable = true;
	return 0;
}

static int scan_maps(struct process *p)
{
	_fd_ int fd = openat(p->fd, "maps", O_RDONLY | O_CLOEXEC);
	size_t have = 0;

	p->empty = true;
	if (fd < 0)
		return excuse(p, errno);
	for (;;) {
		ssize_t n = read(fd, p->buffer + have, MAPS_BUFFER - have);
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return excuse(p, errno);
		if (n == 0)
			return 0;
		p->empty = false;
		have += (size_t)n;
		r = take_lines(p, &have);
		if (r < 0)
			return r;
		if (have == MAPS_BUFFER)
			return 0; /* no line is that long */
	}
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* A descriptor of a file that has a name: does it hold what only recycle/ still names? The
 * owner's own are writable. */
static bool holds_pooled(const struct process *p, const char *name, const char *path, size_t length,
			 bool deleted)
{
	struct stat link;

	if (!deleted && !path_is_recycled(path, length))
		return false;
	return fstatat(p->fd, name, &link, AT_SYMLINK_NOFOLLOW) == 0 && !(link.st_mode & S_IWUSR);
}

static int on_fd(struct process *p, const char *number)
{
	char name[64], path[4096];
	struct statx stx;
	struct shms_ghost *g;
	struct shms_hold *hold;
	ssize_t n;
	size_t length;
	bool deleted;

	snprintf(name, sizeof(name), "fd/%.20s", number);
	if (ask(p, name, &stx) < 0 || S_ISDIR(stx.stx_mode))
		return 0;
	if (stx.stx_nlink > 1) {
		shms_holders_named(p->h, stx.stx_ino); /* what a mapping may have left open */
		return 0;
	}
	n = readlinkat(p->fd, name, path, sizeof(path));
	length = n > 0 ? (size_t)n : 0;
	deleted = shms_mapping_deleted(path, &length);
	if (stx.stx_nlink == 1 && !holds_pooled(p, name, path, length, deleted)) {
		shms_holders_named(p->h, stx.stx_ino);
		return 0;
	}
	g = ghost_get(p->h, stx.stx_ino);
	if (!g)
		return -ENOMEM;
	settle(p->h, g, &stx);
	hold = hold_get(p, g, path, length);
	if (!hold)
		return -ENOMEM;
	hold->n_fds++;
	hold->reads = true;
	g->read = true;
	identify(p, g, name, path, length);
	return 0;
}

static int scan_fds(struct process *p)
{
	_names_ struct shms_names d = shms_names(p->fd, "fd");
	int r = 0;

	if (!d.dir)
		return excuse(p, -d.error);
	while (r == 0 && shms_names_next(&d))
		r = on_fd(p, d.name);
	return r;
}

/* ---- processes ------------------------------------------------------------------------------- */

static void read_command(struct process *p)
{
	_fd_ int fd = openat(p->fd, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd >= 0 ? read(fd, p->command, sizeof(p->command) - 1) : -1;

	memset(p->command + (n > 0 ? n : 0), 0, sizeof(p->command) - (size_t)(n > 0 ? n : 0));
	if (n > 0 && p->command[n - 1] == '\n')
		p->command[n - 1] = '\0';
}

/* Scans what /proc/<number> shows; pid is the process that it belongs to. */
static int scan_task(struct process *p, int procfd, const char *number)
{
	_fd_ int fd = openat(procfd, number, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;
	int r;

	p->empty = true;
	if (fd < 0 || fstat(fd, &st) < 0)
		return excuse(p, errno);
	p->fd = fd;
	p->uid = st.st_uid;
	p->no_map_files = false;
	read_command(p);
	r = scan_maps(p);
	/* Without memory there are no descriptors: a kernel's thread, or a zombie. */
	if (r == 0 && !p->empty)
		r = scan_fds(p);
	p->fd = -1;
	return r;
}

/* The other threads of a process whose first one has ended. They share memory and descriptors:
 * one that lives is enough. */
static int scan_threads(struct process *p, int procfd, const char *number)
{
	char path[64];
	int r = 0;

	snprintf(path, sizeof(path), "%.20s/task", number);
	_names_ struct shms_names d = shms_names(procfd, path);
	if (!d.dir)
		return d.error == -ENOMEM ? d.error : 0;
	while (r == 0 && p->empty && shms_names_next(&d)) {
		if (strcmp(d.name, number) != 0)
			r = scan_task(p, procfd, d.name);
	}
	return r;
}

static int scan(struct shms_holders *h, struct shms_names *proc, char *buffer)
{
	struct process p = {.h = h, .fd = -1, .buffer = buffer};
	int r = 0;

	snprintf(p.device, sizeof(p.device), "%02x:%02x ", major(h->device), minor(h->device));
	while (r == 0 && shms_names_next(proc)) {
		if (proc->name[0] < '1' || proc->name[0] > '9')
			continue;
		p.pid = (pid_t)strtol(proc->name, NULL, 10);
		p.unreadable = false;
		r = scan_task(&p, proc->fd, proc->name);
		if (r == 0 && p.empty && !p.unreadable)
			r = scan_threads(&p, proc->fd, proc->name);
		h->n_unreadable += p.unreadable;
	}
	return r;
}

int shms_holders_new(struct shmstore_partition *p, bool keys, struct shms_holders **ret)
{
	_names_ struct shms_names proc = shms_names(AT_FDCWD, "/proc");
	_free_ char *buffer = malloc(MAPS_BUFFER);
	struct shms_holders *h;
	int r;

	if (!proc.dir)
		return proc.error == -EMFILE || proc.error == -ENOMEM ? proc.error : -EPERM;
	h = calloc(1, sizeof(*h));
	if (!h || !buffer) {
		free(h);
		return -ENOMEM;
	}
	h->device = p->device;
	h->keys = keys;
	r = scan(h, &proc, buffer);
	if (r < 0)
		h = shms_holders_free(h);
	else
		*ret = h;
	return r;
}
