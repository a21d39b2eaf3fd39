/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.c: reads a file whole and cuts it into lines of words.
 *
 * The words of a line lie in a copy of it, one after the other, and the array of their addresses
 * before them: one allocation for each line. The meaning of a line is the format's business; the
 * only error here is a line that cannot be cut into words. Rejected: reading line by line, because
 * loops go back.
 */
#include "script.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRIPT_MAX (64u << 20) /* bytes of a file: what is larger is none of ours */

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static int read_all(int fd, char **ret, size_t *ret_n)
{
	size_t size = 0, n = 0;
	char *bytes = NULL;

	for (;;) {
		ssize_t r;

		if (n + 1 >= size) {
			char *more;

			size = size ? 2 * size : 65536;
			if (size > 2 * SCRIPT_MAX)
				break;
			more = realloc(bytes, size);
			if (!more)
				break;
			bytes = more;
		}
		r = read(fd, bytes + n, size - n - 1);
		if (r == 0) {
			bytes[n] = 0;
			*ret = bytes;
			*ret_n = n;
			return 0;
		}
		if (r < 0 && errno != EINTR) {
			int err = -errno;

			free(bytes);
			return err;
		}
		n += r > 0 ? (size_t)r : 0;
	}
	free(bytes);
	return size > 2 * SCRIPT_MAX ? -EFBIG : -ENOMEM;
}

/* Ends the line where its comment begins; quotes protect. */
static void cut_comment(char *text, bool quotes)
{
	bool quoted = false;

	for (char *c = text; *c; c++) {
		quoted ^= quotes && *c == '"';
		if (*c == '#' && !quoted && (c == text || is_blank(c[-1]))) {
			*c = 0;
			return;
		}
	}
}

static char *trimmed(char *text)
{
	size_t n;

	while (is_blank(*text))
		text++;
	n = strlen(text);
	while (n && is_blank(text[n - 1]))
		text[--n] = 0;
	return text;
}

/* The next word of what is left, ended by a 0; *at goes behind it. NULL: no more. */
static char *next_word(char **at, bool quotes, const char **bad)
{
	char *word, *c = *at;

	while (is_blank(*c))
		c++;
	if (!*c)
		return NULL;
	word = c;
	if (quotes && *c == '"') {
		word = ++c;
		while (*c && *c != '"')
			c++;
		if (!*c)
			*bad = "a quote that does not end";
		else if (c[1] && !is_blank(c[1]))
			*bad = "a quote that ends within a word";
	} else {
		while (*c && !is_blank(*c))
			c++;
	}
	if (*c)
		*c++ = 0;
	*at = c;
	return word;
}

static int cut_words(struct script_line *l, bool quotes)
{
	size_t n = strlen(l->text), room = n / 2 + 1;
	char *copy, *at, *word;

	l->words = malloc(room * sizeof(char *) + n + 1);
	if (!l->words)
		return -ENOMEM;
	copy = (char *)(l->words + room);
	memcpy(copy, l->text, n + 1);
	for (at = copy; (word = next_word(&at, quotes, &l->bad)) != NULL;)
		l->words[l->n_words++] = word;
	return 0;
}

int script_cut(struct script *s, bool quotes)
{
	size_t n = s->size, size = 1, length;
	unsigned number = 0;

	for (size_t i = 0; i < n; i++)
		size += s->bytes[i] == '\n';
	s->lines = calloc(size, sizeof(*s->lines));
	if (!s->lines)
		return -ENOMEM;
	for (char *c = s->bytes, *end; c < s->bytes + n; c = end + 1) {
		struct script_line *l = &s->lines[s->n_lines];

		end = memchr(c, '\n', (size_t)(s->bytes + n - c));
		if (!end)
			end = s->bytes + n;
		*end = 0;
		length = strlen(c);
		l->number = ++number;
		if (c + length != end)
			l->bad = "a zero byte";
		cut_comment(c, quotes);
		l->text = trimmed(c);
		if (!*l->text && !l->bad)
			continue;
		if (cut_words(l, quotes) < 0)
			return -ENOMEM;
		s->n_lines++;
	}
	return 0;
}

bool script_begins(const struct script *s, const char *word)
{
	const char *c = s->bytes, *end = s->bytes + s->size;
	size_t n = strlen(word);

	while (c < end && (is_blank(*c) || *c == '\n' || *c == '#'))
		if (*c++ == '#')
			while (c < end && *c != '\n')
				c++;
	return (size_t)(end - c) >= n && !memcmp(c, word, n) &&
	       (c + n == end || is_blank(c[n]) || c[n] == '\n');
}

int script_read(struct script *s, const char *path)
{
	struct stat st;
	int fd, err;

	*s = (struct script){.path = path};
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = fstat(fd, &st) < 0    ? -errno
	      : S_ISDIR(st.st_mode) ? -EISDIR
				    : read_all(fd, &s->bytes, &s->size);
	close(fd);
	if (err < 0)
		script_deinit(s);
	return err;
}

void script_deinit(struct script *s)
{
	for (size_t i = 0; i < s->n_lines; i++)
		free(s->lines[i].words);
	free(s->lines);
	free(s->bytes);
	*s = SCRIPT_NULL;
}

bool script_bytes(const char *word, uint64_t *ret)
{
	static const char suffixes[] = "KMGT";
	unsigned shift = 0;
	const char *suffix;
	uint64_t n;
	char *end;

	if (*word < '0' || *word > '9')
		return false;
	errno = 0;
	n = strtoull(word, &end, 10);
	if (errno)
		return false;
	suffix = *end ? strchr(suffixes, *end) : NULL;
	if (suffix) {
		shift = 10 * (unsigned)(suffix - suffixes + 1);
		end++;
	}
	if (*end || n > UINT64_MAX >> shift)
		return false;
	*ret = n << shift;
	return true;
}

bool script_integer(const char *word, int64_t *ret)
{
	int64_t n;
	char *end;

	if ((*word < '0' || *word > '9') && (*word != '-' || word[1] < '0' || word[1] > '9'))
		return false;
	errno = 0;
	n = strtoll(word, &end, 10);
	if (errno || *end)
		return false;
	*ret = n;
	return true;
}
