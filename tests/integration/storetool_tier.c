/* SPDX-License-Identifier: Apache-2.0 */
/* storetool_tier.c: storetool's commands about the disk tier. */
#include <stdio.h>
#include <string.h>

#include "storetool.h"

void do_tier(char **w)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;

	config.path = w[1];
	for (char **x = w + 2; *x; x++) {
		if (strncmp(*x, "max=", 4) == 0)
			config.max = number(*x + 4);
		else if (strncmp(*x, "min_free=", 9) == 0)
			config.min_free = number(*x + 9);
		else if (strcmp(*x, "fsync") == 0)
			config.fsync = true;
		else if (strncmp(*x, "level=", 6) == 0)
			config.level = (int)number(*x + 6);
	}
	answer(shmstore_tier_set(partition, &config));
}

void do_move(char **w)
{
	size_t n = strlen(w[1]);

	if (strcmp(w[0], "demote") == 0)
		answer(shmstore_demote(store, w[1], n, 0));
	else if (strcmp(w[0], "promote") == 0)
		answer(shmstore_promote(store, w[1], n,
					flag(w + 2, "noevict") ? SHMSTORE_NO_EVICT : 0));
	else
		answer(shmstore_pin(store, w[1], n, w[0][0] == 'p'));
}

void do_locate(char **w)
{
	int r = shmstore_locate(store, w[1], strlen(w[1]));

	if (r < 0)
		answer(r);
	else
		printf("0 %s\n", r == SHMSTORE_IN_MEMORY ? "memory"
				 : r == SHMSTORE_IN_TIER ? "tier"
							 : "nowhere");
}

void do_prefetch(char **w)
{
	struct iovec keys[STORETOOL_WORDS];
	int results[STORETOOL_WORDS], r;
	size_t n = 0;

	for (; w[n + 2]; n++)
		keys[n] = (struct iovec){w[n + 2], strlen(w[n + 2])};
	r = shmstore_prefetch(store, keys, n, (unsigned)number(w[1]), 0, results);
	if (r < 0) {
		answer(r);
		return;
	}
	printf("0 %d", r);
	for (size_t i = 0; i < n; i++)
		printf(" %d", results[i]);
	printf("\n");
}

void do_evict(char **w)
{
	struct shmstore_evict_report report = {.size = sizeof(report)};
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	int r;

	what.bytes = number(w[1]);
	what.to = w[2] ? number(w[2]) : 0;
	what.wait = true;
	r = shmstore_partition_evict(partition, &what, &report);
	if (r < 0)
		answer(r);
	else
		printf("0 %ju %ju %ju\n", (uintmax_t)report.n_objects, (uintmax_t)report.freed,
		       (uintmax_t)report.n_clean);
}

void do_tier_info(char **w)
{
	struct shmstore_tier_info i = {.size = sizeof(i)};
	int r = shmstore_tier_info(partition, &i);

	(void)w;
	if (r < 0)
		answer(r);
	else
		printf("0 %ju %ju %ju %ju %ju %ju\n", (uintmax_t)i.used, (uintmax_t)i.demoted,
		       (uintmax_t)i.clean, (uintmax_t)i.orphans, (uintmax_t)i.n_demoted,
		       (uintmax_t)i.disk_free);
}
