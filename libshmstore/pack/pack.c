/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c: a store's packed objects by their keys: found, looked at, deleted. packput.c puts them,
 * packopen.c opens and closes the store. */
#include "pack.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "format.h"
#include "lightlock.h"
#include "packsegs.h"
#include "page.h"
#include "seglook.h"
#include "sys.h"

/* ---- sums ------------------------------------------------------------------------------------ */

/* One key more, or less. */
static void count_key(struct shms_pack *p, bool more)
{
	uint64_t n = more ? 1 : UINT64_MAX;

	p->sum.n += n;
	if (p->told.n)
		shms_light_add(p->told.n, n);
}

/* Bytes of a slot that carries the store's name. */
static uint64_t bytes_of(const struct shms_packseg *g, uint32_t index)
{
	struct shms_segslot slot = shms_packseg_slot(g, index);
	uint64_t size = shms_segpacked_extent_size(&slot);
	struct shms_segpacked o;

	if (size < SHMS_SEGCLASS_BIG)
		return size;
	return shms_segpacked_read(&g->file->segment, &slot, &o) == 0 ? shms_segsurvey_bytes(&o)
								      : 0;
}

/* The store has got that slot by name, or is about to lose it. Returns its bytes. */
static uint64_t count_bytes(struct shms_pack *p, struct shms_packplace place, bool more)
{
	uint64_t bytes = bytes_of(&p->segments[place.segment], place.slot),
		 add = more ? bytes : -bytes, now;

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
	SHMS_LIGHT_HELD(&p->lock);
	p->told = *told;
	atomic_store_explicit(told->packed, p->sum.bytes, memory_order_relaxed);
}

struct shms_pack_sum shms_pack_sum(struct shms_pack *p)
{
	SHMS_LIGHT_HELD(&p->lock);
	return p->sum;
}

/* ---- names ----------------------------------------------------------------------------------- */

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

static void remember(struct shms_pack *p, const struct shms_packhashed *key,
		     struct shms_packplace place)
{
	p->last =
		(struct shms_packlast){{key->words[0], key->words[1]}, key->hash, key->size, place};
	if (key->size > SHMS_SEGPACKED_KEY)
		p->last.size = 0;
}

void shms_pack_name(struct shms_pack *p, const struct shms_packhashed *key,
		    struct shms_packplace place)
{
	shms_pack_gain(p, place);
	count_key(p, true);
	shms_packindex_add(&p->index, key->hash, place);
	remember(p, key, place);
}

void shms_pack_rename(struct shms_pack *p, const struct shms_packhashed *key,
		      const struct shms_packplace *old, struct shms_packplace place,
		      uint64_t now_ms)
{
	if (!old) {
		shms_pack_name(p, key, place);
		return;
	}
	shms_pack_gain(p, place);
	shms_packindex_replace(&p->index, key->hash, *old, place);
	remember(p, key, place);
	shms_pack_lose(p, *old, now_ms);
	shms_packseg_tidy(p, &p->segments[old->segment], now_ms);
}

/* Of a slot that the index has. It has our name, so that it does not change. */
static uint64_t hash_of(const struct shms_pack *p, struct shms_packplace place)
{
	const struct shms_packseg *g;
	struct shms_segslot slot;
	struct shms_segpacked o;
	uint64_t words[2];
	size_t size;

	/* No key finds a damaged object. */
	if (!shms_packseg_has(p, place))
		return 0;
	g = &p->segments[place.segment];
	slot = shms_packseg_slot(g, place.slot);
	size = shms_segpacked_key_words(&slot, words);
	if (size <= sizeof(words))
		return shms_packhash_words(words, size);
	return shms_segpacked_read(&g->file->segment, &slot, &o) == 0
		       ? shms_packhash(shms_segpacked_key(&g->file->segment, &o), o.key_size).hash
		       : 0;
}

