/* SPDX-License-Identifier: Apache-2.0 */
/* profiling.h: what requests about tasks have in common. */
#ifndef SHMS_PROFILING_H
#define SHMS_PROFILING_H

#include <shmstore/profile.h>

#define SHMS_PROFILE_NAMES (3 * (SHMSTORE_PROFILE_NAME + 1))

/* "LANG\nFUNC\nGROUP", without a NUL. Its length, or -EINVAL, said. */
int shms_profile_names(const struct shmstore_profile_kind *kind, char ret[SHMS_PROFILE_NAMES]);

#endif
