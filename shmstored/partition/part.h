/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.h: a part of the daemon that does something for each partition under watch (the disk tier,
 * the memory arbiter), as the partition knows it: by what it wants to be told. All members but name
 * may be NULL. Loop's thread only; none of them blocks.
 */
#ifndef PART_H
#define PART_H

#include <stdbool.h>
#include <stdint.h>

#include "account.h"
#include "host.h"

struct part {
	const char *name;
	/* The account is complete but for its surveys. 0, or -errno: the account is not opened. */
	int (*open)(struct account *a);
	/* Idempotent; called also where open was not, and in the reverse order. */
	void (*close)(struct account *a);
	/* a->config was replaced. */
	void (*reload)(struct account *a);
	/* Each second, after a->tick is read. */
	void (*tick)(struct account *a);
	/* A survey was published. */
	void (*surveyed)(struct account *a, const struct survey *survey);
	/* A store's page was mapped; its connection ended, or it is gone. */
	void (*came)(struct member *m);
	void (*left)(struct member *m);
	/* The reap of a dead store has ended: its remains are gone, or stay. */
	void (*reaped)(struct account *a);
	/* An eviction that was asked for has ended, well or not. */
	void (*evicted)(struct account *a);
	/* Makes room for so many bytes; 0: none, only asks. True: it is under way. */
	bool (*spill)(struct account *a, uint64_t bytes);
	/* The disk that it would need is full. */
	bool (*disk_full)(const struct account *a);
	/* Lowers the bytes at which memory is to be given back, and down to which: 0 = never. */
	void (*marks)(const struct account *a, uint64_t *io_high, uint64_t *io_low);
};

/* Calls one member of every part of a that has it, in their order. */
#define PART_EACH(a, member, ...)                                                         \
	do {                                                                              \
		for (const struct part *const *part_ = (a)->host->parts; part_ && *part_; \
		     part_++) {                                                           \
			if ((*part_)->member)                                             \
				(*part_)->member(__VA_ARGS__);                            \
		}                                                                         \
	} while (0)

/* Asks them until one says yes. */
#define PART_ANY(a, member, ...)                                                                \
	({                                                                                      \
		const struct part *const *part_ = (a)->host->parts;                             \
		while (part_ && *part_ && !((*part_)->member && (*part_)->member(__VA_ARGS__))) \
			part_++;                                                                \
		part_ ? part_[0] != NULL : false;                                               \
	})

#endif
