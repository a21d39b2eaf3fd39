/* SPDX-License-Identifier: Apache-2.0 */
/* keyname.c: see publish.h. */
#include <errno.h>
#include <shmstore/shmstore.h>
#include <string.h>

#include "detail.h"
#include "object.h"
#include "publish.h"
#include "sys.h"

int shms_keyname_key(struct shms_keyname *k, const void *key, size_t key_size)
{
	if (!key && key_size)
		return shms_detail_null("key");
	if (key_size > SHMSTORE_KEY_MAX)
		return shms_detail(-EINVAL, NULL, "a key has %u bytes at most, this one %zu",
				   SHMSTORE_KEY_MAX, key_size);
	k->instead = NULL;
	k->key = key;
	k->key_size = key_size;
	k->kind = SHMS_NAME_FOREIGN;
	k->name[0] = '\0';
	return 0;
}

void shms_keyname_name(struct shms_keyname *k)
{
	if (!k->name[0])
		k->kind = shms_name_encode(k->key, k->key_size, k->name);
}

int shms_keyname_init(struct shms_keyname *k, const void *key, size_t key_size)
{
	int r = shms_keyname_key(k, key, key_size);

	if (r == 0)
		shms_keyname_name(k);
	return r;
}

/* Is that entry the key's? 1, 0, -ENOENT (there is none), -errno. */
static int holds(int objects_fd, const char *name, const struct shms_keyname *k)
{
	unsigned char key[SHMSTORE_KEY_MAX];
	size_t size;
	int r;

	if (shms_lookup(objects_fd, name) < 0)
		return errno == ENOENT ? -ENOENT : shms_error(errno);
	r = shms_entry_key(objects_fd, name, NULL, key, &size);
	if (r == -EBADMSG || r == -ENOTSUP)
		return 1;
	if (r < 0)
		return r;
	return size == k->key_size && memcmp(key, k->key, size) == 0;
}

int shms_key_find(int objects_fd, struct shms_keyname *k)
{
	char second[SHMS_NAME_SIZE];
	int r;

	if (k->kind != SHMS_NAME_HASHED)
		return 1;
	shms_name_encode(k->key, k->key_size, k->name);
	r = holds(objects_fd, k->name, k);
	if (r != 0 && r != -ENOENT)
		return r;
	shms_name_second(k->key, k->key_size, second);
	if (shms_lookup(objects_fd, second) == 0) {
		memcpy(k->name, second, sizeof(second));
		return 1;
	}
	if (errno != ENOENT)
		return shms_error(errno);
	/* The usual name where that is free. */
	if (r == 0)
		memcpy(k->name, second, sizeof(second));
	return 0;
}
