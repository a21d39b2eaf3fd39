/* SPDX-License-Identifier: Apache-2.0 */
/* spillfile.c: places in a file. */
#include "spillfile.h"

#include <errno.h>

int spillfile_init(struct spillfile *f, struct spillfile_object *objects, size_t n)
{
	int64_t at = 0;

	for (size_t i = 0; i < n; i++) {
		if (objects[i].size < 0)
			return -EINVAL;
		objects[i].offset = at;
		objects[i].freed = false;
		if (__builtin_add_overflow(at, SPILLFILE_HEADER, &at) ||
		    __builtin_add_overflow(at, objects[i].size, &at))
			return -EFBIG;
	}
	*f = (struct spillfile){.objects = objects, .n = n, .n_live = n, .size = at};
	return 0;
}

bool spillfile_free(struct spillfile *f, size_t i)
{
	if (i >= f->n || f->objects[i].freed)
		return false;
	f->objects[i].freed = true;
	return --f->n_live == 0;
}
