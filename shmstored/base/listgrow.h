/* SPDX-License-Identifier: Apache-2.0 */
/* listgrow.h: lists in one piece of memory. */
#ifndef LISTGROW_H
#define LISTGROW_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more entry of a list (the address of its pointer) that is n long. 0, -ENOMEM. */
static inline int list_grow(void *io_list, size_t n, size_t *io_room, size_t entry)
{
	size_t room = *io_room ? 2 * *io_room : 64;
	void *list;

	if (n < *io_room)
		return 0;
	memcpy(&list, io_list, sizeof(list));
	list = reallocarray(list, room, entry);
	if (!list)
		return -ENOMEM;
	memcpy(io_list, &list, sizeof(list));
	*io_room = room;
	return 0;
}

#endif
