/* SPDX-License-Identifier: Apache-2.0 */
/* detail.c: one sentence and one path per thread. In the thread's own memory: an error is told
 * without anything that can fail. */
#include "detail.h"

#include <errno.h>
#include <shmstore/shmstore.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "refused.h"

_Thread_local int shms_detail_told;
static _Thread_local char sentence[512];
static _Thread_local char about[SHMSTORE_TICKET_PATH];

void shms_detail_clear(void)
{
	shms_detail_told = 0;
}

bool shms_detail_is(int error)
{
	return sentence[0] && (shms_detail_told == error || shms_detail_told == -EAGAIN);
}

int shms_detail_becomes(int error)
{
	shms_detail_told = error;
	return error;
}

int shms_detail(int error, const char *path, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(sentence, sizeof(sentence), format, ap);
	va_end(ap);
	snprintf(about, sizeof(about), "%s", path ? path : "");
	shms_detail_told = error;
	return error;
}

void shms_detail_refused(int error)
{
	char names[SHMS_REFUSED_TEXT];
	size_t n = strlen(sentence);

	switch (error) {
	case -EPERM:
	case -ENOTSUP:
	case -EIO:
	case -EINVAL:
	case -EBADMSG:
	case -ENOMEM:
	case -ENOSPC:
		if (shms_refused_names(names))
			snprintf(sentence + n, sizeof(sentence) - n,
				 "; refused to this process: %s", names);
	}
}

int shms_detail_null(const char *argument)
{
	return shms_detail(-EINVAL, NULL, "the argument %s is NULL", argument);
}

int shms_detail_flags(unsigned flags, unsigned taken)
{
	return shms_detail(-EINVAL, NULL, "the flags 0x%x are not ones that this call takes (0x%x)",
			   flags & ~taken, taken);
}

int shms_detail_shape(size_t n_buffers, size_t header_size)
{
	return shms_detail(-EINVAL, NULL,
			   "an object has %u buffers, a header of %llu bytes and 2^63 bytes in all "
			   "at most; this one has %zu buffers and a header of %zu",
			   SHMSTORE_BUFFERS_MAX, SHMSTORE_HEADER_MAX, n_buffers, header_size);
}

const char *shmstore_error_detail(void)
{
	return shms_detail_told ? sentence : "";
}

const char *shmstore_error_path(void)
{
	return shms_detail_told ? about : "";
}
