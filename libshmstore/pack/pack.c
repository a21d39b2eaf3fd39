/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c: opens and closes a store's packed objects, finds and deletes them. packput.c puts them. */
#include "pack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aside.h"
#include "cleanup.h"
#include "format.h"
#include "lightcount.h"
#include "packalias.h"
#include "packfork.h"
#include "packsegs.h"
#include "segrescue.h"
#include "segslot.h"
#include "segsurvey.h"
#include "sys.h"

/* ---- sums ---------------------------------------------------------------------------------------------------------- */

/* One key more, or less. */
static void count_key(struct shms_pack *p, bool more)
{
	uint64_t n = more ? 1 : UINT64_MAX;

	p->sum.n += n;
	if (p->told.n)
		shms_light_add(p->told.n, n);
}

/* What the slot takes, which has the store's name. */
static uint64_t bytes_of(const struct shms_packseg *g, uint32_t index)
{
	struct shms_segslot slot = shms_packseg_slot(g, index);
	uint64_t size = shms_segpacked_extent_size(&slot);
	struct shms_segpacked o;

	if (size < SHMS_SEGCLASS_BIG)
		return size;
	return shms_segpacked_read(&g->file->segment, &slot, &o) == 0 ? shms_segsurvey_bytes(&o) : 0;
}

/* The store has got that slot by name, or is about to lose it. Returns its bytes. */
static uint64_t count_bytes(struct shms_pack *p, struct shms_packplace place, bool more)
{
	uint64_t bytes = bytes_of(&p->segments[place.segment], place.slot), add = more ? bytes : -bytes, now;

	p->sum.bytes += add;
	if (!p->told.bytes)
		return bytes;
	now = shms_light_add(p->told.bytes, add);
	if (more && now > atomic_load_explicit(p->told.bytes_max, memory_order_relaxed))
		atomic_store_explicit(p->told.bytes_max, now, memory_order_relaxed);
	atomic_store_explicit(p->told.packed, p->sum.bytes, memory_order_relaxed);
	return bytes;
}

void shms_pack_tell(struct shms_pack *p, const struct shms_packtold *told)
{
	shms_lightlock_take(&p->lock);
	p->told = *told;
	atomic_store_explicit(told->packed, p->sum.bytes, memory_order_relaxed);
	shms_lightlock_release(&p->lock);
}

struct shms_pack_sum shms_pack_sum(struct shms_pack *p)
{
	struct shms_pack_sum sum;

	shms_lightlock_take(&p->lock);
	sum = p->sum;
	shms_lightlock_release(&p->lock);
	return sum;
}

/* ---- names --------------------------------------------------------------------------------------------------------- */

void shms_pack_gain(struct shms_pack *p, struct shms_packplace place)
{
	shms_packseg_came(p, place);
	count_bytes(p, place, true);
}

uint64_t shms_pack_lose(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms)
{
	uint64_t bytes = count_bytes(p, place, false);

	shms_packseg_drop(p, place, now_ms);
	return bytes;
}

static void remember(struct shms_pack *p, const struct shms_packhashed *key, struct shms_packplace place)
{
	p->last = (struct shms_packlast){{key->words[0], key->words[1]}, key->hash, key->size, place};
	if (key->size > SHMS_SEGPACKED_KEY)
		p->last.size = 0;
}

void shms_pack_name(struct shms_pack *p, const struct shms_packhashed *key, struct shms_packplace place)
{
	count_key(p, true);
	shms_packindex_add(&p->index, key->hash, place);
	remember(p, key, place);
}

uint64_t shms_pack_unname(struct shms_pack *p, const struct shms_packhashed *key, struct shms_packplace place,
			  uint64_t now_ms)
{
	shms_packindex_drop(&p->index, key->hash, place);
	p->last.size = 0;
	count_key(p, false);
	return shms_packalias_unname(p, place, now_ms);
}

void shms_pack_rename(struct shms_pack *p, const struct shms_packhashed *key, const struct shms_packplace *old,
		      struct shms_packplace place, uint64_t now_ms)
{
	struct shms_packplace object = old ? shms_packalias_object(p, *old) : place;

	if (old)
		shms_pack_unname(p, key, *old, now_ms);
	shms_pack_name(p, key, place);
	if (old)
		shms_packseg_tidy(p, &p->segments[object.segment], now_ms);
}