static void hashes_of(const struct shms_packplace *places, uint32_t n, uint64_t *ret, void *arg)
{
	const struct shms_pack *p = arg;

	for (uint32_t i = 0; i < n; i++)
		if (shms_packseg_has(p, places[i]))
			__builtin_prefetch(
				shms_packseg_slot(&p->segments[places[i].segment], places[i].slot)
					.packed);
	for (uint32_t i = 0; i < n; i++)
		ret[i] = hash_of(p, places[i]);
}

void shms_pack_changing(struct shms_pack *p)
{
	if (!p->told.changes)
		return;
	atomic_store_explicit(p->told.changes,
			      atomic_load_explicit(p->told.changes, memory_order_relaxed) | 1,
			      memory_order_relaxed);
	/* A reader that sees a later change of a slot also sees this word. */
	shms_segword_fence();
}

void shms_pack_changed(struct shms_pack *p)
{
	if (p->told.changes)
		atomic_store_explicit(
			p->told.changes,
			(atomic_load_explicit(p->told.changes, memory_order_relaxed) | 1) + 1,
			memory_order_release);
}

/* Lines that others find as soon as they are published. False: there is no
 * room, or none may be taken. */
static bool shared_lines(struct shms_pack *p, uint32_t n, struct shms_packlines *ret)
{
	if (p->options.store_fd < 0 || !shms_seggrow_has(&p->grow, shms_packlines_cost(n)) ||
	    shms_packlines_file(p->options.store_fd, p->options.uuid, n, ret) < 0)
		return false;
	p->grow.taken += ret->bytes;
	SHMS_PACKSEGS_EACH(p, g)
		shms_packlines_segment(ret, shms_packseg_number(p, g), g->file->segment.uuid);
	return true;
}

/* Others find the index, if it is a file; or that there is none. Not while names are read. */
static void publish(struct shms_pack *p)
{
	if (p->opening || p->options.store_fd < 0)
		return;
	/* Without a name it serves its owner; and who else looks sees that there is none. */
	if (!p->lines.head || shms_packlines_publish(&p->lines, p->options.store_fd) < 0)
		(void)unlinkat(p->options.store_fd, SHMS_INDEX_FILE, 0);
}

void shms_pack_share(struct shms_pack *p)
{
	struct shms_packlines own = p->lines, shared;

	if (own.lines && shared_lines(p, own.n_lines, &shared)) {
		memcpy((void *)shared.lines, (const void *)own.lines,
		       own.n_lines * sizeof(*own.lines));
		p->lines = shared;
		p->index.lines = shared.lines;
		shms_packlines_close(&own);
	}
	publish(p);
}

static SHMS_ASIDE int grow_index(struct shms_pack *p, uint32_t n_lines)
{
	struct shms_packlines old = p->lines;
	int r = !p->opening && shared_lines(p, n_lines, &p->lines)
			? 0
			: shms_packlines_private(n_lines, &p->lines);

	if (r < 0) {
		p->lines = old;
		return r;
	}
	shms_packindex_move(&p->index, p->lines.lines, n_lines, hashes_of, p);
	p->grow.gave += old.bytes;
	shms_packlines_end(&old);
	publish(p);
	return 0;
}

int shms_pack_reserve(struct shms_pack *p)
{
	uint32_t n_lines = shms_packindex_wants(&p->index);

	return n_lines ? grow_index(p, n_lines) : 0;
}

/* ---- looking up ------------------------------------------------------------------------------ */

static SHMS_ASIDE bool is_long_key(const struct shms_packseg *g, const struct shms_segslot *slot,
				   const struct shms_packhashed *key)
{
	struct shms_segpacked o;

	return shms_segpacked_read(&g->file->segment, slot, &o) == 0 && o.key_size == key->size &&
	       memcmp(shms_segpacked_key(&g->file->segment, &o), key->key, key->size) == 0;
}

