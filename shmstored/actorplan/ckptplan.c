/* SPDX-License-Identifier: Apache-2.0 */
/* ckptplan.c: the choice of peers, and a period's sends. */
#include "ckptplan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct ckpt_config ckpt_defaults = {
	.num = {.k = 1, .text = "explicit:1"},
	.selection = CKPT_RESOURCE,
	.strategy = CKPT_ROUND_ROBIN,
	.frequency_ms = 5000,
	.retry = 3,
};

static bool read_number(const char *text, size_t n, uint64_t most, uint64_t *ret)
{
	uint64_t value = 0;

	for (size_t i = 0; i < n; i++)
		if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
			return false;
	*ret = value;
	return n > 0 && value <= most;
}

static bool is(const char *text, size_t n, const char *word)
{
	return n == strlen(word) && !memcmp(text, word, n);
}

/* "0.5", "3", "max", up to the comma. */
static bool read_amount(const char *text, size_t n, struct ckpt_num *num)
{
	char word[32];

	if (is(text, n, "max") || is(text, n, "all")) {
		num->all = true;
		return true;
	}
	if (!num->share)
		return read_number(text, n, UINT32_MAX, &num->k);
	if (n >= sizeof(word))
		return false;
	memcpy(word, text, n);
	word[n] = 0;
	return ratio_parse(word, &num->of) && ratio_compare(num->of, RATIO(1, 1)) <= 0;
}

static bool read_more(const char *text, size_t n, struct ckpt_num *num)
{
	if (n > 4 && !memcmp(text, "min=", 4))
		return read_number(text + 4, n - 4, UINT32_MAX, &num->min);
	if (!is(text, n, "short=panic") && !is(text, n, "short=max"))
		return false;
	num->panic = is(text, n, "short=panic");
	return true;
}

bool ckpt_num_read(const char *text, struct ckpt_num *ret)
{
	struct ckpt_num num = {.share = !strncmp(text, "frac:", 5), .of = RATIO(0, 1)};
	size_t n;

	if ((!num.share && strncmp(text, "explicit:", 9) != 0) || strlen(text) > CKPT_NUM)
		return false;
	memcpy(num.text, text, strlen(text));
	text += num.share ? 5 : 9;
	n = strcspn(text, ",");
	if (!read_amount(text, n, &num))
		return false;
	while (text[n]) {
		text += n + 1;
		n = strcspn(text, ",");
		if (!read_more(text, n, &num))
			return false;
	}
	*ret = num;
	return true;
}

/* The number that was asked for, even if there are fewer peers. */
static uint64_t ckpt_num_wanted(const struct ckpt_num *num, size_t n_peers)
{
	uint64_t k = num->all     ? n_peers
		     : num->share ? (uint64_t)ratio_ceil(num->of, (int64_t)n_peers)
				  : num->k;

	return k > num->min ? k : num->min;
}

int64_t ckpt_num_of(const struct ckpt_num *num, size_t n_peers)
{
	uint64_t k = ckpt_num_wanted(num, n_peers);

	if (k <= n_peers)
		return (int64_t)k;
	return num->panic ? -1 : (int64_t)n_peers;
}

/* Most free first, then by name. */
static bool better(const struct ckpt_peer *a, const struct ckpt_peer *b)
{
	return a->free != b->free ? a->free > b->free : strcmp(a->name, b->name) < 0;
}

static void choose_by_room(const struct ckpt_config *config, const struct ckpt_peer *peers,
			   size_t n, uint64_t bytes, size_t k, struct ckpt_choice *c)
{
	bool taken[CKPT_PEERS] = {false};
	uint64_t need;

	if (__builtin_add_overflow(bytes, config->reserve, &need))
		return;
	while (c->n < k) {
		size_t best = n;

		for (size_t i = 0; i < n; i++)
			if (!taken[i] && peers[i].free >= need &&
			    (best == n || better(&peers[i], &peers[best])))
				best = i;
		if (best == n)
			return;
		taken[best] = true;
		c->of[c->n++] = (uint16_t)best;
	}
}

