/* SPDX-License-Identifier: Apache-2.0 */
/* acl.h: one more reader in a POSIX access list (acl(5)). Pure. */
#ifndef ACL_H
#define ACL_H

#include <sys/acl.h>
#include <sys/types.h>

#define ACL_READERS_MAX 64 /* users and groups that one file may be readable for */

/*
 * A copy of the list with the right to read for one more user. Everybody but the file's owner
 * keeps at most the right to read, as far as it was in force; users and groups that had none are
 * left out. The caller frees it (acl_free()). NULL, errno: EDQUOT (too many readers), ENOMEM,
 * EINVAL (no access list of a file).
 */
acl_t acl_with_reader(acl_t list, uid_t uid);

#endif
