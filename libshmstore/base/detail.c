/* SPDX-License-Identifier: Apache-2.0 */
/* detail.c: one sentence and one path per thread. In the thread's own memory: an error is told
 * without anything that can fail. And what each code of the closed list means in this library. */
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

int shms_take_sized(void *ret, size_t size, const void *from, size_t least, const char *what,
		    const char *init)
{
	size_t theirs;

	if (!from)
		return 0;
	memcpy(&theirs, from, sizeof(theirs));
	if (theirs < least)
		return shms_detail(-EINVAL, NULL, "%s.size is %zu: begin with %s", what, theirs,
				   init);
	memcpy(ret, from, theirs < size ? theirs : size);
	return 0;
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

/* ---- codes, and the version ------------------------------------------------------------------ */

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

const char *shmstore_strerror(int error)
{
	static const char *const meanings[] = {
		[0] = "success",
		[EINVAL] =
			"invalid argument: a name, key, size or flag that the call does not take",
		[ENOENT] = "no such partition, store, key or peer",
		[EEXIST] = ("exists already: the key is held, or the directory holds something "
			    "that is not ours"),
		[EBUSY] = "the store's name is held by a live process",
		[ENOSPC] = "the partition is full, or at its limit",
		[EDQUOT] = "a quota is used up: the store's, its user's or its label's",
		[EBADMSG] = "damaged or forged: an object, ticket or marker fails validation",
		[EPERM] = ("not allowed, by the kernel, a filter before it, or a rule of the "
			   "partition or of the store"),
		[ESTALE] = "the lease expired or was taken",
		[EXDEV] = "not on the same mount",
		[EMFILE] = "out of file descriptors",
		[ENOMEM] = "out of memory or of mappings (see vm.max_map_count)",
		[ENOTSUP] = ("not supported here: by the kernel, a filter before it, the file "
			     "system, or this version"),
		[EIO] = "the kernel reported an input/output error",
		[EFBIG] = ("the object is larger than this process may make files (ulimit -f, "
			   "RLIMIT_FSIZE)"),
		[ETIMEDOUT] = "timed out",
		[ECANCELED] = "canceled",
	};
	unsigned code = error < 0 ? 0u - (unsigned)error : (unsigned)error;
	const char *meaning = code < sizeof(meanings) / sizeof(meanings[0]) ? meanings[code] : NULL;

	return meaning ? meaning : "an error that this library does not use";
}

const char *shmstore_version(void)
{
	return STRING(SHMSTORE_VERSION_MAJOR) "." STRING(SHMSTORE_VERSION_MINOR) "." STRING(
		SHMSTORE_VERSION_PATCH);
}
