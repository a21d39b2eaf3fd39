/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hugemap.h: maps of large files in pages of 2 MiB, on mounts that give none by themselves. A
 * file's 4 KiB pages are gathered into such pages by its owner; whoever maps it at an address that
 * fits then has it by one fault for each 2 MiB, not for each 64 KiB.
 */
#ifndef SHMS_HUGEMAP_H
#define SHMS_HUGEMAP_H

#include <stdint.h>

/* bytes; on machines where it is more nothing is gathered */
#define SHMS_HUGEMAP_PAGE (UINT64_C(2) << 20)

/* mmap(2), of 4 MiB and more at an address that is as far into 2 MiB as offset
 * is. MAP_FAILED and errno. */
void *shms_map_aligned(uint64_t size, int prot, int flags, int fd, uint64_t offset);
/*
 * Moves a map of that size, of whole pages, to another such address, as far as there is
 * one; nothing is at its old one. random: any number, which says where to. MAP_FAILED
 * and errno: it is where it was.
 */
void *shms_map_move(void *map, uint64_t size, uint64_t random);
/*
 * Gathers the pages of [from, from + size), whole 2 MiB of a map that shms_map_aligned() made. All
 * of them are there, so that the file takes as much as before. It costs a copy of them, 0.3 ms a
 * MiB. 0; -EAGAIN: not now; -errno: this kernel does not do that.
 */
int shms_gather(void *map, uint64_t from, uint64_t size);

#endif
