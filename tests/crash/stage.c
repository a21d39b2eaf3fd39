/* SPDX-License-Identifier: Apache-2.0 */
/* stage.c: see stage.h. The stage's own process never opens the partition: children do, so
 * that none of it stays here. */
#include "stage.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sandbox.h"
#include "tiermake.h"
#include "verify.h"

int stage_init(struct stage *st, const char *mount, const char *disk)
{
	memset(st, 0, sizeof(*st));
	st->world.mount = mount;
	st->world.disk = disk;
	snprintf(st->world.path, sizeof(st->world.path), "%s/partition", mount);
	void *shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return -1;
	st->world.shared = shared;
	st->world.survivor = &st->survivor;
	st->survivor.fd = -1;
	return 0;
}

/* All names, those of tier files with them. Heap; NULL on failure. */
static char *tree_of(const struct world *w)
{
	char *memory = sandbox_tree(w->mount), *disk = w->disk ? sandbox_tree(w->disk) : NULL,
	     *all = NULL;
	if (memory && asprintf(&all, "%s%s", memory, disk ? disk : "") < 0)
		all = NULL;
	free(memory);
	free(disk);
	return all;
}

static void wipe(const struct world *w)
{
	sandbox_wipe(w->mount);
	if (w->disk)
		sandbox_wipe(w->disk);
}

static int make_partition(struct world *w)
{
	pid_t pid = fork();
	if (pid < 0)
		return world_fail(w, "fork: %m");
	if (pid == 0) {
		struct shmstore_partition *p = NULL;
		int rc = shmstore_partition_open(w->path, SHMSTORE_CREATE, &p);
		if (rc == 0 && (w->sc->flags & TIER))
			rc = tier_make(p, w->disk, w->sc->flags & TIER_FSYNC);
		if (rc < 0)
			world_fail(w, "making the partition: %d (%s) %s", rc, shmstore_strerror(rc),
				   shmstore_error_detail());
		shmstore_partition_unref(p);
		_exit(rc < 0 ? 1 : 0);
	}
	int status;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return status == 0 ? 0 : world_fail(w, "making the partition: status %x", status);
}

/* The pool of a survivor that packs is not counted: it grows with a put, and gives memory back by
 * its age, whoever is killed beside it. */
static int note_used(struct world *w, struct sandbox_used *ret)
{
	w->shared->pool = 0;
	if (survivor_packs(w->sc) && verify_pool(w) < 0)
		return -1;
	*ret = sandbox_used(w->mount);
	ret->bytes -= w->shared->pool;
	return 0;
}

int stage_build(struct stage *st)
{
	if (st->built)
		return 0;
	struct world *w = &st->world;
	w->shared->message[0] = '\0';
	wipe(w);
	if (make_partition(w) < 0)
		return -1;
	free(st->bare);
	st->bare = tree_of(w);
	if (survivor_start(&st->survivor, w) < 0)
		return -1;
	free(st->tree);
	st->tree = tree_of(w);
	st->built = true;
	return note_used(w, &st->used);
}

/* The first line in which two listings differ. */
static int tree_differs(struct world *w, const char *want, const char *got)
{
	const char *a = want, *b = got;
	while (*a || *b) {
		size_t la = strcspn(a, "\n"), lb = strcspn(b, "\n");
		if (la != lb || memcmp(a, b, la) != 0)
			return world_fail(w, "the tree differs: there is \"%.*s\", it was \"%.*s\"",
					  (int)(lb < 200 ? lb : 200), b, (int)(la < 200 ? la : 200),
					  a);
		a += la + (a[la] == '\n');
		b += lb + (b[lb] == '\n');
	}
	return 0;
}

int stage_check_same(struct stage *st)
{
	struct world *w = &st->world;
	if (w->sc->flags & FRESH)
		return stage_strike(st);
	char *tree = tree_of(w);
	int rc = tree && st->tree ? tree_differs(w, st->tree, tree)
				  : world_fail(w, "listing failed");
	free(tree);
	struct sandbox_used used = {0, 0};
	if (rc == 0)
		rc = note_used(w, &used);
	if (rc == 0 && (used.bytes != st->used.bytes || used.inodes != st->used.inodes))
		return world_fail(w, "statfs: %lld bytes and %lld inodes too many",
				  (long long)(used.bytes - st->used.bytes),
				  (long long)(used.inodes - st->used.inodes));
	return rc;
}

int stage_strike(struct stage *st)
{
	if (!st->built)
		return 0;
	struct world *w = &st->world;
	w->shared->message[0] = '\0';
	int rc = survivor_stop(&st->survivor, w);
	st->built = false;
	/* The tier's removal must leave nothing of it that is in the way of the next one, or is too
	 * much beside it. */
	if (rc == 0 && (w->sc->flags & TIER) && (w->sc->flags & FRESH))
		rc = make_partition(w);
	if (rc == 0) {
		char *tree = tree_of(w);
		rc = tree && st->bare ? tree_differs(w, st->bare, tree) : -1;
		free(tree);
	}
	wipe(w);
	return rc;
}

void stage_burn(struct stage *st)
{
	if (st->survivor.fd >= 0) {
		kill(st->survivor.pid, SIGKILL);
		close(st->survivor.fd);
		st->survivor.fd = -1;
		while (waitpid(st->survivor.pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	wipe(&st->world);
	st->built = false;
}
