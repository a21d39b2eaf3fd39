/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages.h: the mapped .store pages of the stores under watch.
 *
 * A page belongs to its store's owner, who may cut its file at any time: looking at the mapping
 * would then be a SIGBUS. All of ours lie in one range of addresses, where that signal puts an
 * empty page in its place instead of ending the daemon.
 */
#ifndef PAGES_H
#define PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "pagewords.h"

/* A page's words about its owner, before the ledger (docs/format.md). */
struct page_head {
	char magic[8];
	uint32_t version;
	uint32_t size;
	uint64_t flags;
	uint32_t pid;
	uint32_t uid;
	uint64_t start_time;
	int64_t created_ns;
	uint8_t boot_id[16];
	char name[256];
	char label[128];
	char address[256];
};
_Static_assert(sizeof(struct page_head) == 704, "page");
#define PAGE_MAGIC   "SHMSTORE"
#define PAGE_VERSION 1u
#define PAGE_KEEP    (UINT64_C(1) << 0)

/* Once, before anything else. 0, -errno. */
int pages_init(void);
void pages_deinit(void);

/* Maps the page open as fd, shared; writable where write. -EMFILE: too many.
 * *ret is WIRE_PAGE_SIZE bytes. */
int pages_map(int fd, bool write, void **ret);
void pages_unmap(void *page);
/* Its file was cut: an empty page of ours is mapped there now. */
bool pages_lost(const void *page);

/* The page of a store that is believed to be dead, by its path. A descriptor, -errno. */
int pages_open(const char *store);
/* Copies the head of the page open as fd and checks it: magic, version, size, ends of texts. 0,
 * -EBADMSG, -ENOTSUP, -errno. */
int pages_read_head(int fd, struct page_head *ret);
#endif