/* Of a slot that the index has. It has our name, so that it does not change. */
static uint64_t hash_of(const struct shms_packseg *g, const struct shms_segslot *slot)
{
	struct shms_segpacked o;
	uint64_t words[2];
	size_t size = shms_segpacked_key_words(slot, words);

	if (size <= sizeof(words))
		return shms_packhash_words(words, size);
	/* What is damaged is found by no key. */
	return shms_segpacked_read(&g->file->segment, slot, &o) == 0
		       ? shms_packhash(shms_packseg_key(g, &o), o.key_size).hash
		       : 0;
}

static void hashes_of(const struct shms_packplace *places, uint32_t n, uint64_t *ret, void *arg)
{
	const struct shms_pack *p = arg;

	for (uint32_t i = 0; i < n; i++)
		__builtin_prefetch(shms_packseg_slot(&p->segments[places[i].segment], places[i].slot).packed);
	for (uint32_t i = 0; i < n; i++) {
		const struct shms_packseg *g = &p->segments[places[i].segment];
		struct shms_segslot slot = shms_packseg_slot(g, places[i].slot);

		ret[i] = hash_of(g, &slot);
	}
}

int shms_pack_reserve(struct shms_pack *p)
{
	return shms_packindex_reserve(&p->index, hashes_of, p);
}

/* ---- opening and closing ------------------------------------------------------------------------------------------- */

/* Puts the key of an own name, which was counted already, into the index. */
static int read_name(struct shms_pack *p, struct shms_packplace place, const struct shms_segpacked *o, bool is_key)
{
	struct shms_packseg *g = &p->segments[place.segment];
	const struct shms_packhashed key = shms_packhash(shms_packseg_key(g, o), o->key_size);
	struct shms_packplace held;
	int r;

	shms_pack_gain(p, place);
	if (!is_key)
		return 0;
	r = shms_pack_reserve(p);
	if (r < 0)
		return r;
	/* A process was killed while it replaced the object: the key has two objects, and either may stay. */
	if (shms_pack_find(p, &key, &held))
		shms_packalias_unname(p, place, 0);
	else
		shms_pack_name(p, &key, place);
	return 0;
}

/* Calls fn for each slot that the store has by name, where the description is no damage. */
static int each_name(struct shms_pack *p, bool own_only,
		     int (*fn)(struct shms_pack *p, struct shms_packplace place, const struct shms_segpacked *o))
{
	int r = 0;

	for (uint32_t number = 0; r == 0 && number < p->n_segments; number++) {
		struct shms_packseg *g = &p->segments[number];
		uint32_t n = own_only && !g->own ? 0 : shms_segment_born(&g->file->segment);

		for (uint32_t i = 0; r == 0 && i < n; i++) {
			struct shms_segslot slot = shms_packseg_slot(g, i);
			struct shms_segpacked o;

			if (shms_packseg_named(g, i) && shms_segstate_published(shms_segword_load(slot.state)) &&
			    shms_segpacked_read(&g->file->segment, &slot, &o) == 0)
				r = fn(p, (struct shms_packplace){number, i}, &o);
		}
	}
	return r;
}

static int find_alias(struct shms_pack *p, struct shms_packplace place, const struct shms_segpacked *o)
{
	return o->flags & SHMS_SEGPACKED_ALIAS ? shms_packalias_reopen(p, place, o) : 0;
}

static int find_name(struct shms_pack *p, struct shms_packplace place, const struct shms_segpacked *o)
{
	struct shms_packseg *g = &p->segments[place.segment];

	g->large = g->large || o->extent_size > SHMS_PACK_SMALL;
	return read_name(p, place, o, o->flags & SHMS_SEGPACKED_ALIAS || shms_packalias_is_native(p, place));
}

/* Puts all names of a kept store into the index. */
static int read_names(struct shms_pack *p)
{
	int r = each_name(p, true, find_alias);

	return r < 0 ? r : each_name(p, false, find_name);
}

static int reopen_owner(struct shms_pack *p, struct shms_segfile *file, uint32_t *ret_number)
{
	struct shms_segown *own = malloc(sizeof(*own));
	int r = own ? shms_segown_reopen(file, p->options.dir_fd, p->options.huge, own) : -ENOMEM;

	if (r == 0) {
		own->grow = &p->grow;
		r = shms_packsegs_add(p, own, &own->file, ret_number, 0);
		if (r < 0) {
			shms_segfile_close(&own->file);
			shms_segown_deinit(own);
		}
	} else if (!own) {
		shms_segfile_close(file);
	}
	if (r < 0)
		free(own);
	return r;
}

