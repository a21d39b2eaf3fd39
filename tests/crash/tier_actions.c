/* SPDX-License-Identifier: Apache-2.0 */
/* tier_actions.c: see tier_actions.h. */
#include "tier_actions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "actions.h"

#define PAGE_WANTED 3168 /* docs/format.md, "packed" */

/* ---- setups ---------------------------------------------------------------------------------- */

void setup_adopt(struct world *w)
{
	must(w, "adopt", shmstore_adopt(w->s, KEY("t"), &w->shared->in, 0));
}

void setup_adopt_demote(struct world *w)
{
	setup_adopt(w);
	must(w, "demote", shmstore_demote(w->s, KEY("t"), 0));
}

void setup_long_alias_demoted(struct world *w)
{
	setup_long_alias(w);
	must(w, "demote", shmstore_demote(w->s, KEY("a"), 0));
	if (shmstore_locate(w->s, KEY(LONG1)) != SHMSTORE_IN_TIER)
		world_fail(w, "prepare: the alias was not demoted with the object");
}

void setup_resident(struct world *w)
{
	setup_long_alias_demoted(w);
	must(w, "promote", shmstore_promote(w->s, KEY("a"), 0));
}

void setup_handoff_as_is(struct world *w)
{
	struct shmstore_ticket t;
	int rc = shmstore_handoff_flags(w->s, KEY("a"), LEASE_MS, SHMSTORE_AS_IS, &t);
	must(w, "handoff as is", rc);
	if (rc == 0)
		take_ticket(w, &t);
}

/* One step of forging: what fails is the scenario's message. */
static void done(struct world *w, const char *what, int rc)
{
	if (rc < 0)
		world_fail(w, "prepare: %s: %m", what);
}

static void forge_file(struct world *w, int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	done(w, name, fd);
	if (fd >= 0 && write(fd, "no longer an object", 19) != 19)
		done(w, name, -1);
	close(fd);
}

/* A tier file that has an anchor, and that nobody names. */
static void forge_nameless(struct world *w, int tier, int files, uint64_t id)
{
	char text[128], name[32];
	snprintf(text, sizeof(text), "shmstore-tier:1:%016" PRIx64 ":%016" PRIx64 ":4096:19", id,
		 id);
	snprintf(name, sizeof(name), "%016" PRIx64 ".stub", id);
	done(w, name, symlinkat(text, tier, name));
	snprintf(name, sizeof(name), "%016" PRIx64, id);
	forge_file(w, files, name);
}

void setup_asked(struct world *w)
{
	const uint64_t wanted = 64 << 20;
	char path[512];
	snprintf(path, sizeof(path), "%s/stores/" VICTIM "/.store", w->path);
	int page = open(path, O_WRONLY | O_CLOEXEC);
	done(w, path, page);
	ssize_t n = pwrite(page, &wanted, sizeof(wanted), PAGE_WANTED);
	done(w, "asked", n == sizeof(wanted) ? 0 : -1);
	close(page);
}

/*
 * "a": demoted, and killed before the memory that lies in clean/ lost its name there. "b"
 * keeps its clean copy. The rest are: a tier file without an anchor, one on its way to
 * its name, an anchor that nobody names, with a resident, and one whose last name is in
 * clean/ with no object beside it.
 */
void setup_torn(struct world *w)
{
	struct shmstore_partition_info info = {.size = sizeof(info)};
	char path[512];
	must(w, "promote", shmstore_promote(w->s, KEY("a"), 0));
	must(w, "info", shmstore_partition_info(w->p, &info));
	snprintf(path, sizeof(path), "%s/%s/%u", w->disk, info.uuid, (unsigned)getuid());
	int files = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	done(w, path, files);
	snprintf(path, sizeof(path), "%s/tier/%u", w->path, (unsigned)getuid());
	int tier = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	done(w, path, tier);
	snprintf(path, sizeof(path), "%s/stores/" VICTIM, w->path);
	int store = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	done(w, path, store);

	done(w, "exchange", renameat2(store, "objects/a", store, "clean/a", RENAME_EXCHANGE));
	forge_file(w, files, "00000000000000a1");
	forge_file(w, files, "tmp-00000000000000a2");
	forge_nameless(w, tier, files, 0xa3);
	forge_file(w, tier, "00000000000000a3.object");
	forge_nameless(w, tier, files, 0xa4);
	done(w, "clean/gone", linkat(tier, "00000000000000a4.stub", store, "clean/gone", 0));
	close(files);
	close(tier);
	close(store);
}

/* ---- runs ------------------------------------------------------------------------------------ */

int run_demote(struct world *w)
{
	return shmstore_demote(w->s, KEY(w->sc->key), 0);
}

int run_promote(struct world *w)
{
	return shmstore_promote(w->s, KEY(w->sc->key), w->sc->op_flags);
}

int run_prefetch(struct world *w)
{
	static char a[] = "a", b[] = "b";
	const struct iovec keys[] = {{a, 1}, {b, 1}};
	return shmstore_prefetch(w->s, keys, 2, 0, 0, NULL);
}

int run_pin(struct world *w)
{
	return shmstore_pin(w->s, KEY(w->sc->key), true);
}

int run_handoff_as_is(struct world *w)
{
	struct shmstore_ticket t;
	int rc = shmstore_handoff_flags(w->s, KEY(w->sc->key), LEASE_MS, SHMSTORE_AS_IS, &t);
	if (rc == 0)
		take_ticket(w, &t);
	return rc;
}

int run_evict(struct world *w)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	what.bytes = 250000; /* more than one MID() */
	return shmstore_partition_evict(w->p, &what, NULL);
}

int run_evict_all(struct world *w)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	what.bytes = 1ull << 40;
	return shmstore_partition_evict(w->p, &what, NULL);
}

int run_tier_set(struct world *w)
{
	struct shmstore_tier_config config = SHMSTORE_TIER_CONFIG_INIT;
	config.path = w->disk;
	config.level = 2;
	return shmstore_tier_set(w->p, &config);
}

int run_tier_unset(struct world *w)
{
	return shmstore_tier_set(w->p, NULL);
}

/* A mark that could not be written in full, a lock that went with a failed removal: the
 * next use makes them again. */
void undo_tier_set(struct world *w)
{
	struct shmstore_evict what = SHMSTORE_EVICT_INIT;
	what.bytes = 1;
	run_tier_set(w);
	if (content_put(w->s, KEY("again"), (struct content)MID(97), SHMSTORE_REPLACE) == 0)
		shmstore_partition_evict(w->p, &what, NULL);
}
