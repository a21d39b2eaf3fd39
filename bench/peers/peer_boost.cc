/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer_boost.cc: Boost.Interprocess managed_mapped_file on the same tmpfs as ours: allocate in the
 * segment, copy, send the handle. Both sides keep the segment mapped for ever; nothing survives a
 * crash in its allocator's lock.
 */
#include <boost/interprocess/managed_mapped_file.hpp>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "measure.h"
#include "peer.h"

namespace ipc = boost::interprocess;

namespace
{
struct boost_state {
	char path[128];
	ipc::managed_mapped_file *segment;
	void *block;
};

struct boost_message {
	ipc::managed_mapped_file::handle_t handle;
	std::size_t size;
};

const std::size_t segment_size = 4ul * PEER_SIZE_MAX;

int prepare(struct peer_run *run)
{
	boost_state *s = new boost_state();

	if (place_path(run->place, "boost", s->path, sizeof(s->path)) < 0)
		return peer_refuse(run, -ENAMETOOLONG, "path too long");
	run->state = s;
	try {
		s->segment = new ipc::managed_mapped_file(ipc::create_only, s->path, segment_size);
	} catch (const ipc::interprocess_exception &e) {
		return peer_refuse(run, -EIO, "%s: %s", s->path, e.what());
	}
	return 0;
}

int open_consumer(struct peer_run *run)
{
	boost_state *s = static_cast<boost_state *>(run->state);

	try {
		s->segment = new ipc::managed_mapped_file(ipc::open_only, s->path);
	} catch (const ipc::interprocess_exception &) {
		return -EIO;
	}
	return 0;
}

int put(struct peer_run *run, const void *data, size_t size, struct peer_message *m)
{
	boost_state *s = static_cast<boost_state *>(run->state);
	boost_message message;

	s->block = s->segment->allocate(size, std::nothrow);
	if (!s->block)
		return -ENOMEM;
	std::memcpy(s->block, data, size);
	message.handle = s->segment->get_handle_from_address(s->block);
	message.size = size;
	std::memcpy(m->bytes, &message, sizeof(message));
	m->size = sizeof(message);
	return 0;
}

int take(struct peer_run *run, const void *bytes, size_t size, int fd)
{
	boost_state *s = static_cast<boost_state *>(run->state);
	boost_message message;

	(void)fd;
	if (size != sizeof(message))
		return -EINVAL;
	std::memcpy(&message, bytes, sizeof(message));
	measure_touch(s->segment->get_address_from_handle(message.handle), message.size);
	return 0;
}

int drop(struct peer_run *run)
{
	boost_state *s = static_cast<boost_state *>(run->state);

	s->segment->deallocate(s->block);
	return 0;
}

/* A block without a constructor's work, so that construct() only names its memory. */
struct unit {
	char bytes[64];
	unit()
	{
	}
};

int put_at(struct peer_run *run, unsigned i, const void *data, size_t size)
{
	boost_state *s = static_cast<boost_state *>(run->state);
	char key[PEER_KEY];
	unit *to;

	peer_key(i, key);
	to = s->segment->construct<unit>(
		key, std::nothrow)[(size + sizeof(unit) - 1) / sizeof(unit)]();
	if (!to)
		return -ENOMEM;
	std::memcpy(to->bytes, data, size);
	return 0;
}

int get_at(struct peer_run *run, unsigned i)
{
	boost_state *s = static_cast<boost_state *>(run->state);
	char key[PEER_KEY];

	peer_key(i, key);
	const std::pair<unit *, std::size_t> found = s->segment->find<unit>(key);
	if (!found.first)
		return -ENOENT;
	measure_touch(found.first, found.second * sizeof(unit));
	return 0;
}

int delete_at(struct peer_run *run, unsigned i)
{
	boost_state *s = static_cast<boost_state *>(run->state);
	char key[PEER_KEY];

	peer_key(i, key);
	return s->segment->destroy<unit>(key) ? 0 : -ENOENT;
}

void finish(struct peer_run *run)
{
	boost_state *s = static_cast<boost_state *>(run->state);

	if (s) {
		delete s->segment;
		unlink(s->path);
	}
	delete s;
	run->state = nullptr;
}
} // namespace

extern "C" const struct peer peer_boost = {
	prepare, open_consumer, nullptr, put,    nullptr,   take,    drop,
	finish,  0,             put_at,  get_at, delete_at, nullptr, nullptr,
};