/* The slot has our name, so that its object does not change. */
static bool is_key(const struct shms_packplace *place, const struct shms_packhashed *key, void *arg)
{
	const struct shms_pack *p = arg;
	const struct shms_packseg *g;
	struct shms_segslot slot;
	uint64_t words[2];
	size_t size;

	if (!shms_packseg_has(p, *place))
		return false;
	g = &p->segments[place->segment];
	slot = shms_packseg_slot(g, place->slot);
	size = shms_segpacked_key_words(&slot, words);
	if (size != key->size)
		return false;
	if (size <= sizeof(words))
		return words[0] == key->words[0] && words[1] == key->words[1];
	return is_long_key(g, &slot, key);
}

bool shms_pack_find(struct shms_pack *p, const struct shms_packhashed *key,
		    struct shms_packplace *ret)
{
	return shms_packindex_find(&p->index, key, is_key, p, ret);
}

/* Hashes the key and finds it; neither, if it is the last one (packsegs.h). */
static bool seek(struct shms_pack *p, const void *key, size_t key_size,
		 struct shms_packhashed *ret_key, struct shms_packplace *ret)
{
	const struct shms_packlast *last = &p->last;

	if (key_size && key_size == last->size) {
		*ret_key =
			(struct shms_packhashed){.key = key, .size = key_size, .hash = last->hash};
		shms_packhash_pad(key, key_size, ret_key->words);
		if (ret_key->words[0] == last->words[0] && ret_key->words[1] == last->words[1]) {
			*ret = last->place;
			return true;
		}
	}
	*ret_key = shms_packhash(key, key_size);
	return shms_pack_find(p, ret_key, ret);
}

bool shms_pack_find_object(struct shms_pack *p, const void *key, size_t key_size,
			   struct shms_packplace *ret)
{
	struct shms_packhashed k;

	return seek(p, key, key_size, &k, ret);
}

int shms_pack_describe(struct shms_pack *p, struct shms_packplace place, struct shms_pack_view *ret)
{
	const struct shms_segment *g = &p->segments[place.segment].file->segment;
	struct shms_segslot slot = shms_segslot_at(g, place.slot);

	ret->pack = p;
	ret->segment = g;
	ret->slot = place.slot;
	ret->number = place.segment;
	ret->generation = shms_segstate_generation(shms_segword_load(slot.state));
	return shms_segpacked_read(g, &slot, &ret->object);
}

int shms_pack_view(struct shms_pack *p, struct shms_packplace place, struct shms_pack_view *ret)
{
	int r = shms_packviews_reserve(&p->views);

	if (r == 0)
		r = shms_pack_describe(p, place, ret);
	if (r == 0)
		shms_packseg_view(p, place);
	return r;
}

int shms_pack_get(struct shms_pack *p, const void *key, size_t key_size, struct shms_pack_view *ret)
{
	struct shms_packplace place;
	int r = -ENOENT;

	SHMS_LIGHT_HELD(&p->lock);
	if (shms_pack_find_object(p, key, key_size, &place))
		r = shms_pack_view(p, place, ret);
	if (r == 0)
		shms_packseg_use(&p->segments[place.segment], place.slot);
	return r;
}

/* The segment that the address is in; NULL: none of ours. */
static const struct shms_packseg *segment_at(const struct shms_pack *p, const uint8_t *at)
{
	SHMS_PACKSEGS_EACH(p, seg) {
		const struct shms_segment *g = &seg->file->segment;

		if (at >= g->bytes + g->shape.data_off && at < g->bytes + g->shape.size)
			return seg;
	}
	return NULL;
}

