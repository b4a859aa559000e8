// Copyright The Muster Authors. SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE
#include "hand.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

// at opens a socket and gives it to f with the address of the path. The
// address has room for few bytes: the folder is named by a descriptor.
static int at(const char *path, int (*f)(int, const struct sockaddr *, socklen_t)) {
	char folder[PATH_MAX], name[PATH_MAX];
	snprintf(folder, sizeof folder, "%s", path);
	snprintf(name, sizeof name, "%s", path);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int dir = open(dirname(folder), O_PATH | O_DIRECTORY | O_CLOEXEC);
	int s = dir < 0 ? -1 : socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s >= 0) {
		snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%.80s", dir, basename(name));
		if (f(s, (struct sockaddr *)&a, sizeof a)) {
			int why = errno;
			close(s);
			errno = why, s = -1;
		}
	}
	int why = errno;
	if (dir >= 0)
		close(dir);
	errno = why;
	return s;
}

int hand_connect(const char *path) { return at(path, connect); }

int hand_listen(const char *path) {
	unlink(path);
	// The process may run as another user than the ghost; who connects is asked for its ID.
	mode_t before = umask(0);
	int s = at(path, bind);
	umask(before);
	if (s >= 0 && listen(s, 4)) {
		close(s);
		return -1;
	}
	return s;
}

static size_t size_of(const struct hand_message *m) {
	size_t each = m->kind == HAND_BLOCKS ? sizeof *m->block : m->kind == HAND_RANGES ? sizeof *m->range : 0;
	return offsetof(struct hand_message, block) + m->count * each;
}

int hand_send(int socket, const struct hand_message *m) {
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(hand_most * sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)m, size_of(m)};
	struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1};
	if (m->kind == HAND_BLOCKS) {
		h.msg_control = &control, h.msg_controllen = CMSG_SPACE(m->count * sizeof(int));
		struct cmsghdr *c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(m->count * sizeof(int));
		for (uint32_t i = 0; i < m->count; i++)
			memcpy(CMSG_DATA(c) + i * sizeof(int), &m->block[i].fd, sizeof(int));
	}
	ssize_t n;
	do
		n = sendmsg(socket, &h, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)part.iov_len;
}

int hand_tell(int socket, uint32_t kind, uint64_t value) {
	struct hand_message m = {.kind = kind, .value = value};
	return hand_send(socket, &m);
}

int hand_receive(int socket, struct hand_message *m, int milliseconds) {
	struct pollfd ready = {.fd = socket, .events = POLLIN};
	int some;
	do
		some = poll(&ready, 1, milliseconds);
	while (some < 0 && errno == EINTR);
	if (some <= 0)
		return 0;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(hand_most * sizeof(int))];
	} control = {0};
	struct iovec part = {m, sizeof *m};
	struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n = recvmsg(socket, &h, MSG_CMSG_CLOEXEC);
	if (n <= 0)
		return 0;
	int fds[hand_most];
	uint32_t count = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) && count < hand_most; i++)
				memcpy(&fds[count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	int whole = !(h.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) && n >= (ssize_t)offsetof(struct hand_message, block) && m->count <= hand_most &&
		(size_t)n == size_of(m) && count == (m->kind == HAND_BLOCKS ? m->count : 0);
	for (uint32_t i = 0; i < count; i++)
		if (whole)
			m->block[i].fd = fds[i];
		else
			close(fds[i]);
	return whole;
}