/* Each of the list's that is there, once. */
static void choose_fixed(const char *list, const struct ckpt_peer *peers, size_t n, size_t k,
			 struct ckpt_choice *c)
{
	bool taken[CKPT_PEERS] = {false};

	while (list && *list && c->n < k) {
		size_t length = strcspn(list, ",");

		for (size_t i = 0; i < n; i++)
			if (!taken[i] && is(list, length, peers[i].name)) {
				taken[i] = true;
				c->of[c->n++] = (uint16_t)i;
				break;
			}
		list += length + (list[length] == ',');
	}
}

static uint64_t draw(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void choose_random(uint64_t seed, size_t n, size_t k, struct ckpt_choice *c)
{
	uint16_t left[CKPT_PEERS];

	for (size_t i = 0; i < n; i++)
		left[i] = (uint16_t)i;
	while (c->n < k && n) {
		size_t i = (size_t)(draw(&seed) % n);

		c->of[c->n++] = left[i];
		left[i] = left[--n];
	}
}

/* n <= CKPT_PEERS. false: too few, and that is an error. */
static bool ckpt_choose(const struct ckpt_config *config, const struct ckpt_peer *peers, size_t n,
			uint64_t bytes, struct ckpt_choice *ret)
{
	int64_t k = ckpt_num_of(&config->num, n);

	*ret = (struct ckpt_choice){.n = 0};
	if (k < 0)
		return false;
	if (config->selection == CKPT_RESOURCE)
		choose_by_room(config, peers, n, bytes, (size_t)k, ret);
	else if (config->selection == CKPT_FIXED)
		choose_fixed(config->fixed, peers, n, (size_t)k, ret);
	else
		choose_random(config->seed, n, (size_t)k, ret);
	ret->degraded = ret->n < ckpt_num_wanted(&config->num, n);
	return true;
}

const struct ckpt_peer *ckpt_destination(const struct ckpt_peer *peers, size_t n, uint64_t bytes)
{
	const struct ckpt_peer *best = NULL;

	for (size_t i = 0; i < n; i++)
		if (peers[i].free >= bytes && (!best || better(&peers[i], best)))
			best = &peers[i];
	return best;
}

int ckpt_cast_begin(struct ckpt_cast *c, const struct ckpt_peer *peers, size_t n, uint64_t version,
		    uint64_t bytes, uint64_t now_ms)
{
	c->next_ms = now_ms > UINT64_MAX - c->config.frequency_ms ? UINT64_MAX
								  : now_ms + c->config.frequency_ms;
	c->n_missed = c->n_tried = 0;
	c->at = c->end = 0;
	if (version == c->sent_version)
		return 0;
	if (!ckpt_choose(&c->config, peers, n, bytes, &c->choice))
		return -1;
	c->version = version;
	c->end = c->choice.n;
	if (c->config.strategy == CKPT_ROUND_ROBIN && c->choice.n) {
		c->at = (size_t)(c->n_periods % c->choice.n);
		c->end = c->at + 1;
	}
	c->n_periods++;
	c->config.seed++;
	return 1;
}

bool ckpt_cast_next(const struct ckpt_cast *c, size_t *ret)
{
	if (c->at == c->end)
		return false;
	*ret = c->choice.of[c->at];
	return true;
}

bool ckpt_cast_result(struct ckpt_cast *c, bool ok)
{
	c->n_tried++;
	if (!ok && c->n_tried <= c->config.retry)
		return false;
	/* A version that no peer took is sent again in the next period. */
	if (ok)
		c->sent_version = c->version;
	c->n_missed += !ok;
	c->n_tried = 0;
	c->at++;
	return true;
}

bool ckptbook_add(struct ckptbook *b, const char *peer, uint64_t version, uint64_t bytes)
{
	struct ckpt_copy *c = NULL;

	for (size_t i = 0; i < b->n && !c; i++) /* a short list; its order means nothing */
		if (!strcmp(b->copies[i].peer, peer))
			c = &b->copies[i];
	if (strlen(peer) > CKPT_NAME || (!c && b->n == CKPT_PEERS))
		return false;
	if (c && c->version > version)
		return true;
	if (!c) {
		c = &b->copies[b->n++];
		*c = (struct ckpt_copy){.version = version};
		memcpy(c->peer, peer, strlen(peer));
	}
	c->version = version;
	c->bytes = bytes;
	return true;
}

static const struct ckpt_peer *peer_of(const struct ckpt_copy *c, const struct ckpt_peer *peers,
				       size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(peers[i].name, c->peer))
			return &peers[i];
	return NULL;
}

