// The cheapest upstream: one canned answer for each complete request.
//
// It understands only what the load sends: request heads up to 64 KiB and Content-Length bodies, but no chunked
// request bodies. It always keeps connections alive.
//
// With `pages` the body is in pages of the kernel and is sent by sendfile, as from a file. With @FILE the body is that
// of the file.
//
// usage: answer PORT BODY_BYTES|@FILE [pages]
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 512, FDS = 1 << 16, HEAD = 65536 };

// What to expect on a connection: body bytes to skip, or the rest of a head.
static struct conn { size_t skip, have; char *part; } conns[FDS];
static char buf[2 * HEAD + 1];
static char *answer;
static size_t answer_len;
static int one = 1, pages = -1;
static size_t head_len;

static void drop(int fd) {
  free(conns[fd].part);
  conns[fd] = (struct conn){0};
  close(fd);
}

static void reply(int fd) {
  if (pages < 0) {
    send(fd, answer, answer_len, MSG_NOSIGNAL);
    return;
  }
  off_t at = head_len;
  send(fd, answer, head_len, MSG_NOSIGNAL | MSG_MORE);
  sendfile(fd, pages, &at, answer_len - head_len);
}

static size_t body_of(char *head, char *end) {
  *end = 0;
  char *f = strcasestr(head, "\r\ncontent-length:");
  *end = '\r';
  return f ? strtoull(f + 17, 0, 10) : 0;
}

// Answers every request that is complete in buf[0..n); keeps what is left of an incomplete one.
static void serve(int fd, size_t n) {
  struct conn *c = &conns[fd];
  char *p = buf, *stop = buf + n;
  *stop = 0;
  for (;;) {
    if (c->skip) {
      size_t k = c->skip < (size_t)(stop - p) ? c->skip : (size_t)(stop - p);
      p += k;
      if (c->skip -= k) return;
      reply(fd);
    }
    char *end = strstr(p, "\r\n\r\n");
    if (!end) break;
    c->skip = body_of(p, end);
    p = end + 4;
    if (!c->skip) reply(fd);
  }
  if (p == stop) return;
  if ((c->have = stop - p) > HEAD) { drop(fd); return; }
  if (!c->part) c->part = malloc(HEAD);
  memcpy(c->part, p, c->have);
}

int main(int argc, char **argv) {
  if (argc < 3) return fprintf(stderr, "usage: answer PORT BODY_BYTES|@FILE [pages]\n"), 2;
  FILE *file = argv[2][0] == '@' ? fopen(argv[2] + 1, "r") : 0;
  if (argv[2][0] == '@' && !file) return perror(argv[2] + 1), 1;
  int body = atoi(argv[2]);
  if (file) fseek(file, 0, SEEK_END), body = ftell(file), rewind(file);
  answer = malloc(body + 512);
  // The start time: to a cache, an old date means an old answer.
  char date[64];
  time_t now = time(0);
  strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime(&now));
  answer_len = sprintf(answer,
                       "HTTP/1.1 200 OK\r\nServer: answer\r\nDate: %s\r\n"
                       "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", date, body);
  head_len = answer_len;
  memset(answer + answer_len, 'x', body);
  if (file && fread(answer + answer_len, 1, body, file) != (size_t)body) return perror(argv[2] + 1), 1;
  answer_len += body;
  if (argc > 3 && !strcmp(argv[3], "pages")) {
    pages = memfd_create("answer", MFD_CLOEXEC);
    if (pages < 0 || write(pages, answer, answer_len) != (ssize_t)answer_len) return perror("memfd"), 1;
  }
  struct sockaddr_in la = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(l, (void *)&la, sizeof la) || listen(l, 4096)) return perror("listen"), 1;
  int ep = epoll_create1(0);
  struct epoll_event ev = {.events = EPOLLIN, .data.fd = l}, evs[EVENTS];
  epoll_ctl(ep, EPOLL_CTL_ADD, l, &ev);
  for (;;) {
    int n = epoll_wait(ep, evs, EVENTS, -1);
    for (int i = 0; i < n; i++) {
      int fd = evs[i].data.fd;
      if (fd == l) {
        int c;
        while ((c = accept4(l, 0, 0, SOCK_NONBLOCK)) >= 0) {
          if (c >= FDS) { close(c); continue; }
          setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          struct epoll_event e = {.events = EPOLLIN, .data.fd = c};
          epoll_ctl(ep, EPOLL_CTL_ADD, c, &e);
        }
        continue;
      }
      size_t kept = conns[fd].have;
      if (kept) memcpy(buf, conns[fd].part, kept);
      ssize_t r = recv(fd, buf + kept, HEAD, MSG_DONTWAIT);
      if (r < 0 && errno == EAGAIN) continue;
      if (r <= 0) { drop(fd); continue; }
      conns[fd].have = 0;
      serve(fd, kept + r);
    }
  }
}