/* Views keep the slots that they show as they are. */
int shms_pack_at(struct shms_pack *p, const void *address, struct shms_pack_view *ret)
{
	const struct shms_packseg *seg;
	const struct shms_segment *g;
	struct shms_packplace place;
	uint32_t extent, n;

	SHMS_LIGHT_HELD(&p->lock);
	seg = segment_at(p, address);
	if (!seg)
		return -ENOENT;
	g = &seg->file->segment;
	extent = (uint32_t)((uint64_t)((const uint8_t *)address - g->bytes) / SHMS_SEGCLASS_ALIGN);
	n = shms_segment_born(g);
	place.segment = shms_packseg_number(p, seg);
	for (place.slot = 0; place.slot < n; place.slot++) {
		struct shms_segslot slot = shms_segslot_at(g, place.slot);

		if ((uint32_t)shms_segword_plain_load(&slot.packed[0]) == extent &&
		    shms_packviews_find(&p->views, place))
			return shms_pack_view(p, place, ret);
	}
	return -ENOENT;
}

/* The name is as good as its directory: the mapped file is the one with the slot. */
void *shms_pack_map(const struct shms_pack_view *v)
{
	const struct shms_packseg *g = &v->pack->segments[v->number];
	uint64_t into = v->object.extent_off % shms_host_page();
	_fd_ int fd = shms_packseg_open(v->pack, g);
	struct stat st;
	char *map;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_ino != g->file->inode)
		return NULL;
	/* Most of its pages are never written: they shall not count as promised memory. */
	map = mmap(NULL, v->object.buffer_size + into, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_NORESERVE, fd, (off_t)(v->object.extent_off - into));
	return map == MAP_FAILED ? NULL : map + into;
}

void shms_pack_unget(struct shms_pack *p, const struct shms_pack_view *v, uint64_t now_ms)
{
	/* The lock is none that a child of a retired pack's process could take. */
	if (p->child || atomic_load_explicit(&p->retired, memory_order_relaxed))
		return;
	SHMS_LIGHT_HELD(&p->lock);
	if (atomic_load_explicit(&p->retired, memory_order_relaxed))
		return;
	shms_packseg_unview(p, (struct shms_packplace){v->number, v->slot}, now_ms);
	shms_packseg_tidy(p, &p->segments[v->number], now_ms);
}

bool shms_pack_has(struct shms_pack *p, const void *key, size_t key_size)
{
	struct shms_packplace place;

	SHMS_LIGHT_HELD(&p->lock);
	return shms_pack_find_object(p, key, key_size, &place);
}

/* The view keeps its slot: while that has our name, it is that object's. */
bool shms_pack_is(struct shms_pack *p, const void *key, size_t key_size,
		  const struct shms_pack_view *v)
{
	struct shms_packplace place;
	struct shms_segslot slot;
	bool is;

	SHMS_LIGHT_HELD(&p->lock);
	is = shms_pack_find_object(p, key, key_size, &place) && place.segment == v->number &&
	     place.slot == v->slot;
	if (is) {
		slot = shms_packseg_slot(&p->segments[place.segment], place.slot);
		is = !((shms_segpacked_flags_of(&slot) ^ v->object.flags) & SHMS_SEGPACKED_PINNED);
	}
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

	return !shms_segpacked_checksum(o, extent, file.buffer_hash) ||
	       shms_format_verify_buffers(&file, extent);
}

uint64_t shms_pack_header_size(const struct shms_segpacked *o)
{
	return shms_layout_header(o->key_size, o->metadata_size, o->n_buffers, o->buffer_size);
}

/* ---- delete ---------------------------------------------------------------------------------- */

int shms_pack_delete(struct shms_pack *p, const void *key, size_t key_size, uint64_t now_ms,
		     uint64_t *ret_bytes)
{
	struct shms_packplace place;
	struct shms_packhashed k;
	int r = -ENOENT;

	SHMS_LIGHT_HELD(&p->lock);
	if (seek(p, key, key_size, &k, &place)) {
		shms_packindex_drop(&p->index, k.hash, place);
		p->last.size = 0;
		count_key(p, false);
		*ret_bytes = shms_pack_lose(p, place, now_ms);
		shms_packseg_tidy(p, &p->segments[place.segment], now_ms);
		r = 0;
	}
	shms_packsegs_tidy_next(p, now_ms);
	return r;
}
