/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packlines.c: see packlines.h.
 *
 * The owner never changes the size of the file: an index that grows is another file. The old
 * one is told to be superseded before it loses the name: without a name the store's next owner
 * could not tell those that map it. Killed in between, the store has no index. A store that is
 * opened again makes its index anew.
 */
#include "packlines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "page.h"
#include "sys.h"

#define MAGIC      "\x89SHMIDX\n"
#define VERSION    1u
#define LINES_MOST ((uint32_t)1 << 22) /* of as many slots as an index can tell, and more */

static uint64_t size_of(uint32_t n_lines)
{
	return sizeof(struct shms_packlines_head) +
	       (uint64_t)n_lines * sizeof(struct shms_packline);
}

uint64_t shms_packlines_cost(uint32_t n_lines)
{
	return shms_whole_pages(size_of(n_lines));
}

int shms_packlines_file(int store_fd, const uint8_t store_uuid[16], uint32_t n_lines,
			struct shms_packlines *ret)
{
	const struct shms_unnamed place = {
		.dir_fd = store_fd, .aside_fd = store_fd, .aside = SHMS_DIR_RECYCLE};
	_fd_ int fd = shms_unnamed_open(&place, O_RDWR, 0600);
	struct shms_packlines_head *head;
	struct stat st;
	void *map;
	int r;

	if (fd < 0)
		return shms_error(errno);
	/* All of it: a page that is first written through the map, and is not there,
	 * may find the partition full. */
	r = shms_allocate(fd, size_of(n_lines));
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return shms_error(errno);
	map = shms_map_ours(size_of(n_lines), MAP_SHARED, fd);
	if (map == MAP_FAILED)
		return shms_error(errno);
	head = map;
	memcpy(head->magic, MAGIC, sizeof(head->magic));
	head->version = VERSION;
	head->n_lines = n_lines;
	memcpy(head->store_uuid, store_uuid, sizeof(head->store_uuid));
	*ret = (struct shms_packlines){.head = head,
				       .lines = (struct shms_packline *)(head + 1),
				       .n_lines = n_lines,
				       .bytes = shms_blocks(&st),
				       .fd = shms_take_fd(&fd)};
	return 0;
}

/*
 * Of the kernel's own memory: an index that grew leaves a hole in the heap as large as it was, in
 * each holder, and that stays.
 */