/* No store has a place in another user's file: somebody else put it there. */
static bool is_others(const struct shms_pack *p, const char *name)
{
	struct stat st;

	return fstatat(p->options.dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid != geteuid();
}

static int reopen(struct shms_pack *p, const char *name)
{
	struct shms_segfile file, *heap;
	uint32_t number;
	int r = shms_segfile_reopen(p->options.dir_fd, name, p->options.uuid, &file);

	/* A link that was left over, or a file that is no segment: gc and verify see to it. */
	if (r == -ENOENT || r == -EBADMSG || r == -ENOTSUP || ((r == -EPERM || r == -EACCES) && is_others(p, name)))
		return 0;
	if (r < 0)
		return r;
	if (file.holder == SHMS_SEG_OWNER)
		return reopen_owner(p, &file, &number);
	heap = malloc(sizeof(*heap));
	r = -ENOMEM;
	if (heap) {
		*heap = file;
		r = shms_packsegs_add(p, NULL, heap, &number, 0);
	}
	if (r < 0) {
		shms_segfile_close(&file);
		free(heap);
	}
	return r;
}

static int reopen_all(struct shms_pack *p)
{
	_dir_ DIR *dir = NULL;
	struct dirent *e;
	int error = 0, r = shms_list_dir(p->options.dir_fd, ".", &dir);

	p->opening = true;
	while (r == 0 && (e = shms_readdir(dir, &error)) != NULL) {
		if (e->d_name[0] != '.')
			r = reopen(p, e->d_name);
	}
	if (r == 0)
		r = error;
	if (r == 0)
		r = read_names(p);
	p->opening = false;
	return r;
}

/*
 * Gives up all names in a segment where there are views, of this process or of children. The view
 * bits stay, and so does the place, which the last of these processes keeps locked.
 */
static void drop_names(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	uint32_t n = shms_segment_born(&g->file->segment), number = (uint32_t)(g - p->segments);

	for (uint32_t i = 0; i < n; i++) {
		if (shms_packseg_named(g, i))
			shms_packseg_drop(p, (struct shms_packplace){number, i}, now_ms);
	}
}

/* Others may have objects in a segment of ours: what nobody has there goes now, since nobody looks after it from here on. */
static void leave(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	struct stat st;

	if (g->own && fstat(g->own->fd, &st) == 0 && st.st_nlink > 1) {
		drop_names(p, g, now_ms);
		p->grow.gave += shms_segown_trim(g->own, SHMS_SEGMENT_PAGE, now_ms);
	}
	p->grow.gave += shms_segfile_leave(g->file, p->options.dir_fd, now_ms);
}

/* Views count no more from here on, and what they show stays as long as the process. */
static void retire_segment(struct shms_pack *p, struct shms_packseg *g, bool keep, uint64_t now_ms)
{
	shms_packseg_settle(p, g, now_ms);
	if (!g->n_viewed) {
		if (keep)
			shms_segfile_close(g->file);
		else
			leave(p, g, now_ms);
		shms_packsegs_free(g);
		return;
	}
	if (!keep)
		drop_names(p, g, now_ms);
	if (!keep && g->own)
		p->grow.gave += shms_segown_trim(g->own, SHMS_SEGMENT_PAGE, now_ms);
	p->grow.gave += shms_segfile_retire(g->file, p->options.dir_fd, keep, now_ms);
	if (g->own)
		g->own->fd = shms_close_fd(g->own->fd);
}

void shms_pack_retire(struct shms_pack *p, bool keep, uint64_t now_ms)
{
	shms_lightlock_take(&p->lock);
	p->told = (struct shms_packtold){0};
	p->grow.tight = false;
	if (!keep)
		shms_packalias_forget_objects(p, now_ms);
	for (uint32_t i = 0; i < p->n_segments; i++) {
		if (p->segments[i].file)
			retire_segment(p, &p->segments[i], keep, now_ms);
	}
	atomic_store_explicit(&p->retired, true, memory_order_relaxed);
	shms_lightlock_release(&p->lock);
}

static void close_segment(struct shms_pack *p, struct shms_packseg *g, uint64_t now_ms)
{
	if (atomic_load_explicit(&p->retired, memory_order_relaxed)) {
		shms_segfile_close(g->file);
		return;
	}
	if (p->child) {
		/* Views point into the maps, which therefore stay as long as the process. */
		if (!g->n_viewed)
			shms_segfile_close(g->file);
		return;
	}
	shms_packseg_settle(p, g, now_ms);
	if (p->options.kept)
		shms_segfile_close(g->file);
	else if (g->inherited) {
		drop_names(p, g, now_ms);
		shms_segfile_close(g->file);
	} else
		leave(p, g, now_ms);
}

int shms_pack_open(const struct shms_pack_options *options, struct shms_pack **ret)
{
	struct shms_pack *p = calloc(1, sizeof(*p));
	int r = 0;

	if (!p)
		return -ENOMEM;
	shms_lightlock_init(&p->lock);
	p->options = *options;
	p->path = strdup(options->path);
	p->options.path = p->path;
	if (!p->path)
		r = -ENOMEM;
	else if (options->kept)
		r = reopen_all(p);
	if (r < 0)
		shms_pack_close(p, 0);
	else
		*ret = p;
	return r;
}

void shms_pack_close(struct shms_pack *p, uint64_t now_ms)
{
	if (!p)
		return;
	if (!p->options.kept && !p->child && !atomic_load_explicit(&p->retired, memory_order_relaxed))
		shms_packalias_forget_objects(p, now_ms);
	for (uint32_t i = 0; i < p->n_segments; i++) {
		struct shms_packseg *g = &p->segments[i];

		if (g->file) {
			close_segment(p, g, now_ms);
			shms_packsegs_free(g);
		}
	}
	shms_packalias_deinit(p);
	shms_packindex_deinit(&p->index);
	shms_packviews_deinit(&p->views);
	shms_lightlock_deinit(&p->lock);
	free(p->path);
	free(p);
}

/* ---- looking up ---------------------------------------------------------------------------------------------------- */

static SHMS_ASIDE bool is_long_key(const struct shms_packseg *g, const struct shms_segslot *slot,
				   const struct shms_packhashed *key)
{
	struct shms_segpacked o;

	return shms_segpacked_read(&g->file->segment, slot, &o) == 0 && o.key_size == key->size &&
	       memcmp(shms_packseg_key(g, &o), key->key, key->size) == 0;
}

/* The slot has our name, so that its object does not change. */
static bool is_key(const struct shms_packplace *place, const struct shms_packhashed *key, void *arg)
{
	const struct shms_packseg *g = &((struct shms_pack *)arg)->segments[place->segment];
	struct shms_segslot slot = shms_packseg_slot(g, place->slot);
	uint64_t words[2];
	size_t size = shms_segpacked_key_words(&slot, words);

	if (size != key->size)
		return false;
	if (size <= sizeof(words))
		return words[0] == key->words[0] && words[1] == key->words[1];
	return is_long_key(g, &slot, key);
}

bool shms_pack_find(struct shms_pack *p, const struct shms_packhashed *key, struct shms_packplace *ret)
{
	return shms_packindex_find(&p->index, key, is_key, p, ret);
}

bool shms_pack_seek(struct shms_pack *p, const void *key, size_t key_size, struct shms_packhashed *ret_key,
		    struct shms_packplace *ret)
{
	const struct shms_packlast *last = &p->last;

	if (key_size && key_size == last->size) {
		*ret_key = (struct shms_packhashed){.key = key, .size = key_size, .hash = last->hash};
		shms_packhash_pad(key, key_size, ret_key->words);
		if (ret_key->words[0] == last->words[0] && ret_key->words[1] == last->words[1]) {
			*ret = last->place;
			return true;
		}
	}
	*ret_key = shms_packhash(key, key_size);
	return shms_pack_find(p, ret_key, ret);
}

bool shms_pack_find_object(struct shms_pack *p, const void *key, size_t key_size, struct shms_packplace *ret)
{
	struct shms_packhashed k;
	bool found = shms_pack_seek(p, key, key_size, &k, ret);

	if (found)
		*ret = shms_packalias_object(p, *ret);
	return found;
}

int shms_pack_view(struct shms_pack *p, struct shms_packplace place, struct shms_pack_view *ret)
{
	struct shms_packseg *g = &p->segments[place.segment];
	struct shms_segslot slot = shms_packseg_slot(g, place.slot);
	int r = shms_packviews_reserve(&p->views);

	if (r < 0)
		return r;
	ret->segment = &g->file->segment;
	ret->slot = place.slot;
	ret->number = place.segment;
	ret->generation = shms_segstate_generation(shms_segword_load(slot.state));
	r = shms_segpacked_read(&g->file->segment, &slot, &ret->object);
	if (r == 0)
		shms_packseg_view(p, place);
	return r;
}

int shms_pack_get(struct shms_pack *p, const void *key, size_t key_size, struct shms_pack_view *ret)
{
	struct shms_packplace place;
	int r = -ENOENT;

	shms_lightlock_take(&p->lock);
	if (shms_pack_find_object(p, key, key_size, &place))
		r = shms_pack_view(p, place, ret);
	if (r == 0)
		shms_packseg_use(&p->segments[place.segment], place.slot);
	shms_lightlock_release(&p->lock);
	return r;
}

static void end_view(struct shms_pack *p, struct shms_packplace place, uint64_t now_ms)
{
	shms_packseg_unview(p, place, now_ms);
	shms_packseg_tidy(p, &p->segments[place.segment], now_ms);
}

void shms_pack_unget(struct shms_pack *p, const struct shms_pack_view *v, uint64_t now_ms)
{
	/* The lock is none that a child of a retired pack's process could take. */
	if (p->child || atomic_load_explicit(&p->retired, memory_order_relaxed))
		return;
	shms_lightlock_take(&p->lock);
	if (!atomic_load_explicit(&p->retired, memory_order_relaxed))
		end_view(p, (struct shms_packplace){v->number, v->slot}, now_ms);
	shms_lightlock_release(&p->lock);
}

bool shms_pack_has(struct shms_pack *p, const void *key, size_t key_size)
{
	struct shms_packhashed k;
	struct shms_packplace place;
	bool has;

	shms_lightlock_take(&p->lock);
	has = shms_pack_seek(p, key, key_size, &k, &place);
	shms_lightlock_release(&p->lock);
	return has;
}

/* The view keeps its slot: while that has our name, it is that object's. */
bool shms_pack_is(struct shms_pack *p, const void *key, size_t key_size, const struct shms_pack_view *v)
{
	struct shms_packplace place;
	bool is;

	shms_lightlock_take(&p->lock);
	is = shms_pack_find_object(p, key, key_size, &place) && place.segment == v->number && place.slot == v->slot;
	shms_lightlock_release(&p->lock);
	return is;
}

const void *shms_pack_view_key(const struct shms_pack_view *v)
{
	return shms_segpacked_key(v->segment, &v->object);
}

uint64_t shms_pack_view_generation(const struct shms_pack_view *v)
{
	uint64_t segment;

	memcpy(&segment, v->segment->uuid, sizeof(segment));
	return segment ^ ((uint64_t)v->slot << 24 | v->generation);
}

bool shms_pack_verify(const struct shms_segpacked *o, const uint8_t *extent)
{
	struct shms_object file = {.layout.buffer_size = o->buffer_size};

	return !shms_segpacked_checksum(o, extent, file.buffer_hash) || shms_format_verify_buffers(&file, extent);
}

uint64_t shms_pack_header_size(const struct shms_segpacked *o)
{
	return shms_layout_header(o->key_size, o->metadata_size, o->n_buffers, o->buffer_size);
}

/* ---- delete ------------------------------------------------------------------------------------------------ */

int shms_pack_delete(struct shms_pack *p, const void *key, size_t key_size, uint64_t now_ms, uint64_t *ret_bytes)
{
	struct shms_packplace place, object;
	struct shms_packhashed k;
	uint64_t bytes;
	int r = -ENOENT;

	shms_lightlock_take(&p->lock);
	if (shms_pack_seek(p, key, key_size, &k, &place)) {
		object = shms_packalias_object(p, place);
		bytes = shms_pack_unname(p, &k, place, now_ms);
		shms_packseg_tidy(p, &p->segments[object.segment], now_ms);
		if (ret_bytes)
			*ret_bytes = bytes;
		r = 0;
	}
	shms_packsegs_tidy_next(p, now_ms);
	shms_lightlock_release(&p->lock);
	return r;
}
