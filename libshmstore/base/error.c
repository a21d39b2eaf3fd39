/* SPDX-License-Identifier: Apache-2.0 */
/* error.c: what each code of the closed list means in this library, and the version. */
#include <errno.h>
#include <shmstore/shmstore.h>

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

const char *shmstore_strerror(int error)
{
	switch (error < 0 ? -error : error) {
	case 0:
		return "success";
	case EINVAL:
		return "invalid argument: a name, key, size or flag that the call does not take";
	case ENOENT:
		return "no such partition, store, key or peer";
	case EEXIST:
		return "exists already: the key is held, or the directory holds something that is "
		       "not ours";
	case EBUSY:
		return "the store's name is held by a live process";
	case ENOSPC:
		return "the partition is full, or at its limit";
	case EDQUOT:
		return "a quota is used up: the store's, its user's or its label's";
	case EBADMSG:
		return "damaged or forged: an object, ticket or marker fails validation";
	case EPERM:
		return "not allowed, by the kernel, a filter before it, or a rule of the partition "
		       "or of the store";
	case ESTALE:
		return "the lease expired or was taken";
	case EXDEV:
		return "not on the same mount";
	case EMFILE:
		return "out of file descriptors";
	case ENOMEM:
		return "out of memory or of mappings (see vm.max_map_count)";
	case ENOTSUP:
		return "not supported here: by the kernel, a filter before it, the file system, or "
		       "this version";
	case EIO:
		return "the kernel reported an input/output error";
	case EFBIG:
		return "the object is larger than this process may make files (ulimit -f, "
		       "RLIMIT_FSIZE)";
	case ETIMEDOUT:
		return "timed out";
	case ECANCELED:
		return "canceled";
	default:
		return "an error that this library does not use";
	}
}

const char *shmstore_version(void)
{
	return STRING(SHMSTORE_VERSION_MAJOR) "." STRING(SHMSTORE_VERSION_MINOR) "." STRING(
		SHMSTORE_VERSION_PATCH);
}