const struct ckpt_copy *ckptbook_recover(const struct ckptbook *b, const struct ckpt_peer *peers,
					 size_t n)
{
	const struct ckpt_copy *best = NULL;
	const struct ckpt_peer *best_peer = NULL;

	for (size_t i = 0; i < b->n; i++) {
		const struct ckpt_copy *c = &b->copies[i];
		const struct ckpt_peer *p = peer_of(c, peers, n);

		if (p && (!best || c->version > best->version ||
			  (c->version == best->version && better(p, best_peer)))) {
			best = c;
			best_peer = p;
		}
	}
	return best;
}

static const char *const names[] = {
	[CKPT_NEVER] = "never",
	[CKPT_ALWAYS] = "always",
	[CKPT_TIMEOUT] = "timeout:",
	[CKPT_MAXAGE] = "maxage:",
};

bool ckpt_stale_read(const char *text, struct ckpt_stale *ret)
{
	for (enum ckpt_stale_policy p = CKPT_NEVER; p <= CKPT_MAXAGE; p++) {
		struct ckpt_stale s = {.policy = p};
		size_t n = strlen(names[p]);

		if (strncmp(text, names[p], n) != 0 ||
		    !(p < CKPT_TIMEOUT
			      ? !text[n]
			      : read_number(text + n, strlen(text + n), UINT64_MAX, &s.ms)))
			continue;
		*ret = s;
		return true;
	}
	return false;
}

void ckpt_stale_write(const struct ckpt_stale *s, char ret[CKPT_STALE_MAX])
{
	if (s->policy < CKPT_TIMEOUT)
		snprintf(ret, CKPT_STALE_MAX, "%s", names[s->policy]);
	else
		snprintf(ret, CKPT_STALE_MAX, "%s%" PRIu64, names[s->policy], s->ms);
}

static enum ckpt_use use(enum ckpt_use what, uint64_t delay_ms, uint64_t *ret_delay_ms)
{
	*ret_delay_ms = delay_ms;
	return what;
}

enum ckpt_use ckpt_stale_use(const struct ckpt_stale *s, uint64_t last_age_ms,
			     uint64_t fresh_takes_ms, uint64_t *ret_delay_ms)
{
	bool stale = last_age_ms != CKPT_NONE, fresh = fresh_takes_ms != CKPT_NONE;

	if (stale && s->policy == CKPT_ALWAYS)
		return use(CKPT_USE_STALE, 0, ret_delay_ms);
	if (stale && s->policy == CKPT_MAXAGE && last_age_ms < s->ms)
		return use(CKPT_USE_STALE, 0, ret_delay_ms);
	if (stale && s->policy == CKPT_TIMEOUT && (!fresh || fresh_takes_ms > s->ms))
		return use(CKPT_USE_STALE, s->ms, ret_delay_ms);
	if (fresh)
		return use(CKPT_USE_FRESH, fresh_takes_ms, ret_delay_ms);
	return use(CKPT_USE_NOTHING, 0, ret_delay_ms);
}
