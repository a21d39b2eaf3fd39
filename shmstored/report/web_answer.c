/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_answer.c: the paths, and the headers that keep other people's pages away.
 *
 * A loopback address is open to two kinds of strangers: other users of the host, who see what
 * socket.h and http.detail let them, and web pages in a browser of this host's. A page of
 * another origin may send a request but not read the answer: no CORS header is ever sent. A
 * page whose own name points to 127.0.0.1 (DNS rebinding) is of our origin for its browser: so
 * the Host header must be a loopback name where we listen on loopback only. Any port will do:
 * "ssh -L 8000:localhost:9477" changes it. Nothing can be changed by HTTP: GET and HEAD only,
 * so there is nothing to forge.
 */
#include <ctype.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "account.h"
#include "config.h"
#include "host.h"
#include "report.h"
#include "socket.h"

#define TYPE_JSON "application/json; charset=utf-8"
#define TYPE_HTML "text/html; charset=utf-8"
#define TYPE_TEXT "text/plain; charset=utf-8"

#define PLAIN (JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE)

struct request {
	const struct web_context *context;
	struct MHD_Connection *connection;
};

/* ---- responses ------------------------------------------------------------------------------- */

static enum MHD_Result queue(const struct request *r, unsigned status,
			     struct MHD_Response *response, const char *type)
{
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
	MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
	if (!MHD_get_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL))
		MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	result = MHD_queue_response(r->connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static struct MHD_Response *from_static(const char *text)
{
	return MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
					       MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result refuse(const struct request *r, unsigned status, const char *why)
{
	return queue(r, status, from_static(why), TYPE_TEXT);
}

/* Takes o over; NULL: no memory. */
static enum MHD_Result queue_json(const struct request *r, unsigned status, struct json_object *o)
{
	struct MHD_Response *response;
	size_t n = 0;
	const char *text = o ? json_object_to_json_string_length(o, PLAIN, &n) : NULL;

	if (!text) {
		json_object_put(o);
		return refuse(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	}
	response =
		MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
	json_object_put(o);
	return queue(r, status, response, TYPE_JSON);
}

static const char *header_of(const struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

static const char *argument_of(const struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}

/* ---- who asks -------------------------------------------------------------------------------- */

/* "localhost", "127.x.y.z" or "[::1]", with any port or none. */
static bool is_loopback_host(const char *host)
{
	char name[64];
	size_t n = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

	if (n >= sizeof(name) || n > strlen(host) || (host[n] != '\0' && host[n] != ':'))
		return false;
	memcpy(name, host, n);
	name[n] = '\0';
	if (strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0)
		return true;
	/* Digits and dots only: "127.0.0.1.example.org" is somebody's name. */
	return strncmp(name, "127.", 4) == 0 && strspn(name, "0123456789.") == n;
}

static bool host_is_ours(const struct request *r, const char *version)
{
	const char *host = header_of(r, MHD_HTTP_HEADER_HOST);

	if (!r->context->loopback)
		return true;
	if (!host) /* no browser: those speak 1.1 */
		return strcmp(version, MHD_HTTP_VERSION_1_0) == 0;
	return is_loopback_host(host);
}

/* As report_make()'s uid. */
static unsigned asker(const struct request *r)
{
	const struct config *config = r->context->host->config;
	const union MHD_ConnectionInfo *info;
	uid_t uid;

	if (config->http_detail == CONFIG_DETAIL_FULL)
		return REPORT_ALL;
	info = MHD_get_connection_info(r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	if (config->http_detail != CONFIG_DETAIL_USER || !r->context->peeruid || !info ||
	    !peeruid_find(r->context->peeruid, info->connect_fd, &uid))
		return REPORT_NOBODY;
	return uid == 0 || uid == geteuid() ? REPORT_ALL : uid;
}

/* ---- what there is --------------------------------------------------------------------------- */

static enum MHD_Result answer_page(const struct request *r)
{
	const char *known = header_of(r, MHD_HTTP_HEADER_IF_NONE_MATCH);
	bool same = known && strstr(known, web_page_etag);
	struct MHD_Response *response = MHD_create_response_from_buffer(
		same ? 0 : web_page_size, (void *)(uintptr_t)web_page, MHD_RESPMEM_PERSISTENT);

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
	MHD_add_response_header(response, MHD_HTTP_HEADER_ETAG, web_page_etag);
	MHD_add_response_header(response, "Content-Security-Policy", web_page_policy);
	MHD_add_response_header(response, "X-Frame-Options", "DENY");
	MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
	return queue(r, same ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, response, TYPE_HTML);
}

static enum MHD_Result answer_metrics(const struct request *r)
{
	const char *accept = header_of(r, MHD_HTTP_HEADER_ACCEPT);
	/* Only who says that it reads the older format and not the newer one gets the older one. */
	bool open = !accept || strstr(accept, "openmetrics") || !strstr(accept, "text/plain");
	struct MHD_Response *response;
	size_t n;
	char *text;

	if (metrics_make(r->context->host, r->context->lateness, asker(r), open, &text, &n) < 0)
		return refuse(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	response = MHD_create_response_from_buffer(n, text, MHD_RESPMEM_MUST_FREE);
	if (!response)
		free(text);
	else
		MHD_add_response_header(response, MHD_HTTP_HEADER_VARY, MHD_HTTP_HEADER_ACCEPT);
	return queue(r, MHD_HTTP_OK, response, open ? METRICS_TYPE_OPEN : METRICS_TYPE_PLAIN);
}

/* ?since=: an event's number, or a time in seconds. False: it makes no sense. */
static bool since_of(const struct request *r, enum wire_question what, uint64_t *ret)
{
	const char *text = argument_of(r, "since");
	char *end;
	double seconds;

	*ret = 0;
	if (!text || !*text)
		return true;
	errno = 0;
	if (what == WIRE_QUERY_HISTORY) {
		seconds = strtod(text, &end);
		if (*end || !isdigit((unsigned char)*text) || !(seconds < 1e10))
			return false;
		/* To the millisecond: rounding of the double must not change it. */
		*ret = (uint64_t)(seconds * 1000 + 0.5) * 1000000;
		return true;
	}
	*ret = strtoull(text, &end, 10);
	return !*end && isdigit((unsigned char)*text) && errno == 0;
}

static enum MHD_Result answer_api(const struct request *r, const char *name)
{
	enum wire_question what = report_question(name);
	const char *partition = argument_of(r, "partition");
	const struct account *a;
	struct host *h = r->context->host;
	uint64_t since;

	if (!what)
		return refuse(r, MHD_HTTP_NOT_FOUND,
			      "not found; there are status, workers, quota, holders, events, "
			      "history, arbiter, arb_log, memory, gate, stages, actors, "
			      "profiles\n");
	/* By its path as we tell it: account_find() would follow links to wherever the client
	 * likes. */
	for (a = h->accounts; a && partition && strcmp(a->path, partition) != 0;)
		a = a->next;
	if (partition && *partition && !a)
		return refuse(r, MHD_HTTP_NOT_FOUND, "the daemon does not watch this partition\n");
	if (!since_of(r, what, &since))
		return refuse(r, MHD_HTTP_BAD_REQUEST, "since: not a number\n");
	return queue_json(r, MHD_HTTP_OK,
			  report_make(h, what, a && partition ? a->path : NULL, asker(r), since));
}

bool web_has_body(struct MHD_Connection *connection, const char *method)
{
	const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
							 MHD_HTTP_HEADER_CONTENT_LENGTH);

	return (strcmp(method, MHD_HTTP_METHOD_GET) != 0 &&
		strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) ||
	       (length && strcmp(length, "0") != 0) ||
	       MHD_lookup_connection_value(connection, MHD_HEADER_KIND,
					   MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

enum MHD_Result web_answer(const struct web_context *c, struct MHD_Connection *connection,
			   const char *url, const char *method, const char *version)
{
	const struct request r = {.context = c, .connection = connection};
	static const char api[] = "/api/v1/";
	struct json_object *health;
	bool well;

	if (!host_is_ours(&r, version))
		return refuse(
			&r, MHD_HTTP_MISDIRECTED_REQUEST,
			"this address is for clients of the host itself: ask for localhost\n");
	if (web_has_body(connection, method)) {
		struct MHD_Response *response = from_static("GET and HEAD only, without a body\n");

		if (response)
			MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
		return queue(&r, MHD_HTTP_METHOD_NOT_ALLOWED, response, TYPE_TEXT);
	}
	if (strcmp(url, "/") == 0)
		return answer_page(&r);
	if (strcmp(url, "/metrics") == 0)
		return answer_metrics(&r);
	if (strcmp(url, "/healthz") == 0) {
		health = health_make(c->host, c->lateness, &well);
		return queue_json(&r, well ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, health);
	}
	if (strncmp(url, api, sizeof(api) - 1) == 0)
		return answer_api(&r, url + sizeof(api) - 1);
	return refuse(&r, MHD_HTTP_NOT_FOUND,
		      "not found; there are /, /metrics, /healthz, /api/v1/…\n");
}