int shms_packlines_private(uint32_t n_lines, struct shms_packlines *ret)
{
	void *map = mmap(NULL, n_lines * sizeof(struct shms_packline), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		return -ENOMEM;
	*ret = (struct shms_packlines){.lines = map, .n_lines = n_lines, .fd = -1};
	return 0;
}

void shms_packlines_segment(const struct shms_packlines *l, uint32_t number, const uint8_t uuid[16])
{
	uint64_t words[2];

	if (!l->head)
		return;
	memcpy(words, uuid, sizeof(words));
	for (size_t i = 0; i < 2; i++)
		atomic_store_explicit(&l->head->segments[number][i], words[i],
				      memory_order_relaxed);
}

int shms_packlines_publish(struct shms_packlines *l, int store_fd)
{
	int r;

	if (l->fd < 0)
		return 0;
	r = unlinkat(store_fd, SHMS_INDEX_FILE, 0) < 0 && errno != ENOENT
		    ? -errno
		    : shms_link_fd(l->fd, store_fd, SHMS_INDEX_FILE);
	l->fd = shms_close_fd(l->fd);
	return r;
}

void shms_packlines_end(struct shms_packlines *l)
{
	if (l->head)
		/* release: a key that is in the next index alone came after it. */
		atomic_store_explicit(&l->head->superseded, 1, memory_order_release);
	shms_packlines_close(l);
}

int shms_packlines_supersede(int store_fd)
{
	_fd_ int fd = shms_open_file(store_fd, SHMS_INDEX_FILE, O_RDWR);
	const uint32_t superseded = 1;

	if (fd >= 0 && pwrite(fd, &superseded, sizeof(superseded),
			      offsetof(struct shms_packlines_head, superseded)) >= 0)
		return 0;
	/* There is none; or what no reader maps: a link, a directory, a socket, a pipe. */
	return errno == ENOENT || errno == ELOOP || errno == EISDIR || errno == ENXIO ||
			       errno == ESPIPE
		       ? 0
		       : -errno;
}

void shms_packlines_fork_child(struct shms_packlines *l)
{
	l->fd = -1; /* transient.c closed it */
	if (l->head)
		*l = (struct shms_packlines)SHMS_PACKLINES_NULL;
}

int shms_packlines_open(int store_fd, const uint8_t store_uuid[16], struct shms_packlines *ret)
{
	_fd_ int fd = shms_open_file(store_fd, SHMS_INDEX_FILE, O_RDONLY);
	struct shms_packlines_head head;
	struct stat st;
	ssize_t n;
	void *map;

	if (fd < 0)
		return shms_error(errno);
	if (fstat(fd, &st) < 0)
		return shms_error(errno);
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	/* Another user could cut the file under the map, and end us by it. */
	if (st.st_uid != geteuid())
		return -EPERM;
	n = shms_pread_all(fd, &head, offsetof(struct shms_packlines_head, segments), 0);
	if (n < 0)
		return (int)n;
	if ((size_t)n < offsetof(struct shms_packlines_head, segments) ||
	    memcmp(head.magic, MAGIC, sizeof(head.magic)) != 0)
		return -EBADMSG;
	if (head.version != VERSION)
		return -ENOTSUP;
	if (memcmp(head.store_uuid, store_uuid, sizeof(head.store_uuid)) != 0 || !head.n_lines ||
	    head.n_lines > LINES_MOST || size_of(head.n_lines) > (uint64_t)st.st_size)
		return -EBADMSG;
	map = mmap(NULL, size_of(head.n_lines), PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return shms_error(errno);
	*ret = (struct shms_packlines){
		.head = map,
		.lines = (struct shms_packline *)((struct shms_packlines_head *)map + 1),
		.n_lines = head.n_lines,
		.fd = -1};
	if (shms_packlines_current(ret))
		return 0;
	/* Its owner makes the next one just now, or was killed before it had. */
	shms_packlines_close(ret);
	return -ENOENT;
}

void shms_packlines_close(struct shms_packlines *l)
{
	if (l->head)
		munmap(l->head, size_of(l->n_lines));
	else if (l->lines)
		munmap(l->lines, l->n_lines * sizeof(*l->lines));
	shms_close_fd(l->fd);
	*l = (struct shms_packlines)SHMS_PACKLINES_NULL;
}

bool shms_packlines_current(const struct shms_packlines *l)
{
	return !atomic_load_explicit(&l->head->superseded, memory_order_acquire);
}

bool shms_packlines_means(const struct shms_packlines *l, uint64_t hash, const uint8_t uuid[16],
			  uint32_t slot)
{
	const struct shms_packindex x = {.lines = l->lines, .n_lines = l->n_lines};
	uint8_t is[16];

	for (uint32_t i = 0; l->head && i < SHMS_PACKINDEX_SEGMENTS; i++) {
		shms_packlines_uuid(l, i, is);
		if (memcmp(is, uuid, sizeof(is)) == 0 &&
		    shms_packindex_has(&x, hash, (struct shms_packplace){i, slot}))
			return true;
	}
	return false;
}

void shms_packlines_uuid(const struct shms_packlines *l, uint32_t number, uint8_t ret_uuid[16])
{
	uint64_t words[2];

	for (size_t i = 0; i < 2; i++)
		words[i] =
			atomic_load_explicit(&l->head->segments[number][i], memory_order_relaxed);
	memcpy(ret_uuid, words, sizeof(words));
}
