/* SPDX-License-Identifier: Apache-2.0 */
/* packmax.c: every store of a program linked with --wrap=shmstore_open has PACK_MAX as its
 * pack_max, whatever its test asks for. */
#include <shmstore/shmstore.h>

int __real_shmstore_open(struct shmstore_partition *p, const char *name,
			 const struct shmstore_options *options, struct shmstore **ret);
int __wrap_shmstore_open(struct shmstore_partition *p, const char *name,
			 const struct shmstore_options *options, struct shmstore **ret);

int __wrap_shmstore_open(struct shmstore_partition *p, const char *name,
			 const struct shmstore_options *options, struct shmstore **ret)
{
	struct shmstore_options o = SHMSTORE_OPTIONS_INIT;

	/* The options of a program of another version are the test's business. */
	if (options && options->size != sizeof(o))
		return __real_shmstore_open(p, name, options, ret);
	if (options)
		o = *options;
	o.pack_max = PACK_MAX;
	return __real_shmstore_open(p, name, &o, ret);
}
